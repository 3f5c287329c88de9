/*
 * One connection of the control socket: its request coming in, its events, its end.
 *
 * States:  ASSEMBLING -> SERVING -> CLOSING -> DEAD   (any state may go to CLOSING or DEAD)
 *
 * Out: conn_out.c.
 * In: packets are read while the request is incomplete and while its owner wants them, a bounded
 * number per turn of the loop. While nothing is read the connection stands in the server's epoll
 * set for hang-ups, so that a client that leaves is noticed all the same.
 * End: the descriptor is closed at once, the owner hears of it and the memory is freed in the
 * server's sweep, after the callbacks of this turn. So nothing that calls into a connection can
 * have it freed or be called back from below.
 */
#include "control/server_internal.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PACKETS_PER_TURN 8
#define BULK_PACKET      16384       /* after a packet of this size another one is likely there */
#define STOOD_STILL_NS   1000000000u /* a timer that comes so late tells more of us */

static void conn_on_io(struct ev_loop *loop, ev_io *w, int revents);
static void conn_on_timer(struct ev_loop *loop, ev_timer *w, int revents);

struct conn *conn_of_due(struct list *node)
{
    return list_entry(node, struct conn, due);
}

struct conn *conn_of_all(struct list *node)
{
    return list_entry(node, struct conn, all);
}

/* ---- watching ---------------------------------------------------------------------------- */

static bool reads_input(const struct conn *c)
{
    return c->state == CONN_ASSEMBLING ||
           (c->state == CONN_SERVING && !c->is_paused && !c->is_input_over);
}

/* Bring the watcher in line with the state. ev_io_modify() keeps libev from telling the kernel
 * when the events are the same again at the end of the turn. */
void conn_watch(struct conn *c)
{
    int want = (reads_input(c) ? EV_READ : 0) | (c->is_blocked && !c->is_short ? EV_WRITE : 0);
    int have = ev_is_active(&c->io) ? c->io.events & (EV_READ | EV_WRITE) : 0;
    if (c->state == CONN_DEAD || want == have)
        return;
    ev_io_stop(c->server->loop, &c->io);
    if (want) {
        ev_io_modify(&c->io, want);
        ev_io_start(c->server->loop, &c->io);
    }
    if (c->state == CONN_SERVING && !(want & EV_READ) && !c->is_hup_watched)
        c->is_hup_watched = server_watch_hangup(c->server, c->fd, c) == 0;
}

void conn_set_timer(struct conn *c, uint64_t ms)
{
    ev_timer_stop(c->server->loop, &c->timer);
    if (ms == 0)
        return;
    c->timer_ms = ms;
    c->timer_due_ns = clock_mono_ns() + ms * 1000000;
    ev_timer_set(&c->timer, (double)ms / 1000.0, 0.0);
    ev_timer_start(c->server->loop, &c->timer);
}

/* ---- the end ----------------------------------------------------------------------------- */

/* The owner hears of the end from the sweep. */
static void conn_release_owner(struct conn *c)
{
    if (c->events.on_closed)
        c->is_owner_due = true;
    server_make_due(c->server, &c->due);
}

void conn_close(struct conn *c)
{
    if (c->state == CONN_DEAD)
        return;
    ev_io_stop(c->server->loop, &c->io);
    ev_timer_stop(c->server->loop, &c->timer);
    arrival_drop(&c->arrival);
    /* A child between fork and exec may still hold the description; then only an explicit removal
     * keeps the epoll set from telling of a connection that was freed. */
    if (c->is_hup_watched)
        server_unwatch_hangup(c->server, c->fd);
    shutdown(c->fd, SHUT_RDWR); /* the client, too, is told in spite of such a child */
    fd_close(&c->fd);
    c->state = CONN_DEAD;
    c->server->count--;
    c->server->adopted -= c->is_adopted;
    c->server->last_closed_ns = clock_mono_ns();
    conn_release_owner(c);
}

void conn_settle(struct conn *c)
{
    if (c->is_owner_due) {
        struct conn_events events = c->events;
        c->is_owner_due = false;
        memset(&c->events, 0, sizeof c->events);
        events.on_closed(c->owner);
    }
    if (c->state == CONN_DEAD)
        conn_destroy(c);
}

void conn_destroy(struct conn *c)
{
    memset(&c->events, 0, sizeof c->events);
    conn_close(c);
    list_remove(&c->due);
    list_remove(&c->all);
    assembly_free(&c->assembly);
    strbuf_free(&c->out);
    free(c);
}

/* The client broke the protocol: it is told, and the owner hears that it's gone. */
static void conn_break(struct conn *c, const struct error *e)
{
    c->may_have_input = true;
    LOG_DBG("client_error", F_STR("verb", c->assembly.verb), F_STR("message", e->text),
            F_INT("pid", c->assembly.request.peer_pid));
    conn_release_owner(c);
    conn_finish_error(c, e);
}

/* ---- receiving --------------------------------------------------------------------------- */

/* recv() said 0: the peer has closed, has shut down its sending side, or sent an empty packet. */
static void conn_end_of_input(struct conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    struct error e;
    if (poll(&p, 1, 0) < 0 || p.revents & (POLLHUP | POLLERR)) {
        conn_close(c);
    } else if (!(p.revents & POLLRDHUP)) {
        error_set(&e, ERR_PROTOCOL, "an empty packet");
        conn_break(c, &e);
    } else if (c->state == CONN_ASSEMBLING) {
        error_set(&e, ERR_PROTOCOL, "the request ends before it is complete: %zu bytes missing",
                  c->assembly.args_left + c->assembly.text_left);
        conn_break(c, &e);
    } else {
        c->is_input_over = true;
        if (c->events.on_input_end)
            c->events.on_input_end(c->owner);
    }
}

/* One packet of the request, or of input for the owner. */
static void conn_take(struct conn *c, const char *packet, size_t n)
{
    struct error e;
    if (n > WIRE_PACKET_MAX) {
        error_set(&e, ERR_PROTOCOL, "a packet of %zu bytes; the limit is %d", n, WIRE_PACKET_MAX);
        conn_break(c, &e);
    } else if (c->state == CONN_ASSEMBLING) {
        int rc = assembly_take(&c->assembly, packet, n, &e);
        if (rc < 0) {
            conn_break(c, &e);
        } else if (rc > 0) {
            c->state = CONN_SERVING;
            conn_set_timer(c, 0);
            c->server->config.on_request(c, &c->assembly.request, c->server->config.context);
            /* A connection may stay for long; its request is not held, nor counted, with it. */
            assembly_free(&c->assembly);
        }
    } else if (packet[0] != WIRE_STDIN && packet[0] != WIRE_SIGNAL && packet[0] != WIRE_RESIZE) {
        error_set(&e, ERR_PROTOCOL, "a packet on unknown channel 0x%02x", (unsigned char)packet[0]);
        conn_break(c, &e);
    } else if (c->events.on_data) {
        c->is_paused = !c->events.on_data(c->owner, packet[0], packet + 1, n - 1);
    }
}

/* Read what is there, within the bound of a turn. A try that would likely find nothing is not
 * made: level-triggered epoll tells if there is more. */
static void conn_read(struct conn *c)
{
    char *packet = c->server->packet;
    for (int i = 0; i < PACKETS_PER_TURN && reads_input(c); i++) {
        ssize_t n = recv(c->fd, packet, WIRE_PACKET_MAX, MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOMEM || errno == ENOBUFS))
            return;
        if (n < 0)
            conn_close(c);
        else if (n == 0)
            conn_end_of_input(c);
        else
            conn_take(c, packet, (size_t)n);
        if (n < BULK_PACKET && c->state != CONN_ASSEMBLING)
            return;
    }
}

/* ---- events ------------------------------------------------------------------------------ */

/* The kernel takes packets again. */
static void conn_on_room(struct conn *c)
{
    conn_unblock(c);
    if (conn_flush(c) != CONN_SENT)
        return;
    if (c->state == CONN_CLOSING) {
        conn_close_when_sent(c);
    } else if (c->wants_room) {
        c->wants_room = false;
        if (c->events.on_writable)
            c->events.on_writable(c->owner);
    }
}

static void conn_on_io(struct ev_loop *loop, ev_io *w, int revents)
{
    struct conn *c = w->data;
    (void)loop;
    c->arrived = revents;
    arrivals_add(&c->server->arrivals, &c->arrival);
}

/* Its turn has come among those with an event. */
static void conn_on_arrival(struct arrival *arrival)
{
    struct conn *c = list_entry(arrival, struct conn, arrival);
    if (c->arrived & EV_WRITE && c->is_blocked)
        conn_on_room(c);
    if (c->arrived & EV_READ && c->state != CONN_DEAD && reads_input(c))
        conn_read(c);
    conn_watch(c);
}

/* A blocked client that has read something since the timer was set is slow, not stalled. */
static void conn_check_stall(struct conn *c)
{
    int unread = conn_unread(c);
    if (c->is_short) {
        conn_on_room(c);
    } else if (unread < c->unread_bytes) {
        c->unread_bytes = unread;
        conn_set_timer(c, c->server->config.client_stall_ms);
    } else {
        conn_drop(c, "stalled");
    }
}

static void conn_on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct conn *c = w->data;
    struct error e;
    (void)loop;
    (void)revents;
    if (clock_mono_ns() >= c->timer_due_ns + STOOD_STILL_NS) {
        conn_set_timer(c, c->timer_ms); /* all was paused, the client perhaps, too */
    } else if (c->state == CONN_ASSEMBLING) {
        error_set(&e, ERR_PROTOCOL, "the request was not complete within %llu ms",
                  (unsigned long long)c->server->config.request_timeout_ms);
        conn_break(c, &e);
    } else if (c->is_blocked) {
        conn_check_stall(c);
    }
    conn_watch(c);
}

void conn_on_hangup(struct conn *c)
{
    conn_close(c);
}

/* ---- life and the owner's face ----------------------------------------------------------- */

struct conn *conn_new(struct server *s, int fd, uid_t uid, pid_t pid, bool is_adopted)
{
    struct conn *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return NULL;
    }
    c->server = s;
    c->fd = fd;
    list_append(&s->conns, &c->all);
    list_init(&c->due);
    arrival_init(&c->arrival, conn_on_arrival);
    s->count++;
    s->adopted += is_adopted;
    c->is_adopted = is_adopted;
    ev_io_init(&c->io, conn_on_io, fd, EV_READ);
    ev_timer_init(&c->timer, conn_on_timer, 0.0, 0.0);
    c->io.data = c->timer.data = c;
    assembly_init(&c->assembly, &s->uploads);
    c->assembly.request.peer_uid = uid;
    c->assembly.request.peer_pid = pid;
    conn_read(c);
    if (c->state == CONN_ASSEMBLING)
        conn_set_timer(c, s->config.request_timeout_ms);
    conn_watch(c);
    return c;
}

void conn_set_owner(struct conn *c, const struct conn_events *events, void *owner)
{
    if (events)
        c->events = *events;
    else
        memset(&c->events, 0, sizeof c->events);
    if (c->events.on_data)
        c->may_have_input = true;
    c->owner = owner;
    c->is_owner_due = !conn_is_alive(c) && c->events.on_closed;
    if (c->is_owner_due)
        server_make_due(c->server, &c->due);
}

void conn_resume_input(struct conn *c)
{
    c->is_paused = false;
    conn_watch(c);
}
