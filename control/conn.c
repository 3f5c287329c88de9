/*
 * One connection of the control socket: its request coming in, its packets going out, its end.
 *
 * States:  ASSEMBLING -> SERVING -> CLOSING -> DEAD   (any state may go to CLOSING or DEAD)
 *
 * Out: packets go straight to the kernel. When it takes no more, conn_send() answers CONN_FULL,
 * and records go to a queue of length-prefixed packets that is sent before anything else.
 * In: packets are read while the request is incomplete and while its owner wants them, a bounded
 * number per turn of the loop. While nothing is read the connection stands in the server's epoll
 * set for hang-ups, so that a client that leaves is noticed all the same.
 * End: the descriptor is closed at once, the owner hears of it and the memory is freed in the
 * server's sweep, after the callbacks of this turn. So nothing that calls into a connection can
 * have it freed or be called back from below.
 */
#include "control/server_internal.h"

#include "base/fd.h"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUEUE_MAX         ((size_t)1 << 20) /* bytes of queued records */
#define QUEUE_RETRY       ((size_t)1 << 17) /* try the kernel again after so many queued bytes */
#define SEND_BUFFER       (1 << 20)         /* asked of the kernel once a client lags */
#define PACKETS_PER_TURN  8
#define BULK_PACKET       16384 /* after a packet of this size another one is likely there */
#define NO_MEMORY_WAIT_MS 50

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
    ev_timer timer; /* the request's deadline; while blocked, the stall's */
    struct list all, due;
    struct conn_events events;
    void *owner;
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
    uint64_t blocked_ms;
    struct assembly assembly;
};

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
static void conn_watch(struct conn *c)
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

static void conn_set_timer(struct conn *c, uint64_t ms)
{
    ev_timer_stop(c->server->loop, &c->timer);
    if (ms == 0)
        return;
    ev_timer_set(&c->timer, (double)ms / 1000.0, 0.0);
    ev_timer_start(c->server->loop, &c->timer);
}

/* ---- the end ----------------------------------------------------------------------------- */

/* The owner hears of the end from the sweep. */
static void release_owner(struct conn *c)
{
    if (c->events.on_closed)
        c->is_owner_due = true;
    server_make_due(c->server, &c->due);
}

static void conn_close(struct conn *c)
{
    if (c->state == CONN_DEAD)
        return;
    ev_io_stop(c->server->loop, &c->io);
    ev_timer_stop(c->server->loop, &c->timer);
    /* A child between fork and exec may still hold the description; then only an explicit removal
     * keeps the epoll set from telling of a connection that was freed. */
    if (c->is_hup_watched)
        server_unwatch_hangup(c->server, c->fd);
    fd_close(&c->fd);
    c->state = CONN_DEAD;
    c->server->count--;
    release_owner(c);
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

/* ---- sending ----------------------------------------------------------------------------- */

/* Ask for a larger send buffer the first time that it is full: short answers never need it. */
static bool raise_send_buffer(struct conn *c)
{
    int size = SEND_BUFFER;
    if (c->is_buffer_big)
        return false;
    c->is_buffer_big = true;
    if (setsockopt(c->fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) == 0)
        return true; /* privileged: beyond net.core.wmem_max */
    return setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0;
}

static int unread_by_client(const struct conn *c)
{
    int n = 0;
    return ioctl(c->fd, SIOCOUTQ, &n) == 0 ? n : 0;
}

static void conn_block(struct conn *c, bool is_short)
{
    bool was_short = c->is_short;
    c->is_short = is_short;
    if (!c->is_blocked || (was_short && !is_short)) {
        if (!c->is_blocked)
            c->blocked_ms = 0;
        c->is_blocked = true;
        c->unread_bytes = unread_by_client(c);
        conn_set_timer(c, is_short ? NO_MEMORY_WAIT_MS : c->server->config.client_stall_ms);
    } else if (is_short) {
        conn_set_timer(c, NO_MEMORY_WAIT_MS);
    }
    conn_watch(c);
}

static void conn_unblock(struct conn *c)
{
    c->is_blocked = c->is_short = false;
    conn_set_timer(c, 0);
}

/* One packet to the kernel. CONN_FULL has blocked the connection, CONN_GONE has closed it. */
static enum conn_sent transmit(struct conn *c, struct iovec *iov, size_t parts)
{
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = parts};
    while (sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        int error = errno;
        if (error == EINTR)
            continue;
        if ((error == EAGAIN || error == EMSGSIZE) && raise_send_buffer(c))
            continue;
        if (error == EAGAIN || error == ENOBUFS || error == ENOMEM) {
            conn_block(c, error != EAGAIN);
            return CONN_FULL;
        }
        conn_close(c);
        return CONN_GONE;
    }
    return CONN_SENT;
}

static bool has_queue(const struct conn *c)
{
    return c->out_at < c->out.len;
}

/* Send what is queued, as far as the kernel takes it. */
static enum conn_sent flush_queue(struct conn *c)
{
    c->out_tried = c->out.len;
    while (has_queue(c)) {
        uint32_t n;
        memcpy(&n, c->out.data + c->out_at, sizeof n);
        struct iovec iov = {c->out.data + c->out_at + sizeof n, n};
        enum conn_sent sent = transmit(c, &iov, 1);
        if (sent != CONN_SENT)
            return sent;
        c->out_at += sizeof n + n;
        c->unread_bytes = INT_MAX; /* it has read: no stall */
    }
    strbuf_free(&c->out);
    c->out_at = c->out_tried = 0;
    return CONN_SENT;
}

/* Queue one packet behind the others. limit bounds the whole queue. */
static int enqueue(struct conn *c, char channel, const char *bytes, size_t n, size_t limit)
{
    if (c->out_at > QUEUE_MAX / 2) { /* forget what is sent */
        c->out.len -= c->out_at;
        memmove(c->out.data, c->out.data + c->out_at, c->out.len);
        c->out_tried -= c->out_at;
        c->out_at = 0;
    }
    uint32_t len = (uint32_t)n + 1;
    if (c->out.len - c->out_at + sizeof len + len > limit)
        return -1;
    char *to = strbuf_reserve(&c->out, sizeof len + len);
    if (!to)
        return -1;
    memcpy(to, &len, sizeof len);
    to[sizeof len] = channel;
    if (n > 0)
        memcpy(to + sizeof len + 1, bytes, n);
    c->out.len += sizeof len + len;
    return 0;
}

static bool is_alive(const struct conn *c)
{
    return c->state == CONN_ASSEMBLING || c->state == CONN_SERVING;
}

static void drop(struct conn *c, const char *reason)
{
    LOG_INF("client_dropped", F_STR("reason", reason), F_STR("verb", c->assembly.verb),
            F_INT("pid", c->assembly.request.peer_pid));
    conn_close(c);
}

/* Send a packet now or queue it. */
static void send_or_queue(struct conn *c, char channel, const char *bytes, size_t n, size_t limit)
{
    if (!c->is_blocked && !has_queue(c)) {
        struct iovec iov[2] = {{&channel, 1}, {(void *)(uintptr_t)bytes, n}};
        if (transmit(c, iov, 2) != CONN_FULL)
            return;
    }
    if (enqueue(c, channel, bytes, n, limit) < 0)
        drop(c, "queue_full");
    else if (c->out.len - c->out_tried >= QUEUE_RETRY && !c->is_short &&
             flush_queue(c) == CONN_SENT)
        conn_unblock(c), conn_watch(c);
}

enum conn_sent conn_send(struct conn *c, char channel, const char *bytes, size_t n)
{
    if (!is_alive(c))
        return CONN_GONE;
    if (c->is_blocked || has_queue(c)) {
        c->wants_room = true;
        return CONN_FULL;
    }
    struct iovec iov[2] = {{&channel, 1}, {(void *)(uintptr_t)bytes, n}};
    enum conn_sent sent = transmit(c, iov, 2);
    if (sent == CONN_FULL)
        c->wants_room = true;
    return sent;
}

/* ---- records ----------------------------------------------------------------------------- */

/* Fields of a record that fit into a packet, with `truncated:=true` for the rest. NULL with
 * *n = 0: no memory. */
static const char *fit_record(const struct record *r, struct strbuf *cut, size_t *n)
{
    static const char mark[] = "truncated:=true";
    const char *bytes = strbuf_text(&r->bytes);
    *n = r->bytes.len;
    if (*n <= WIRE_PAYLOAD_MAX)
        return bytes;
    struct field f;
    size_t at = 0, start = 0;
    while (record_next(bytes, r->bytes.len, &at, &f) > 0) {
        if (cut->len + (at - start) + sizeof mark <= WIRE_PAYLOAD_MAX &&
            strbuf_add(cut, bytes + start, at - start) < 0)
            break;
        start = at;
    }
    *n = strbuf_add(cut, mark, sizeof mark) < 0 ? 0 : cut->len;
    return *n ? cut->data : NULL;
}

static void conn_record(struct conn *c, char channel, const struct record *r)
{
    CLEANUP_STRBUF struct strbuf cut = {0};
    size_t n = 0;
    const char *bytes = r->is_broken ? NULL : fit_record(r, &cut, &n);
    if (!is_alive(c))
        return;
    if (bytes)
        send_or_queue(c, channel, bytes, n, QUEUE_MAX);
    else
        c->has_lost_record = true; /* the last packet says so */
}

void conn_note(struct conn *c, const struct record *r)
{
    conn_record(c, WIRE_NOTE, r);
}

void conn_row(struct conn *c, const struct record *r)
{
    conn_record(c, WIRE_ROW, r);
}

/* Close once everything is out. */
static void close_when_sent(struct conn *c)
{
    if (c->state == CONN_DEAD)
        return;
    if (has_queue(c)) {
        c->state = CONN_CLOSING;
        conn_watch(c);
        return;
    }
    if (c->may_have_input)
        wire_drain(c->fd);
    conn_close(c);
}

/* The last packet. Room for it is kept behind the queue's limit. */
static void finish(struct conn *c, char channel, const char *bytes, size_t n)
{
    if (c->state == CONN_ASSEMBLING)
        c->may_have_input = true;
    send_or_queue(c, channel, bytes, n, QUEUE_MAX + 2 * WIRE_PACKET_MAX);
    close_when_sent(c);
}

static void finish_error(struct conn *c, const struct error *e)
{
    char record[1024];
    size_t n = wire_error_record(e, record, sizeof record);
    finish(c, WIRE_ERROR, record, n);
}

static void forget_owner(struct conn *c)
{
    memset(&c->events, 0, sizeof c->events);
    c->is_owner_due = false;
}

void conn_result(struct conn *c, const struct record *r)
{
    CLEANUP_STRBUF struct strbuf cut = {0};
    size_t n = 0;
    const char *bytes = r->is_broken || c->has_lost_record ? NULL : fit_record(r, &cut, &n);
    forget_owner(c);
    if (!is_alive(c))
        return;
    if (bytes) {
        finish(c, WIRE_RESULT, bytes, n);
        return;
    }
    struct error e;
    error_set(&e, ERR_MEMORY, "%s: no memory for the whole answer", c->assembly.verb);
    finish_error(c, &e);
}

void conn_fail(struct conn *c, const struct error *e)
{
    forget_owner(c);
    if (is_alive(c))
        finish_error(c, e);
}

/* The client broke the protocol: it is told, and the owner hears that it's gone. */
static void conn_break(struct conn *c, const struct error *e)
{
    c->may_have_input = true;
    LOG_DBG("client_error", F_STR("verb", c->assembly.verb), F_STR("message", e->text),
            F_INT("pid", c->assembly.request.peer_pid));
    release_owner(c);
    finish_error(c, e);
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
        }
    } else if (packet[0] != WIRE_STDIN && packet[0] != WIRE_SIGNAL) {
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
    if (flush_queue(c) != CONN_SENT)
        return;
    if (c->state == CONN_CLOSING) {
        close_when_sent(c);
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
    if (revents & EV_WRITE && c->is_blocked)
        conn_on_room(c);
    if (revents & EV_READ && c->state != CONN_DEAD && reads_input(c))
        conn_read(c);
    conn_watch(c);
}

/* A blocked client that has read something since the timer was set is slow, not stalled. */
static void conn_check_stall(struct conn *c)
{
    uint64_t stall_ms = c->server->config.client_stall_ms;
    int unread = unread_by_client(c);
    if (unread < c->unread_bytes)
        c->blocked_ms = 0;
    else
        c->blocked_ms += c->is_short ? NO_MEMORY_WAIT_MS : stall_ms;
    c->unread_bytes = unread;
    if (stall_ms > 0 && c->blocked_ms >= stall_ms)
        drop(c, "stalled");
    else if (c->is_short)
        conn_on_room(c);
    else
        conn_set_timer(c, stall_ms);
}

static void conn_on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct conn *c = w->data;
    struct error e;
    (void)loop;
    (void)revents;
    if (c->state == CONN_ASSEMBLING) {
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

struct conn *conn_new(struct server *s, int fd, uid_t uid, pid_t pid, bool read_now)
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
    s->count++;
    ev_io_init(&c->io, conn_on_io, fd, EV_READ);
    ev_timer_init(&c->timer, conn_on_timer, 0.0, 0.0);
    c->io.data = c->timer.data = c;
    assembly_init(&c->assembly, &s->uploads);
    c->assembly.request.peer_uid = uid;
    c->assembly.request.peer_pid = pid;
    if (read_now)
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
    c->is_owner_due = !is_alive(c) && c->events.on_closed;
    if (c->is_owner_due)
        server_make_due(c->server, &c->due);
}

void conn_resume_input(struct conn *c)
{
    c->is_paused = false;
    conn_watch(c);
}
