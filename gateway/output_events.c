#include "gateway/output_events.h"

#include "base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GATHER_BELOW ((size_t)16 * 1024) /* bytes of a piece that waits for the next one */
#define GATHER_MAX   ((size_t)48 * 1024) /* bytes of one event, but for larger pieces */
#define PLACE_TEXT   48                  /* bytes of an id */

static const char *const stream_names[OUTPUT_STREAMS] = {"stdout", "stderr"};
static const char stream_letters[OUTPUT_STREAMS] = {'o', 'e'};

/* ---- UTF-8 ------------------------------------------------------------------------------- */

/* True if n bytes, fewer than a whole sequence, can become one. Whether they can is asked of the
 * one judge of sequences (base/json.h), with the lowest and the highest bytes that could follow. */
static bool can_be_completed(const char *bytes, size_t n)
{
    for (size_t length = n + 1; length <= 4; length++) {
        char whole[4];
        for (int high = 0; high < 2; high++) {
            memset(whole, high ? '\xbf' : '\x80', sizeof whole);
            memcpy(whole, bytes, n);
            if (utf8_sequence(whole, length) == length)
                return true;
        }
    }
    return false;
}

size_t utf8_incomplete_tail(const char *bytes, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)bytes[n - k];
        if (c < 0x80)
            return 0;
        if (c >= 0xc0)
            return can_be_completed(bytes + n - k, k) ? k : 0;
    }
    return 0;
}

/* ---- places ------------------------------------------------------------------------------ */

static int hex_value(char c)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* "-oE282" from its letter on. Returns what follows, or NULL. */
static const char *parse_held(const char *at, struct output_place *to)
{
    size_t stream = *at == stream_letters[OUTPUT_STDOUT]   ? OUTPUT_STDOUT
                    : *at == stream_letters[OUTPUT_STDERR] ? OUTPUT_STDERR
                                                           : OUTPUT_STREAMS;
    if (stream == OUTPUT_STREAMS || to->held[stream].n > 0)
        return NULL;
    for (at++; *at && *at != '-'; at += 2) {
        int high = hex_value(at[0]), low = high < 0 ? -1 : hex_value(at[1]);
        if (low < 0 || to->held[stream].n == sizeof to->held[stream].bytes)
            return NULL;
        to->held[stream].bytes[to->held[stream].n++] = (char)(high << 4 | low);
    }
    return to->held[stream].n > 0 ? at : NULL;
}

int output_place_parse(const char *id, struct output_place *to)
{
    size_t n = strspn(id, "0123456789");
    memset(to, 0, sizeof *to);
    if (n == 0 || n > 18)
        return -1;
    to->offset = strtoull(id, NULL, 10);
    for (const char *at = id + n; *at;) {
        at = *at == '-' ? parse_held(at + 1, to) : NULL;
        if (!at)
            return -1;
    }
    return 0;
}

/* The id of the place behind what has been told. Only incomplete sequences wait now. */
static void format_place(const struct output_events *o, char id[PLACE_TEXT])
{
    int at = snprintf(id, PLACE_TEXT, "%" PRIu64, o->offset);
    for (size_t s = 0; s < OUTPUT_STREAMS; s++) {
        const struct strbuf *w = &o->waiting[s];
        if (w->len > 0)
            at += snprintf(id + at, PLACE_TEXT - (size_t)at, "-%c", stream_letters[s]);
        for (size_t i = 0; i < w->len && i < 3; i++)
            at += snprintf(id + at, PLACE_TEXT - (size_t)at, "%02X", (unsigned char)w->data[i]);
    }
}

/* ---- events ------------------------------------------------------------------------------ */

void output_events_init(struct output_events *o, struct sse *sse, const struct output_place *from)
{
    memset(o, 0, sizeof *o);
    o->sse = sse;
    if (!from)
        return;
    o->offset = from->offset;
    for (size_t s = 0; s < OUTPUT_STREAMS; s++)
        (void)strbuf_add(&o->waiting[s], from->held[s].bytes, from->held[s].n);
}

/* `waiting` holds what stays behind. */
static void tell(struct output_events *o, enum output_stream s, const char *bytes, size_t n)
{
    char id[PLACE_TEXT];
    format_place(o, id);
    sse_event_base64(o->sse, stream_names[s], id, bytes, n);
}

/* Tell what waits of a stream; keeps `tail` bytes of its end. */
static void tell_waiting(struct output_events *o, enum output_stream s, size_t tail)
{
    struct strbuf told = o->waiting[s];
    if (told.len <= tail)
        return;
    o->waiting[s] = (struct strbuf){0};
    if (tail > 0 && strbuf_add(&o->waiting[s], told.data + told.len - tail, tail) < 0)
        tail = 0; /* no memory: split rather than lost */
    tell(o, s, told.data, told.len - tail);
    strbuf_free(&told);
}

static void flush_stream(struct output_events *o, enum output_stream s)
{
    const struct strbuf *w = &o->waiting[s];
    tell_waiting(o, s, w->len ? utf8_incomplete_tail(w->data, w->len) : 0);
}

void output_events_flush(struct output_events *o)
{
    flush_stream(o, o->last);
}

/* A large piece, nothing before it: no copy of it is made. */
static void tell_at_once(struct output_events *o, enum output_stream s, const char *bytes, size_t n)
{
    size_t tail = utf8_incomplete_tail(bytes, n);
    if (strbuf_add(&o->waiting[s], bytes + n - tail, tail) < 0)
        tail = 0;
    tell(o, s, bytes, n - tail);
}

void output_events_add(struct output_events *o, enum output_stream stream, const char *bytes,
                       size_t n)
{
    if (n == 0)
        return;
    if (stream != o->last)
        flush_stream(o, o->last);
    o->last = stream;
    o->offset += n;
    struct strbuf *w = &o->waiting[stream];
    if (w->len == 0 && n >= GATHER_BELOW) {
        tell_at_once(o, stream, bytes, n);
        return;
    }
    if (strbuf_add(w, bytes, n) < 0) { /* no memory: in two events rather than lost */
        o->offset -= n;
        tell_waiting(o, stream, 0);
        o->offset += n;
        tell(o, stream, bytes, n);
    } else if (w->len >= GATHER_MAX) {
        flush_stream(o, stream);
    }
}

void output_events_skip(struct output_events *o, uint64_t to)
{
    output_events_finish(o);
    o->offset = to;
}

void output_events_finish(struct output_events *o)
{
    flush_stream(o, o->last);
    tell_waiting(o, o->last == OUTPUT_STDOUT ? OUTPUT_STDERR : OUTPUT_STDOUT, 0);
    tell_waiting(o, o->last, 0);
}

void output_events_free(struct output_events *o)
{
    for (size_t s = 0; s < OUTPUT_STREAMS; s++)
        strbuf_free(&o->waiting[s]);
}
