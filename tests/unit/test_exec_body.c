/* gateway/exec_body.h, json_body.h, shell_words.h: what an exec request says. */
#include "gateway/exec_body.h"
#include "gateway/json_body.h"
#include "gateway/shell_words.h"
#include "tests/unit/check.h"

#include <stdlib.h>

static struct exec_body body;
static const char *why;

static int parse_bytes(const char *json, size_t n)
{
    exec_body_free(&body);
    why = "";
    return exec_body_parse(&body, json, n, "/workspace", &why);
}

static int parse(const char *json)
{
    return parse_bytes(json, strlen(json));
}

/* The argv of the last parse, with blanks between. */
static const char *argv_text(void)
{
    static char text[4096];
    memcpy(text, body.argv.data, body.argv.len);
    for (size_t i = 0; i + 1 < body.argv.len; i++)
        if (!text[i])
            text[i] = '|';
    return text;
}

static void test_what_is_refused(void)
{
    static const struct {
        const char *json;
        int status;
        const char *why;
    } cases[] = {
        {"", 400, "Invalid JSON body"},
        {"x", 400, "Invalid JSON body"},
        {"{\"argv\":[\"a\"]", 400, "Invalid JSON body"},
        {"{\"argv\":[\"a\"]} x", 400, "Invalid JSON body"},
        {"{\"argv\":[\"a\"],\"argv\":[\"b\"]}", 400, "Invalid JSON body"},
        {"{\"argv\":[\"\xff\"]}", 400, "Invalid JSON body"},
        {"null", 400, "argv must be a non-empty array"},
        {"5", 400, "argv must be a non-empty array"},
        {"[]", 400, "argv must be a non-empty array"},
        {"{}", 400, "argv must be a non-empty array"},
        {"{\"argv\":[]}", 400, "argv must be a non-empty array"},
        {"{\"argv\":\"ls\"}", 400, "argv must be a non-empty array"},
        {"{\"argv\":{\"0\":\"ls\"}}", 400, "argv must be a non-empty array"},
        {"{\"argv\":[\"a\\u0000b\"]}", 400, "argv must not contain NUL characters"},
        {"{\"argv\":[\"a\"],\"cwd\":\"/tmp\"}", 403,
         "cwd must resolve to a location within /workspace"},
        {"{\"argv\":[\"a\"],\"cwd\":\"..\"}", 403,
         "cwd must resolve to a location within /workspace"},
        {"{\"argv\":[\"a\"],\"cwd\":\"/workspacefoo\"}", 403,
         "cwd must resolve to a location within /workspace"},
        {"{\"argv\":[\"a\"],\"cwd\":5}", 400, "cwd must be a string"},
        {"{\"argv\":[\"a\"],\"cwd\":\"a\\u0000\"}", 400, "cwd must not contain NUL characters"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(parse(cases[i].json) == cases[i].status);
        CHECK_STR(why, cases[i].why);
    }
}

static void test_too_deep_is_no_json(void)
{
    struct strbuf deep = {0};
    for (int i = 0; i < 10000; i++)
        strbuf_adds(&deep, "[");
    CHECK(parse_bytes(deep.data, deep.len) == 400);
    CHECK_STR(why, "Invalid JSON body");
    strbuf_clear(&deep);
    strbuf_adds(&deep, "{\"argv\":");
    for (int i = 0; i < 2000; i++)
        strbuf_adds(&deep, "[");
    strbuf_adds(&deep, "7");
    for (int i = 0; i < 2000; i++)
        strbuf_adds(&deep, "]");
    strbuf_adds(&deep, "}");
    CHECK(parse_bytes(deep.data, deep.len) == 0);
    CHECK_STR(argv_text(), "7");
    strbuf_free(&deep);
}

static void test_items_become_text_as_in_javascript(void)
{
    CHECK(parse("{\"argv\":[\"a b\",1,-1,0,-0.0,1.0,1.5,true,false,null]}") == 0);
    CHECK_STR(argv_text(), "a b|1|-1|0|0|1|1.5|true|false|null");
    CHECK(parse("{\"argv\":[123456789012345680000,1e21,1.5e21,1e-6,1.25e-6,1e-7,1.5e-7]}") == 0);
    CHECK_STR(argv_text(), "123456789012345680000|1e+21|1.5e+21|0.000001|0.00000125|1e-7|1.5e-7");
    CHECK(parse("{\"argv\":[0.1,0.30000000000000004,9007199254740993,1e308,5e-324,100,120.5]}") ==
          0);
    CHECK_STR(argv_text(), "0.1|0.30000000000000004|9007199254740992|1e+308|5e-324|100|120.5");
    CHECK(parse("{\"argv\":[[1,[2,null,\"x\"],[]],{\"a\":1},[null],\"\"]}") == 0);
    CHECK_STR(argv_text(), "1,2,,x,|[object Object]||");
}

static void test_timeouts(void)
{
    CHECK(parse("{\"argv\":[\"a\"]}") == 0);
    CHECK(!body.has_timeout);
    CHECK(parse("{\"argv\":[\"a\"],\"timeout_ms\":\"5\"}") == 0);
    CHECK(!body.has_timeout);
    CHECK(parse("{\"argv\":[\"a\"],\"timeout_ms\":null}") == 0);
    CHECK(!body.has_timeout);
    CHECK(parse("{\"argv\":[\"a\"],\"timeout_ms\":0}") == 0);
    CHECK(body.has_timeout && body.timeout_ms == 0.);
    CHECK(parse("{\"argv\":[\"a\"],\"timeout_ms\":-7.5}") == 0);
    CHECK(body.has_timeout && body.timeout_ms == -7.5);
}

static void test_folders(void)
{
    CHECK(parse("{\"argv\":[\"a\"],\"cwd\":null}") == 0);
    CHECK(!body.has_cwd);
    CHECK(parse("{\"argv\":[\"a\"],\"cwd\":\"a/../b\"}") == 0);
    CHECK(body.has_cwd);
    CHECK_STR(strbuf_text(&body.cwd), "/workspace/b");
    CHECK(parse("{\"argv\":[\"a\"],\"cwd\":\"\"}") == 0);
    CHECK_STR(strbuf_text(&body.cwd), "/workspace");
}

static const char *words(const char *argv, size_t n)
{
    static struct strbuf to;
    strbuf_clear(&to);
    return shell_words(argv, n, &to) < 0 ? "no memory" : strbuf_text(&to);
}

static void test_words_for_a_shell(void)
{
    static const char argv[] = "echo\0a b\0\0it's\0$x\0A_Z9@%+=:,./-\0\xc3\xa9\n";
    CHECK_STR(words(argv, sizeof argv), "echo 'a b' '' 'it'\\''s' '$x' A_Z9@%+=:,./- '\xc3\xa9\n'");
    CHECK(needs_shell("cd") && needs_shell("exit") && needs_shell(".") && needs_shell("A=b"));
    CHECK(!needs_shell("ls") && !needs_shell("") && !needs_shell("./cd") && !needs_shell("=b"));
    CHECK(!needs_shell("1A=b") && !needs_shell("a/b=c") && !needs_shell("A=b c"));
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_what_is_refused),
        CHECK_TEST(test_too_deep_is_no_json),
        CHECK_TEST(test_items_become_text_as_in_javascript),
        CHECK_TEST(test_timeouts),
        CHECK_TEST(test_folders),
        CHECK_TEST(test_words_for_a_shell),
    };
    int rc = check_run(tests, sizeof tests / sizeof tests[0]);
    exec_body_free(&body);
    return rc;
}
