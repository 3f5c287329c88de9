/*
 * What the files of the HTTP server share: the server, a connection, an exchange. Each has a file
 * that owns it (http_server.c, http_conn.c, http_exchange.c); others touch the fields named for
 * them.
 *
 * How they work together: events (bytes, a handler's answer, a timer) set facts and put their
 * connection on the server's list `touched`; http_conn_settle(), called for all of those before the
 * loop sleeps, is the only place that sends, goes on to the next request, arms watchers and frees.
 */
#ifndef GATEWAY_HTTP_INTERNAL_H
#define GATEWAY_HTTP_INTERNAL_H

#include "base/arrivals.h"
#include "base/byte_queue.h"
#include "base/list.h"
#include "gateway/http.h"

#include <llhttp.h>

#define HTTP_SCRATCH     ((size_t)256 * 1024) /* bytes of one recv() */
#define HTTP_URL_MAX     ((size_t)16 * 1024)  /* a path of PATH_MAX, each byte escaped */
#define HTTP_HEAD_MAX    ((size_t)64 * 1024)  /* request line and headers */
#define HTTP_HEADERS_MAX 100
#define HTTP_AHEAD_MAX   ((size_t)64 * 1024)  /* bytes of later requests that wait for the first */
#define HTTP_DRAIN_MAX   ((int64_t)64 * 1024) /* of an unwanted body: read to keep the connection */
#define HTTP_QUEUE_KEEP  ((size_t)16 * 1024)  /* memory of an empty queue while a request runs */
#define HTTP_CAPTURES    4
#define HTTP_TOKEN_MAX   4096

struct http_server {
    struct ev_loop *loop;
    struct http_config config;
    struct list listeners, connections, touched, later;
    struct list guests;       /* struct http_guest */
    struct arrivals arrivals; /* bytes to be read, connections to be accepted */
    ev_prepare settle;
    ev_timer again;  /* those on `later`: they have more to do, but others come first */
    ev_timer accept; /* descriptors ran out: try again then */
    struct http_counts counts;
    unsigned refusing; /* connections over the limit that are being told so */
    bool is_stopping;
    char date[40]; /* "Date: …\r\n" of date_s */
    uint64_t date_s;
    char token[HTTP_TOKEN_MAX]; /* padded with NUL for the comparison */
    size_t token_len;
    char pass[33]; /* of ROUTE_COOKIE; "" if auth is off */
    char scratch[HTTP_SCRATCH];
};

enum conn_state {
    CONN_OPEN,  /* requests and answers */
    CONN_LINGER /* answered; what still comes is thrown away, so that the answer is not lost */
};

struct conn {
    struct http_server *server;
    struct list node, touched;
    struct arrival arrival;
    int fd;
    enum conn_state state;
    bool is_broken;  /* cut it: peer gone, out of memory, handler's wish */
    bool is_refused; /* counted in server->refusing, not in connections */
    bool has_eof;    /* the peer sends no more */
    bool is_blocked; /* the socket takes no more; writer is armed */
    bool is_feeding; /* feed_at is good */
    bool is_held;    /* the next request waits: so much of the answers is still to be sent */
    bool wants_turn; /* it could go on now, but others come first */
    bool ends;       /* close when all is sent */
    ev_io reader, writer;
    ev_timer timer;
    ev_tstamp deadline; /* 0: none */
    ev_tstamp lingers_since;
    ev_tstamp since;  /* of the state that has a deadline: last progress */
    struct strbuf in; /* received, not taken */
    size_t scanned;   /* bytes at its start without the end of a head */
    const char *feed_at, *feed_end;
    struct byte_queue out; /* to be sent */
    int file_fd;           /* then this file; -1: none */
    bool has_file_tail;
    int64_t file_at, file_left;
    struct exchange *x;
};

struct http_header {
    uint32_t name, value; /* offsets in head; NUL-ended */
};
struct http_capture {
    const char *name; /* in the route's pattern */
    size_t name_len;
    const char *value;
};
struct http_joined {
    struct http_joined *next;
    char text[];
};

struct exchange {
    struct conn *conn;
    llhttp_t parser;
    struct strbuf head;
    struct http_header headers[HTTP_HEADERS_MAX];
    unsigned header_count;
    bool is_value_next; /* parsing: a name came last */
    bool has_head;      /* parsing: what looks like headers now is a trailer */
    uint32_t url, url_len;
    uint32_t name_len, value_len; /* of the last header while parsing */
    struct http_joined *joined;
    const char *path, *query;
    const struct route *route;
    char *segments; /* a copy of path, cut where captures end */
    struct http_capture captures[HTTP_CAPTURES];
    unsigned capture_count;

    bool is_head, is_http10, keeps_alive, expects_continue;
    bool has_begun;      /* the handler was called */
    bool is_paused;      /* by the handler */
    bool must_run;       /* the parser stopped inside a piece: run it, even without bytes */
    bool is_too_large;   /* found while parsing the body */
    bool body_has_ended; /* all of the request was read */
    bool is_following;   /* its answer has no end of its own */
    bool body_was_told;  /* on_body_end was called, or nobody wants it */
    int64_t length;      /* announced; -1: chunked */
    uint64_t received, overhead;
    const char *framing_at; /* parsing: what lies between chunks is looked at up to here */
    char framing_last;
    struct strbuf body;
    const struct exchange_events *events;
    void *owner;

    bool answer_has_begun, answer_has_ended, is_chunked, has_no_body, is_full;
    int status;
    int64_t left; /* of the announced length of the answer */
    struct strbuf answer_headers;
};

/* http_conn.c */
/* Owns fd; what it has sent already is taken. One that is refused is not listened to. */
int http_conn_new(struct http_server *s, int fd, bool is_refused, struct error *e);
void conn_touch(struct conn *c);
void http_conn_settle(struct conn *c);
void conn_kill(struct conn *c);

/* http_output.c: the queue of a connection */
size_t conn_pending(const struct conn *c);
/* Queue pieces; large ones go to the socket at once. Failure breaks the connection. */
void http_conn_send(struct conn *c, const char *head, size_t head_n, const char *bytes, size_t n,
                    const char *tail);
void http_conn_flush(struct conn *c);

/* http_request.c: bytes to requests */
struct http_refusal {
    int status; /* 0: fine */
    const char *code, *text;
};
/* The length of the head at the start of n bytes: 0 if it is not whole; -1 with *why set. *scanned
 * remembers what need not be looked at again. */
long head_find(const char *bytes, size_t n, size_t *scanned, struct http_refusal *why);
/* A new exchange with the head (may be empty: a refusal). NULL: no memory. */
struct exchange *exchange_new(struct conn *c, const char *head, size_t n);
void exchange_free(struct exchange *x);
struct http_refusal request_parse(struct exchange *x);
/* Parse body bytes: what was taken of them. Sets body_has_ended, is_too_large; *why on nonsense. */
size_t request_parse_body(struct exchange *x, const char *bytes, size_t n,
                          struct http_refusal *why);

/* http_route.c: which handler, and whether it may be called. Answers itself if not. */
bool route_admit(struct exchange *x);
uint64_t exchange_body_limit(const struct exchange *x);
void exchange_answer_too_large(struct exchange *x, uint64_t length);

/* http_auth.c */
void auth_init(struct http_server *s);
bool auth_admits(const struct exchange *x, unsigned flags);

/* http_origin.c: NULL, or why a browser may not ask this where no token is needed. */
const char *origin_complaint(const struct exchange *x);

/* http_answer.c */
void answer_continue(struct exchange *x);
bool answer_may_drain(const struct exchange *x);
const char *http_date(struct http_server *s);
/* What a browser wants to read of a foreign answer, if the operator has named an origin. -1: no
 * memory. */
int http_add_cors(const struct http_server *s, struct strbuf *head);

/* http_listen.c */
void listeners_init(struct http_server *s);
void listeners_stop(struct http_server *s);

#endif
