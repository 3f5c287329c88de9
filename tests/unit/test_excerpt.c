/*
 * sessions/excerpt: held against a plain model with random pieces and a client that takes bytes as
 * it pleases; what finds no room is left out and told; numbers of calls (base/hash).
 */
#include "base/hash.h"
#include "sessions/excerpt.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define ROOM 40000

struct client {
    char got[STREAM_COUNT][ROOM];
    size_t len[STREAM_COUNT];
    uint64_t cut_at[STREAM_COUNT], cut_from[STREAM_COUNT], cut_to[STREAM_COUNT];
    unsigned cuts[STREAM_COUNT];
    unsigned patience; /* deliveries until it takes no more */
};

static enum deliver on_bytes(void *owner, enum stream s, const char *bytes, size_t n)
{
    struct client *c = owner;
    if (c->patience == 0)
        return DELIVER_FULL;
    c->patience--;
    if (c->len[s] + n > ROOM)
        return DELIVER_GONE;
    memcpy(c->got[s] + c->len[s], bytes, n);
    c->len[s] += n;
    return DELIVERED;
}

static void on_cut(void *owner, enum stream s, uint64_t from, uint64_t to)
{
    struct client *c = owner;
    c->cuts[s]++;
    c->cut_at[s] = c->len[s];
    c->cut_from[s] = from;
    c->cut_to[s] = to;
}

static const struct excerpt_events events = {.on_bytes = on_bytes, .on_cut = on_cut};

/* All of it came, or head and tail of the limit. */
static bool is_right(const struct client *c, enum stream s, const char *all, size_t n,
                     uint64_t limit)
{
    if (n <= limit)
        return c->cuts[s] == 0 && c->len[s] == n && memcmp(c->got[s], all, n) == 0;
    size_t head = (size_t)limit / 2, tail = (size_t)limit - head;
    return c->cuts[s] == 1 && c->cut_at[s] == head && c->cut_from[s] == head &&
           c->cut_to[s] == n - tail && c->len[s] == limit && memcmp(c->got[s], all, head) == 0 &&
           memcmp(c->got[s] + head, all + n - tail, tail) == 0;
}

static void one_random_run(void)
{
    static char all[STREAM_COUNT][ROOM];
    static struct client c;
    struct excerpt x;
    size_t len[STREAM_COUNT] = {0};
    uint64_t limit = 1 + (uint64_t)(rand() % (rand() % 3 ? 300 : 20000));
    memset(&c, 0, sizeof c);
    excerpt_init(&x, limit, &events, &c);
    for (int pieces = rand() % 60; pieces > 0; pieces--) {
        enum stream s = rand() % 2 ? STREAM_STDOUT : STREAM_STDERR;
        size_t n = (size_t)(rand() % (rand() % 4 ? 50 : 900));
        if (len[s] + n > ROOM)
            break;
        for (size_t i = 0; i < n; i++) /* ASCII: a cut need not look for characters */
            all[s][len[s] + i] = (char)(rand() % 128);
        c.patience = (unsigned)(rand() % 3);
        excerpt_add(&x, s, all[s] + len[s], n);
        len[s] += n;
        if (rand() % 4 == 0)
            CHECK(!excerpt_pump(&x));
    }
    excerpt_complete(&x);
    for (int turns = 0;; turns++) {
        c.patience = 1;
        if (excerpt_pump(&x))
            break;
        CHECK(turns < 100);
    }
    for (enum stream s = 0; s < STREAM_COUNT; s++) {
        CHECK(is_right(&c, s, all[s], len[s], limit));
        CHECK(excerpt_kept(&x, s) == c.len[s]);
    }
    CHECK(excerpt_is_exceeded(&x) == (len[STREAM_STDOUT] > limit || len[STREAM_STDERR] > limit));
    excerpt_free(&x);
}

static void test_random_runs(void)
{
    srand(7);
    for (int i = 0; i < 3000; i++)
        one_random_run();
}

/* Without a descriptor for its file what must wait is left out, and that is told. */
static void test_no_room(void)
{
    static struct client c;
    struct rlimit old, none;
    struct excerpt x;
    memset(&c, 0, sizeof c);
    getrlimit(RLIMIT_NOFILE, &old);
    none = old;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    excerpt_init(&x, 1000, &events, &c);
    c.patience = 1;
    excerpt_add(&x, STREAM_STDOUT, "taken ", 6);
    excerpt_add(&x, STREAM_STDOUT, "must wait", 9);
    c.patience = 100;
    excerpt_add(&x, STREAM_STDOUT, "and this", 8);
    excerpt_complete(&x);
    CHECK(excerpt_pump(&x));
    setrlimit(RLIMIT_NOFILE, &old);
    CHECK(c.len[STREAM_STDOUT] == 6 && c.cuts[STREAM_STDOUT] == 1);
    CHECK(c.cut_from[STREAM_STDOUT] == 6 && c.cut_to[STREAM_STDOUT] == 23);
    CHECK(excerpt_kept(&x, STREAM_STDOUT) == 6);
    excerpt_free(&x);
}

static void test_hash(void)
{
    uint64_t a = hash_add(hash_add(HASH_START, "ab", 2), "c", 1);
    CHECK(a == hash_add(hash_add(HASH_START, "ab", 2), "c", 1));
    CHECK(a != hash_add(hash_add(HASH_START, "a", 1), "bc", 2));
    CHECK(a != hash_add(HASH_START, "abc", 3));
    CHECK(hash_add(HASH_START, "", 0) != HASH_START);
    CHECK(hash_add(HASH_START, "\0", 1) != hash_add(HASH_START, "\0\0", 2));
    CHECK(hash_add(HASH_START, NULL, 0) == hash_add(HASH_START, "", 0));
    /* One bit in any place makes another number. */
    char text[300];
    memset(text, 'x', sizeof text);
    uint64_t before = hash_add(HASH_START, text, sizeof text);
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] ^= 1;
        CHECK(hash_add(HASH_START, text, sizeof text) != before);
        text[i] ^= 1;
    }
}

int main(void)
{
    RUN(test_random_runs);
    RUN(test_no_room);
    RUN(test_hash);
    return check_failures != 0;
}
