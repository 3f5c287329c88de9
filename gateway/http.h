/*
 * The HTTP/1.1 server of the gateway: listeners, connections, requests, answers, on one libev loop.
 * llhttp parses; this module decides what a connection may cost: how long headers and bodies may
 * take and be, how many connections there are, how much of an answer waits for a slow client.
 *
 * An exchange is one request and its answer. The server finds its route, checks it in the order of
 * the contract (form of the sandbox's id, token, the route's own checks) and calls route->begin().
 * From then on the handler owns the exchange until it ends the answer, or on_closed is called.
 * Exchanges of one connection (keep-alive, pipelined) come one after the other.
 *
 * Invariants: no call blocks; a client costs bounded memory and only itself; a request that could
 * be read in two ways (Content-Length beside Transfer-Encoding, two lengths, folded headers, bare
 * CR) is refused and its connection closed.
 */
#ifndef GATEWAY_HTTP_H
#define GATEWAY_HTTP_H

#include "base/error.h"
#include "base/list.h"
#include "base/strbuf.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_server;
struct exchange;

/* How a route takes its body. */
enum http_body {
    BODY_IGNORED, /* read and forgotten; begin() is called after the headers */
    BODY_WHOLE,   /* begin() is called when it is complete: exchange_body() */
    BODY_STREAMED /* begin() after the headers, then on_body, on_body_end */
};

/* Flags of a route. */
#define ROUTE_OPEN         0x01 /* no token needed (/health, the page) */
#define ROUTE_QUERY_TOKEN  0x02 /* ?token= is taken, too */
#define ROUTE_UPGRADE      0x04 /* ?authorization=Bearer+KEY is taken, too (WebSocket clients) */
#define ROUTE_EXACT_BEARER 0x08 /* the scheme is "Bearer", in no other case */
#define ROUTE_COOKIE       0x10 /* the cookie EXCHANGE_COOKIE with exchange_pass() is taken, too */

/* One line of the table of routes. A segment of the pattern that begins with ':' takes one raw
 * segment of the path; a last segment of '*' takes the rest, slashes and all, or nothing. The
 * segment `:id` is checked as a sandbox's id before the token is. The first line that fits wins. */
struct route {
    const char *method;  /* "GET" serves HEAD, too: the answer is sent without its body */
    const char *pattern; /* "/v1/sandbox/:id/exec" */
    enum http_body body;
    unsigned flags;
    size_t max_body; /* bytes; 0: the server's */
    /* More than max_body was announced or sent. NULL: 413 payload_too_large with the text of the
     * contract. Otherwise it answers. length: what was announced, or what has come so far. */
    void (*too_large)(struct exchange *x, uint64_t length, uint64_t limit);
    void (*begin)(struct exchange *x);
};

/* What the owner of an exchange wants to hear. Any may be NULL. */
struct exchange_events {
    void (*on_body)(void *owner, const char *bytes, size_t n); /* BODY_STREAMED: the next piece */
    void (*on_body_end)(void *owner);
    void (*on_writable)(void *owner); /* what waits to be sent has fallen below EXCHANGE_LOW */
    /* The client is gone, or too slow; x is dead after it. One that only sends no more still gets
     * its answer; over TCP one that is gone cannot be told from it before something is written. */
    void (*on_closed)(void *owner);
};

struct http_config {
    const struct route *const *routes; /* tables, each ends with method NULL; the list with NULL */
    const char *token;                 /* NULL: auth is off */
    const char *sandbox_id;            /* the only one there is; NULL: any of the right form */
    const char *cors_origin;           /* NULL: no CORS headers */
    size_t max_body;
    unsigned max_connections;
    uint64_t idle_timeout_ms; /* of a connection between requests */
    uint64_t
        head_timeout_ms; /* from the first byte of a request to the end of its headers; 0: 30 s */
    uint64_t stall_timeout_ms; /* a body that does not come, a client that does not read; 0: 60 s */
    void *context;             /* exchange_context(): the program's */
};

/* NULL with *e set. */
struct http_server *http_server_new(struct ev_loop *loop, const struct http_config *config,
                                    struct error *e);
/* Serve on "HOST:PORT", "[V6]:PORT", ":PORT" or "unix:PATH". 0, or -1 with *e set. */
int http_server_listen(struct http_server *s, const char *address, struct error *e);
/* Serve a connected socket as if it had been accepted (tests, fuzzing). Owns fd in any case. */
int http_server_adopt(struct http_server *s, int fd, struct error *e);
/* Listen no more, close idle connections, the others when they have answered. */
void http_server_stop(struct http_server *s);
/* True when no answer is under way any more: what is left has all and waits to see the peer leave.
 */
bool http_server_is_done(const struct http_server *s);
/* Drops every connection; owners of exchanges hear on_closed. */
void http_server_free(struct http_server *s);

struct http_counts {
    uint64_t requests;    /* begun */
    uint64_t by_class[6]; /* answers by the first digit of their status; [0] none (cut) */
    uint64_t refused;     /* connections over the limit */
    uint64_t bytes_in, bytes_out;
    unsigned connections; /* now */
};
void http_server_counts(const struct http_server *s, struct http_counts *to);

/* The request. Strings live as long as the exchange. */
const char *exchange_method(const struct exchange *x); /* as sent: "HEAD" stays "HEAD" */
const char *exchange_path(const struct exchange *x);   /* raw, without the query */
const char *exchange_query(const struct exchange *x);  /* raw, "" if there is none */
/* A segment of the route's pattern by name (":id" is "id", the rest is "*"): raw; "" if empty. */
const char *exchange_segment(const struct exchange *x, const char *name);
/* A header by its name in lower case, NULL if absent; several are joined with ", ". */
const char *exchange_header(const struct exchange *x, const char *name);
/* All headers in order, for a proxy: false at the end. */
bool exchange_header_at(const struct exchange *x, size_t i, const char **name, const char **value);
/* A parameter of the query, percent-decoded ('+' is a space), into *to: 1 found, 0 absent, -1 not
 * decodable or NUL in it. */
int exchange_parameter(const struct exchange *x, const char *name, struct strbuf *to);
int64_t exchange_length(const struct exchange *x); /* announced bytes of the body; -1: chunked */
bool exchange_is_upgrade(const struct exchange *x, const char *protocol); /* "websocket" */
/* True if text is the gateway's token, or "Bearer" and the token: what a proxy must not pass on. */
bool exchange_is_token(const struct exchange *x, const char *text);
/* What a browser shows instead of the token, in a cookie of that name, to routes with ROUTE_COOKIE:
 * a word of this process's, so that the token need not stand in addresses. "" if auth is off. */
#define EXCHANGE_COOKIE "sandbox_port"
const char *exchange_pass(const struct exchange *x);
const char *exchange_body(const struct exchange *x, size_t *n); /* BODY_WHOLE */
void *exchange_context(const struct exchange *x);
struct ev_loop *exchange_loop(const struct exchange *x);

/* Who hears of x from now on, called with owner; events must live as long as x. */
void exchange_own(struct exchange *x, const struct exchange_events *events, void *owner);
/* The answer tells what happens and has no end of its own: http_server_stop() ends it at once,
 * behind what was written, and its owner hears on_closed. */
void exchange_follow(struct exchange *x);
/* Take no more of a streamed body from the socket until exchange_resume_body(). */
void exchange_pause_body(struct exchange *x);
void exchange_resume_body(struct exchange *x);

/* The answer. Headers first, then begin, then any number of writes, then end. After end, or after
 * one of the whole answers, x is dead for its handler and on_closed does not come. */
#define EXCHANGE_HIGH ((size_t)512 * 1024) /* bytes that wait: exchange_write() says false */
#define EXCHANGE_LOW  ((size_t)128 * 1024)
void exchange_add_header(struct exchange *x, const char *name, const char *value);
/* length: of the body, or -1 for chunks (until close for HTTP/1.0). */
void exchange_begin(struct exchange *x, int status, const char *content_type, int64_t length);
/* Queue bytes of the body. False: no more until on_writable, please (they are queued all the same).
 * Beyond four times EXCHANGE_HIGH the connection is cut. */
bool exchange_write(struct exchange *x, const char *bytes, size_t n);
/* Queue length bytes of a regular file from offset as the rest of the body; owns fd. The exchange
 * ends by itself when they are sent. */
void exchange_end_with_file(struct exchange *x, int fd, int64_t offset, int64_t length);
void exchange_end(struct exchange *x);
/* Break the answer off: the connection is cut, so that the client sees that it is not whole. */
void exchange_cut(struct exchange *x);

/* Whole answers. */
void exchange_answer(struct exchange *x, int status, const char *content_type, const char *bytes,
                     size_t n);
void exchange_json(struct exchange *x, int status, const char *json);
/* {"error": text, "code": code}. What is left of the request's body is read and forgotten if its
 * length is known and small (64 KiB); else the connection closes after the answer, and lingers, so
 * that the client sees it. */
void exchange_error(struct exchange *x, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for what went wrong inside: 502 with the text of e behind "<what> failed: ". */
void exchange_failed(struct exchange *x, const char *code, const char *what, const struct error *e);

/* Take the socket out of the server, for another protocol: x is dead, the caller owns the
 * descriptor (non-blocking) and *early holds what the client has sent after its headers. It goes on
 * to count for max_connections, until the caller has closed it and says so by http_server_left().
 * -1: no memory; x is dead. */
int exchange_take_socket(struct exchange *x, struct strbuf *early, struct http_server **server);
/* Not after http_server_free(). NULL is fine. */
void http_server_left(struct http_server *s);

/* Who lives on a socket that was taken. It ends by itself, or is ended by http_server_free(): `end`
 * frees it, which takes `link` out of the list. Until then it may use the server. */
struct http_guest {
    struct list link;
    void (*end)(struct http_guest *g);
};
void http_server_add_guest(struct http_server *s, struct http_guest *g);

#endif
