/*
 * Operations under way and the helper that does them. Each operation has a socketpair: its request
 * is sent into one end at once, the other end goes to the helper when its socket has room.
 *
 * A call can be closed from inside its own callbacks: is_busy holds its memory until they are back.
 */
#include "gateway/files.h"

#include "base/byte_queue.h"
#include "base/fd.h"
#include "gateway/helper_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PENDING_KEEP     ((size_t)512 * 1024) /* memory of a call that has sent all */
#define PACKETS_PER_TURN 16                   /* of one call: the others have a turn, too */

struct files {
    struct ev_loop *loop;
    struct upstream *upstream;
    int helper; /* our end of the socket to the helper; -1: there is none */
    ev_io io;
    struct list calls, waiting; /* struct file_call by all, by queue */
    struct list holds;          /* struct changes_hold */
    char packet[HELPER_PACKET_MAX];
};

struct file_call {
    struct list link, queue;
    struct files *files;
    int fd;    /* to the worker */
    int other; /* its end, until the helper has it */
    ev_io io;
    struct file_events events;
    void *owner;
    struct byte_queue pending; /* content that the socket had no room for */
    bool has_begun, is_paused, is_busy, is_closed;
    bool is_full;      /* on_writable is owed */
    bool is_finishing; /* END is to be sent behind what is pending */
    bool is_change;    /* of what is in the workspace */
    const char *off;   /* not NULL: it was called off, and this is why */
};

/* ---- the helper ---------------------------------------------------------------------------- */

static void watch_helper(struct files *f)
{
    int events = EV_READ | (list_is_empty(&f->waiting) ? 0 : EV_WRITE);
    if (f->helper < 0 || (ev_is_active(&f->io) && f->io.events == events))
        return;
    ev_io_stop(f->loop, &f->io);
    ev_io_set(&f->io, f->helper, events);
    ev_io_start(f->loop, &f->io);
}

static void lose_helper(struct files *f)
{
    ev_io_stop(f->loop, &f->io);
    fd_close(&f->helper);
}

/* Hand a worker's end over. 1 done, 0 no room, -1 the helper is gone. */
static int hand_over(struct file_call *c)
{
    if (c->files->helper < 0)
        return -1;
    if (helper_send(c->files->helper, HELPER_CONNECTION, NULL, 0, c->other) == 0) {
        fd_close(&c->other);
        return 1;
    }
    return errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS ? 0 : -1;
}

static int start_helper(struct files *f, struct error *e)
{
    lose_helper(f);
    if (!f->upstream)
        return error_set(e, ERR_UNAVAILABLE, "file helper: there is no sandbox-init to start it");
    f->helper = upstream_hand_over(f->upstream, UPSTREAM_FILES, e);
    return f->helper < 0 ? error_wrap(e, "file helper") : 0;
}

/* Those that wait get their turn; with a new helper, if need be, once. */
static void hand_over_waiting(struct files *f)
{
    bool is_new = false;
    while (!list_is_empty(&f->waiting)) {
        struct file_call *c = list_entry(f->waiting.next, struct file_call, queue);
        int rc = hand_over(c);
        if (rc == 0)
            break;
        if (rc < 0 && !is_new) {
            is_new = true;
            if (start_helper(f, NULL) == 0)
                continue;
        }
        list_remove(&c->queue);
        fd_close(&c->other); /* if it failed, the call sees the end of its socket */
    }
    watch_helper(f);
}

static void on_helper(struct ev_loop *loop, ev_io *w, int events)
{
    struct files *f = w->data;
    char byte;
    (void)loop;
    if (events & EV_READ) { /* it sends nothing here */
        ssize_t n = recv(f->helper, &byte, 1, MSG_DONTWAIT);
        if (n >= 0 || (errno != EAGAIN && errno != EINTR))
            lose_helper(f);
    }
    if (!list_is_empty(&f->waiting))
        hand_over_waiting(f);
}

struct files *files_new(struct ev_loop *loop, struct upstream *u, struct error *e)
{
    struct files *f = calloc(1, sizeof *f);
    if (!f) {
        error_set(e, ERR_MEMORY, "no memory for the files");
        return NULL;
    }
    f->loop = loop;
    f->upstream = u;
    f->helper = -1;
    list_init(&f->calls);
    list_init(&f->waiting);
    list_init(&f->holds);
    ev_init(&f->io, on_helper);
    f->io.data = f;
    return f;
}

void files_free(struct files *f)
{
    if (!f)
        return;
    list_each(h, &f->holds, struct changes_hold, link)
    {
        list_remove(&h->link);
        h->on_stop(h);
    }
    list_each(c, &f->calls, struct file_call, link) file_call_close(c);
    lose_helper(f);
    free(f);
}

/* ---- the end of a call --------------------------------------------------------------------- */

static void tell_if_quiet(struct files *f);

static void call_free(struct file_call *c)
{
    struct files *f = c->is_change ? c->files : NULL;
    list_remove(&c->link);
    list_remove(&c->queue);
    ev_io_stop(c->files->loop, &c->io);
    fd_close(&c->fd);
    fd_close(&c->other);
    byte_queue_free(&c->pending);
    free(c);
    if (f)
        tell_if_quiet(f);
}

static void call_end(struct file_call *c, const char *record, size_t n, const struct error *e)
{
    struct error off = {0};
    if (c->off)
        error_set(&off, ERR_STATE, "%s", c->off);
    ev_io_stop(c->files->loop, &c->io);
    c->is_busy = true;
    c->events.on_end(c->owner, record, n, e && c->off ? &off : e);
    call_free(c);
}

static void call_fail(struct file_call *c, enum error_code code, const char *text)
{
    struct error e = {0};
    error_set(&e, code, "%s", text);
    call_end(c, NULL, 0, &e);
}

void file_call_close(struct file_call *c)
{
    if (!c)
        return;
    c->is_closed = true;
    if (!c->is_busy)
        call_free(c);
}

/* ---- what comes ---------------------------------------------------------------------------- */

static void call_watch(struct file_call *c)
{
    bool has_more = byte_queue_len(&c->pending) > 0 || c->is_finishing || c->is_full;
    int events = (c->is_paused ? 0 : EV_READ) | (has_more ? EV_WRITE : 0);
    if (ev_is_active(&c->io) && c->io.events == events)
        return;
    ev_io_stop(c->files->loop, &c->io);
    ev_io_set(&c->io, c->fd, events);
    if (events)
        ev_io_start(c->files->loop, &c->io);
}

/* True if the call goes on. */
static bool is_back(struct file_call *c)
{
    c->is_busy = false;
    if (c->is_closed)
        call_free(c);
    else
        return true;
    return false;
}

static void take_error(struct file_call *c, const char *record, size_t n)
{
    struct error e = {0};
    const char *text = record_get(record, n, "message");
    error_set(&e, ERR_SYSTEM, "%s", text ? text : "the file helper failed");
    e.sys = (int)helper_number(record, n, "errno", 4095, 0);
    if (record_get(record, n, "workspace")) {
        upstream_tell_trouble(c->files->upstream, e.text);
        e.code = ERR_NOT_FOUND;
        e.sys = 0;
    }
    call_end(c, NULL, 0, &e);
}

static bool take_begin(struct file_call *c, const char *record, size_t n, int fd)
{
    c->has_begun = true;
    c->is_busy = true;
    upstream_tell_trouble(c->files->upstream, "");
    if (c->events.on_begin)
        c->events.on_begin(c->owner, record, n, fd);
    else
        fd_close(&fd);
    return is_back(c);
}

static bool take_packet(struct file_call *c, char channel, const char *bytes, size_t n)
{
    c->is_busy = true;
    bool wants_more = c->events.on_packet(c->owner, channel, bytes, n);
    if (!is_back(c))
        return false;
    c->is_paused |= !wants_more;
    return true;
}

/* One packet of a worker. False: the call is over. */
static bool take(struct file_call *c, const char *packet, size_t n, int fd)
{
    char channel = packet[0];
    const char *bytes = packet + 1;
    n--;
    if (channel == HELPER_BEGIN && !c->has_begun && helper_is_record(bytes, n))
        return take_begin(c, bytes, n, fd);
    fd_close(&fd);
    if (channel == HELPER_END && helper_is_record(bytes, n)) {
        upstream_tell_trouble(c->files->upstream, "");
        call_end(c, bytes, n, NULL);
    } else if (channel == HELPER_ERROR && helper_is_record(bytes, n))
        take_error(c, bytes, n);
    else if (c->has_begun && c->events.on_packet &&
             (channel == HELPER_DATA || (channel == HELPER_ROW && helper_is_record(bytes, n))))
        return take_packet(c, channel, bytes, n);
    else
        call_fail(c, ERR_PROTOCOL, "the file helper answered out of order");
    return false;
}

static void call_read(struct file_call *c)
{
    for (int turn = 0; turn < PACKETS_PER_TURN && !c->is_paused; turn++) {
        int fd;
        ssize_t n = helper_receive(c->fd, c->files->packet, &fd);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            call_fail(c, ERR_PROTOCOL, "the file helper sent what no packet is");
            return;
        }
        if (n == 0) {
            call_fail(c, ERR_UNAVAILABLE, "the file helper has ended");
            return;
        }
        if (!take(c, c->files->packet, (size_t)n, fd))
            return;
    }
    call_watch(c);
}

void file_call_resume(struct file_call *c)
{
    c->is_paused = false;
    if (!c->is_busy)
        call_watch(c);
}

/* ---- what goes ----------------------------------------------------------------------------- */

/* Send what fits; returns how much that was. A worker that hung up has said why: that is read. */
static size_t send_some(struct file_call *c, const char *bytes, size_t n)
{
    size_t sent = 0;
    while (sent < n) {
        size_t part = n - sent < HELPER_DATA_MAX ? n - sent : HELPER_DATA_MAX;
        if (helper_send(c->fd, HELPER_DATA, bytes + sent, part, -1) < 0)
            return errno == EAGAIN || errno == ENOBUFS ? sent : n;
        sent += part;
    }
    return sent;
}

static void flush(struct file_call *c)
{
    size_t n = byte_queue_len(&c->pending);
    if (n > 0)
        byte_queue_take(&c->pending, send_some(c, byte_queue_first(&c->pending), n));
    if (byte_queue_len(&c->pending) > 0)
        return;
    if (c->is_finishing &&
        (helper_send(c->fd, HELPER_END, NULL, 0, -1) == 0 || (errno != EAGAIN && errno != ENOBUFS)))
        c->is_finishing = false;
}

bool file_call_send(struct file_call *c, const char *bytes, size_t n)
{
    if (c->off)
        return true;
    size_t sent = byte_queue_len(&c->pending) > 0 ? 0 : send_some(c, bytes, n);
    if (sent == n)
        return true;
    if (byte_queue_put(&c->pending, bytes + sent, n - sent) < 0) {
        /* The worker must not take it for whole: its end of the file is our hanging up. */
        shutdown(c->fd, SHUT_RDWR);
        return true;
    }
    c->is_full = true;
    if (!c->is_busy)
        call_watch(c);
    return false;
}

void file_call_finish(struct file_call *c)
{
    c->is_finishing = !c->off;
    flush(c);
    if (!c->is_busy)
        call_watch(c);
}

/* True unless the call is gone. */
static bool call_write(struct file_call *c)
{
    flush(c);
    if (byte_queue_len(&c->pending) == 0 && c->is_full) {
        c->is_full = false;
        c->is_busy = true;
        if (c->events.on_writable)
            c->events.on_writable(c->owner);
        if (!is_back(c))
            return false;
    }
    call_watch(c);
    return true;
}

static void on_call(struct ev_loop *loop, ev_io *w, int events)
{
    struct file_call *c = w->data;
    (void)loop;
    if ((events & EV_WRITE) && !call_write(c))
        return;
    if ((events & EV_READ) && !c->is_paused)
        call_read(c);
}

/* ---- the beginning of a call --------------------------------------------------------------- */

/* As much as may be had: each time that one side has to wait for the other costs a switch. */
static void widen(int fd)
{
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){1 << 20}, sizeof(int));
}

static int open_pair(struct file_call *c, const struct record *request, struct error *e)
{
    int fds[2];
    if (request->is_broken)
        return error_set(e, ERR_MEMORY, "no memory for a request to the file helper");
    if (request->bytes.len > HELPER_DATA_MAX)
        return error_set(e, ERR_INVALID, "the request is too long");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return error_set_sys(e, errno, "file helper: socketpair");
    c->fd = fds[0];
    c->other = fds[1]; /* the worker waits on its end */
    widen(c->fd);
    widen(c->other);
    if (fd_set_nonblock(c->fd) < 0 ||
        helper_send(c->fd, HELPER_REQUEST, request->bytes.data, request->bytes.len, -1) < 0)
        return error_set_sys(e, errno, "request to the file helper");
    return 0;
}

static bool is_change(const struct record *request)
{
    static const char *const changes[] = {"put", "extract", "mkdir", "rename", "delete"};
    const char *op = record_get(request->bytes.data, request->bytes.len, "op");
    for (size_t i = 0; op && i < sizeof changes / sizeof changes[0]; i++)
        if (strcmp(op, changes[i]) == 0)
            return true;
    return false;
}

struct file_call *files_call(struct files *f, struct record *request,
                             const struct file_events *events, void *owner, struct error *e)
{
    struct file_call *c = calloc(1, sizeof *c);
    if (!c) {
        record_free(request);
        error_set(e, ERR_MEMORY, "no memory for a request to the file helper");
        return NULL;
    }
    *c = (struct file_call){.files = f,
                            .fd = -1,
                            .other = -1,
                            .events = *events,
                            .owner = owner,
                            .pending.keep = PENDING_KEEP};
    list_init(&c->link);
    list_init(&c->queue);
    ev_init(&c->io, on_call);
    c->io.data = c;
    bool changes = !request->is_broken && is_change(request);
    int rc = changes && !list_is_empty(&f->holds)
                 ? error_set(e, ERR_STATE, "%s",
                             list_entry(f->holds.next, struct changes_hold, link)->refusal)
                 : open_pair(c, request, e);
    record_free(request);
    if (rc < 0 || (f->helper < 0 && start_helper(f, e) < 0)) {
        call_free(c);
        return NULL;
    }
    c->is_change = changes;
    list_append(&f->calls, &c->link);
    list_append(&f->waiting, &c->queue);
    hand_over_waiting(f);
    call_watch(c);
    return c;
}

/* ---- holding changes ----------------------------------------------------------------------- */

/* Its worker hears the end of what comes, takes back what it has begun, and says so. One that waits
 * for a worker has begun nothing. */
static void call_off(struct file_call *c, const char *why)
{
    c->off = why;
    c->is_finishing = c->is_paused = false;
    byte_queue_free(&c->pending);
    shutdown(c->fd, c->other >= 0 ? SHUT_RDWR : SHUT_WR);
    call_watch(c);
}

static void tell_if_quiet(struct files *f)
{
    list_each(c, &f->calls, struct file_call, link) if (c->is_change) return;
    list_each(h, &f->holds, struct changes_hold, link) h->on_quiet(h);
}

void files_hold_changes(struct files *f, struct changes_hold *h)
{
    list_append(&f->holds, &h->link);
    list_each(c, &f->calls, struct file_call, link) if (c->is_change && !c->off)
        call_off(c, h->calling_off);
    tell_if_quiet(f);
}

void files_release_changes(struct changes_hold *h)
{
    list_remove(&h->link);
}
