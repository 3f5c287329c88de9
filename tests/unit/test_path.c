/* gateway/path.h: names that come from outside. */
#include "gateway/path.h"
#include "tests/unit/check.h"

#include <stdlib.h>

/* The decoded text, or "refused"; until the next call. */
static const char *decoded(const char *text, bool plus)
{
    static struct strbuf to;
    strbuf_clear(&to);
    return percent_decode(text, strlen(text), plus, &to) < 0 ? "refused" : strbuf_text(&to);
}

static void test_percent_escapes_are_decoded(void)
{
    CHECK_STR(decoded("a%20b%2Fc%2f%C3%A9", false), "a b/c/\xc3\xa9");
    CHECK_STR(decoded("", false), "");
    CHECK_STR(decoded("%25", false), "%");
    CHECK_STR(decoded("%2525", false), "%25"); /* once, not twice */
    CHECK_STR(decoded("a+b", false), "a+b");
    CHECK_STR(decoded("a+b%2B", true), "a b+");
}

static void test_bad_escapes_are_refused(void)
{
    static const char *const bad[] = {"%",   "%2",    "a%",   "%zz", "%2g", "%g2",
                                      "%00", "a%00b", "%%20", "%-1", "% 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_STR(decoded(bad[i], false), "refused");
    struct strbuf to = {0};
    CHECK(percent_decode("a\0b", 3, false, &to) < 0);
    CHECK(percent_decode("%4", 2, false, &to) < 0);
    strbuf_free(&to);
}

static void test_ids(void)
{
    char longest[130];
    memset(longest, 'a', sizeof longest);
    longest[128] = '\0';
    CHECK(is_sandbox_id("abc234567xyz") && is_sandbox_id("a") && is_sandbox_id(longest));
    CHECK(is_session_id("A.b_c-9") && is_session_id("-") && is_session_id(".") &&
          is_session_id(longest));
    longest[128] = 'a';
    longest[129] = '\0';
    CHECK(!is_sandbox_id(longest) && !is_session_id(longest));
    static const char *const bad[] = {"",    "A",    "a1",  "a0",  "a8",
                                      "a-b", "a%61", "a b", "a/b", "a\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!is_sandbox_id(bad[i]));
    static const char *const bad_sessions[] = {"", "..", "a..b", "a/b", "a b", "\xc3\xa9", "a\n"};
    for (size_t i = 0; i < sizeof bad_sessions / sizeof bad_sessions[0]; i++)
        CHECK(!is_session_id(bad_sessions[i]));
}

static const char *resolved(const char *workspace, const char *path)
{
    static struct strbuf to;
    switch (workspace_resolve(workspace, path, &to)) {
    case 0:
        return strbuf_text(&to);
    case -1:
        return "outside";
    default:
        return "no memory";
    }
}

static void test_paths_in_the_workspace(void)
{
    static const char *const cases[][2] = {
        {"/workspace", "/workspace"},
        {"/workspace/", "/workspace"},
        {"//workspace//a///b/", "/workspace/a/b"},
        {"", "/workspace"},
        {".", "/workspace"},
        {"a/./b", "/workspace/a/b"},
        {"a/../b", "/workspace/b"},
        {"./a", "/workspace/a"},
        {"/workspace/..a", "/workspace/..a"},
        {"/workspace/...", "/workspace/..."},
        {"/tmp/../workspace/x", "/workspace/x"},
        {"/../../workspace", "/workspace"},
        {"../workspace/x", "/workspace/x"},
        {"-rf", "/workspace/-rf"},
        {"a\nb", "/workspace/a\nb"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_STR(resolved("/workspace", cases[i][0]), cases[i][1]);
}

static void test_paths_outside(void)
{
    static const char *const bad[] = {"/",
                                      "..",
                                      "/workspacefoo",
                                      "../workspacefoo",
                                      "/workspac",
                                      "/tmp",
                                      "a/../../b",
                                      "/workspace/..",
                                      "/etc",
                                      "/workspace/../etc/passwd",
                                      "/Workspace",
                                      "../..",
                                      "/workspace/a/../../tmp"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_STR(resolved("/workspace", bad[i]), "outside");
}

static void test_other_workspaces(void)
{
    CHECK_STR(resolved("/", "/etc"), "/etc");
    CHECK_STR(resolved("/", ".."), "/");
    CHECK_STR(resolved("/", ""), "/");
    CHECK_STR(resolved("/a/b/", "c"), "/a/b/c");
    CHECK_STR(resolved("/a/./b//", "/a/b/c"), "/a/b/c");
    CHECK_STR(resolved("/a/b", "/a"), "outside");
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_percent_escapes_are_decoded),
        CHECK_TEST(test_bad_escapes_are_refused),
        CHECK_TEST(test_ids),
        CHECK_TEST(test_paths_in_the_workspace),
        CHECK_TEST(test_paths_outside),
        CHECK_TEST(test_other_workspaces),
    };
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
