/*
 * A test program in a few lines: a table of tests, one "ok NAME" or "not ok NAME: FILE:LINE: …"
 * per test, exit status 1 if one failed. A failing CHECK ends its test.
 *
 *     static void test_adds(void) { CHECK(1 + 1 == 2); }
 *     int main(void) { static const struct check_test tests[] = {CHECK_TEST(test_adds)};
 *                      return check_run(tests, sizeof tests / sizeof tests[0]); }
 */
#ifndef TESTS_UNIT_CHECK_H
#define TESTS_UNIT_CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct check_test {
    const char *name;
    void (*run)(void);
};
#define CHECK_TEST(function)                                                                       \
    {                                                                                              \
#function, function                                                                        \
    }

static const char *check_name; /* of the test that runs */
static bool check_has_failed;

static inline void check_fail(const char *file, int line, const char *what)
{
    if (!check_has_failed)
        printf("not ok %s: %s:%d: %s\n", check_name, file, line, what);
    check_has_failed = true;
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            check_fail(__FILE__, __LINE__, #condition);                                            \
            return;                                                                                \
        }                                                                                          \
    } while (0)

static inline bool check_is_same(const char *file, int line, const char *what, const char *got,
                                 const char *want)
{
    if (got && want ? strcmp(got, want) == 0 : got == want)
        return true;
    check_fail(file, line, what);
    printf("  got  %s\n  want %s\n", got ? got : "(NULL)", want ? want : "(NULL)");
    return false;
}

/* Compare two strings; NULL counts as a text of its own. */
#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        if (!check_is_same(__FILE__, __LINE__, #got, (got), (want)))                               \
            return;                                                                                \
    } while (0)

static inline int check_run(const struct check_test *tests, size_t count)
{
    bool any_failed = false;
    for (size_t i = 0; i < count; i++) {
        check_name = tests[i].name;
        check_has_failed = false;
        tests[i].run();
        if (!check_has_failed)
            printf("ok %s\n", check_name);
        fflush(stdout);
        any_failed = any_failed || check_has_failed;
    }
    return any_failed;
}

#endif
