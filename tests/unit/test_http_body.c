/*
 * Bodies of requests to the gateway: too large, lying, unwanted, paused.
 */
#include "tests/unit/http_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_announced_body_over_the_limit(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    const char *answer =
        ask_on(fd, "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H "Content-Length: 100001\r\n\r\n");
    CHECK_ANSWER(answer, 413);
    CHECK(has(answer, "{\"error\":\"payload too large: 100001 bytes exceeds the 1000-byte limit\","
                      "\"code\":\"payload_too_large\"}"));
    CHECK(has(answer, "Connection: close") && got_end);
    /* what it still sends is swallowed: a reset would take the answer away */
    CHECK(send(fd, "xxxx", 4, MSG_NOSIGNAL) == 4);
    turn();
    CHECK(send(fd, "yyyy", 4, MSG_NOSIGNAL) == 4);
    CHECK(toy.begun == 0);
    close(fd);
    end();
}

static void test_small_unwanted_body_keeps_the_connection(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    CHECK_ANSWER(
        ask_on(fd, "PUT /v1/sandbox/a/refused HTTP/1.1\r\n" H "Content-Length: 900\r\n\r\n"), 403);
    CHECK(has(strbuf_text(&got), "{\"error\":\"not here\",\"code\":\"invalid_request\"}"));
    CHECK(!got_end);
    char body[900];
    memset(body, 'b', sizeof body);
    say(fd, body, sizeof body);
    CHECK_ANSWER(ask_on(fd, "GET /health HTTP/1.1\r\n" H "\r\n"), 200);
    /* of chunks nobody knows how many will come */
    CHECK_ANSWER(
        ask_on(fd, "PUT /v1/sandbox/a/refused HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"),
        403);
    CHECK(has(strbuf_text(&got), "Connection: close") && got_end);
    close(fd);
    end();
}

static void test_ignored_body(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    CHECK_ANSWER(ask_on(fd, "POST /v1/sandbox HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\n{bad}"
                            "POST /v1/sandbox HTTP/1.1\r\n" H
                            "Transfer-Encoding: chunked\r\n\r\n2\r\nxx\r\n0\r\n\r\n"),
                 200);
    CHECK(count(strbuf_text(&got), "hello") == 2 && !got_end);
    close(fd);
    end();
}

static void test_chunks_over_the_limit(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    /* the header of the chunk is enough */
    const char *answer = ask_on(fd, "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H
                                    "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3e6\r\n");
    CHECK_ANSWER(answer, 413);
    CHECK(has(answer, "1001 bytes exceeds the 1000-byte limit") && got_end);
    CHECK(toy.begun == 0);
    close(fd);
    fd = client();
    CHECK_ANSWER(ask_on(fd, "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H
                            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nffffffffffffffff\r\n"),
                 413);
    CHECK(got_end);
    close(fd);
    /* a streamed one: its handler hears the end, and the route has its own words */
    fd = client();
    CHECK_ANSWER(ask_on(fd, "POST /v1/sandbox/a/tar HTTP/1.1\r\n" H
                            "Transfer-Encoding: chunked\r\n\r\n60\r\n"),
                 0);
    CHECK(toy.begun == 1 && toy.closed == 0);
    char body[0x60];
    memset(body, 't', sizeof body);
    say(fd, body, sizeof body);
    CHECK_ANSWER(ask_on(fd, "\r\n5\r\n"), 400);
    CHECK(has(strbuf_text(&got), "tar over 100") && got_end);
    CHECK(toy.closed == 1 && toy.too_large == 1 && toy.body.len == 0x60 && toy.said_length == 0x65);
    close(fd);
    end();
}

static void test_chunk_nonsense(void)
{
    static const char *const all[] = {
        "x\r\n",
        "-1\r\n",
        "+1\r\n",
        " 1\r\n",
        "0x1\r\n",
        "1 \r\n",
        "\r\n",
        "3\nabc\r\n",
        "3\r\nabcd\r\n",
        "3\r\nabc",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabcXX0\r\n\r\n",
        "1ffffffffffffffff\r\n",
        "3;a\nb\r\nabc\r\n",
        "3;a=\x01\r\nabc\r\n",
        "0\r\nGET /health HTTP/1.1\r\n\r\n",
        "0\r\n\n",
        "0\nX: y\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
    };
    struct http_config c = plain();
    begin(&c);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int fd = client();
        strbuf_clear(&got);
        say_text(fd,
                 "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n");
        const char *answer = ask_on(fd, all[i]);
        shutdown(fd, SHUT_WR);
        receive(fd);
        if (toy.begun != 0 || (got.len > 0 && status_of(answer) != 400) || !got_end ||
            count(strbuf_text(&got), "HTTP/1.1") > 1)
            CHECK_FAIL("row %zu: %.40s: %s", i, all[i], strbuf_text(&got));
        close(fd);
    }
    end();
}

/* One byte a chunk costs five; a page of extension a chunk is an attack. */
static void test_chunks_that_are_mostly_wrapping(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    struct strbuf text = {0};
    strbuf_adds(&text,
                "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 900; i++)
        strbuf_adds(&text, "1\r\nx\r\n");
    strbuf_adds(&text, "0\r\n\r\n");
    CHECK_ANSWER(ask_on(fd, strbuf_text(&text)), 200);
    strbuf_clear(&text);
    strbuf_adds(&text,
                "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;");
    for (int i = 0; i < 70000; i++)
        strbuf_adds(&text, "e");
    CHECK_ANSWER(ask_on(fd, strbuf_text(&text)), 400);
    CHECK(got_end);
    strbuf_free(&text);
    close(fd);
    end();
}

static void test_lying_content_length(void)
{
    struct http_config c = plain();
    begin(&c);
    /* more than announced is the next request */
    int fd = client();
    const char *answer = ask_on(fd, "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H
                                    "Content-Length: 3\r\n\r\nabcdef\r\n\r\n");
    CHECK(count(answer, "HTTP/1.1 ") == 2 && has(answer, "abc") && has(answer, "400 Bad Request"));
    CHECK(got_end);
    close(fd);
    /* less: the client leaves in the middle of its body */
    fd = client();
    CHECK_ANSWER(
        ask_on(fd, "PUT /v1/sandbox/a/file/x HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nabc"), 0);
    CHECK(toy.body.len == 3 && toy.closed == 0);
    close(fd);
    turn();
    CHECK(toy.closed == 1 && toy.ended == 0);
    end();
}

static void test_continue_only_if_the_body_is_wanted(void)
{
    struct http_config c = plain();
    c.token = "key";
    begin(&c);
#define E "Expect: 100-continue\r\n"
#define A "Authorization: Bearer key\r\n"
    int fd = client();
    const char *answer =
        ask_on(fd, "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H A E "Content-Length: 3\r\n\r\n");
    CHECK_STR(answer, "HTTP/1.1 100 Continue\r\n\r\n");
    CHECK_ANSWER(ask_on(fd, "abc"), 200);
    CHECK(!got_end);
    /* it did not wait */
    answer =
        ask_on(fd, "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H A E "Content-Length: 3\r\n\r\nabc");
    CHECK(count(answer, "HTTP/1.1 ") == 1 && status_of(answer) == 200);
    /* a streamed one is asked for when its handler takes it */
    toy.pauses_first = true;
    answer = ask_on(fd, "PUT /v1/sandbox/a/file/x HTTP/1.1\r\n" H A E "Content-Length: 3\r\n\r\n");
    CHECK_STR(answer, "");
    exchange_resume_body(toy.x);
    CHECK_STR(receive(fd), "HTTP/1.1 100 Continue\r\n\r\n");
    CHECK_ANSWER(ask_on(fd, "abc"), 200);
    /* refused: the answer at once, and no body is read */
    answer = ask_on(fd, "PUT /v1/sandbox/a/refused HTTP/1.1\r\n" H A E "Content-Length: 3\r\n\r\n");
    CHECK(status_of(answer) == 403 && !has(answer, "100 Continue") && got_end);
    close(fd);
    fd = client();
    answer = ask_on(fd, "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H E "Content-Length: 3\r\n\r\n");
    CHECK(status_of(answer) == 401 && got_end);
    close(fd);
    fd = client();
    answer =
        ask_on(fd, "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H A E "Content-Length: 3000\r\n\r\n");
    CHECK(status_of(answer) == 413 && got_end);
    close(fd);
#undef E
#undef A
    end();
}

/* After exchange_pause_body() no piece comes, of either kind of body, until it is resumed. */
static void test_paused_bodies(void)
{
    static const struct {
        const char *head, *parts[3];
    } all[] = {
        {"Content-Length: 6\r\n\r\n", {"ab", "cd", "ef"}},
        {"Transfer-Encoding: chunked\r\n\r\n",
         {"2\r\nab\r\n", "2\r\ncd\r\n2\r\n", "ef\r\n0\r\n\r\n"}},
        {"Transfer-Encoding: chunked\r\n\r\n",
         {"2\r\nab\r\n2\r\ncd\r\n2\r\nef\r\n0\r\n\r\n", "", ""}},
    };
    struct http_config c = plain();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        begin(&c);
        toy.pauses = toy.pauses_first = true;
        int fd = client();
        char head[200];
        snprintf(head, sizeof head, "PUT /v1/sandbox/a/file/x HTTP/1.1\r\n" H "%s", all[i].head);
        ask_on(fd, head);
        for (int j = 0; j < 3; j++)
            ask_on(fd, all[i].parts[j]);
        CHECK(toy.begun == 1 && toy.body.len == 0);
        size_t before = 0;
        unsigned rounds = 0;
        while (toy.ended == 0 && rounds++ < 10) {
            exchange_resume_body(toy.x);
            receive(fd);
            CHECK(toy.body.len <= before + 6);
            if (i > 0)
                CHECK(toy.body.len <= before + 2);
            before = toy.body.len;
        }
        CHECK_STR(strbuf_text(&toy.body), "abcdef");
        CHECK(toy.pieces <= 3); /* none is empty */
        CHECK(toy.ended == 1 && status_of(strbuf_text(&got)) == 200);
        toy.pauses = toy.pauses_first = false;
        CHECK_ANSWER(ask_on(fd, "GET /health HTTP/1.1\r\n" H "\r\n"), 200);
        close(fd);
        end();
    }
}

/* A chunk that comes in parts, a pause after each: llhttp stops inside the chunk. */
static void test_pieces_are_never_empty(void)
{
    static const char *const parts[] = {"6\r\nab", "cd", "ef", "\r\n0\r\n\r\n"};
    struct http_config c = plain();
    begin(&c);
    toy.pauses = true;
    int fd = client();
    ask_on(fd, "PUT /v1/sandbox/a/file/x HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        ask_on(fd, parts[i]);
        for (int j = 0; j < 3 && toy.x; j++) {
            exchange_resume_body(toy.x);
            receive(fd);
        }
    }
    CHECK(toy.pieces == 3 && toy.ended == 1);
    CHECK_STR(strbuf_text(&toy.body), "abcdef");
    close(fd);
    end();
}

/* A paused body waits in the socket, not in our memory. */
static void test_paused_body_is_bounded(void)
{
    struct http_config c = plain();
    begin(&c);
    toy.pauses_first = true;
    int fd = client(), size = 1 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    ask_on(fd, "PUT /v1/sandbox/a/file/x HTTP/1.1\r\n" H "Content-Length: 900000\r\n\r\n");
    static char body[900000];
    ssize_t k;
    size_t sent = 0;
    while (sent < sizeof body &&
           (k = send(fd, body + sent, sizeof body - sent, MSG_DONTWAIT)) > 0) {
        sent += (size_t)k;
        turn();
    }
    CHECK(toy.body.len == 0);
    exchange_resume_body(toy.x);
    while (sent < sizeof body) {
        turn();
        k = send(fd, body + sent, sizeof body - sent, MSG_DONTWAIT);
        sent += k > 0 ? (size_t)k : 0;
    }
    CHECK_ANSWER(receive(fd), 200);
    CHECK(toy.body.len == sizeof body);
    close(fd);
    end();
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_announced_body_over_the_limit),
        CHECK_TEST(test_small_unwanted_body_keeps_the_connection),
        CHECK_TEST(test_ignored_body),
        CHECK_TEST(test_chunks_over_the_limit),
        CHECK_TEST(test_chunk_nonsense),
        CHECK_TEST(test_chunks_that_are_mostly_wrapping),
        CHECK_TEST(test_lying_content_length),
        CHECK_TEST(test_continue_only_if_the_body_is_wanted),
        CHECK_TEST(test_paused_bodies),
        CHECK_TEST(test_pieces_are_never_empty),
        CHECK_TEST(test_paused_body_is_bounded),
    };
    return run_http_tests(tests, sizeof tests / sizeof tests[0]);
}
