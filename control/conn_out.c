/*
 * The outgoing side of a connection: packets go straight to the kernel; when it takes no more,
 * conn_send() answers CONN_FULL, and records wait in a queue of length-prefixed packets that is
 * sent before anything else.
 */
#include "control/server_internal.h"

#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define QUEUE_MAX   ((size_t)1 << 20) /* bytes of queued records */
#define QUEUE_RETRY ((size_t)1 << 17) /* try the kernel again after so many queued bytes */
#define SEND_BUFFER (1 << 20)         /* asked of the kernel once a client lags */

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

int conn_unread(const struct conn *c)
{
    int n = 0;
    return ioctl(c->fd, SIOCOUTQ, &n) == 0 ? n : 0;
}

/* The kernel takes no more: wait for EV_WRITE, or for a while if it only lacks memory. */
static void conn_block(struct conn *c, bool is_short)
{
    bool was_waiting = c->is_blocked && !c->is_short;
    c->is_blocked = true;
    c->is_short = is_short;
    if (is_short) {
        conn_set_timer(c, CONN_NO_MEMORY_MS);
    } else if (!was_waiting) {
        c->unread_bytes = conn_unread(c);
        conn_set_timer(c, c->server->config.client_stall_ms);
    }
    conn_watch(c);
}

void conn_unblock(struct conn *c)
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
enum conn_sent conn_flush(struct conn *c)
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

bool conn_is_alive(const struct conn *c)
{
    return c->state == CONN_ASSEMBLING || c->state == CONN_SERVING;
}

void conn_drop(struct conn *c, const char *reason)
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
        conn_drop(c, "queue_full");
    else if (c->out.len - c->out_tried >= QUEUE_RETRY && !c->is_short && conn_flush(c) == CONN_SENT)
        conn_unblock(c), conn_watch(c);
}

enum conn_sent conn_send(struct conn *c, char channel, const char *bytes, size_t n)
{
    if (!conn_is_alive(c))
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
    if (!conn_is_alive(c))
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
void conn_close_when_sent(struct conn *c)
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
    conn_close_when_sent(c);
}

void conn_finish_error(struct conn *c, const struct error *e)
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
    if (!conn_is_alive(c))
        return;
    if (bytes) {
        finish(c, WIRE_RESULT, bytes, n);
        return;
    }
    struct error e;
    error_set(&e, ERR_MEMORY, "%s: no memory for the whole answer", c->assembly.verb);
    conn_finish_error(c, &e);
}

void conn_fail(struct conn *c, const struct error *e)
{
    forget_owner(c);
    if (conn_is_alive(c))
        conn_finish_error(c, e);
}
