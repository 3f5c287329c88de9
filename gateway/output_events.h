/*
 * The two streams of a command as events `stdout` and `stderr`, in base64.
 *
 * A client decodes each event by itself, so no UTF-8 sequence is split over two: an incomplete one
 * at the end of what has come is held back (at most 3 bytes a stream) until more comes, or the end.
 * Bytes that are not UTF-8 pass as they are. Small pieces of one stream that are there together
 * become one event.
 *
 * Each event has as its id the place where its client goes on later: the offset (bytes of both
 * streams, as of the verbs `exec` and `logs`), and the bytes before it that are held back, if any:
 * "4711", "4711-oE282" (stdout), "4711-eC3".
 */
#ifndef GATEWAY_OUTPUT_EVENTS_H
#define GATEWAY_OUTPUT_EVENTS_H

#include "base/strbuf.h"
#include "gateway/sse.h"

#include <stdbool.h>
#include <stdint.h>

enum output_stream { OUTPUT_STDOUT, OUTPUT_STDERR, OUTPUT_STREAMS };

/* A place in the output, as an id tells it. */
struct output_place {
    uint64_t offset;
    struct {
        char bytes[3];
        size_t n;
    } held[OUTPUT_STREAMS];
};

/* 0, or -1: it is no id of an event. */
int output_place_parse(const char *id, struct output_place *to);

struct output_events {
    struct sse *sse;
    uint64_t offset;                       /* behind all that has come */
    struct strbuf waiting[OUTPUT_STREAMS]; /* not told yet */
    enum output_stream last; /* the stream that came last; of the other only a tail waits */
};

/* Begin at a place; NULL: the beginning. */
void output_events_init(struct output_events *o, struct sse *sse, const struct output_place *from);
/* What the stream has written next. It becomes an event with the other pieces of its stream, when
 * those are many, the other stream writes, or output_events_flush() is called. */
void output_events_add(struct output_events *o, enum output_stream stream, const char *bytes,
                       size_t n);
/* Tell what waits, but for incomplete sequences. */
void output_events_flush(struct output_events *o);
/* The bytes up to an offset are not kept any more: what was held back is told as it is. */
void output_events_skip(struct output_events *o, uint64_t to);
/* Nothing more comes: tell all. */
void output_events_finish(struct output_events *o);
void output_events_free(struct output_events *o);

/* Bytes at the end of n that begin a UTF-8 sequence and do not end it: 0 to 3. */
size_t utf8_incomplete_tail(const char *bytes, size_t n);

#endif
