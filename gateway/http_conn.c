/*
 * A connection's life: bytes in, one request after the other, the time each phase may take, the
 * end. http_internal.h tells how events and http_conn_settle() share the work.
 */
#include "base/fd.h"
#include "gateway/http_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_S        30.0
#define STALL_S       60.0
#define LINGER_S      5.0  /* without a byte */
#define LINGER_MOST_S 25.0 /* then with bytes, too */
#define REQUESTS_TURN 64   /* pipelined ones before others have their turn */
#define STOOD_STILL_S 1.0  /* a timer that comes so late tells more of us than of the client */

static void on_bytes(struct arrival *arrival);
static void on_readable(struct ev_loop *loop, ev_io *w, int events);
static void on_writable(struct ev_loop *loop, ev_io *w, int events);
static void on_time(struct ev_loop *loop, ev_timer *w, int events);

void conn_touch(struct conn *c)
{
    list_remove(&c->touched);
    list_append(&c->server->touched, &c->touched);
}

int http_conn_new(struct http_server *s, int fd, bool is_refused, struct error *e)
{
    struct conn *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return error_set(e, ERR_MEMORY, "HTTP connection: no memory");
    }
    c->server = s;
    c->fd = fd;
    c->file_fd = -1;
    c->in.limit = 2 * HTTP_SCRATCH;
    c->out.keep = HTTP_QUEUE_KEEP;
    c->since = ev_now(s->loop);
    ev_io_init(&c->reader, on_readable, fd, EV_READ);
    ev_io_init(&c->writer, on_writable, fd, EV_WRITE);
    ev_timer_init(&c->timer, on_time, 0., 0.);
    c->reader.data = c->writer.data = c->timer.data = c;
    list_append(&s->connections, &c->node);
    list_init(&c->touched);
    arrival_init(&c->arrival, on_bytes);
    c->is_refused = is_refused;
    if (is_refused)
        s->refusing++;
    else
        s->counts.connections++;
    if (is_refused)
        conn_touch(c);
    else
        on_bytes(&c->arrival); /* they may be there, and come before those of later connections */
    return 0;
}

/* The owner of a running exchange hears that it is over. */
static void tell_closed(struct exchange *x)
{
    const struct exchange_events *events = x->answer_has_ended ? NULL : x->events;
    void *owner = x->owner;
    x->events = NULL;
    x->owner = NULL;
    if (events && events->on_closed)
        events->on_closed(owner);
}

void conn_kill(struct conn *c)
{
    struct http_server *s = c->server;
    ev_io_stop(s->loop, &c->reader);
    ev_io_stop(s->loop, &c->writer);
    ev_timer_stop(s->loop, &c->timer);
    if (c->x) {
        tell_closed(c->x);
        if (!c->x->answer_has_begun)
            s->counts.by_class[0]++;
        exchange_free(c->x);
    }
    list_remove(&c->node);
    list_remove(&c->touched);
    arrival_drop(&c->arrival);
    if (c->is_refused)
        s->refusing--;
    else
        s->counts.connections--;
    fd_close(&c->file_fd);
    fd_close(&c->fd);
    strbuf_free(&c->in);
    byte_queue_free(&c->out);
    free(c);
}

/* ---- requests ---------------------------------------------------------------------------- */

/* Answer what is no request, or no longer one, and end the connection. */
static void refuse(struct conn *c, const struct http_refusal *why)
{
    struct exchange *x = c->x;
    x->keeps_alive = false;
    tell_closed(x);
    if (x->answer_has_begun)
        c->is_broken = true;
    else
        exchange_error(x, why->status, why->code, "%s", why->text);
}

static void call_begin(struct exchange *x)
{
    x->has_begun = true;
    x->route->begin(x);
}

static void begin_request(struct conn *c, const char *head, size_t n,
                          const struct http_refusal *refusal)
{
    struct exchange *x = c->x = exchange_new(c, head, n);
    c->scanned = 0;
    if (!x) {
        c->is_broken = true;
        return;
    }
    c->server->counts.requests++;
    struct http_refusal why = refusal ? *refusal : request_parse(x);
    if (why.status) {
        refuse(c, &why);
        return;
    }
    if (!route_admit(x))
        return;
    if (x->route->body != BODY_WHOLE)
        call_begin(x);
}

/* The head of the next request from what was fed. False: it is not whole yet. */
static bool read_head(struct conn *c)
{
    while (c->feed_end - c->feed_at >= 2 && memcmp(c->feed_at, "\r\n", 2) == 0 && !c->scanned)
        c->feed_at += 2;
    size_t n = (size_t)(c->feed_end - c->feed_at);
    struct http_refusal why = {0};
    long length = head_find(c->feed_at, n, &c->scanned, &why);
    if (length == 0)
        return false;
    const char *head = c->feed_at;
    c->feed_at = length < 0 ? c->feed_end : head + length;
    begin_request(c, head, length < 0 ? 0 : (size_t)length, length < 0 ? &why : NULL);
    return true;
}

static void body_is_too_large(struct conn *c)
{
    struct exchange *x = c->x;
    x->keeps_alive = false;
    if (x->answer_has_ended) {
        c->ends = true;
        return;
    }
    tell_closed(x);
    if (x->answer_has_begun)
        c->is_broken = true;
    else
        exchange_answer_too_large(x, x->received);
}

static void body_ended(struct exchange *x)
{
    if (x->body_was_told || (x->is_paused && !x->answer_has_ended))
        return;
    x->body_was_told = true;
    if (x->answer_has_ended)
        return;
    if (x->route->body == BODY_WHOLE)
        call_begin(x);
    else if (x->route->body == BODY_STREAMED && x->events && x->events->on_body_end)
        x->events->on_body_end(x->owner);
}

/* An unwanted body is read as long as that is cheap; else the connection ends. */
static bool gives_up_body(struct conn *c)
{
    struct exchange *x = c->x;
    if (x->answer_has_ended && !x->body_has_ended && !answer_may_drain(x))
        c->ends = true;
    return c->ends;
}

static bool read_body(struct conn *c)
{
    struct exchange *x = c->x;
    size_t n = (size_t)(c->feed_end - c->feed_at);
    if (gives_up_body(c) || (x->is_paused && !x->answer_has_ended) || (n == 0 && !x->must_run))
        return false;
    struct http_refusal why = {0};
    x->must_run = false;
    size_t used = request_parse_body(x, c->feed_at, n, &why);
    c->feed_at += used;
    c->since = ev_now(c->server->loop);
    if (c->is_broken)
        return false;
    if (x->is_too_large)
        body_is_too_large(c);
    else if (why.status && x->answer_has_ended)
        c->ends = true;
    else if (why.status)
        refuse(c, &why);
    else if (!x->body_has_ended && x->is_paused)
        x->must_run = true;
    return !x->is_too_large && !why.status;
}

/* The exchange is over if its answer and its body are: make room for the next. */
static bool finish_exchange(struct conn *c)
{
    struct exchange *x = c->x;
    if (!x->answer_has_ended || c->file_fd >= 0)
        return false;
    if (!x->body_has_ended)
        return false;
    if (!x->keeps_alive || c->server->is_stopping)
        c->ends = true;
    c->x = NULL;
    exchange_free(x);
    c->since = ev_now(c->server->loop);
    return true;
}

/* One step with what was fed; false: nothing more to do now. */
static bool feed_step(struct conn *c, unsigned *requests)
{
    if (c->state != CONN_OPEN || c->is_broken || c->ends)
        return false;
    if (!c->x) {
        if (conn_pending(c) > EXCHANGE_LOW) {
            c->is_held = c->feed_at < c->feed_end;
            return false;
        }
        if (*requests == REQUESTS_TURN) {
            c->wants_turn = true;
            return false;
        }
        ++*requests;
        return read_head(c);
    }
    if (c->x->body_has_ended) {
        body_ended(c->x);
        return c->state == CONN_OPEN && finish_exchange(c);
    }
    return read_body(c);
}

/* Take from the n bytes what can be taken now; returns how much that was. */
static size_t feed(struct conn *c, const char *bytes, size_t n)
{
    unsigned requests = 0;
    c->is_feeding = true;
    c->is_held = false;
    c->feed_at = bytes;
    c->feed_end = bytes + n;
    while (feed_step(c, &requests))
        ;
    if (c->state != CONN_OPEN || c->ends)
        c->feed_at = c->feed_end;
    size_t used = (size_t)(c->feed_at - bytes);
    c->feed_at = c->feed_end = NULL;
    c->is_feeding = false;
    return used;
}

static void feed_waiting(struct conn *c)
{
    size_t used = feed(c, c->in.data ? c->in.data : "", c->in.len);
    if (used == c->in.len)
        strbuf_free(&c->in);
    else
        strbuf_drop(&c->in, used);
}

/* ---- events ------------------------------------------------------------------------------ */

static void on_readable(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    struct conn *c = w->data;
    arrivals_add(&c->server->arrivals, &c->arrival);
}

static void on_bytes(struct arrival *arrival)
{
    struct conn *c = list_entry(arrival, struct conn, arrival);
    struct http_server *s = c->server;
    conn_touch(c);
    ssize_t k = recv(c->fd, s->scratch, sizeof s->scratch, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (k <= 0) {
        c->has_eof = true;
        c->is_broken |= k < 0;
        return;
    }
    size_t n = (size_t)k;
    s->counts.bytes_in += n;
    if (c->state == CONN_LINGER || c->ends) {
        if (ev_now(s->loop) - c->lingers_since < LINGER_MOST_S)
            c->since = ev_now(s->loop);
        return;
    }
    if (c->in.len == 0) {
        if (!c->x)
            c->since = ev_now(s->loop); /* the time for the head begins */
        size_t used = feed(c, s->scratch, n);
        if (strbuf_add(&c->in, s->scratch + used, n - used) < 0)
            c->is_broken = true;
    } else if (strbuf_add(&c->in, s->scratch, n) < 0) {
        c->is_broken = true;
    }
}

static void on_writable(struct ev_loop *loop, ev_io *w, int events)
{
    (void)events;
    struct conn *c = w->data;
    c->is_blocked = false;
    ev_io_stop(loop, w);
    conn_touch(c);
}

/* Too late: what that means depends on the phase. */
static void on_late(struct conn *c)
{
    static const struct http_refusal late = {408, "invalid_request",
                                             "the request was not complete in time"};
    bool is_sending = conn_pending(c) > 0 || c->file_fd >= 0;
    bool waits_for_client = c->x ? !c->x->body_has_ended : c->in.len > 0;
    if (c->state != CONN_OPEN || c->ends || is_sending || !waits_for_client) {
        c->is_broken = true;
    } else if (!c->x) {
        strbuf_free(&c->in);
        begin_request(c, "", 0, &late);
    } else if (c->x->answer_has_ended) {
        c->ends = true;
    } else {
        refuse(c, &late);
    }
    c->since = ev_now(c->server->loop);
}

static void on_time(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct conn *c = w->data;
    ev_tstamp late = ev_now(loop) - c->deadline;
    if (c->deadline > 0 && late >= STOOD_STILL_S)
        c->since = ev_now(loop); /* the container was paused: what has come meanwhile is not read */
    else if (c->deadline > 0 && late >= 0)
        on_late(c);
    conn_touch(c);
}

/* ---- the one place that acts ------------------------------------------------------------- */

static double seconds(uint64_t ms, double otherwise)
{
    return ms ? (double)ms / 1000 : otherwise;
}

/* How long the present phase may take from c->since on; 0: as long as it likes. */
static double patience(const struct conn *c)
{
    const struct http_config *config = &c->server->config;
    double stall = seconds(config->stall_timeout_ms, STALL_S);
    if (conn_pending(c) > 0 || c->file_fd >= 0)
        return stall;
    if (c->state == CONN_LINGER)
        return LINGER_S;
    if (!c->x)
        return c->in.len > 0 ? seconds(config->head_timeout_ms, HEAD_S)
                             : seconds(config->idle_timeout_ms, 0);
    bool waits = !c->x->body_has_ended && (!c->x->is_paused || c->x->answer_has_ended);
    return waits ? stall : 0;
}

static void arm_timer(struct conn *c)
{
    struct ev_loop *loop = c->server->loop;
    double limit = patience(c);
    c->deadline = limit > 0 ? c->since + limit : 0;
    if (limit <= 0) {
        ev_timer_stop(loop, &c->timer);
        return;
    }
    /* A timer that would come too early is left: it looks at the deadline and is armed anew. */
    ev_tstamp in = c->deadline - ev_now(loop);
    if (ev_is_active(&c->timer) && ev_timer_remaining(loop, &c->timer) <= in)
        return;
    ev_timer_stop(loop, &c->timer);
    ev_timer_set(&c->timer, in > 0 ? in : 0, 0.);
    ev_timer_start(loop, &c->timer);
}

static bool wants_bytes(const struct conn *c)
{
    if (c->has_eof)
        return false;
    if (c->state == CONN_LINGER || c->ends)
        return true;
    if (!c->x)
        return conn_pending(c) <= EXCHANGE_LOW && c->in.len <= HTTP_SCRATCH;
    if (!c->x->body_has_ended)
        return !c->x->is_paused || c->x->answer_has_ended;
    return c->in.len < HTTP_AHEAD_MAX;
}

static void arm(struct conn *c)
{
    struct ev_loop *loop = c->server->loop;
    if (wants_bytes(c))
        ev_io_start(loop, &c->reader);
    else
        ev_io_stop(loop, &c->reader);
    if (c->is_blocked)
        ev_io_start(loop, &c->writer);
    arm_timer(c);
}

/* All is sent and nothing more is wanted. Closing now, with bytes unread, would send a reset that
 * can take the answer away from a client that is still sending. */
static void linger(struct conn *c)
{
    c->state = CONN_LINGER;
    c->since = c->lingers_since = ev_now(c->server->loop);
    strbuf_free(&c->in);
    if (shutdown(c->fd, SHUT_WR) < 0)
        c->is_broken = true;
}

/* A Unix socket tells a peer that is gone from one that only sends no more; TCP does when it is
 * written to. */
static bool is_hung_up(const struct conn *c)
{
    struct pollfd p = {.fd = c->fd};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR);
}

static void look_at_end(struct conn *c)
{
    bool is_sent = conn_pending(c) == 0 && c->file_fd < 0;
    if (c->has_eof && c->state == CONN_OPEN) {
        /* Requests may be there that only wait for their turn, or for room. */
        bool waits_for_client = c->x ? !c->x->body_has_ended : !c->wants_turn && !c->is_held;
        if (waits_for_client && c->x && !c->x->answer_has_ended)
            c->is_broken = true;
        else if (waits_for_client || is_hung_up(c))
            c->ends = true;
        if (c->x && c->x->body_has_ended && !c->x->answer_has_ended && is_hung_up(c))
            c->is_broken = true;
    }
    if (c->ends && is_sent && c->state == CONN_OPEN)
        linger(c);
    if (c->state == CONN_LINGER && c->has_eof && is_sent)
        c->is_broken = true;
}

/* The owner was told to stop and does not know yet that it may go on. */
static bool can_write_more(const struct conn *c)
{
    return c->x && c->x->is_full && !c->x->answer_has_ended && conn_pending(c) < EXCHANGE_LOW;
}

static void tell_writable(struct conn *c)
{
    struct exchange *x = c->x;
    if (!can_write_more(c))
        return;
    x->is_full = false;
    if (x->events && x->events->on_writable)
        x->events->on_writable(x->owner);
}

/* The answer to HEAD is whole with its head: the owner of one that has no end of its own need not
 * go on. */
static void end_head(struct conn *c)
{
    struct exchange *x = c->x;
    if (!x || !x->is_head || !x->answer_has_begun || x->answer_has_ended)
        return;
    tell_closed(x);
    x->answer_has_ended = true;
}

/* Whether another round makes sense: the exchange is through, but the next was not looked at. */
static bool is_through(const struct conn *c)
{
    return !c->is_broken && c->state == CONN_OPEN && !c->ends && c->x && c->x->answer_has_ended &&
           c->x->body_has_ended && c->file_fd < 0;
}

static void progress(struct conn *c)
{
    http_conn_flush(c);
    tell_writable(c);
    end_head(c);
    feed_waiting(c);
    if (c->x && !c->is_broken && c->state == CONN_OPEN) {
        gives_up_body(c);
        if (!c->x->body_has_ended && !c->x->is_paused)
            answer_continue(c->x);
    }
    http_conn_flush(c);
    if (c->is_held && conn_pending(c) <= EXCHANGE_LOW)
        c->wants_turn = true;
}

void http_conn_settle(struct conn *c)
{
    if (!c->is_broken && c->state == CONN_OPEN)
        do
            progress(c);
        while (is_through(c));
    if (!c->is_broken)
        look_at_end(c);
    if (c->is_broken) {
        conn_kill(c);
        return;
    }
    if (!c->x && conn_pending(c) == 0)
        byte_queue_free(&c->out); /* who is idle costs nothing but its struct */
    /* All that touched it meanwhile is settled; what is left waits for the others. */
    list_remove(&c->touched);
    if (c->wants_turn || can_write_more(c))
        list_append(&c->server->later, &c->touched);
    c->wants_turn = false;
    arm(c);
}
