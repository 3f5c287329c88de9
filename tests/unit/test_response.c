/* gateway/response: answers of servers inside, whole, byte by byte, and cut off anywhere. */
#include "gateway/response.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>

static struct strbuf heard; /* "STATUS name=value … |" then the body */
static struct response *now;

static void on_head(void *owner)
{
    (void)owner;
    const char *name, *value;
    (void)strbuf_addf(&heard, "%d", response_status(now));
    for (size_t at = 0; response_header(now, &at, &name, &value);)
        (void)strbuf_addf(&heard, " %s=%s", name, value);
    (void)strbuf_adds(&heard, "|");
}

static void on_body(void *owner, const char *bytes, size_t n)
{
    (void)owner;
    (void)strbuf_add(&heard, bytes, n);
}

static const struct response_events events = {.on_head = on_head, .on_body = on_body};

/* Feed the text in pieces of `step` bytes; `closes`: then the connection ends. What is left of it
 * is in *left. */
static enum response_state feed(const char *text, size_t n, size_t step, bool is_of_head,
                                bool may_upgrade, bool closes, size_t *left)
{
    struct response r;
    size_t used = 0;
    now = &r;
    strbuf_clear(&heard);
    response_init(&r, is_of_head, may_upgrade, &events, NULL);
    size_t at = 0;
    while (at < n && r.state < RESPONSE_DONE) {
        size_t k = n - at < step ? n - at : step;
        (void)response_take(&r, text + at, k, &used);
        at += used;
        if (used < k)
            break;
    }
    *left = n - at;
    enum response_state state = closes ? response_end(&r) : r.state;
    response_free(&r);
    return state;
}

static const struct {
    const char *what, *text, *want;
    enum response_state state, closed; /* before and after the connection's end */
    bool is_of_head, may_upgrade;
    size_t left;
} rows[] = {
    {"length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello",
     "200 Content-Length=5 X=y|hello", RESPONSE_DONE, RESPONSE_DONE, false, false, 0},
    {"behind it", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nhello", "200 Content-Length=1|h",
     RESPONSE_DONE, RESPONSE_DONE, false, false, 4},
    {"chunks",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\nT: "
     "1\r\n\r\n",
     "200 Transfer-Encoding=chunked|abcde", RESPONSE_DONE, RESPONSE_DONE, false, false, 0},
    {"until close", "HTTP/1.0 200 OK\r\n\r\nsome", "200|some", RESPONSE_BODY, RESPONSE_DONE, false,
     false, 0},
    {"interim",
     "HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 404 "
     "No\r\nContent-Length: 0\r\n\r\n",
     "404 Content-Length=0|", RESPONSE_DONE, RESPONSE_DONE, false, false, 0},
    {"head", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", "200 Content-Length=500|",
     RESPONSE_DONE, RESPONSE_DONE, true, false, 0},
    {"304 with a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
     "304 Content-Length=7|", RESPONSE_DONE, RESPONSE_DONE, false, false, 0},
    {"204", "HTTP/1.1 204 No Content\r\n\r\n", "204|", RESPONSE_DONE, RESPONSE_DONE, false, false,
     0},
    {"upgrade header, no upgrade",
     "HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nbody",
     "200 Upgrade=h2c Connection=Upgrade|body", RESPONSE_BODY, RESPONSE_DONE, false, false, 0},
    {"101", "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x01z",
     "101 Upgrade=websocket Connection=Upgrade|", RESPONSE_UPGRADED, RESPONSE_UPGRADED, false, true,
     3},
    {"101 unasked", "HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "", RESPONSE_BAD,
     RESPONSE_BAD, false, false, 1},
    {"too short", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "200 Content-Length=9|hello",
     RESPONSE_BODY, RESPONSE_BAD, false, false, 0},
    {"chunks cut off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
     "200 Transfer-Encoding=chunked|ab", RESPONSE_BODY, RESPONSE_BAD, false, false, 0},
    {"nothing", "", "", RESPONSE_HEAD, RESPONSE_BAD, false, false, 0},
    {"no HTTP", "SSH-2.0-OpenSSH_9.2\r\n", "", RESPONSE_BAD, RESPONSE_BAD, false, false, 1},
    {"both framings", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
     "", RESPONSE_BAD, RESPONSE_BAD, false, false, 1},
    {"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "",
     RESPONSE_BAD, RESPONSE_BAD, false, false, 1},
};

static void check_rows(size_t step)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n = strlen(rows[i].text);
        size_t left;
        enum response_state open =
            feed(rows[i].text, n, step, rows[i].is_of_head, rows[i].may_upgrade, false, &left);
        enum response_state closed =
            feed(rows[i].text, n, step, rows[i].is_of_head, rows[i].may_upgrade, true, &left);
        if (open != rows[i].state || closed != rows[i].closed)
            CHECK_FAIL("%s: state %d, then %d", rows[i].what, (int)open, (int)closed);
        if (strcmp(strbuf_text(&heard), rows[i].want) != 0)
            CHECK_FAIL("%s: %s", rows[i].what, strbuf_text(&heard));
        if (open != RESPONSE_BAD && left != rows[i].left)
            CHECK_FAIL("%s: %zu bytes left", rows[i].what, left);
    }
}

static void test_whole(void)
{
    check_rows(1 << 20);
}

static void test_byte_by_byte(void)
{
    check_rows(1);
    check_rows(3);
}

static void test_cut_anywhere(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t left;
        for (size_t n = 0; n < strlen(rows[i].text); n++) {
            enum response_state state =
                feed(rows[i].text, n, 7, rows[i].is_of_head, rows[i].may_upgrade, true, &left);
            CHECK(state >= RESPONSE_DONE);
        }
    }
}

static void test_headers_are_bounded(void)
{
    struct response r;
    size_t used;
    now = &r;
    response_init(&r, false, false, &events, NULL);
    CHECK(response_take(&r, "HTTP/1.1 200 OK\r\n", 17, &used) == RESPONSE_HEAD);
    enum response_state state = RESPONSE_HEAD;
    size_t sent = 0;
    for (; state == RESPONSE_HEAD && sent < 4 * RESPONSE_HEAD_MAX; sent += 8)
        state = response_take(&r, "aa: bb\r\n", 8, &used);
    CHECK(state == RESPONSE_BAD && sent <= 2 * RESPONSE_HEAD_MAX);
    CHECK_STR(response_complaint(&r), "its headers are longer than 64 KiB");
    response_free(&r);
}

static void test_lengths(void)
{
    static const struct {
        const char *text;
        int64_t want;
    } lengths[] = {{"Content-Length: 0\r\n", 0},
                   {"Content-Length: 9000000000\r\n", 9000000000},
                   {"X: 1\r\n", -1}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char text[128];
        size_t used;
        struct response r;
        now = &r;
        response_init(&r, true, false, &events, NULL);
        int n = snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\n%s\r\n", lengths[i].text);
        CHECK(response_take(&r, text, (size_t)n, &used) == RESPONSE_DONE);
        CHECK(response_length(&r) == lengths[i].want);
        response_free(&r);
    }
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_whole), CHECK_TEST(test_byte_by_byte), CHECK_TEST(test_cut_anywhere),
        CHECK_TEST(test_headers_are_bounded), CHECK_TEST(test_lengths)};
    int rc = check_run(tests, sizeof tests / sizeof tests[0]);
    strbuf_free(&heard);
    return rc;
}
