/*
 * Head and tail of the output of a command, for a client that set a limit: of each stream the first
 * half of the limit and the newest half. The first half goes out as it comes, the rest when the
 * command is over, so the command never waits for a client; one stream's flood costs the other
 * nothing. Nobody's memory but an anonymous file of at most the limit a stream (memfd_create(2)),
 * made when a byte must wait.
 *
 * A cut between two halves never stands inside a UTF-8 character: up to three bytes on each side
 * are left out with the rest.
 */
#ifndef SESSIONS_EXCERPT_H
#define SESSIONS_EXCERPT_H

#include "sessions/output.h"

struct excerpt_stream {
    uint64_t seen;             /* bytes that came */
    uint64_t sent;             /* where the delivery stands; it may jump over the cut */
    uint64_t stored;           /* of the head: what a full disk of memory let in; UINT64_MAX: all */
    uint64_t cut_from, cut_to; /* what is left out, once it is over; equal: nothing */
    int fd;                    /* -1: nothing had to wait yet */
};

struct excerpt_events {
    enum deliver (*on_bytes)(void *owner, enum stream stream, const char *bytes, size_t n);
    /* Between the bytes before and behind: what is left out. */
    void (*on_cut)(void *owner, enum stream stream, uint64_t from, uint64_t to);
};

struct excerpt {
    uint64_t limit; /* bytes of each stream */
    const struct excerpt_events *events;
    void *owner;
    struct excerpt_stream streams[STREAM_COUNT];
    bool is_complete; /* no more comes */
};

void excerpt_init(struct excerpt *x, uint64_t limit, const struct excerpt_events *events,
                  void *owner);
void excerpt_free(struct excerpt *x);

/* More of a stream. Never fails: what finds no room is left out. */
void excerpt_add(struct excerpt *x, enum stream stream, const char *bytes, size_t n);
/* No more comes. */
void excerpt_complete(struct excerpt *x);
/* Deliver what can be. True when, after excerpt_complete(), all is delivered. */
bool excerpt_pump(struct excerpt *x);

/* True once a stream had more than the limit. */
bool excerpt_is_exceeded(const struct excerpt *x);
/* After excerpt_complete(): how much of a stream is delivered, and how much before the cut. */
uint64_t excerpt_kept(const struct excerpt *x, enum stream stream);
uint64_t excerpt_head(const struct excerpt *x, enum stream stream);

#endif
