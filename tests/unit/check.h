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

/* Fail with a text of one's own. */
#define CHECK_FAIL(...)                                                                            \
    do {                                                                                           \
        char check_text[512];                                                                      \
        snprintf(check_text, sizeof check_text, __VA_ARGS__);                                      \
        check_fail(__FILE__, __LINE__, check_text);                                                \
        return;                                                                                    \
    } while (0)

static int check_failures; /* of the whole program */

static inline void check_one(const char *name, void (*run)(void))
{
    check_name = name;
    check_has_failed = false;
    run();
    if (!check_has_failed)
        printf("ok %s\n", name);
    fflush(stdout);
    check_failures += check_has_failed;
}

/* For a main() that calls its tests one by one and returns check_failures. */
#define RUN(test) check_one(#test, test)

static inline int check_run(const struct check_test *tests, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_one(tests[i].name, tests[i].run);
    return check_failures > 0;
}

#endif
