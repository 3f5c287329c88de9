/* Where a terminal's output may be cut, and the keys that detach from one. */
#include "tests/unit/check.h"

#include "ctl/detach_keys.h"
#include "sessions/replay.h"

#include <stdlib.h>

/* ---- the cut ---- */

/* Sequences that may not be cut, each as often as makes its place differ from the marks' step. */
static const char *const sequences[] = {
    "\xc3\xa4",
    "\xe2\x82\xac",
    "\xf0\x9f\x98\x80",
    "\x1b[1;31m",
    "\x1b[?2004h",
    "\x1b]0;a title\x07",
    "\x1b]8;;http://x/\x1b\\",
    "\x1bP1$r0m\x1b\\",
    "\x1b_apc\x1b\\",
    "\x1b(B",
    "\x1b#8",
    "\x1b"
    "7",
    "\x1b[\x0a"
    "5C", /* a newline within: it is carried out at once */
};

/* No mark stands inside of any of them, however the bytes were cut into reads. */
static void marks_stand_between(void)
{
    for (size_t s = 0; s < sizeof sequences / sizeof sequences[0]; s++) {
        for (size_t chunk = 1; chunk < 4096; chunk = chunk * 3 + 1) {
            size_t n = strlen(sequences[s]), total = n * (600000 / n);
            char *bytes = malloc(total);
            struct replay r = {0};
            for (size_t i = 0; bytes && i < total; i++)
                bytes[i] = sequences[s][i % n];
            for (size_t i = 0; bytes && i < total; i += chunk)
                replay_take(&r, bytes + i, chunk < total - i ? chunk : total - i);
            free(bytes);
            uint64_t begin = replay_begin(&r);
            CHECK(r.end == total && begin % n == 0);
            CHECK(begin >= total - REPLAY_MAX && begin < total - REPLAY_MAX + 4 * REPLAY_STEP);
            for (uint64_t at = 0; at < total; at += 777)
                CHECK(replay_safe_from(&r, at) % n == 0);
        }
    }
}

static void short_output_is_replayed_whole(void)
{
    struct replay r = {0};
    CHECK(replay_begin(&r) == 0);
    replay_take(&r, "\x1b[3", 3);
    CHECK(replay_begin(&r) == 0 && replay_safe_from(&r, 1) == UINT64_MAX);
    replay_take(&r, "m", 1);
    CHECK(replay_safe_from(&r, 1) == 4);
}

static void lines_are_preferred(void)
{
    struct replay r = {0};
    char line[100];
    memset(line, 'x', sizeof line);
    line[99] = '\n';
    for (int i = 0; i < 2000; i++)
        replay_take(&r, line, sizeof line);
    CHECK(replay_begin(&r) % 100 == 0);
}

/* What was no sequence, or never ends, does not keep the output from being cut for ever. */
static void gets_out_of_anything(void)
{
    static const char *const traps[] = {"\x1bP", "\x1b]",    "\x1b[", "\x1b(",
                                        "\xf0",  "\xe2\x82", "\x1b"};
    for (size_t t = 0; t < sizeof traps / sizeof traps[0]; t++) {
        struct replay r = {0};
        replay_take(&r, traps[t], strlen(traps[t]));
        for (int i = 0; i < 500000; i++)
            replay_take(&r, "0", 1);
        CHECK(replay_begin(&r) != UINT64_MAX);
        replay_take(&r, "\x18.", 2); /* CAN */
        CHECK(replay_safe_from(&r, r.end) == r.end);
    }
}

static void any_bytes(void)
{
    struct replay r = {0};
    srand(1);
    for (int i = 0; i < 1000000; i++) {
        char c = (char)(rand() & 255);
        replay_take(&r, &c, 1);
        if (i % 1000 == 0) {
            uint64_t begin = replay_begin(&r);
            CHECK(begin == UINT64_MAX || begin <= r.end);
        }
    }
}

/* ---- the keys ---- */

/* What goes on of typed, cut into reads of `chunk` bytes; *found: the sequence was complete. */
static size_t type(const char *keys, const char *typed, size_t chunk, char *to, bool *found)
{
    struct detach_keys k;
    size_t n = strlen(typed), total = 0;
    *found = false;
    if (detach_keys_parse(&k, keys) < 0)
        return (size_t)-1;
    for (size_t i = 0; i < n && !*found; i += chunk) {
        size_t out, part = chunk < n - i ? chunk : n - i;
        *found = detach_keys_take(&k, typed + i, part, to + total, &out) > 0;
        total += out;
    }
    to[total] = '\0';
    return total;
}

static void keys_are_found(void)
{
    static const struct {
        const char *keys, *typed, *passed;
        bool found;
    } rows[] = {
        {"C-] d",
         "ab\x1d"
         "dxy",
         "ab", true},
        {"C-] d",
         "\x1dx\x1d"
         "d",
         "\x1dx", true},
        {"C-] d",
         "\x1d\x1d"
         "d",
         "\x1d", true},
        {"C-] d", "d\x1d", "d", false}, /* held back: it may go on */
        {"ctrl-p,ctrl-q", "\x10\x11", "", true},
        {"^P ^Q", "\x10\x10\x11", "\x10", true},
        {"a a b", "aaab", "a", true},
        {"a b a c", "ababac", "ab", true},
        {"a b a c", "abababab", "ababab", false},
        {"~", "x~y", "x", true},
        {"none",
         "\x1d"
         "d",
         "\x1d"
         "d",
         false},
        {"", "anything", "anything", false},
        {"C-? ,", "\x7f", "", true},
    };
    char to[64];
    bool found;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t chunk = 1; chunk < 8; chunk++) {
            CHECK(type(rows[i].keys, rows[i].typed, chunk, to, &found) != (size_t)-1);
            CHECK(found == rows[i].found);
            if (rows[i].found || strcmp(rows[i].passed, to) != 0)
                CHECK_STR(to, rows[i].passed);
        }
}

static void keys_that_are_none(void)
{
    static const char *const bad[] = {
        "ctrl-",   "C-",  "abc",      "C-]d",
        "ctrl-]]", "C-1", "\xc3\xa4", "a a a a a a a a a a a a a a a a a"};
    struct detach_keys k;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(detach_keys_parse(&k, bad[i]) < 0);
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(marks_stand_between), CHECK_TEST(short_output_is_replayed_whole),
        CHECK_TEST(lines_are_preferred), CHECK_TEST(gets_out_of_anything),
        CHECK_TEST(any_bytes),           CHECK_TEST(keys_are_found),
        CHECK_TEST(keys_that_are_none),
    };
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
