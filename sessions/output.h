/*
 * The output of one command or process: a bounded log of frames and the followers that read it.
 *
 * A frame (base/frame.h) is a header and its payload, so the order of the two streams is kept as
 * read and any byte is allowed. An offset counts payload bytes of both streams in log
 * order. The log keeps its head and its tail within a size; what fell out between is told to
 * followers as lost FROM..TO, never silently skipped.
 *
 * Segments are anonymous memory files (memfd_create(2)): never a slow disk under PID 1, nothing
 * that a full or read-only disk or a cleaner could break, and not in init's own memory.
 *
 * Backlog and live are one sequence: a follower has an offset and is pumped from the log, or
 * straight from the bytes just read when it stands at the end.
 */
#ifndef SESSIONS_OUTPUT_H
#define SESSIONS_OUTPUT_H

#include "base/frame.h"
#include "base/list.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum stream { STREAM_STDOUT, STREAM_STDERR, STREAM_COUNT };

#define OUTPUT_CHUNK FRAME_PAYLOAD_MAX /* most payload bytes in one frame, one read, one packet */

struct output;

enum deliver { DELIVERED, DELIVER_FULL, DELIVER_GONE };

/* What a follower's owner implements. Only on_end may free the follower from inside. */
struct follower_events {
    enum deliver (*on_bytes)(void *owner, enum stream stream, const char *bytes, size_t n);
    void (*on_lost)(void *owner, uint64_t from, uint64_t to);
    void (*on_end)(void *owner); /* all was delivered, up to the limit or the end of an ended log */
};

struct follower {
    struct list link;
    struct output *output; /* NULL: not following */
    const struct follower_events *events;
    void *owner;
    uint64_t offset;
    uint64_t time_ns; /* in on_bytes: when these bytes were read, CLOCK_REALTIME */
    uint64_t limit;   /* where it ends though the log goes on; UINT64_MAX: nowhere */
    bool wants[STREAM_COUNT];
    bool is_blocked;  /* DELIVER_FULL: follower_resume() goes on */
    bool is_pressing; /* its lag stops the reading of the streams (attached clients) */
    bool has_ended;   /* on_end was called */
};

/* keep: bytes of frames to keep, head and tail together. NULL for want of memory. */
struct output *output_new(uint64_t keep);
/* From now on drop what is older than age_ms (0: nothing), by timers of loop that run only while
 * there is something that grows old. Bytes that a pressing follower has not yet had stay. */
void output_limit_age(struct output *o, struct ev_loop *loop, uint64_t age_ms);
/* Drop now what is too old: before somebody reads. */
void output_expire(struct output *o);
/* Let go of it: no more will come. Followers that are behind still get what it keeps and hear
 * on_end; with the last of them it is freed. NULL is fine. */
void output_free(struct output *o);

/* Append up to OUTPUT_CHUNK bytes, as one frame where the log is not a small one, and serve the
 * followers. Never fails: what cannot
 * be kept is counted and later told as lost. */
void output_append(struct output *o, enum stream stream, const char *bytes, size_t n);

/* No more will come: followers that reach the end hear on_end. */
void output_end(struct output *o);

uint64_t output_end_offset(const struct output *o);
uint64_t output_bytes(const struct output *o, enum stream stream);
uint64_t output_last_ns(const struct output *o); /* when the last bytes came, monotonic; 0: never */
uint64_t output_lost_bytes(const struct output *o);

/* The last n bytes at most of the newest frame of a stream, into buf. Returns how many. */
size_t output_last_bytes(const struct output *o, enum stream stream, char *buf, size_t n);

/* The offset at which the last `lines` lines begin (a final line without newline counts), as far
 * back as the log reaches; streams that are not wanted do not count. */
uint64_t output_tail_offset(const struct output *o, uint64_t lines, const bool wants[STREAM_COUNT]);

/* True while a pressing follower lags so far that no more should be read; of an output that presses
 * by the fastest, while all do. When that ends, on_relief (set by the capture) is called. */
bool output_is_pressed(const struct output *o);
void output_on_relief(struct output *o, void (*on_relief)(void *context), void *context);

/* A slow follower shall not hold up the others: it loses what is kept no longer. */
void output_press_by_fastest(struct output *o);

/* Start to follow at f->offset; the caller filled events, owner, offset, wants and is_pressing.
 * Bytes are delivered by follower_pump() only, which the caller calls when it is ready. */
void follower_attach(struct follower *f, struct output *o);
void follower_detach(struct follower *f);
/* Change is_pressing of one that follows. */
void follower_press(struct follower *f, bool is_pressing);
/* Deliver what there is until the end of the log or DELIVER_FULL. */
void follower_pump(struct follower *f);

#endif
