/*
 * Flows (flow.h). One watcher a flow, brought in line with its state by flow_watch(); on_flow_io()
 * is the only place that calls the owner. flow_write() tries the kernel at once and keeps an error
 * for that place. A flow that its owner closes from a callback is freed when that returns
 * (`depth`).
 */
#include "gateway/flow.h"

#include "base/byte_queue.h"
#include "base/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE  65536
#define READS_MAX  4 /* reads in a row before others have their turn */
#define PLACES_MAX 2

struct place {
    struct sockaddr_storage address;
    socklen_t len;
};

struct flow {
    struct ev_loop *loop;
    const struct flow_events *events;
    void *owner;
    int fd;
    ev_io io;
    ev_timer timer; /* until it is connected; once it is broken: what is to be told */
    struct place places[PLACES_MAX];
    size_t place_count, next_place;
    char host[64];
    uint16_t port;
    struct error error; /* why it broke; told by on_flow_io() */
    struct byte_queue out;
    unsigned depth;
    bool is_open;
    bool is_paused;
    bool is_input_over;
    bool is_ending;  /* flow_end() was called */
    bool is_shut;    /* and the kernel told */
    bool wants_room; /* on_writable is owed */
    bool is_broken;  /* error is set */
    bool has_rest;   /* it broke as it was written to: what had come before is heard first */
    bool is_told;    /* on_broken was called */
    bool is_closed;  /* by its owner */
};

/* ---- state ------------------------------------------------------------------------------- */

static void flow_free(struct flow *f)
{
    byte_queue_free(&f->out);
    free(f);
}

size_t flow_waiting(const struct flow *f)
{
    return byte_queue_len(&f->out);
}

static void flow_watch(struct flow *f)
{
    int want = 0;
    if (!f->is_open || flow_waiting(f) > 0)
        want |= EV_WRITE;
    if (f->is_open && !f->is_paused && !f->is_input_over)
        want |= EV_READ;
    if (f->is_closed || f->is_broken || f->fd < 0)
        want = 0;
    int now = ev_is_active(&f->io) ? f->io.events & (EV_READ | EV_WRITE) : 0;
    if (now == want)
        return;
    ev_io_stop(f->loop, &f->io);
    if (want == 0)
        return;
    ev_io_set(&f->io, f->fd, want);
    ev_io_start(f->loop, &f->io);
}

/* What is to be told comes in another turn of the loop: this one may be at its end, where the
 * owner's answer would wait for the next event. */
static void flow_tell_later(struct flow *f)
{
    ev_timer_stop(f->loop, &f->timer);
    ev_timer_set(&f->timer, 0., 0.);
    ev_timer_start(f->loop, &f->timer);
}

/* It is over; the owner hears so from the loop. */
static void flow_break(struct flow *f)
{
    f->is_broken = true;
    flow_watch(f);
    flow_tell_later(f);
}

/* ---- connecting -------------------------------------------------------------------------- */

static void add_place4(struct flow *f, struct in_addr address)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(f->port), .sin_addr = address};
    struct place *p = &f->places[f->place_count++];
    memcpy(&p->address, &a, sizeof a);
    p->len = sizeof a;
}

static void add_place6(struct flow *f, struct in6_addr address)
{
    struct sockaddr_in6 a = {
        .sin6_family = AF_INET6, .sin6_port = htons(f->port), .sin6_addr = address};
    struct place *p = &f->places[f->place_count++];
    memcpy(&p->address, &a, sizeof a);
    p->len = sizeof a;
}

static int find_places(struct flow *f, struct error *e)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (strcmp(f->host, "localhost") == 0) {
        add_place4(f, (struct in_addr){htonl(INADDR_LOOPBACK)});
        add_place6(f, in6addr_loopback);
    } else if (inet_pton(AF_INET, f->host, &v4) == 1) {
        add_place4(f, v4);
    } else if (inet_pton(AF_INET6, f->host, &v6) == 1) {
        add_place6(f, v6);
    } else {
        return error_set(e, ERR_INVALID, "host '%s': want localhost or an address in numbers",
                         f->host);
    }
    return 0;
}

/* The first place's error counts: the others were only tried because of it. */
static void note_connect_error(struct flow *f, int errnum)
{
    if (f->error.code != ERR_NONE)
        return;
    error_set_sys(&f->error, errnum, "connect to %s:%u", f->host, (unsigned)f->port);
    f->error.code = ERR_UNAVAILABLE;
}

/* Begin to connect to the next place that does not refuse at once. */
static void connect_next(struct flow *f)
{
    while (f->next_place < f->place_count) {
        const struct place *p = &f->places[f->next_place++];
        ev_io_stop(f->loop, &f->io); /* before its descriptor goes */
        fd_close(&f->fd);
        f->fd = socket(p->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (f->fd >= 0 && (connect(f->fd, (const struct sockaddr *)&p->address, p->len) == 0 ||
                           errno == EINPROGRESS)) {
            flow_watch(f);
            return;
        }
        note_connect_error(f, errno);
    }
    flow_break(f);
}

static void on_connected(struct flow *f)
{
    int error = 0;
    socklen_t n = sizeof error;
    if (getsockopt(f->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        error = errno;
    if (error != 0) {
        note_connect_error(f, error);
        connect_next(f);
        return;
    }
    int on = 1;
    (void)setsockopt(f->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    f->is_open = true;
    f->error = (struct error){0};
    ev_timer_stop(f->loop, &f->timer);
    if (f->events->on_open)
        f->events->on_open(f->owner);
}

/* ---- bytes ------------------------------------------------------------------------------- */

static void break_with(struct flow *f, int errnum, const char *what)
{
    if (f->is_broken)
        return;
    error_set_sys(&f->error, errnum, "%s", what);
    flow_break(f);
}

/* As many bytes as the kernel takes now; 0 if none. */
static size_t send_some(struct flow *f, const char *bytes, size_t n)
{
    const struct iovec piece = {(void *)(uintptr_t)bytes, n};
    ssize_t k = fd_send_pieces(f->fd, &piece, 1, 0);
    if (k < 0 && errno != EAGAIN) {
        f->has_rest = !f->is_input_over;
        break_with(f, errno, "send");
    }
    return k > 0 ? (size_t)k : 0;
}

static void shut_if_sent(struct flow *f)
{
    if (!f->is_open || !f->is_ending || f->is_shut || flow_waiting(f) > 0)
        return;
    f->is_shut = true;
    (void)shutdown(f->fd, SHUT_WR);
}

static void send_queued(struct flow *f)
{
    while (!f->is_broken && flow_waiting(f) > 0) {
        size_t k = send_some(f, byte_queue_first(&f->out), flow_waiting(f));
        if (k == 0)
            break;
        byte_queue_take(&f->out, k);
    }
    shut_if_sent(f);
    if (f->wants_room && (f->is_broken || flow_waiting(f) < FLOW_LOW)) {
        f->wants_room = false;
        if (f->events->on_writable)
            f->events->on_writable(f->owner);
    }
}

static bool is_reading(const struct flow *f)
{
    return f->is_open && !f->is_closed && (!f->is_broken || f->has_rest) && !f->is_paused &&
           !f->is_input_over;
}

static void receive_some(struct flow *f)
{
    char bytes[READ_SIZE];
    for (int i = 0; i < READS_MAX && is_reading(f); i++) {
        ssize_t k;
        do
            k = recv(f->fd, bytes, sizeof bytes, 0);
        while (k < 0 && errno == EINTR);
        f->has_rest = f->has_rest && k > 0;
        if (k <= 0 && f->is_broken)
            return;
        if (k < 0 && errno == EAGAIN)
            return;
        if (k < 0) {
            break_with(f, errno, "receive");
        } else if (k == 0) {
            f->is_input_over = true;
            f->events->on_end(f->owner);
        } else if (!f->events->on_bytes(f->owner, bytes, (size_t)k)) {
            f->is_paused = true;
        }
    }
}

static void on_flow_io(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    struct flow *f = w->data;
    f->depth++;
    if (!f->is_open && !f->is_broken && (events & EV_WRITE))
        on_connected(f);
    if (f->is_open && !f->is_closed && !f->is_broken)
        send_queued(f);
    if (events & EV_READ || f->has_rest)
        receive_some(f);
    if (f->is_broken && !f->has_rest && !f->is_told && !f->is_closed) {
        f->is_told = true;
        f->events->on_broken(f->owner, &f->error);
    }
    f->depth--;
    if (f->is_closed) {
        if (f->depth == 0)
            flow_free(f);
        return;
    }
    flow_watch(f);
    if (f->has_rest && !f->is_paused)
        flow_tell_later(f);
}

static void on_time(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct flow *f = w->data;
    if (f->is_broken) {
        on_flow_io(loop, &f->io, 0);
    } else {
        note_connect_error(f, ETIMEDOUT);
        flow_break(f);
    }
}

/* ---- life -------------------------------------------------------------------------------- */

static struct flow *flow_new(struct ev_loop *loop, const struct flow_events *events, void *owner,
                             struct error *e)
{
    struct flow *f = calloc(1, sizeof *f);
    if (!f) {
        error_set_sys(e, ENOMEM, "connection");
        return NULL;
    }
    f->loop = loop;
    f->events = events;
    f->owner = owner;
    f->fd = -1;
    f->out.keep = 2 * FLOW_HIGH;
    ev_io_init(&f->io, on_flow_io, -1, 0);
    f->io.data = f;
    ev_timer_init(&f->timer, on_time, 0., 0.);
    f->timer.data = f;
    return f;
}

struct flow *flow_connect(struct ev_loop *loop, const char *host, uint16_t port,
                          uint64_t timeout_ms, const struct flow_events *events, void *owner,
                          struct error *e)
{
    struct flow *f = flow_new(loop, events, owner, e);
    if (!f)
        return NULL;
    f->port = port;
    size_t n = strlen(host);
    if (n >= sizeof f->host)
        n = sizeof f->host - 1; /* no address; the error shows its head */
    memcpy(f->host, host, n);
    if (find_places(f, e) < 0) {
        flow_free(f);
        return NULL;
    }
    ev_now_update(loop);
    ev_timer_set(&f->timer, (double)timeout_ms / 1e3, 0.);
    ev_timer_start(loop, &f->timer);
    connect_next(f);
    return f;
}

struct flow *flow_adopt(struct ev_loop *loop, int fd, const struct flow_events *events, void *owner,
                        struct error *e)
{
    struct flow *f = flow_new(loop, events, owner, e);
    if (!f) {
        fd_close(&fd);
        return NULL;
    }
    f->fd = fd;
    f->is_open = true;
    flow_watch(f);
    return f;
}

void flow_own(struct flow *f, const struct flow_events *events, void *owner)
{
    f->events = events;
    f->owner = owner;
}

bool flow_write(struct flow *f, const char *bytes, size_t n)
{
    if (f->is_broken || f->is_closed || f->is_ending)
        return true; /* on_broken comes, or nobody is left to care */
    if (f->is_open && flow_waiting(f) == 0) {
        size_t k = send_some(f, bytes, n);
        bytes += k;
        n -= k;
    }
    if (n > 0 && !f->is_broken && byte_queue_put(&f->out, bytes, n) < 0)
        break_with(f, ENOMEM, "send");
    flow_watch(f);
    f->wants_room = f->wants_room || flow_waiting(f) >= FLOW_HIGH;
    return !f->wants_room;
}

void flow_end(struct flow *f)
{
    f->is_ending = true;
    if (!f->is_broken)
        shut_if_sent(f);
}

void flow_pause(struct flow *f)
{
    f->is_paused = true;
    flow_watch(f);
}

void flow_resume(struct flow *f)
{
    f->is_paused = false;
    flow_watch(f);
    if (f->has_rest)
        flow_tell_later(f);
}

void flow_close(struct flow *f)
{
    if (!f || f->is_closed)
        return;
    f->is_closed = true;
    ev_io_stop(f->loop, &f->io);
    ev_timer_stop(f->loop, &f->timer);
    fd_close(&f->fd);
    if (f->depth == 0)
        flow_free(f);
}
