/*
 * The file of a stream: bytes 0 … half-1 are its head, behind it stands a ring of the newest bytes,
 * in which byte `at` of the stream (at >= half) has the place half + (at - half) % ring. So as long
 * as the limit is not exceeded every byte stands at its own offset.
 */
#include "sessions/excerpt.h"
#include "base/fd.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EDGE 3 /* bytes of a UTF-8 character that may lie before a cut inside it */

/* One buffer serves all: the loop is single-threaded and no delivery reenters. */
static char buffer[OUTPUT_CHUNK];

static uint64_t half(const struct excerpt *x)
{
    return x->limit / 2;
}

static uint64_t ring(const struct excerpt *x)
{
    return x->limit - half(x);
}

/* Where a byte of the stream stands, and how many can follow it there without going round. */
static uint64_t place(const struct excerpt *x, uint64_t at, uint64_t *room)
{
    if (at < half(x)) {
        *room = half(x) - at;
        return at;
    }
    uint64_t within = (at - half(x)) % ring(x);
    *room = ring(x) - within;
    return half(x) + within;
}

void excerpt_init(struct excerpt *x, uint64_t limit, const struct excerpt_events *events,
                  void *owner)
{
    *x = (struct excerpt){.limit = limit, .events = events, .owner = owner};
    for (enum stream s = 0; s < STREAM_COUNT; s++) {
        x->streams[s].fd = -1;
        x->streams[s].stored = UINT64_MAX;
    }
}

void excerpt_free(struct excerpt *x)
{
    for (enum stream s = 0; s < STREAM_COUNT; s++)
        if (x->limit)
            fd_close(&x->streams[s].fd);
}

/* Keep bytes that begin at `at`; only the newest of what goes round more than once. */
static int store(const struct excerpt *x, struct excerpt_stream *t, uint64_t at, const char *bytes,
                 size_t n)
{
    if (t->fd < 0 && (t->fd = memfd_create("sandbox-excerpt", MFD_CLOEXEC)) < 0)
        return -1;
    if (at >= half(x) && n > ring(x)) {
        bytes += n - ring(x);
        at += n - ring(x);
        n = (size_t)ring(x);
    }
    while (n > 0) {
        uint64_t room, to = place(x, at, &room);
        size_t k = n < room ? n : (size_t)room;
        if (pwrite(t->fd, bytes, k, (off_t)to) != (ssize_t)k)
            return -1;
        bytes += k;
        at += k;
        n -= k;
    }
    return 0;
}

/* Deliver bytes that nobody kept. Returns how many. */
static size_t pass_on(struct excerpt *x, enum stream s, const char *bytes, size_t n)
{
    struct excerpt_stream *t = &x->streams[s];
    uint64_t live = half(x) > EDGE ? half(x) - EDGE : 0; /* the end of the head may be cut */
    if (t->sent != t->seen || t->sent >= live)
        return 0;
    size_t k = n < live - t->sent ? n : (size_t)(live - t->sent);
    if (x->events->on_bytes(x->owner, s, bytes, k) != DELIVERED)
        return 0;
    t->sent += k;
    return k;
}

void excerpt_add(struct excerpt *x, enum stream s, const char *bytes, size_t n)
{
    struct excerpt_stream *t = &x->streams[s];
    size_t k = pass_on(x, s, bytes, n);
    t->seen += k;
    bytes += k;
    n -= k;
    while (n > 0) { /* the head and the ring each for itself */
        k = t->seen < half(x) && n > half(x) - t->seen ? (size_t)(half(x) - t->seen) : n;
        if (t->stored == UINT64_MAX && store(x, t, t->seen, bytes, k) < 0)
            t->stored = t->seen < half(x) ? t->seen : half(x);
        t->seen += k;
        bytes += k;
        n -= k;
    }
}

/* Bytes at the end of `text` that begin a character which goes on behind it. */
static uint64_t open_bytes(const unsigned char *text, size_t n)
{
    for (size_t k = 1; k <= n; k++) {
        unsigned char c = text[n - k];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return want > k ? k : 0;
    }
    return 0;
}

/* Bytes at the beginning that go on with a character from before. */
static uint64_t rest_bytes(const unsigned char *text, size_t n)
{
    size_t k = 0;
    while (k < n && (text[k] & 0xc0) == 0x80)
        k++;
    return k;
}

static size_t read_at(const struct excerpt *x, const struct excerpt_stream *t, uint64_t at,
                      char *to, size_t n)
{
    uint64_t room, from = place(x, at, &room);
    size_t k = n < room ? n : (size_t)room;
    ssize_t got = t->fd < 0 ? -1 : pread(t->fd, to, k, (off_t)from);
    return got < 0 ? 0 : (size_t)got;
}

static void find_cut(const struct excerpt *x, struct excerpt_stream *t)
{
    unsigned char edge[EDGE];
    bool is_lacking = t->stored != UINT64_MAX;
    t->cut_from = t->cut_to = t->seen;
    if (!is_lacking && t->seen <= x->limit)
        return;
    t->cut_from = is_lacking ? t->stored : half(x);
    if (is_lacking)
        return; /* nothing behind it was kept */
    t->cut_to = t->seen - ring(x);
    size_t n = half(x) < EDGE ? (size_t)half(x) : EDGE;
    if (n > 0 && read_at(x, t, half(x) - n, (char *)edge, n) == n)
        t->cut_from -= open_bytes(edge, n);
    n = ring(x) < EDGE ? (size_t)ring(x) : EDGE;
    size_t k = read_at(x, t, t->cut_to, (char *)edge, n);
    if (k < n)
        k += read_at(x, t, t->cut_to + k, (char *)edge + k, n - k);
    t->cut_to += rest_bytes(edge, k);
}

void excerpt_complete(struct excerpt *x)
{
    if (x->is_complete)
        return;
    x->is_complete = true;
    for (enum stream s = 0; s < STREAM_COUNT; s++)
        find_cut(x, &x->streams[s]);
}

/* Deliver one stream as far as `to`, never over the cut. False: the client takes no more. */
static bool deliver_to(struct excerpt *x, enum stream s, uint64_t to)
{
    struct excerpt_stream *t = &x->streams[s];
    while (t->sent < to) {
        size_t n = to - t->sent < sizeof buffer ? (size_t)(to - t->sent) : sizeof buffer;
        size_t k = read_at(x, t, t->sent, buffer, n);
        if (k == 0) { /* its own file cannot be read: say that it is missing */
            t->cut_from = t->sent;
            t->cut_to = t->seen;
            return true;
        }
        if (x->events->on_bytes(x->owner, s, buffer, k) != DELIVERED)
            return false;
        t->sent += k;
    }
    return true;
}

static bool pump_stream(struct excerpt *x, enum stream s)
{
    struct excerpt_stream *t = &x->streams[s];
    if (!x->is_complete) {
        uint64_t live = half(x) > EDGE ? half(x) - EDGE : 0;
        uint64_t to = t->seen < live ? t->seen : live;
        return deliver_to(x, s, t->stored < to ? t->stored : to);
    }
    if (t->sent < t->cut_from && !deliver_to(x, s, t->cut_from))
        return false;
    if (t->sent == t->cut_from && t->cut_from < t->cut_to) {
        x->events->on_cut(x->owner, s, t->cut_from, t->cut_to);
        t->sent = t->cut_to;
    }
    return deliver_to(x, s, t->seen);
}

bool excerpt_pump(struct excerpt *x)
{
    for (enum stream s = 0; s < STREAM_COUNT; s++)
        if (!pump_stream(x, s))
            return false;
    return x->is_complete;
}

bool excerpt_is_exceeded(const struct excerpt *x)
{
    return x->streams[STREAM_STDOUT].seen > x->limit || x->streams[STREAM_STDERR].seen > x->limit;
}

uint64_t excerpt_kept(const struct excerpt *x, enum stream s)
{
    const struct excerpt_stream *t = &x->streams[s];
    return t->seen - (t->cut_to - t->cut_from);
}

uint64_t excerpt_head(const struct excerpt *x, enum stream s)
{
    return x->streams[s].cut_from;
}
