/*
 * The way to init: operations of the control protocol (control/wire.h, docs/control-protocol.md) on
 * the gateway's libev loop. Each call is one connection: the gateway makes a socketpair, hands one
 * end to init over its own socket (one message, no round trip) and uses the other at once.
 *
 * Invariants: no call blocks; a call costs bounded memory; on_end comes exactly once unless
 * call_close() came before it, and never from inside call_open().
 */
#ifndef GATEWAY_UPSTREAM_H
#define GATEWAY_UPSTREAM_H

#include "base/error.h"
#include "control/client.h"
#include "control/wire.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

struct upstream;
struct call;

/* What the gateway writes on its socket to init, with one descriptor each. */
#define UPSTREAM_CONNECT                                                                           \
    WIRE_HAND_CONNECTION /* the descriptor becomes a connection of the control server */
#define UPSTREAM_FILES                                                                             \
    WIRE_HAND_HELPER /* a file helper is started with the descriptor as its socket */

/* Over the socket that init gave the gateway; the descriptor stays the caller's. If init is gone
 * on_lost is called, once: the gateway ends. */
struct upstream *upstream_new(struct ev_loop *loop, int fd, void (*on_lost)(void *context),
                              void *context, struct error *e);
/* Calls that still run end with an error, told to their owners. */
void upstream_free(struct upstream *u);
/* Make a socketpair, hand one end to init for `what`, return the other (non-blocking,
 * close-on-exec), or -1 with *e set. */
int upstream_hand_over(struct upstream *u, char what, struct error *e);

/* Words for init over its socket (WIRE_SAY_…), also before there is an upstream. False: it has not
 * got them. */
bool upstream_say(int fd, char what, const char *text);
/* What is wrong with the gateway while it runs, "": nothing (any more). It is said when it changes.
 * u may be NULL. */
void upstream_tell_trouble(struct upstream *u, const char *text);

struct call_events {
    /* A packet from init but the last: its channel (wire.h) and payload. False: no more until
     * call_resume(); this one counts as taken. */
    bool (*on_packet)(void *owner, char channel, const char *bytes, size_t n);
    /* The end: channel WIRE_RESULT with the record in bytes, or 0 with *e set (init's own error, or
     * the connection broke). The call is dead after it. */
    void (*on_end)(void *owner, char channel, const char *bytes, size_t n, const struct error *e);
    void (*on_writable)(void *owner); /* after call_send() said false; may be NULL */
    /* After packets: all that was there has been given (or enough for one turn of the loop). What
     * was gathered goes out now. Not after on_end; may be NULL. */
    void (*on_idle)(void *owner);
};

/* Begin an operation. The request is copied as far as it is not sent yet. NULL with *e set. */
struct call *call_open(struct upstream *u, const struct client_request *q,
                       const struct call_events *events, void *owner, struct error *e);
/* Send a packet (WIRE_STDIN, WIRE_RESIZE, WIRE_SIGNAL) of n <= WIRE_PAYLOAD_MAX bytes. False: there
 * was no room, nothing was sent, on_writable will come. */
bool call_send(struct call *c, char channel, const char *bytes, size_t n);
/* Nothing more will be sent; answers still come (the verb `send` wants it). */
void call_end_sending(struct call *c);
/* Go on with packets, after on_packet said false. */
void call_resume(struct call *c);
/* Hang up: init sees the client leave. */
void call_close(struct call *c);

#endif
