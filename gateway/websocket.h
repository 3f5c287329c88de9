/*
 * WebSocket, RFC 6455, the server's side: the handshake, a codec that knows bytes only (so that it
 * can be fuzzed), and a connection on the loop.
 *
 * Invariants: no call blocks; a message is at most `limit` bytes, a frame that says more is refused
 * with 1009 before it is read; what is not masked, not UTF-8 in a text, fragmented in the wrong
 * order or reserved closes with 1002 or 1007; a viewer that does not read is dropped alone.
 *
 * A peer is pinged every 30 s and dropped after 60 s of silence, or when it has read nothing for
 * 30 s of what waits for it.
 */
#ifndef GATEWAY_WEBSOCKET_H
#define GATEWAY_WEBSOCKET_H

#include "base/error.h"
#include "gateway/http.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct websocket;

enum websocket_kind { WEBSOCKET_TEXT = 1, WEBSOCKET_BINARY = 2 };

struct websocket_events {
    /* A whole message. False: take no more from the socket until websocket_resume(). */
    bool (*on_message)(void *owner, enum websocket_kind kind, const char *bytes, size_t n);
    void (*on_writable)(void *owner); /* what waits has fallen below EXCHANGE_LOW */
    /* The peer left, broke the protocol or did not read; or the server ends. The WebSocket is not
     * the owner's any more. */
    void (*on_closed)(void *owner);
};

/* Can websocket_accept() answer x? If not, x was answered with 400 or 426, as its headers deserve.
 */
bool websocket_check(struct exchange *x);
/* Answer the upgrade of x (dead afterwards) with 101 and go on as a WebSocket whose messages have
 * at most limit bytes. events must live as long as it does. NULL: x was answered as by
 * websocket_check(), or cut for want of memory. No callback comes from inside this call, nor from
 * inside those below. */
struct websocket *websocket_accept(struct exchange *x, size_t limit,
                                   const struct websocket_events *events, void *owner);
/* Send a message. False: no more until on_writable, please. It is queued all the same, but beyond
 * four times EXCHANGE_HIGH the peer is dropped. */
bool websocket_send(struct websocket *w, enum websocket_kind kind, const char *bytes, size_t n);
/* Go on with messages, after on_message said false. */
void websocket_resume(struct websocket *w);
/* Send what waits and a close frame (code of RFC 6455, reason of at most 123 bytes, what is longer
 * is cut), wait a little for the peer's, close. The owner hears nothing more, and w is not his any
 * more. */
void websocket_close(struct websocket *w, uint16_t code, const char *reason);

#endif
