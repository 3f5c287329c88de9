/*
 * What the files of the server share: server.c (accepting, limits, the sweep), conn.c (one
 * connection), conn_out.c (what it sends), request.c (assembling a request) and socket_file.c (the
 * socket's path).
 */
#ifndef CONTROL_SERVER_INTERNAL_H
#define CONTROL_SERVER_INTERNAL_H

#include "base/arrivals.h"
#include "base/list.h"
#include "control/server.h"
#include "control/wire.h"

#define REQUEST_VERB_MAX 64

/* The bytes that all requests under way hold together. */
struct uploads {
    size_t used;
    size_t limit;
    size_t text_limit; /* of one request */
};

/* A request while its packets arrive, and afterwards. `request` is the part that owners see. */
struct assembly {
    struct request request;
    char verb[REQUEST_VERB_MAX + 1];
    struct uploads *uploads;
    size_t args_left; /* announced and not yet here */
    size_t text_left;
    size_t args_held; /* bytes counted in uploads->used */
    size_t text_held;
    bool has_begun; /* the first packet was taken */
};

void assembly_init(struct assembly *a, struct uploads *uploads);
/* Take one packet: 1 when the request is complete, 0 when more must come, -1 with *e set. */
int assembly_take(struct assembly *a, const char *packet, size_t n, struct error *e);
void assembly_free(struct assembly *a);

/* The bound socket and the identity of its file, so that only our own file is ever removed. */
struct socket_file {
    int fd; /* listening, non-blocking, close-on-exec; -1: none */
    dev_t dev;
    ino_t ino;
};

/* Bind and listen at path, mode 0600 from the first moment; a stale socket there is replaced.
 * A live server or anything that is not a socket is an error. 0, or -1 with *e set. */
int socket_file_open(struct socket_file *f, const char *path, struct error *e);
/* True if path still leads to the file that we bound. */
bool socket_file_is_ours(const struct socket_file *f, const char *path);
/* Close, and unlink the file if it is still ours. */
void socket_file_close(struct socket_file *f, const char *path);

struct server {
    struct ev_loop *loop;
    struct server_config config; /* config.path points to path */
    char path[108];
    struct socket_file file;
    struct uploads uploads;
    uint64_t last_closed_ns;
    unsigned count;   /* connections with an open descriptor */
    unsigned adopted; /* those of them that came through server_adopt() */
    struct list conns;
    struct arrivals arrivals; /* with an event that is not handled yet */
    struct list due; /* connections whose owner must hear of the end, or that can be freed */
    ev_io accept_io;
    struct arrival clients; /* that can be accepted */
    ev_timer accept_pause;  /* runs while accepting is suspended after an error like EMFILE */
    ev_check sweep;         /* never started: it is fed when `due` has entries */
    bool is_accept_failing;
    unsigned last_accept_turn;
    int hangups; /* epoll set: connections whose input is not read now; -1 until needed */
    ev_io hangups_io;
    char packet[WIRE_PACKET_MAX];
};

#define CONN_NO_MEMORY_MS 50 /* between tries when the kernel has no memory for a packet */

enum conn_state {
    CONN_ASSEMBLING, /* the request is not complete */
    CONN_SERVING,    /* on_request was called; an owner may listen */
    CONN_CLOSING,    /* the last packet waits in the queue; input is ignored */
    CONN_DEAD,       /* the descriptor is closed; the sweep frees it */
};

struct conn {
    struct server *server;
    int fd;
    enum conn_state state;
    ev_io io;
    ev_timer timer;                  /* the request's deadline; while blocked, the stall's */
    uint64_t timer_ms, timer_due_ns; /* what it was set to; monotonic */
    struct list all, due;
    struct arrival arrival;
    int arrived; /* what the loop told of and is not handled yet: EV_READ, EV_WRITE */
    struct conn_events events;
    void *owner;
    bool is_adopted;
    bool is_owner_due;   /* the sweep has to call on_closed */
    bool is_blocked;     /* the kernel took no more; EV_WRITE or the timer ends that */
    bool is_short;       /* blocked for lack of kernel memory: only the timer ends that */
    bool wants_room;     /* CONN_FULL was answered: on_writable is owed */
    bool is_paused;      /* the owner takes no input now */
    bool is_input_over;  /* the client has shut down its sending side */
    bool is_hup_watched; /* in the server's epoll set */
    bool is_buffer_big;  /* SO_SNDBUF was raised */
    bool has_lost_record;
    bool may_have_input; /* drain before closing */
    struct strbuf out;   /* queued packets: u32 length, bytes */
    size_t out_at;       /* where the first unsent one begins */
    size_t out_tried;    /* length of `out` at the last try of the kernel */
    int unread_bytes;    /* what the client had not read when the stall timer was set */
    struct assembly assembly;
};

/* Make a connection of fd, which it owns from here on. NULL: no memory, fd closed. A request that
 * is already there is served at once, from inside this call. */
struct conn *conn_new(struct server *s, int fd, uid_t uid, pid_t pid, bool is_adopted);
/* The connection is in the list of due ones: tell its owner, or free it, or both. */
void conn_settle(struct conn *c);
/* End and free without telling anybody. */
void conn_destroy(struct conn *c);
/* The epoll set says that the peer has closed. */
void conn_on_hangup(struct conn *c);
struct conn *conn_of_due(struct list *node);
struct conn *conn_of_all(struct list *node);

/* Bring the watcher in line with the connection's state. */
void conn_watch(struct conn *c);
/* Let the timer fire once after ms (0: not at all). */
void conn_set_timer(struct conn *c, uint64_t ms);
/* Close the descriptor now; the sweep does the rest. */
void conn_close(struct conn *c);
/* The request is being received or served. */
bool conn_is_alive(const struct conn *c);
/* conn_out.c: the kernel takes packets again. */
void conn_unblock(struct conn *c);
/* Send what is queued, as far as the kernel takes it. */
enum conn_sent conn_flush(struct conn *c);
/* Close once the queue is empty. */
void conn_close_when_sent(struct conn *c);
/* Queue an error as the last packet, then close. */
void conn_finish_error(struct conn *c, const struct error *e);
/* Close without a word to a client that can't hear one, with a line in the log. */
void conn_drop(struct conn *c, const char *reason);
/* Bytes sent that the client has not read (SIOCOUTQ, unix(7)). */
int conn_unread(const struct conn *c);

/* Have c settled after this turn of the loop. */
void server_make_due(struct server *s, struct list *due_node);
/* Watch fd for nothing but the peer's close; conn_on_hangup(c) tells. 0 or -1. */
int server_watch_hangup(struct server *s, int fd, struct conn *c);
void server_unwatch_hangup(struct server *s, int fd);

/* Write the error as a record of at most `size` bytes; returns its length. Needs no memory. */
size_t wire_error_record(const struct error *e, char *buf, size_t size);
/* Throw away what the peer has sent and accept nothing more from it: a close with unread input
 * would show up as ECONNRESET before our last packet. */
void wire_drain(int fd);

#endif
