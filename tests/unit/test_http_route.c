/*
 * Which requests to the gateway are let in, and to whom: routes, tokens, the id, CORS.
 */
#include "tests/unit/http_rig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void test_order_of_checks(void)
{
    static const struct sample all[] = {
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

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_order_of_checks),
        CHECK_TEST(test_tokens),
        CHECK_TEST(test_one_sandbox_only),
        CHECK_TEST(test_rest_of_a_path),
        CHECK_TEST(test_cors),
    };
    return run_http_tests(tests, sizeof tests / sizeof tests[0]);
}
