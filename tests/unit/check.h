/* What a unit test needs. A test function returns after its first failed check. */
#ifndef TESTS_UNIT_CHECK_H
#define TESTS_UNIT_CHECK_H

#include <stdio.h>
#include <string.h>

static int check_failures; /* of the whole program; main() returns it */
static int check_failed;   /* the present test */

#define CHECK_FAIL(...)                                                                            \
    do {                                                                                           \
        printf("not ok %s: %s:%d ", __func__, __FILE__, __LINE__);                                 \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        check_failed = 1;                                                                          \
        return;                                                                                    \
    } while (0)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            CHECK_FAIL("%s", #cond);                                                               \
    } while (0)

#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *check_got = (got), *check_want = (want);                                       \
        if (!check_got || strcmp(check_got, check_want) != 0)                                      \
            CHECK_FAIL("%s is '%s', not '%s'", #got, check_got ? check_got : "(null)",             \
                       check_want);                                                                \
    } while (0)

#define RUN(test_fn)                                                                               \
    do {                                                                                           \
        check_failed = 0;                                                                          \
        test_fn();                                                                                 \
        if (check_failed)                                                                          \
            check_failures++;                                                                      \
        else                                                                                       \
            printf("ok %s\n", #test_fn);                                                           \
        fflush(stdout);                                                                            \
    } while (0)

#endif
