/*
 * The HTTP server of the gateway over socketpairs: requests in every state of brokenness, bodies
 * that lie, clients that are slow, silent or gone, handlers that answer early, late, too much. The
 * loop is turned by hand between a client's moves, so the order is fixed.
 */
#include "tests/unit/check.h"
#include "tests/unit/run_loop.h"

#include "gateway/http.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define IS_ASAN 1
#else
#define IS_ASAN 0
#endif

/* ---- failing memory ---------------------------------------------------------------------- */

#if !IS_ASAN
static int memory_until_failure = -1; /* allocations that still succeed; -1: all */

void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_malloc(size_t size);

static bool memory_fails(void)
{
    if (memory_until_failure > 0)
        memory_until_failure--;
    return memory_until_failure == 0;
}

void *malloc(size_t size)
{
    return memory_fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return memory_fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return memory_fails() ? NULL : __libc_realloc(old, size);
}

/* libev ends the program when it gets no memory. */
static void *allocate_for_libev(void *old, long size)
{
    if (size > 0)
        return __libc_realloc(old, (size_t)size);
    free(old);
    return NULL;
}
#endif

/* ---- the handlers ------------------------------------------------------------------------ */

static struct {
    unsigned begun, closed, ended, writable, too_large, pieces;
    uint64_t said_length;
    struct strbuf body; /* of the streamed route */
    bool pauses;        /* at each piece */
    bool pauses_first;  /* in begin */
    struct exchange *x; /* of a route that answers later */
    char segment[256], rest[256], path[256], query[64];
    int taken;
    struct http_server *server_of_taken;
    struct strbuf early;
    size_t announces; /* of /lies */
    size_t floods;    /* bytes still to write */
    int file;
    int64_t file_length, file_says;
} toy;

static void on_closed(void *owner)
{
    (void)owner;
    toy.closed++;
    toy.x = NULL;
}

static void on_body(void *owner, const char *bytes, size_t n)
{
    toy.pieces++;
    strbuf_add(&toy.body, bytes, n);
    if (toy.pauses)
        exchange_pause_body(owner);
}

static void on_body_end(void *owner)
{
    toy.ended++;
    toy.x = NULL;
    exchange_json(owner, 200, "{\"put\":true}");
}

static void flood(struct exchange *x)
{
    static char bytes[64 * 1024];
    bool goes_on = true;
    memset(bytes, 'f', sizeof bytes);
    while (goes_on && toy.floods > 0) {
        size_t n = toy.floods < sizeof bytes ? toy.floods : sizeof bytes;
        toy.floods -= n;
        goes_on = exchange_write(x, bytes, n);
    }
    if (toy.floods == 0) {
        toy.x = NULL;
        exchange_end(x);
    }
}

static void on_writable(void *owner)
{
    toy.writable++;
    flood(owner);
}

static const struct exchange_events events = {on_body, on_body_end, on_writable, on_closed};

static void hello(struct exchange *x)
{
    toy.begun++;
    snprintf(toy.path, sizeof toy.path, "%s", exchange_path(x));
    snprintf(toy.query, sizeof toy.query, "%s", exchange_query(x));
    exchange_json(x, 200, "{\"hello\":1}");
}

static void whole(struct exchange *x)
{
    size_t n;
    const char *body = exchange_body(x, &n);
    toy.begun++;
    snprintf(toy.segment, sizeof toy.segment, "%s", exchange_segment(x, "id"));
    exchange_answer(x, 200, "text/plain", body, n);
}

static void stream(struct exchange *x)
{
    toy.begun++;
    toy.x = x;
    snprintf(toy.rest, sizeof toy.rest, "%s", exchange_segment(x, "*"));
    exchange_own(x, &events, x);
    if (toy.pauses_first)
        exchange_pause_body(x);
}

static void refused(struct exchange *x)
{
    exchange_error(x, 403, "invalid_request", "not %s", "here");
}

static void later(struct exchange *x)
{
    toy.begun++;
    toy.x = x;
    exchange_own(x, &events, x);
}

static void big(struct exchange *x)
{
    toy.x = x;
    exchange_own(x, &events, x);
    exchange_begin(x, 200, "text/plain", -1);
    flood(x);
}

static void lies(struct exchange *x)
{
    exchange_begin(x, 200, "text/plain", (int64_t)toy.announces);
    exchange_write(x, "12345", 5);
    exchange_end(x);
}

static void file(struct exchange *x)
{
    int fd = dup(toy.file);
    exchange_begin(x, 200, "text/plain", toy.file_says);
    exchange_end_with_file(x, fd, 3, toy.file_length);
}

static void take(struct exchange *x)
{
    toy.taken = exchange_take_socket(x, &toy.early, &toy.server_of_taken);
}

static void injects(struct exchange *x)
{
    exchange_add_header(x, "X-Fine", "yes");
    exchange_add_header(x, "X-Bad", "a\r\nX-Injected: 1");
    exchange_json(x, 200, "{}");
}

static void headers(struct exchange *x)
{
    const char *value = exchange_header(x, "x-many");
    exchange_answer(x, 200, "text/plain", value ? value : "(none)", value ? strlen(value) : 6);
}

static void say_too_large(struct exchange *x, uint64_t length, uint64_t limit)
{
    toy.too_large++;
    toy.said_length = length;
    exchange_error(x, 400, "invalid_request", "tar over %llu", (unsigned long long)limit);
}

static const struct route table_a[] = {
    {"GET", "/health", BODY_IGNORED, ROUTE_OPEN, 0, NULL, hello},
    {"POST", "/v1/sandbox", BODY_IGNORED, 0, 0, NULL, hello},
    {"POST", "/v1/sandbox/:id/whole", BODY_WHOLE, 0, 0, NULL, whole},
    {"PUT", "/v1/sandbox/:id/file/*", BODY_STREAMED, 0, 1000000, NULL, stream},
    {"PUT", "/v1/sandbox/:id/refused", BODY_STREAMED, 0, 0, NULL, refused},
    {"POST", "/v1/sandbox/:id/tar", BODY_STREAMED, 0, 100, say_too_large, stream},
    {"GET", "/v1/sandbox/:id/pty", BODY_IGNORED, ROUTE_UPGRADE, 0, NULL, hello},
    {"GET", "/v1/pool/stats", BODY_IGNORED, ROUTE_EXACT_BEARER, 0, NULL, hello},
    {"GET", "/v1/openapi.json", BODY_IGNORED, ROUTE_EXACT_BEARER | ROUTE_QUERY_TOKEN, 0, NULL,
     hello},
    {0},
};
static const struct route table_b[] = {
    {"GET", "/later", BODY_IGNORED, ROUTE_OPEN, 0, NULL, later},
    {"GET", "/big", BODY_IGNORED, ROUTE_OPEN, 0, NULL, big},
    {"GET", "/lies", BODY_IGNORED, ROUTE_OPEN, 0, NULL, lies},
    {"GET", "/file", BODY_IGNORED, ROUTE_OPEN, 0, NULL, file},
    {"GET", "/take", BODY_IGNORED, ROUTE_OPEN, 0, NULL, take},
    {"GET", "/injects", BODY_IGNORED, ROUTE_OPEN, 0, NULL, injects},
    {"GET", "/headers", BODY_IGNORED, ROUTE_OPEN, 0, NULL, headers},
    {0},
};
static const struct route *const tables[] = {table_a, table_b, NULL};

/* ---- the rig ----------------------------------------------------------------------------- */

static struct ev_loop *loop;
static struct http_server *server;
static struct strbuf got; /* of the client */
static bool got_end;      /* it has seen the end of the connection */

static struct http_config plain(void)
{
    return (struct http_config){
        .routes = tables, .max_body = 1000, .max_connections = 50, .token = NULL};
}

static void begin(const struct http_config *config)
{
    server = http_server_new(loop, config, NULL);
    strbuf_free(&toy.body);
    strbuf_free(&toy.early);
    memset(&toy, 0, sizeof toy);
    toy.taken = -2;
}

static void end(void)
{
    http_server_free(server);
    strbuf_free(&got);
    strbuf_free(&toy.body);
    strbuf_free(&toy.early);
    server = NULL;
}

static int client(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -1;
    http_server_adopt(server, pair[1], NULL);
    strbuf_clear(&got);
    got_end = false;
    return pair[0];
}

static void turn(void)
{
    for (int i = 0; i < 6; i++)
        ev_run(loop, EVRUN_NOWAIT);
}

static const char *receive(int fd)
{
    char bytes[65536];
    ssize_t k;
    do {
        turn();
        while ((k = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
            strbuf_add(&got, bytes, (size_t)k);
        got_end |= k == 0 || (k < 0 && errno != EAGAIN);
        turn();
        k = recv(fd, bytes, 1, MSG_DONTWAIT | MSG_PEEK);
    } while (k > 0);
    return strbuf_text(&got);
}

static void say(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno != EAGAIN)
            return;
        bytes += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
        turn();
    }
}

static void say_text(int fd, const char *text)
{
    say(fd, text, strlen(text));
}

/* Say it on the connection and return all that came back so far. */
static const char *ask_on(int fd, const char *text)
{
    strbuf_clear(&got);
    say(fd, text, strlen(text));
    return receive(fd);
}

static int status_of(const char *answer)
{
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : 0;
}

static bool has(const char *answer, const char *text)
{
    return strstr(answer, text) != NULL;
}

static unsigned count(const char *answer, const char *text)
{
    unsigned n = 0;
    for (; (answer = strstr(answer, text)); answer += strlen(text))
        n++;
    return n;
}

#define CHECK_ANSWER(answer, status)                                                               \
    do {                                                                                           \
        const char *seen = (answer);                                                               \
        if (status_of(seen) != (status))                                                           \
            CHECK_FAIL("status %d, want %d: %.200s", status_of(seen), status, seen);               \
    } while (0)

/* ---- requests ---------------------------------------------------------------------------- */

#define H "Host: x\r\n"

static void test_answers_and_keeps_the_connection(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    for (int i = 0; i < 3; i++) {
        CHECK_ANSWER(ask_on(fd, "GET /health?a=b HTTP/1.1\r\n" H "\r\n"), 200);
        CHECK(has(strbuf_text(&got), "Content-Length: 11\r\n"));
        CHECK(has(strbuf_text(&got), "\r\nDate: ") && has(strbuf_text(&got), " GMT\r\n"));
        CHECK(has(strbuf_text(&got), "\r\n\r\n{\"hello\":1}"));
        CHECK(!got_end);
    }
    CHECK_STR(toy.path, "/health");
    CHECK_STR(toy.query, "a=b");
    CHECK_ANSWER(ask_on(fd, "GET /health HTTP/1.1\r\n" H "Connection: close\r\n\r\n"), 200);
    CHECK(has(strbuf_text(&got), "Connection: close\r\n"));
    CHECK(got_end);
    close(fd);
    end();
}

static void test_pipelined_requests_are_answered_in_order(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    const char *answer =
        ask_on(fd, "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\none"
                   "GET /nowhere HTTP/1.1\r\n" H "\r\n"
                   "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H
                   "Transfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n"
                   "\r\nGET /health HTTP/1.1\r\n" H "\r\n");
    CHECK(count(answer, "HTTP/1.1 ") == 4);
    const char *one = strstr(answer, "one"), *nowhere = strstr(answer, "404 Not Found\r\n"),
               *two = strstr(answer, "two"), *last = strstr(answer, "hello");
    CHECK(one && nowhere && two && last && one < nowhere && nowhere < two && two < last);
    close(fd);
    end();
}

static void test_many_pipelined_requests(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    struct strbuf all = {0};
    for (int i = 0; i < 3000; i++)
        strbuf_adds(&all, "GET /health HTTP/1.1\r\n" H "\r\n");
    strbuf_clear(&got);
    for (size_t at = 0; at < all.len;) {
        ssize_t k = send(fd, all.data + at, all.len - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        at += k > 0 ? (size_t)k : 0;
        receive(fd);
    }
    run_loop(loop, 0.05);
    receive(fd);
    strbuf_free(&all);
    CHECK(count(strbuf_text(&got), "{\"hello\":1}") == 3000);
    CHECK(!got_end);
    close(fd);
    end();
}

static void test_byte_by_byte(void)
{
    static const char request[] = "\r\nPOST /v1/sandbox/abc/whole?x HTTP/1.1\r\n" H
                                  "Transfer-Encoding: chunked\r\nX-Empty:\r\n\r\n"
                                  "5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\n";
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    strbuf_clear(&got);
    for (size_t i = 0; i < sizeof request - 1; i++) {
        CHECK(got.len == 0);
        say(fd, request + i, 1);
        receive(fd);
    }
    CHECK_ANSWER(strbuf_text(&got), 200);
    CHECK(has(strbuf_text(&got), "\r\n\r\nhello!"));
    CHECK_STR(toy.segment, "abc");
    CHECK_ANSWER(ask_on(fd, "GET /health HTTP/1.1\r\n" H "\r\n"), 200);
    close(fd);
    end();
}

struct bad {
    const char *bytes;
    int status;
};

/* What is no request, or may be read in two ways: an answer and the end of the connection. */
static void test_bad_heads(void)
{
    static const struct bad all[] = {
        {"GET /health HTTP/1.1\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
        {"GET /health HTTP/1.1\n" H "\n", 400},
        {"GET /health HTTP/1.1\r\nHost: x\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "A: b\rc\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "A: b\r\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "A: b\r\n folded\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n Host: x\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "A b: c\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "A : c\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H ": c\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "nothing\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "A: \x01\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "A: \x7f\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400},
        {"GET /health HTTP/1.1\r\n" H "Content-Length: 1, 1\r\n\r\nx", 400},
        {"GET /health HTTP/1.1\r\n" H "Content-Length: +1\r\n\r\nx", 400},
        {"GET /health HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\nx", 400},
        {"GET /health HTTP/1.1\r\n" H "Content-Length: 0x1\r\n\r\nx", 400},
        {"GET /health HTTP/1.1\r\n" H "Content-Length: 1 1\r\n\r\nx", 400},
        {"GET /health HTTP/1.1\r\n" H "Content-Length:\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "Content-Length: 99999999999999999999\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "Content-Length: 18446744073709551615\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
         400},
        {"GET /health HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
         400},
        {"GET /health HTTP/1.1\r\n" H
         "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
         400},
        {"GET /health HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {"GET /health HTTP/1.1\r\n" H "Transfer-Encoding: chunked, gzip\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "Transfer-Encoding: chunke\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" H "Transfer-Encoding: \x0b"
         "chunked\r\n\r\n",
         400},
        {"GET /health HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"GET /health HTTP/2.0\r\n" H "\r\n", 505},
        {"GET /health HTTP/0.9\r\n" H "\r\n", 505},
        {"GET /health HTTP/1.2\r\n" H "\r\n", 505},
        {"GET /health HTTP/1.10\r\n" H "\r\n", 505},
        {"GET /health HTTQ/1.1\r\n" H "\r\n", 400},
        {"GET /health\r\n\r\n", 505},
        {"GET  /health HTTP/1.1\r\n" H "\r\n", 400},
        {"GET health HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /a#b HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /he alth HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /\x01 HTTP/1.1\r\n" H "\r\n", 400},
        {"GET http:///x HTTP/1.1\r\n" H "\r\n", 400},
        {"GET ftp://h/health HTTP/1.1\r\n" H "\r\n", 400},
        {"GET * HTTP/1.1\r\n" H "\r\n", 400},
        {"CONNECT h:80 HTTP/1.1\r\n" H "\r\n", 400},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
        {"FOO /health HTTP/1.1\r\n" H "\r\n", 400},
        {"get /health HTTP/1.1\r\n" H "\r\n", 400},
        {"\x16\x03\x01\x02\n", 400},
        {"\n\n", 400},
        {"GET /health HTTP/1.1\r\n" H "Expect: tea\r\nContent-Length: 1\r\n\r\n", 417},
    };
    struct http_config c = plain();
    begin(&c);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int fd = client();
        const char *answer = ask_on(fd, all[i].bytes);
        if (status_of(answer) != all[i].status || count(answer, "HTTP/1.1 ") != 1 || !got_end)
            CHECK_FAIL("row %zu (%.60s): want %d and the end, got %.100s", i, all[i].bytes,
                       all[i].status, answer);
        if (!has(answer, "\"code\":\"invalid_request\"}") || !has(answer, "Connection: close"))
            CHECK_FAIL("row %zu: not the contract's error: %s", i, answer);
        close(fd);
    }
    CHECK(toy.begun == 0);
    end();
}

static void test_nul_in_the_head(void)
{
    static const char bytes[] = "GET /health HTTP/1.1\r\n" H "A: x\0y\r\n\r\n";
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    say(fd, bytes, sizeof bytes - 1);
    CHECK_ANSWER(receive(fd), 400);
    CHECK(got_end);
    close(fd);
    end();
}

static void test_good_heads(void)
{
    static const struct bad all[] = {
        {"GET http://some.host:80/health?q HTTP/1.1\r\n" H "\r\n", 200},
        {"GET http://some.host HTTP/1.1\r\n" H "\r\n", 404},
        {"OPTIONS * HTTP/1.1\r\n" H "\r\n", 404},
        {"OPTIONS /v1/sandbox HTTP/1.1\r\n" H "\r\n", 404},
        {"PATCH /health HTTP/1.1\r\n" H "\r\n", 404},
        {"GET /health HTTP/1.0\r\n\r\n", 200},
        {"GET /health HTTP/1.1\r\nhost:x\r\nA:\r\nB:   \t \r\n\r\n", 200},
        {"GET /health HTTP/1.1\r\n" H "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
         200},
        {"GET /caf\xc3\xa9 HTTP/1.1\r\n" H "\r\n", 404},
        {"POST /v1/sandbox/a/whole HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", 200},
        {"POST /v1/sandbox/a/whole HTTP/1.1\r\n" H "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
         200},
    };
    struct http_config c = plain();
    begin(&c);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int fd = client();
        const char *answer = ask_on(fd, all[i].bytes);
        if (status_of(answer) != all[i].status || count(answer, "HTTP/1.1 ") != 1)
            CHECK_FAIL("row %zu (%.60s): want %d, got %.100s", i, all[i].bytes, all[i].status,
                       answer);
        close(fd);
    }
    end();
}

static void test_bytes_beyond_ascii_in_a_path_count_as_escapes(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    CHECK_ANSWER(ask_on(fd, "PUT /v1/sandbox/a/file/caf\xc3\xa9?\xff HTTP/1.1\r\n" H
                            "Content-Length: 0\r\n\r\n"),
                 200);
    CHECK_STR(toy.rest, "caf%C3%A9");
    close(fd);
    end();
}

static void test_long_urls_and_headers(void)
{
    struct http_config c = plain();
    begin(&c);
    struct strbuf text = {0};
    /* Not even the end of the line has to come. */
    strbuf_adds(&text, "GET /");
    for (int i = 0; i < 17000; i++)
        strbuf_adds(&text, "a");
    int fd = client();
    CHECK_ANSWER(ask_on(fd, strbuf_text(&text)), 414);
    CHECK(got_end);
    close(fd);

    strbuf_clear(&text);
    strbuf_adds(&text, "GET /health HTTP/1.1\r\n" H);
    for (int i = 0; i < 90; i++) {
        strbuf_addf(&text, "X-%d: ", i);
        for (int j = 0; j < 800; j++)
            strbuf_adds(&text, "b");
        strbuf_adds(&text, "\r\n");
    }
    fd = client();
    CHECK_ANSWER(ask_on(fd, strbuf_text(&text)), 431);
    CHECK(got_end);
    close(fd);

    for (int n = 99; n <= 100; n++) { /* and Host */
        strbuf_clear(&text);
        strbuf_adds(&text, "GET /health HTTP/1.1\r\n" H);
        for (int i = 0; i < n; i++)
            strbuf_addf(&text, "X-%d: 1\r\n", i);
        strbuf_adds(&text, "\r\n");
        fd = client();
        CHECK_ANSWER(ask_on(fd, strbuf_text(&text)), n == 99 ? 200 : 431);
        CHECK(got_end == (n == 100));
        close(fd);
    }
    strbuf_free(&text);
    end();
}

static void test_repeated_headers_are_joined(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    CHECK(
        has(ask_on(fd, "GET /headers HTTP/1.1\r\n" H "X-Many: a \r\nx-many:\r\nX-MANY: c\r\n\r\n"),
            "\r\n\r\na, , c"));
    CHECK(has(ask_on(fd, "GET /headers HTTP/1.1\r\n" H "\r\n"), "(none)"));
    close(fd);
    end();
}

/* ---- routes and tokens ------------------------------------------------------------------- */

static void test_order_of_checks(void)
{
    static const struct bad all[] = {
        /* a bad id comes first, on any path below, known or not */
        {"GET /v1/sandbox/ABC/whole HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /v1/sandbox/a1 HTTP/1.1\r\n" H "\r\n", 400},
        {"POST /v1/sandbox/a%61/whole HTTP/1.1\r\n" H "\r\n", 400},
        {"POST /v1/sandbox/../whole HTTP/1.1\r\n" H "\r\n", 400},
        /* then the token: before the route, before the body's size */
        {"GET /v1/sandbox/abc HTTP/1.1\r\n" H "\r\n", 401},
        {"GET /v1/sandbox HTTP/1.1\r\n" H "\r\n", 401},
        {"POST /v1/sandbox/abc/nothing HTTP/1.1\r\n" H "\r\n", 401},
        {"POST /v1/sandbox/abc/whole HTTP/1.1\r\n" H "Content-Length: 5000\r\n\r\n", 401},
        {"GET /v1/pool/nothing HTTP/1.1\r\n" H "\r\n", 401},
        {"GET /v1/nothing HTTP/1.1\r\n" H "\r\n", 404},
        {"GET /health HTTP/1.1\r\n" H "\r\n", 200},
        /* then the route */
        {"GET /v1/sandbox/abc HTTP/1.1\r\n" H "Authorization: Bearer key\r\n\r\n", 404},
        {"POST /v1/sandbox/ HTTP/1.1\r\n" H "Authorization: Bearer key\r\n\r\n", 404},
        {"GET /v1/sandbox HTTP/1.1\r\n" H "Authorization: Bearer key\r\n\r\n", 404},
        {"POST /v1/sandbox/abc/whole/ HTTP/1.1\r\n" H "Authorization: Bearer key\r\n\r\n", 404},
        {"POST /v1/sandbox//whole HTTP/1.1\r\n" H "Authorization: Bearer key\r\n\r\n", 404},
        {"POST /v1/sandbox/abc/whole HTTP/1.1\r\n" H
         "Authorization: Bearer key\r\nContent-Length: 5000\r\n\r\n",
         413},
    };
    struct http_config c = plain();
    c.token = "key";
    begin(&c);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int fd = client();
        const char *answer = ask_on(fd, all[i].bytes);
        if (status_of(answer) != all[i].status)
            CHECK_FAIL("row %zu (%.60s): want %d, got %.100s", i, all[i].bytes, all[i].status,
                       answer);
        if (all[i].status == 404)
            CHECK(has(answer, "text/plain; charset=UTF-8\r\n") && has(answer, "\n404 Not Found"));
        if (all[i].status == 401)
            CHECK(has(answer, "\n{\"error\":\"Unauthorized\",\"code\":\"unauthorized\"}"));
        close(fd);
    }
    end();
}

struct token_row {
    const char *method_path, *header;
    bool is_let_in;
};

static void test_tokens(void)
{
    static const struct token_row all[] = {
        {"POST /v1/sandbox", "Authorization: Bearer s3cret-key", true},
        {"POST /v1/sandbox", "authorization: bearer s3cret-key", true},
        {"POST /v1/sandbox", "Authorization: BEARER  s3cret-key  ", true},
        {"POST /v1/sandbox", "Authorization: Bearer s3cret-ke", false},
        {"POST /v1/sandbox", "Authorization: Bearer s3cret-keyy", false},
        {"POST /v1/sandbox", "Authorization: Bearer S3cret-key", false},
        {"POST /v1/sandbox", "Authorization: Bearer", false},
        {"POST /v1/sandbox", "Authorization: Bearers3cret-key", false},
        {"POST /v1/sandbox", "Authorization: Basic s3cret-key", false},
        {"POST /v1/sandbox", "Authorization: s3cret-key", false},
        {"POST /v1/sandbox", "Authorization:", false},
        {"POST /v1/sandbox", "A: b", false},
        {"POST /v1/sandbox", "Authorization: Bearer s3cret-key\r\nAuthorization: x", false},
        {"POST /v1/sandbox?token=s3cret-key", "A: b", false},
        {"POST /v1/sandbox?authorization=Bearer+s3cret-key", "A: b", false},
        {"GET /v1/pool/stats", "Authorization: Bearer s3cret-key", true},
        {"GET /v1/pool/stats", "Authorization: bearer s3cret-key", false},
        {"GET /v1/pool/stats?token=s3cret-key", "A: b", false},
        {"GET /v1/openapi.json?x=y&token=s3cret%2Dkey", "A: b", true},
        {"GET /v1/openapi.json?token=s3cret", "A: b", false},
        {"GET /v1/openapi.json?token=%zz", "A: b", false},
        {"GET /v1/openapi.json?token", "A: b", false},
        {"GET /v1/openapi.json", "Authorization: Bearer s3cret-key", true},
        {"GET /v1/sandbox/a/pty?cols=1&authorization=Bearer+s3cret-key", "A: b", true},
        {"GET /v1/sandbox/a/pty?authorization=bearer%20s3cret-key", "A: b", true},
        {"GET /v1/sandbox/a/pty?authorization=s3cret-key", "A: b", false},
        {"GET /v1/sandbox/a/pty?token=s3cret-key", "A: b", false},
    };
    struct http_config c = plain();
    c.token = "s3cret-key";
    begin(&c);
    int fd = client();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char request[300];
        snprintf(request, sizeof request, "%s HTTP/1.1\r\n" H "%s\r\n\r\n", all[i].method_path,
                 all[i].header);
        const char *answer = ask_on(fd, request);
        if (status_of(answer) != (all[i].is_let_in ? 200 : 401))
            CHECK_FAIL("row %zu: %s, %s: %.100s", i, all[i].method_path, all[i].header, answer);
        CHECK(!got_end); /* whoever guesses wrong may go on guessing, at the same price */
    }
    close(fd);
    end();
}

static void test_one_sandbox_only(void)
{
    struct http_config c = plain();
    c.sandbox_id = "mine";
    begin(&c);
    int fd = client();
    CHECK_ANSWER(ask_on(fd, "POST /v1/sandbox/mine/whole HTTP/1.1\r\n" H "\r\n"), 200);
    CHECK_ANSWER(ask_on(fd, "POST /v1/sandbox/yours/whole HTTP/1.1\r\n" H "\r\n"), 404);
    CHECK(has(strbuf_text(&got), "No such sandbox: yours"));
    CHECK_ANSWER(ask_on(fd, "POST /v1/sandbox/min/whole HTTP/1.1\r\n" H "\r\n"), 404);
    CHECK_ANSWER(ask_on(fd, "POST /v1/sandbox/minee/whole HTTP/1.1\r\n" H "\r\n"), 404);
    CHECK_ANSWER(ask_on(fd, "POST /v1/sandbox HTTP/1.1\r\n" H "\r\n"), 200);
    close(fd);
    end();
}

static void test_rest_of_a_path(void)
{
    static const struct {
        const char *path, *rest;
        int status;
    } all[] = {
        {"/file/workspace/a.txt", "workspace/a.txt", 200},
        {"/file//workspace/a", "/workspace/a", 200},
        {"/file", "", 200},
        {"/file/", "", 200},
        {"/file/a/%2e%2e/..//b/", "a/%2e%2e/..//b/", 200},
        {"/filex", "", 404},
        {"/file?x", "", 200},
    };
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char request[200];
        toy.rest[0] = '\0';
        snprintf(request, sizeof request,
                 "PUT /v1/sandbox/a%s HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", all[i].path);
        CHECK_ANSWER(ask_on(fd, request), all[i].status);
        CHECK_STR(toy.rest, all[i].rest);
    }
    close(fd);
    end();
}

static void test_cors(void)
{
    struct http_config c = plain();
    c.token = "key";
    c.cors_origin = "https://page.example";
    begin(&c);
    int fd = client();
    CHECK_ANSWER(ask_on(fd, "OPTIONS /v1/sandbox/a/whole HTTP/1.1\r\n" H
                            "Origin: https://page.example\r\n"
                            "Access-Control-Request-Method: POST\r\n"
                            "Access-Control-Request-Headers: authorization, session-id\r\n\r\n"),
                 204);
    const char *answer = strbuf_text(&got);
    CHECK(has(answer, "Access-Control-Allow-Origin: https://page.example\r\n"));
    CHECK(has(answer, "Access-Control-Allow-Headers: authorization, session-id\r\n"));
    CHECK(has(answer, "Access-Control-Allow-Methods: POST\r\n"));
    CHECK(!has(answer, "Content-Length"));
    CHECK_ANSWER(ask_on(fd, "POST /v1/sandbox HTTP/1.1\r\n" H "\r\n"), 401);
    CHECK(has(strbuf_text(&got), "Access-Control-Allow-Origin: https://page.example\r\n"));
    close(fd);
    end();
    c.cors_origin = NULL;
    begin(&c);
    fd = client();
    CHECK_ANSWER(ask_on(fd, "OPTIONS /v1/sandbox/a/whole HTTP/1.1\r\n" H "Origin: http://a\r\n"
                            "Authorization: Bearer key\r\n"
                            "Access-Control-Request-Method: POST\r\n\r\n"),
                 404);
    CHECK(!has(strbuf_text(&got), "Access-Control"));
    close(fd);
    end();
}

/* ---- bodies ------------------------------------------------------------------------------ */

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

/* ---- answers ----------------------------------------------------------------------------- */

static void test_head_requests(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    toy.floods = 100000;
    toy.file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    toy.file_length = toy.file_says = 1000;
    const char *answer = ask_on(fd, "HEAD /health HTTP/1.1\r\n" H "\r\n"
                                    "HEAD /big HTTP/1.1\r\n" H "\r\n"
                                    "HEAD /file HTTP/1.1\r\n" H "\r\n"
                                    "HEAD /nowhere HTTP/1.1\r\n" H "\r\n");
    CHECK(count(answer, "HTTP/1.1 ") == 4 && count(answer, "\r\n\r\n") == 4);
    CHECK(has(answer, "Content-Length: 11\r\n") && has(answer, "Content-Length: 1000\r\n"));
    CHECK(!has(answer, "hello") && !has(answer, "fff") && !got_end);
    close(toy.file);
    close(fd);
    end();
}

static void test_old_clients(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    CHECK_ANSWER(ask_on(fd, "GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), 200);
    CHECK(has(strbuf_text(&got), "Connection: keep-alive\r\n") && !got_end);
    toy.floods = 100000;
    CHECK_ANSWER(ask_on(fd, "GET /big HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), 200);
    const char *answer = strbuf_text(&got);
    CHECK(!has(answer, "chunked") && has(answer, "Connection: close") && got_end);
    CHECK(strlen(strstr(answer, "\r\n\r\n") + 4) == 100000);
    close(fd);
    end();
}

/* The length of the chunked body in an answer; -1: it is not well-formed or not whole. */
static long chunked_length(const char *answer)
{
    const char *at = strstr(answer, "\r\n\r\n");
    long sum = 0;
    for (at = at ? at + 4 : NULL; at;) {
        char *line;
        long size = strtol(at, &line, 16);
        if (line == at || strncmp(line, "\r\n", 2) != 0 ||
            (size_t)size + 4 > strlen(line)) /* CR LF, the bytes, CR LF */
            return -1;
        if (strncmp(line + 2 + size, "\r\n", 2) != 0)
            return -1;
        if (size == 0)
            return sum;
        sum += size;
        at = line + 4 + size;
    }
    return -1;
}

static void test_slow_reader(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    toy.floods = 20 << 20;
    size_t before = toy.floods;
    say_text(fd, "GET /big HTTP/1.1\r\n" H "\r\n");
    turn();
    /* what waits is bounded, whatever there is to send */
    CHECK(before - toy.floods < EXCHANGE_HIGH + (1 << 20));
    receive(fd);
    CHECK(toy.writable > 5 && toy.floods == 0);
    CHECK(chunked_length(strbuf_text(&got)) == 20 << 20);
    CHECK_ANSWER(ask_on(fd, "GET /health HTTP/1.1\r\n" H "\r\n"), 200);
    close(fd);
    end();
}

static void test_handler_that_does_not_stop_is_cut(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    ask_on(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    static char bytes[100000];
    struct exchange *x = toy.x;
    exchange_begin(x, 200, "text/plain", -1);
    for (int i = 0; i < 60; i++)
        exchange_write(x, bytes, sizeof bytes);
    CHECK(toy.closed == 0); /* not from inside its own call */
    turn();
    CHECK(toy.closed == 1);
    receive(fd);
    CHECK(got_end && chunked_length(strbuf_text(&got)) == -1);
    close(fd);
    end();
}

static void test_announced_length_is_kept_or_the_connection_cut(void)
{
    struct http_config c = plain();
    for (size_t n = 4; n <= 6; n++) {
        begin(&c);
        toy.announces = n;
        int fd = client();
        ask_on(fd, "GET /lies HTTP/1.1\r\n" H "\r\n");
        CHECK(got_end == (n != 5));
        close(fd);
        end();
    }
}

static void test_files(void)
{
    char path[] = "/tmp/test-gateway-XXXXXX", text[5001];
    struct http_config c = plain();
    begin(&c);
    toy.file = mkostemp(path, O_CLOEXEC);
    unlink(path);
    for (int i = 0; i < 5000; i++)
        text[i] = (char)('a' + i % 26);
    text[5000] = '\0';
    CHECK(write(toy.file, text, 5000) == 5000);
    int fd = client();
    toy.file_length = toy.file_says = 4000;
    text[4003] = '\0';
    const char *request = "GET /file HTTP/1.1\r\n" H "\r\n";
    CHECK_ANSWER(ask_on(fd, request), 200);
    CHECK_STR(strstr(strbuf_text(&got), "\r\n\r\n") + 4, text + 3);
    toy.file_says = -1;
    CHECK_ANSWER(ask_on(fd, request), 200);
    CHECK(chunked_length(strbuf_text(&got)) == 4000);
    CHECK(has(strbuf_text(&got), text + 3));
    /* two in a row: the second waits until the first is sent */
    toy.file_says = 4000;
    ask_on(fd, "GET /file HTTP/1.1\r\n" H "\r\nGET /health HTTP/1.1\r\n" H "\r\n");
    CHECK(count(strbuf_text(&got), "HTTP/1.1 200") == 2 && has(strbuf_text(&got), "hello"));
    /* it has become shorter: the client must not take this for the whole */
    toy.file_says = toy.file_length = 6000;
    ask_on(fd, request);
    CHECK(got_end);
    close(toy.file);
    close(fd);
    end();
}

static void test_headers_cannot_be_injected(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    const char *answer = ask_on(fd, "GET /injects HTTP/1.1\r\n" H "\r\n");
    CHECK(has(answer, "X-Fine: yes\r\n") && !has(answer, "Injected"));
    close(fd);
    end();
}

static void test_socket_for_another_protocol(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    ask_on(fd, "GET /take HTTP/1.1\r\n" H "Upgrade: websocket\r\nConnection: upgrade\r\n\r\nearly");
    CHECK(toy.taken >= 0 && got.len == 0 && !got_end);
    CHECK_STR(strbuf_text(&toy.early), "early");
    CHECK(write(toy.taken, "hi", 2) == 2);
    CHECK_STR(receive(fd), "hi");
    struct http_counts now;
    http_server_counts(server, &now);
    CHECK(now.connections == 1);
    close(toy.taken);
    http_server_left(toy.server_of_taken);
    http_server_counts(server, &now);
    CHECK(now.connections == 0);
    close(fd);
    end();
}

/* ---- clients that leave or dawdle --------------------------------------------------------- */

static void test_client_gone_while_its_answer_is_made(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    ask_on(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    CHECK(toy.x && toy.closed == 0);
    close(fd);
    turn();
    CHECK(toy.closed == 1);
    end();
}

/* One that only sends no more (`nc -N`) still gets its answer. */
static void test_half_closed_client(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    say_text(fd, "GET /later HTTP/1.1\r\n" H "\r\nGET /health HTTP/1.1\r\n" H "\r\n");
    shutdown(fd, SHUT_WR);
    turn();
    CHECK(toy.closed == 0 && toy.x);
    exchange_json(toy.x, 200, "{\"late\":1}");
    receive(fd);
    CHECK(has(strbuf_text(&got), "{\"late\":1}") && has(strbuf_text(&got), "hello") && got_end);
    close(fd);
    end();
}

static bool ends_within(int fd, double seconds)
{
    for (double t = 0; t < seconds && !got_end; t += 0.02) {
        run_loop(loop, 0.02);
        receive(fd);
    }
    return got_end;
}

static void test_slow_head(void)
{
    struct http_config c = plain();
    c.head_timeout_ms = 100;
    c.idle_timeout_ms = 60000;
    begin(&c);
    int fd = client();
    /* a byte now and then does not help */
    for (int i = 0; i < 200 && !got_end; i++) {
        say(fd, i == 0 ? "G" : i == 1 ? "E" : "T", 1);
        run_loop(loop, 0.02);
        receive(fd);
    }
    CHECK(got_end);
    CHECK_ANSWER(strbuf_text(&got), 408);
    close(fd);
    end();
}

static void test_idle_and_stalled_connections_end(void)
{
    struct http_config c = plain();
    c.idle_timeout_ms = 100;
    c.stall_timeout_ms = 150;
    begin(&c);
    int fd = client();
    CHECK_ANSWER(ask_on(fd, "GET /health HTTP/1.1\r\n" H "\r\n"), 200);
    strbuf_clear(&got);
    CHECK(ends_within(fd, 10) && got.len == 0);
    close(fd);
    fd = client(); /* a body that does not come: */
    ask_on(fd, "PUT /v1/sandbox/a/file/x HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nabc");
    CHECK(ends_within(fd, 10) && toy.closed == 1);
    CHECK_ANSWER(strbuf_text(&got), 408);
    close(fd);
    fd = client(); /* an answer that is not read: */
    toy.floods = 20 << 20;
    say_text(fd, "GET /big HTTP/1.1\r\n" H "\r\n");
    for (int i = 0; i < 500 && toy.closed < 2; i++)
        run_loop(loop, 0.02);
    CHECK(toy.closed == 2);
    close(fd);
    fd = client(); /* but a handler may take its time, also with a body that it does not want yet */
    ask_on(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    run_loop(loop, 0.4);
    CHECK(toy.x && toy.closed == 2);
    exchange_json(toy.x, 200, "{}");
    CHECK_ANSWER(receive(fd), 200);
    close(fd);
    end();
}

/* ---- the server as a whole ---------------------------------------------------------------- */

static int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
        close(fd);
        return -1;
    }
    strbuf_clear(&got);
    got_end = false;
    return fd;
}

static void test_too_many_connections(void)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/test-gateway-%d.sock", (int)getpid());
    char address[80];
    snprintf(address, sizeof address, "unix:%s", path);
    struct http_config c = plain();
    c.max_connections = 2;
    begin(&c);
    struct error e;
    CHECK(http_server_listen(server, address, &e) == 0);
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = dial(path);
        turn();
    }
    CHECK_ANSWER(ask_on(fds[2], ""), 503);
    CHECK(has(strbuf_text(&got), "\"code\":\"capacity_exceeded\"}") && got_end);
    got_end = false;
    CHECK_ANSWER(ask_on(fds[0], "GET /health HTTP/1.1\r\n" H "\r\n"), 200);
    CHECK(!got_end);
    close(fds[1]);
    close(fds[2]);
    turn();
    int fd = dial(path);
    CHECK_ANSWER(ask_on(fd, "GET /health HTTP/1.1\r\n" H "\r\n"), 200);
    struct http_counts now;
    http_server_counts(server, &now);
    CHECK(now.connections == 2 && now.refused == 1 && now.requests == 2 && now.by_class[2] == 2);
    close(fd);
    close(fds[0]);
    end();
    CHECK(access(path, F_OK) < 0);
}

static void test_addresses(void)
{
    static const char *const bad[] = {
        "",        "1.2.3.4", "1.2.3.4:", "1.2.3.4:x",    "host:80",      "1.2.3.4:70000",
        "[::1:80", "unix:",   "[::1]80",  "1.2.3.999:80", "unix:/no/such"};
    static const char *const good[] = {"127.0.0.1:0", "localhost:0", ":0", "0.0.0.0:0"};
    struct http_config c = plain();
    struct error e;
    begin(&c);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (http_server_listen(server, bad[i], &e) == 0 || strncmp(e.text, "listen ", 7) != 0)
            CHECK_FAIL("%s", bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (http_server_listen(server, good[i], &e) < 0)
            CHECK_FAIL("%s: %.400s", good[i], e.text);
    end();
}

static unsigned turns; /* of the loop */

static void on_turn(struct ev_loop *l, ev_check *w, int revents)
{
    (void)l;
    (void)w;
    (void)revents;
    turns++;
}

static void test_no_descriptors_left(void)
{
    char path[64], address[80];
    snprintf(path, sizeof path, "/tmp/test-gateway-%d.sock", (int)getpid());
    snprintf(address, sizeof address, "unix:%s", path);
    struct http_config c = plain();
    begin(&c);
    CHECK(http_server_listen(server, address, NULL) == 0);
    int fd = dial(path);
    struct rlimit old, none;
    getrlimit(RLIMIT_NOFILE, &old);
    none = old;
    none.rlim_cur = (rlim_t)fd;
    setrlimit(RLIMIT_NOFILE, &none);
    ev_check check;
    ev_check_init(&check, on_turn);
    ev_check_start(loop, &check);
    turns = 0;
    run_loop(loop, 0.2);
    CHECK(turns < 20); /* it does not spin */
    setrlimit(RLIMIT_NOFILE, &old);
    strbuf_clear(&got);
    say_text(fd, "GET /health HTTP/1.1\r\n" H "\r\n");
    for (int i = 0; i < 500 && got.len == 0; i++) {
        run_loop(loop, 0.02);
        receive(fd);
    }
    ev_check_stop(loop, &check);
    CHECK_ANSWER(strbuf_text(&got), 200);
    close(fd);
    end();
}

static void test_idle_connections_are_cheap(void)
{
    enum { COUNT = 400 };
    int fds[COUNT];
    struct http_config c = plain();
    c.max_connections = COUNT;
    begin(&c);
    for (int i = 0; i < COUNT; i++)
        fds[i] = client();
    turn();
    size_t used = 0;
#if !IS_ASAN
    size_t before = mallinfo2().uordblks;
#endif
    for (int i = 0; i < COUNT; i++)
        CHECK_ANSWER(ask_on(fds[i], "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H
                                    "Content-Length: 3\r\n\r\nabc"),
                     200);
#if !IS_ASAN
    used = mallinfo2().uordblks - before;
#endif
    CHECK(used < (size_t)COUNT * 64); /* nothing but what is there for libev and the rig */
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    turn();
    struct http_counts now;
    http_server_counts(server, &now);
    CHECK(now.connections == 0);
    end();
}

static void test_stop_ends_the_idle_and_lets_the_others_finish(void)
{
    struct http_config c = plain();
    begin(&c);
    int idle = client(), busy = client();
    ask_on(busy, "GET /later HTTP/1.1\r\n" H "\r\n");
    http_server_stop(server);
    receive(idle);
    CHECK(got_end);
    got_end = false;
    exchange_json(toy.x, 200, "{\"late\":1}");
    const char *answer = receive(busy);
    CHECK(has(answer, "late") && has(answer, "Connection: close") && got_end);
    close(idle);
    close(busy);
    end();
}

static void test_free_tells_owners(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    ask_on(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    http_server_free(server);
    server = NULL;
    CHECK(toy.closed == 1);
    close(fd);
    end();
}

#if !IS_ASAN
/* Each allocation fails in turn: that connection ends, or its answer comes; never anything else. */
static void test_without_memory(void)
{
    struct http_config c = plain();
    begin(&c);
    strbuf_reserve(&got, 1 << 16);
    unsigned answered = 0, ended = 0;
    for (int fails = 1; fails < 40; fails++) {
        int fd = client();
        say_text(fd, "POST /v1/sandbox/a/whole?x=y HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nabc");
        memory_until_failure = fails;
        say_text(fd, "def");
        say_text(fd, "ghiGET /headers HTTP/1.1\r\n" H "X-Many: a\r\nX-Many: b\r\n\r\n");
        turn();
        memory_until_failure = -1;
        receive(fd);
        unsigned answers = count(strbuf_text(&got), "HTTP/1.1 200");
        CHECK(answers == 2 || got_end);
        answered += answers == 2;
        ended += got_end;
        close(fd);
        turn();
    }
    CHECK(answered > 3 && ended > 3);
    struct http_counts now;
    http_server_counts(server, &now);
    CHECK(now.connections == 0);
    end();
}
#endif

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_answers_and_keeps_the_connection),
        CHECK_TEST(test_pipelined_requests_are_answered_in_order),
        CHECK_TEST(test_many_pipelined_requests),
        CHECK_TEST(test_byte_by_byte),
        CHECK_TEST(test_bad_heads),
        CHECK_TEST(test_nul_in_the_head),
        CHECK_TEST(test_good_heads),
        CHECK_TEST(test_bytes_beyond_ascii_in_a_path_count_as_escapes),
        CHECK_TEST(test_long_urls_and_headers),
        CHECK_TEST(test_repeated_headers_are_joined),
        CHECK_TEST(test_order_of_checks),
        CHECK_TEST(test_tokens),
        CHECK_TEST(test_one_sandbox_only),
        CHECK_TEST(test_rest_of_a_path),
        CHECK_TEST(test_cors),
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
        CHECK_TEST(test_head_requests),
        CHECK_TEST(test_old_clients),
        CHECK_TEST(test_slow_reader),
        CHECK_TEST(test_handler_that_does_not_stop_is_cut),
        CHECK_TEST(test_announced_length_is_kept_or_the_connection_cut),
        CHECK_TEST(test_files),
        CHECK_TEST(test_headers_cannot_be_injected),
        CHECK_TEST(test_socket_for_another_protocol),
        CHECK_TEST(test_client_gone_while_its_answer_is_made),
        CHECK_TEST(test_half_closed_client),
        CHECK_TEST(test_slow_head),
        CHECK_TEST(test_idle_and_stalled_connections_end),
        CHECK_TEST(test_too_many_connections),
        CHECK_TEST(test_addresses),
        CHECK_TEST(test_no_descriptors_left),
        CHECK_TEST(test_idle_connections_are_cheap),
        CHECK_TEST(test_stop_ends_the_idle_and_lets_the_others_finish),
        CHECK_TEST(test_free_tells_owners),
#if !IS_ASAN
        CHECK_TEST(test_without_memory),
#endif
    };
#if !IS_ASAN
    ev_set_allocator(allocate_for_libev);
#endif
    loop = ev_loop_new(EVFLAG_AUTO);
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
