/*
 * A flow: a connected stream socket on the loop with a bounded queue for what it sends. The proxy
 * uses it for servers inside, and for both ends of what has become another protocol.
 *
 * Invariants: no call blocks; no callback comes from inside a call of this module; a callback may
 * close the flow. Memory is bounded if the owner stops its source when flow_write() says false.
 */
#ifndef GATEWAY_FLOW_H
#define GATEWAY_FLOW_H

#include "base/error.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flow;

#define FLOW_HIGH ((size_t)256 * 1024) /* bytes that wait to be sent: flow_write() says false */
#define FLOW_LOW  ((size_t)64 * 1024)  /* on_writable comes below it */

/* What the owner hears. on_open and on_writable may be NULL. */
struct flow_events {
    void (*on_open)(void *owner); /* flow_connect() has come through */
    /* False: no more until flow_resume(); these bytes count as taken. */
    bool (*on_bytes)(void *owner, const char *bytes, size_t n);
    void (*on_end)(void *owner); /* the other side sends no more; it may still read */
    void (*on_writable)(void *owner);
    /* No connection came about, or it broke; of one that is written to in vain all that had come
     * before is heard first, since it may be the answer. Nothing else is heard any more; the owner
     * still has to call flow_close(). */
    void (*on_broken)(void *owner, const struct error *e);
};

/* Connect to host, "localhost" (127.0.0.1, then ::1) or an address in numbers, within timeout_ms.
 * What can be written before it is connected waits. NULL with *e set. */
struct flow *flow_connect(struct ev_loop *loop, const char *host, uint16_t port,
                          uint64_t timeout_ms, const struct flow_events *events, void *owner,
                          struct error *e);
/* Go on with a connected, non-blocking socket. Owns fd, also on failure. NULL with *e set. */
struct flow *flow_adopt(struct ev_loop *loop, int fd, const struct flow_events *events, void *owner,
                        struct error *e);

/* Who hears of it from now on; replaces the former. */
void flow_own(struct flow *f, const struct flow_events *events, void *owner);
/* Send n bytes, or queue them. False: no more until on_writable, please (they are queued all the
 * same; without memory for them the flow breaks). */
bool flow_write(struct flow *f, const char *bytes, size_t n);
size_t flow_waiting(const struct flow *f); /* bytes that are queued */
/* Nothing more will be written: the other side sees the end behind what is queued. */
void flow_end(struct flow *f);
/* Take no more from the socket until flow_resume(): its sender is held up. on_end waits, too. */
void flow_pause(struct flow *f);
void flow_resume(struct flow *f);
/* Close and forget what is queued. NULL is fine. */
void flow_close(struct flow *f);

#endif
