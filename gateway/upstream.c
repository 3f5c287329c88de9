/*
 * Calls to init. Each has one end of a socketpair; the request is in it before the other end is
 * handed over, so that init can serve it as soon as it has the descriptor. What init's socket has
 * no room for waits here in order; the caller's end is usable all the same.
 *
 * A call can be closed from inside its own callbacks: is_busy holds its memory until they are back.
 */
#include "gateway/upstream.h"

#include "base/fd.h"
#include "base/list.h"
#include "control/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Packets of one call in one turn of the loop: the others have a turn, too. */
#define PACKETS_PER_TURN 32

struct upstream {
    struct ev_loop *loop;
    int fd;
    ev_io io;
    void (*on_lost)(void *context);
    void *context;
    struct list waiting; /* struct hand_over: for room in init's socket */
    struct list calls;
    bool is_lost;
    bool is_ending;               /* no call is begun any more */
    char trouble[WIRE_WORDS_MAX]; /* that init knows of */
    char packet[WIRE_PACKET_MAX]; /* of the call that is being read */
};

struct hand_over {
    struct list link;
    int fd;
    char what;
};

struct call {
    struct list link;
    struct upstream *upstream;
    struct client *client;
    struct call_events events;
    void *owner;
    ev_io io;
    bool is_paused;
    bool is_uploading; /* the request is not all sent */
    bool wants_room;   /* on_writable is owed */
    bool ends_sending; /* once the request is sent */
    bool is_busy;      /* one of its callbacks runs */
    bool is_closed;
};

/* ---- handing over ------------------------------------------------------------------------ */

/* 1 sent, 0 no room now, -1 with errno. */
static int send_descriptor(int socket, char what, int fd)
{
    int rc = fd_send_packet(socket, &(struct iovec){&what, 1}, 1, fd, MSG_DONTWAIT);
    /* ETOOMANYREFS: so many descriptors are under way already (unix(7)). */
    if (rc < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS))
        return 0;
    return rc < 0 ? -1 : 1;
}

static void upstream_watch(struct upstream *u)
{
    int events = EV_READ | (list_is_empty(&u->waiting) ? 0 : EV_WRITE);
    if (u->is_lost || u->io.events == events)
        return;
    ev_io_stop(u->loop, &u->io);
    ev_io_set(&u->io, u->fd, events);
    ev_io_start(u->loop, &u->io);
}

static void hand_over_free(struct hand_over *h)
{
    list_remove(&h->link);
    fd_close(&h->fd);
    free(h);
}

static int hand_over_later(struct upstream *u, char what, int fd, struct error *e)
{
    struct hand_over *h = malloc(sizeof *h);
    if (!h) {
        close(fd);
        return error_set(e, ERR_MEMORY, "no memory for a request to sandbox-init");
    }
    h->fd = fd;
    h->what = what;
    list_append(&u->waiting, &h->link);
    upstream_watch(u);
    return 0;
}

/* Owns fd. */
static int hand_over(struct upstream *u, char what, int fd, struct error *e)
{
    int rc = list_is_empty(&u->waiting) ? send_descriptor(u->fd, what, fd) : 0;
    if (rc == 0)
        return hand_over_later(u, what, fd, e);
    int saved = errno;
    close(fd);
    if (rc > 0)
        return 0;
    error_set_sys(e, saved, "cannot reach sandbox-init over the gateway's socket");
    if (e)
        e->code = ERR_UNAVAILABLE;
    return -1;
}

static void hand_over_waiting(struct upstream *u)
{
    list_each(h, &u->waiting, struct hand_over, link)
    {
        if (send_descriptor(u->fd, h->what, h->fd) == 0)
            break;
        hand_over_free(h); /* sent; or its caller sees that its end is closed */
    }
    upstream_watch(u);
}

static int make_pair(int fds[2], struct error *e)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
        return error_set_sys(e, errno, "cannot ask sandbox-init: socketpair");
    return 0;
}

int upstream_hand_over(struct upstream *u, char what, struct error *e)
{
    int fds[2];
    if (make_pair(fds, e) < 0)
        return -1;
    if (hand_over(u, what, fds[1], e) == 0)
        return fds[0];
    close(fds[0]);
    return -1;
}

/* ---- words ------------------------------------------------------------------------------- */

bool upstream_say(int fd, char what, const char *text)
{
    size_t n = strlen(text);
    struct iovec parts[] = {{&what, 1}, {(void *)text, n < WIRE_WORDS_MAX ? n : WIRE_WORDS_MAX}};
    return fd_send_packet(fd, parts, 2, -1, MSG_DONTWAIT) >= 0;
}

void upstream_tell_trouble(struct upstream *u, const char *text)
{
    char now[sizeof u->trouble];
    if (!u || u->is_lost)
        return;
    snprintf(now, sizeof now, "%s", text);
    if (strcmp(now, u->trouble) != 0 && upstream_say(u->fd, WIRE_SAY_TROUBLE, now))
        memcpy(u->trouble, now, sizeof now);
}

/* ---- life -------------------------------------------------------------------------------- */

/* Init sends nothing on this socket. */
static bool has_ended(int fd)
{
    char byte;
    ssize_t k = recv(fd, &byte, 1, MSG_DONTWAIT);
    return k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR);
}

static void on_upstream_io(struct ev_loop *loop, ev_io *w, int events)
{
    struct upstream *u = w->data;
    if ((events & EV_READ) && has_ended(u->fd)) {
        u->is_lost = true;
        ev_io_stop(loop, w);
        list_each(h, &u->waiting, struct hand_over, link) hand_over_free(h);
        if (u->on_lost)
            u->on_lost(u->context);
        return;
    }
    if (events & EV_WRITE)
        hand_over_waiting(u);
}

struct upstream *upstream_new(struct ev_loop *loop, int fd, void (*on_lost)(void *context),
                              void *context, struct error *e)
{
    struct upstream *u = calloc(1, sizeof *u);
    if (!u) {
        error_set(e, ERR_MEMORY, "no memory for the way to sandbox-init");
        return NULL;
    }
    u->loop = loop;
    u->fd = fd;
    u->on_lost = on_lost;
    u->context = context;
    u->trouble[0] = '?'; /* not known: the gateway before may have told one */
    list_init(&u->waiting);
    list_init(&u->calls);
    ev_io_init(&u->io, on_upstream_io, fd, EV_READ);
    u->io.data = u;
    ev_io_start(loop, &u->io);
    return u;
}

/* ---- a call ------------------------------------------------------------------------------ */

static void call_free(struct call *c)
{
    list_remove(&c->link);
    ev_io_stop(c->upstream->loop, &c->io);
    client_free(c->client);
    free(c);
}

static void call_watch(struct call *c)
{
    int events = (c->is_paused ? 0 : EV_READ) | (c->is_uploading || c->wants_room ? EV_WRITE : 0);
    if (ev_is_active(&c->io) && c->io.events == events)
        return;
    ev_io_stop(c->upstream->loop, &c->io);
    ev_io_set(&c->io, client_fd(c->client), events);
    if (events)
        ev_io_start(c->upstream->loop, &c->io);
}

/* Tell the owner the end; the call is gone afterwards. */
static void call_end(struct call *c, char channel, const char *bytes, size_t n,
                     const struct error *e)
{
    ev_io_stop(c->upstream->loop, &c->io);
    c->is_busy = true;
    c->events.on_end(c->owner, channel, bytes, n, e);
    call_free(c);
}

static void call_fail(struct call *c, const struct error *e)
{
    call_end(c, 0, NULL, 0, e);
}

/* An owner that waits for no client (a run goes on when its client leaves) has only this end. */
static void end_calls(struct upstream *u)
{
    struct error e = {0};
    error_set(&e, ERR_UNAVAILABLE, "the gateway is stopping");
    u->is_ending = true;
    while (!list_is_empty(&u->calls))
        /* It leaves the list. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        call_fail(list_entry(u->calls.next, struct call, link), &e);
}

void upstream_free(struct upstream *u)
{
    if (!u)
        return;
    end_calls(u);
    ev_io_stop(u->loop, &u->io);
    list_each(h, &u->waiting, struct hand_over, link) hand_over_free(h);
    free(u);
}

/* Give the owner one packet. False: the call takes no more now, or is gone. */
static bool call_give(struct call *c, int channel, const char *bytes, size_t n)
{
    struct error e = {0};
    if (channel == WIRE_RESULT) {
        call_end(c, WIRE_RESULT, bytes, n, NULL);
        return false;
    }
    if (channel == WIRE_ERROR) {
        client_error(bytes, n, &e);
        call_fail(c, &e);
        return false;
    }
    c->is_busy = true;
    bool wants_more = c->events.on_packet(c->owner, (char)channel, bytes, n);
    c->is_busy = false;
    if (c->is_closed) {
        call_free(c);
        return false;
    }
    c->is_paused = !wants_more;
    return true;
}

/* All that was there, or enough for one turn, was given. */
static void call_rest(struct call *c)
{
    if (c->events.on_idle) {
        c->is_busy = true;
        c->events.on_idle(c->owner);
        c->is_busy = false;
    }
    if (c->is_closed)
        call_free(c);
    else
        call_watch(c);
}

static void call_read(struct call *c)
{
    struct error e = {0};
    for (int turn = 0; turn < PACKETS_PER_TURN && !c->is_paused; turn++) {
        const char *bytes;
        size_t n;
        int channel = client_receive(c->client, &bytes, &n, &e);
        if (channel == CLIENT_WAIT)
            break;
        if (channel == 0)
            error_set(&e, ERR_UNAVAILABLE, "sandbox-init closed the connection without an answer");
        if (channel <= 0) {
            call_fail(c, &e);
            return;
        }
        if (!call_give(c, channel, bytes, n))
            return;
    }
    call_rest(c);
}

/* True unless the call is gone. */
static bool call_write(struct call *c)
{
    struct error e = {0};
    if (c->is_uploading) {
        int rc = client_flush(c->client, &e);
        if (rc < 0) {
            call_fail(c, &e);
            return false;
        }
        c->is_uploading = rc == 0;
        if (rc > 0 && c->ends_sending)
            client_end_sending(c->client);
    }
    if (!c->is_uploading && c->wants_room) {
        c->wants_room = false;
        c->is_busy = true;
        if (c->events.on_writable)
            c->events.on_writable(c->owner);
        c->is_busy = false;
    }
    if (c->is_closed) {
        call_free(c);
        return false;
    }
    call_watch(c);
    return true;
}

static void on_call_io(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    struct call *c = w->data;
    if ((events & EV_WRITE) && !call_write(c))
        return;
    if ((events & EV_READ) && !c->is_paused)
        call_read(c);
}

static struct call *call_new(struct upstream *u, const struct client_request *q, int fd,
                             struct error *e)
{
    struct call *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        error_set(e, ERR_MEMORY, "no memory for a request to sandbox-init");
        return NULL;
    }
    c->upstream = u;
    list_init(&c->link);
    ev_io_init(&c->io, on_call_io, fd, EV_READ);
    c->io.data = c;
    c->client = client_start(fd, q, u->packet, e);
    if (c->client) {
        c->is_uploading = client_flush(c->client, e) == 0;
        return c;
    }
    free(c);
    return NULL;
}

struct call *call_open(struct upstream *u, const struct client_request *q,
                       const struct call_events *events, void *owner, struct error *e)
{
    int fds[2];
    if (!u || u->is_ending) { /* !u: tests of HTTP alone */
        error_set(e, ERR_UNAVAILABLE,
                  u ? "the gateway is stopping" : "there is no sandbox-init to ask");
        return NULL;
    }
    if (make_pair(fds, e) < 0)
        return NULL;
    struct call *c = call_new(u, q, fds[0], e);
    if (!c) {
        close(fds[1]);
        return NULL;
    }
    if (hand_over(u, UPSTREAM_CONNECT, fds[1], e) < 0) {
        call_free(c);
        return NULL;
    }
    c->events = *events;
    c->owner = owner;
    list_append(&u->calls, &c->link);
    call_watch(c);
    return c;
}

bool call_send(struct call *c, char channel, const char *bytes, size_t n)
{
    struct error e;
    int rc = c->is_uploading ? 0 : client_try_send(c->client, channel, bytes, n, &e);
    if (rc != 0) /* what cannot be sent any more is dropped: the end is on its way */
        return true;
    c->wants_room = true;
    call_watch(c);
    return false;
}

void call_end_sending(struct call *c)
{
    c->ends_sending = true;
    if (!c->is_uploading)
        client_end_sending(c->client);
}

void call_resume(struct call *c)
{
    c->is_paused = false;
    if (!c->is_busy)
        call_watch(c);
}

void call_close(struct call *c)
{
    if (!c)
        return;
    c->is_closed = true;
    if (!c->is_busy)
        call_free(c);
}
