/* A relay: two flows that have become one connection, for protocols that the gateway only passes
 * on (an upgraded WebSocket). It ends by itself, or with the server. */
#ifndef GATEWAY_RELAY_H
#define GATEWAY_RELAY_H

#include "gateway/flow.h"
#include "gateway/http.h"

/* Pass on what each sends to the other, with back-pressure, and each one's end; close both when
 * both have ended, one has broken, or one still sends RELAY_LINGER_S after the other's end. Owns
 * both flows, also on failure, and then tells the server (NULL is fine) that the client has left.
 * 0, or -1: no memory. */
#define RELAY_LINGER_S 10.
int relay_start(struct ev_loop *loop, struct http_server *server, struct flow *one,
                struct flow *other);

#endif
