/*
 * Answers of the gateway: handlers that answer early, late, too much or with a file, and clients
 * that read slowly.
 */
#include "tests/unit/http_rig.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_head_requests),
        CHECK_TEST(test_old_clients),
        CHECK_TEST(test_slow_reader),
        CHECK_TEST(test_handler_that_does_not_stop_is_cut),
        CHECK_TEST(test_announced_length_is_kept_or_the_connection_cut),
        CHECK_TEST(test_files),
        CHECK_TEST(test_headers_cannot_be_injected),
        CHECK_TEST(test_socket_for_another_protocol),
    };
    return run_http_tests(tests, sizeof tests / sizeof tests[0]);
}
