/* The client library of the control socket: blocking calls for command line tools, and the same
 * without waiting over a descriptor of the caller's for an event loop. */
#ifndef CONTROL_CLIENT_H
#define CONTROL_CLIENT_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

struct client;

/* A request under construction: a verb, then arguments, then perhaps a text. */
struct client_request {
    struct strbuf args; /* VERB NUL KEY=VALUE NUL … */
    const char *text;   /* borrowed until client_open() or client_start() returns; NULL: none */
    size_t text_len;
    bool is_broken; /* an append failed (no memory, NUL in a value) */
};

void client_request_init(struct client_request *q, const char *verb);
void client_request_add(struct client_request *q, const char *key, const char *value);
void client_request_free(struct client_request *q);

/* Connect to the socket at path and send the whole request. If init refuses while the upload is
 * under way, the error is init's own (waits in the socket). NULL with *e set: what was tried, on
 * which path, why it failed, what to do. */
struct client *client_open(const char *path, const struct client_request *q, struct error *e);
/* The same over a connected non-blocking descriptor, which the client owns from here on, also on
 * failure. What has no room yet is copied and goes with client_flush(). packet: WIRE_PACKET_MAX
 * bytes for client_receive(), the caller's; clients that are not used at the same moment share
 * them. */
struct client *client_start(int fd, const struct client_request *q, char *packet, struct error *e);
/* 1 the request is sent, 0 no room now (wait for POLLOUT), -1 with *e set. */
int client_flush(struct client *c, struct error *e);
void client_free(struct client *c);
int client_fd(const struct client *c);

#define CLIENT_WAIT (-2) /* nothing is there yet; of a non-blocking descriptor only */

/* The next packet: returns its channel (wire.h) and payload, valid until the next call;
 * 0 at the end of the connection; -1 with *e set, or CLIENT_WAIT. */
int client_receive(struct client *c, const char **payload, size_t *n, struct error *e);

/* Send one packet (WIRE_STDIN, WIRE_SIGNAL) of n <= WIRE_PAYLOAD_MAX bytes. 0, or -1 with *e. */
int client_send(struct client *c, char channel, const char *bytes, size_t n, struct error *e);
/* The same without waiting: 1 sent, 0 no room now (poll client_fd() for POLLOUT), -1 with *e. */
int client_try_send(struct client *c, char channel, const char *bytes, size_t n, struct error *e);
/* Nothing more will be sent; answers still come. */
void client_end_sending(struct client *c);

/* Turn the payload of a WIRE_ERROR packet into an error. Returns -1. */
int client_error(const char *payload, size_t n, struct error *e);

#endif
