/*
 * The server side of the control socket inside PID 1: accepts, checks peer credentials, assembles
 * requests within bounds, and gives every connection a bounded outgoing queue. What a verb does
 * stands elsewhere (init/verb_*.c); this module knows packets and connections only.
 *
 * Invariants: no call blocks; a client that is slow, silent, malformed or gone costs only itself;
 * memory is bounded by max_connections × (queue limit) plus upload_limit for all requests under
 * way together.
 */
#ifndef CONTROL_SERVER_H
#define CONTROL_SERVER_H

#include "base/arrivals.h"
#include "base/error.h"
#include "control/record.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct server;
struct conn;

/* A complete request. Owned by the connection; valid while on_request runs, and freed after it:
 * what is needed longer is copied, or taken with request_take_text(). */
struct request {
    const char *verb;
    struct strbuf args; /* KEY=VALUE strings, well-formed: record_next() never fails on them */
    struct strbuf text; /* the command text (from text= or from WIRE_TEXT), may hold any byte */
    bool has_text;      /* told apart from an empty text */
    uid_t peer_uid;
    pid_t peer_pid;
};

/* First value of a key, or NULL. */
const char *request_get(const struct request *r, const char *key);

/* What the owner of a connection's operation wants to hear. Any may be NULL. After on_closed the
 * conn pointer is dead. */
struct conn_events {
    /* A packet on channel (WIRE_STDIN, WIRE_SIGNAL, WIRE_RESIZE). Return false to pause input until
     * conn_resume_input(); the packet given counts as taken. */
    bool (*on_data)(void *owner, char channel, const char *bytes, size_t n);
    void (*on_writable)(void *owner); /* after CONN_FULL: there is room again */
    /* The client has shut down its sending side and still reads: no more on_data. NULL: ignored */
    void (*on_input_end)(void *owner);
    void (*on_closed)(void *owner); /* the client left, stalled or broke the protocol */
};

struct server_config {
    const char *path;         /* of the socket; an old socket there is replaced. NULL: no socket */
    uid_t allowed_uid;        /* may connect besides root */
    unsigned max_connections; /* further ones get ERR_LIMIT at once */
    unsigned max_adopted;     /* the same for those that come through server_adopt() */
    size_t text_limit;        /* bytes of one command text */
    size_t upload_limit;      /* bytes of all requests under way */
    uint64_t request_timeout_ms; /* for the request to be complete */
    uint64_t client_stall_ms;    /* a client that reads nothing for so long is dropped */
    void (*on_request)(struct conn *c, struct request *r, void *context);
    void *context;
};

/* Create the socket (mode 0600, in an existing folder) and serve on loop. NULL with *e set. */
struct server *server_new(struct ev_loop *loop, const struct server_config *config,
                          struct error *e);
/* Drop every connection; owners hear it through on_closed, clients that still wait for their answer
 * are told why, unless they do not read. Not from a callback. */
void server_hang_up(struct server *s, const struct error *why);
/* Drop every connection, close and unlink the socket. Calls no on_closed. Not from a callback. */
void server_free(struct server *s);
/* New limits for the connections to come (reload). */
void server_set_limits(struct server *s, unsigned max_connections, unsigned max_adopted,
                       size_t text_limit, size_t upload_limit, uint64_t client_stall_ms);
/* Bind the socket anew if its path is gone or no longer ours. 0 or -1 with *e set. */
int server_rebind(struct server *s, struct error *e);
unsigned server_connection_count(const struct server *s);
/* When the last connection that ended did so (monotonic); 0: none yet. */
uint64_t server_last_closed_ns(const struct server *s);
/* Take over one end of a socketpair as a connection (tests, gateway). Who hands it over vouches for
 * it: uid and pid are told, not checked, and it counts against a limit of its own, so that HTTP
 * cannot lock out sandboxctl. Owns fd from here on, also on failure; the peer is told why. A
 * request that is already there is served from inside this call. */
int server_adopt(struct server *s, int fd, uid_t uid, pid_t pid, struct error *e);
/* From the callback of an event: handle it in this turn, in order with what clients have sent. */
void server_add_arrival(struct server *s, struct arrival *arrival);

/* Who hears of the connection from now on; replaces the former. */
void conn_set_owner(struct conn *c, const struct conn_events *events, void *owner);
/* The request's text moves to the caller, who frees it. */
struct strbuf request_take_text(struct request *r);

enum conn_sent { CONN_SENT, CONN_FULL, CONN_GONE };
/* Send n <= WIRE_PAYLOAD_MAX bytes now, whole or not at all; never queued. CONN_FULL: nothing was
 * sent, on_writable will come. CONN_GONE: the client is gone, on_closed comes later from the loop
 * (never from inside this call). */
enum conn_sent conn_send(struct conn *c, char channel, const char *bytes, size_t n);
/* Queue a record (bounded, 1 MiB a connection) behind what is queued; sent in order before any
 * later conn_send() succeeds. A connection whose queue overflows is dropped as stalled. Fields that
 * would make a packet too large are left out and `truncated:=true` says so; a broken record turns
 * the connection's result into an error. */
void conn_note(struct conn *c, const struct record *r);
void conn_row(struct conn *c, const struct record *r);
/* The last packet: queue it, flush, close. The owner hears nothing more and must not use c. */
void conn_result(struct conn *c, const struct record *r);
void conn_fail(struct conn *c, const struct error *e);
void conn_resume_input(struct conn *c);

#endif
