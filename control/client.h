/* The client library of the control socket: blocking calls for command line tools. Also usable in
 * an event loop: client_fd() is readable when client_receive() will not block. */
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
    const char *text;   /* borrowed until client_open() returns; NULL: none */
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
void client_free(struct client *c);
int client_fd(const struct client *c);

/* The next packet: returns its channel (wire.h) and payload, valid until the next call;
 * 0 at the end of the connection; -1 with *e set. */
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
