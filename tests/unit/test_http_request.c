/*
 * Heads of requests to the gateway: whole, in pieces, one behind the other, in every state of
 * brokenness.
 */
#include "tests/unit/http_rig.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* What is no request, or may be read in two ways: an answer and the end of the connection. */
static void test_bad_heads(void)
{
    static const struct sample all[] = {
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
    static const struct sample all[] = {
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
    };
    return run_http_tests(tests, sizeof tests / sizeof tests[0]);
}
