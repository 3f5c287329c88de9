/*
 * A WebSocket on the loop. Events (bytes, room, a timer, the owner's wish) set facts; settle(),
 * which every callback of the loop ends with, is the only place that frees. What the owner's calls
 * find out they leave to the timer `later`, so that no callback comes from inside them.
 *
 * A connection ends in two ways. By a close frame, ours or the peer's: it is CLOSING until what
 * waits is sent and the peer has sent its own, or for CLOSING_S. Or it is broken (the peer is gone,
 * does not read, does not answer): then it is freed at once. In both the owner hears on_closed
 * once, unless it was websocket_close() that began it.
 */
#include "gateway/websocket.h"

#include "base/byte_queue.h"
#include "base/clock.h"
#include "base/fd.h"
#include "gateway/websocket_codec.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define PING_S     30.          /* so often a peer is asked … */
#define SILENCE_NS 60000000000u /* … and dropped if nothing has come from it for so long, … */
#define ANSWER_NS  25000000000u /* … though it had this time to answer */
#define STALL_S    30. /* a peer that reads nothing for so long, while something waits for it */
#define CLOSING_S  3.  /* for the peer's close frame */
#define LEAVING_S  1.  /* so often a peer that is not read is looked at: has it left? */
#define READ_SIZE  ((size_t)64 * 1024)
#define AHEAD_MAX  ((size_t)256 * 1024) /* bytes that are read while the owner takes no message */
#define QUEUE_MAX  (4 * EXCHANGE_HIGH)
#define REASON_MAX (WEBSOCKET_CONTROL_MAX - 2)

struct websocket {
    struct ev_loop *loop;
    struct http_server *server; /* that counts it */
    struct http_guest guest;    /* of the server */
    int fd;
    const struct websocket_events *events;
    void *owner; /* NULL: nobody listens any more */
    ev_io reader, writer;
    ev_timer pulse; /* pings; when closing and all is sent: the end of patience */
    ev_timer stall; /* runs while something waits to be sent, anew with each byte that is */
    ev_timer later;
    ev_timer leaving;  /* runs while nothing is read, so that its end would not be seen */
    uint64_t heard_ns; /* when the last bytes came, monotonic */
    uint64_t asked_ns; /* when it was pinged first since then; 0: not yet */
    struct websocket_decoder decoder;
    struct strbuf in;      /* received, not decoded */
    struct byte_queue out; /* to be sent */
    bool is_paused;        /* the owner takes no message now */
    bool is_full;          /* websocket_send() said so: on_writable is owed */
    bool is_closing;       /* our close frame is queued */
    bool is_deaf;          /* what comes is not decoded any more: the protocol is broken */
    bool has_peer_left;    /* its close frame or its end has come */
    bool is_broken;
};

static size_t pending(const struct websocket *w)
{
    return byte_queue_len(&w->out);
}

static void websocket_free(struct websocket *w)
{
    ev_io_stop(w->loop, &w->reader);
    ev_io_stop(w->loop, &w->writer);
    ev_timer_stop(w->loop, &w->pulse);
    ev_timer_stop(w->loop, &w->stall);
    ev_timer_stop(w->loop, &w->later);
    ev_timer_stop(w->loop, &w->leaving);
    websocket_decoder_free(&w->decoder);
    strbuf_free(&w->in);
    byte_queue_free(&w->out);
    close(w->fd);
    list_remove(&w->guest.link);
    http_server_left(w->server);
    free(w);
}

/* ---- sending ---- */

static void note_progress(struct websocket *w)
{
    if (pending(w) == 0)
        ev_timer_stop(w->loop, &w->stall);
    else
        ev_timer_again(w->loop, &w->stall);
}

/* Bytes sent, 0 if there is no room. */
static size_t send_some(struct websocket *w, const struct iovec *pieces, size_t count)
{
    ssize_t k = fd_send_pieces(w->fd, pieces, count, 0);
    if (k < 0 && errno != EAGAIN)
        w->is_broken = true;
    return k < 0 ? 0 : (size_t)k;
}

static void flush(struct websocket *w)
{
    const struct iovec waiting = {(void *)(uintptr_t)byte_queue_first(&w->out), pending(w)};
    size_t k = waiting.iov_len > 0 ? send_some(w, &waiting, 1) : 0;
    byte_queue_take(&w->out, k);
    if (k > 0)
        note_progress(w);
}

/* Send bytes behind a head, or queue what finds no room. */
static void put(struct websocket *w, const void *head, size_t head_n, const char *bytes, size_t n)
{
    if (w->is_broken)
        return;
    const struct iovec pieces[] = {{(void *)(uintptr_t)head, head_n},
                                   {(void *)(uintptr_t)bytes, n}};
    size_t sent = pending(w) == 0 ? send_some(w, pieces, 2) : 0;
    if (byte_queue_put_rest(&w->out, pieces, 2, sent) < 0)
        w->is_broken = true; /* it does not read, or there is no memory */
    if (pending(w) > 0 && !ev_is_active(&w->stall))
        ev_timer_again(w->loop, &w->stall);
}

static void put_frame(struct websocket *w, enum websocket_opcode opcode, const char *bytes,
                      size_t n)
{
    unsigned char head[WEBSOCKET_HEAD_MAX];
    put(w, head, websocket_frame_head(head, opcode, n), bytes, n);
}

static void put_close(struct websocket *w, uint16_t code, const char *reason, size_t n)
{
    char bytes[WEBSOCKET_CONTROL_MAX] = {(char)(code >> 8), (char)code};
    if (n > REASON_MAX)
        n = REASON_MAX;
    while (n > 0 && n == REASON_MAX && ((unsigned char)reason[n] & 0xc0) == 0x80)
        n--; /* no half character */
    memcpy(bytes + 2, reason, n);
    w->is_closing = true;
    put_frame(w, OPCODE_CLOSE, bytes, code == CLOSE_NO_CODE ? 0 : n + 2);
    ev_timer_stop(w->loop, &w->pulse);
    ev_timer_set(&w->pulse, CLOSING_S, 0.);
}

/* ---- the end ---- */

static void tell_closed(struct websocket *w)
{
    void *owner = w->owner;
    w->owner = NULL;
    if (owner)
        w->events->on_closed(owner);
}

/* The server ends, and nobody waits for the peer. */
static void on_server_end(struct http_guest *g)
{
    struct websocket *w = list_entry(g, struct websocket, guest);
    tell_closed(w);
    websocket_free(w);
}

static bool is_done(const struct websocket *w)
{
    return w->is_closing && pending(w) == 0 && w->has_peer_left;
}

static void watch(struct websocket *w)
{
    bool wants_more = !w->has_peer_left && (w->is_closing || w->in.len < AHEAD_MAX);
    if (wants_more && !ev_is_active(&w->reader)) {
        ev_io_start(w->loop, &w->reader);
        ev_timer_stop(w->loop, &w->leaving);
    }
    if (!wants_more) {
        ev_io_stop(w->loop, &w->reader);
        if (!w->is_closing && !ev_is_active(&w->leaving))
            ev_timer_again(w->loop, &w->leaving);
    }
    if (pending(w) > 0 && !ev_is_active(&w->writer))
        ev_io_start(w->loop, &w->writer);
    if (pending(w) == 0)
        ev_io_stop(w->loop, &w->writer);
}

/* The last thing that a callback of the loop does: w may be gone afterwards. */
static void settle(struct websocket *w)
{
    if (w->is_closing || w->is_broken)
        tell_closed(w);
    if (w->is_broken || is_done(w)) {
        websocket_free(w);
        return;
    }
    if (w->is_closing && pending(w) == 0) { /* before that `stall` tells */
        ev_timer_start(w->loop, &w->pulse);
        if (w->is_deaf)
            shutdown(w->fd, SHUT_WR); /* the peer reads to the end, though nobody listens to it */
    }
    watch(w);
}

/* For what the owner's own calls have found out. */
static void settle_later(struct websocket *w)
{
    if (!ev_is_active(&w->later))
        ev_timer_start(w->loop, &w->later);
}

/* ---- receiving ---- */

static void answer_ping(struct websocket *w, const struct websocket_decoded *d)
{
    if (pending(w) < EXCHANGE_LOW) /* only the newest must be answered (5.5.3) */
        put_frame(w, OPCODE_PONG, d->bytes, d->n);
}

static void take_event(struct websocket *w, const struct websocket_decoded *d)
{
    switch (d->event) {
    case DECODED_NOTHING:
    case DECODED_PONG:
        break;
    case DECODED_PING:
        if (!w->is_closing)
            answer_ping(w, d);
        break;
    case DECODED_MESSAGE:
        if (w->owner && !w->is_closing)
            w->is_paused = !w->events->on_message(
                w->owner, d->opcode == OPCODE_TEXT ? WEBSOCKET_TEXT : WEBSOCKET_BINARY, d->bytes,
                d->n);
        break;
    case DECODED_CLOSE:
        w->has_peer_left = true;
        if (!w->is_closing)
            put_close(w, d->code, "", 0);
        break;
    case DECODED_BROKEN:
        w->is_deaf = true;
        if (!w->is_closing)
            put_close(w, d->code, d->bytes, d->n);
        break;
    }
}

static void take_input(struct websocket *w)
{
    size_t at = 0;
    struct websocket_decoded d = {.event = DECODED_PONG};
    while (d.event != DECODED_NOTHING && (!w->is_paused || w->is_closing) && !w->is_deaf &&
           !w->has_peer_left && !w->is_broken) {
        at += websocket_decode(&w->decoder, strbuf_text(&w->in) + at, w->in.len - at, &d);
        take_event(w, &d);
    }
    if (w->is_deaf || at == w->in.len)
        strbuf_free(&w->in);
    else
        strbuf_drop(&w->in, at);
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop;
    (void)events;
    struct websocket *w = io->data;
    char *to = strbuf_reserve(&w->in, READ_SIZE);
    ssize_t k = to ? recv(w->fd, to, READ_SIZE, MSG_DONTWAIT) : -1;
    if (!to || (k < 0 && errno != EAGAIN && errno != EINTR)) {
        w->is_broken = true;
    } else if (k == 0) {
        w->is_broken = !w->is_closing; /* it left without a word */
        w->has_peer_left = true;
    } else if (k > 0) {
        w->in.len += (size_t)k;
        w->heard_ns = clock_mono_ns();
        w->asked_ns = 0;
        take_input(w);
    }
    settle(w);
}

static void on_room(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop;
    (void)events;
    struct websocket *w = io->data;
    flush(w);
    if (w->is_full && pending(w) < EXCHANGE_LOW) {
        w->is_full = false;
        if (w->owner && w->events->on_writable)
            w->events->on_writable(w->owner);
    }
    settle(w);
}

/* ---- timers ---- */

static bool is_reading(const struct websocket *w)
{
    return ev_is_active(&w->reader);
}

/* We may have stood still ourselves for longer than that (a container that is paused). */
static bool is_silent(const struct websocket *w)
{
    uint64_t now = clock_mono_ns();
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    return is_reading(w) && now - w->heard_ns >= SILENCE_NS && w->asked_ns &&
           now - w->asked_ns >= ANSWER_NS && poll(&p, 1, 0) == 0;
}

static void on_pulse(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    struct websocket *w = timer->data;
    if (w->is_closing || is_silent(w)) {
        w->is_broken = true;
    } else if (pending(w) == 0) { /* otherwise `stall` tells */
        put_frame(w, OPCODE_PING, "", 0);
        w->asked_ns = w->asked_ns ? w->asked_ns : clock_mono_ns();
    }
    settle(w);
}

static void on_stall(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    struct websocket *w = timer->data;
    w->is_broken = true;
    settle(w);
}

static void on_leaving(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    struct websocket *w = timer->data;
    struct pollfd p = {.fd = w->fd, .events = POLLRDHUP};
    if (poll(&p, 1, 0) > 0)
        w->is_broken = true;
    settle(w);
}

static void on_later(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    struct websocket *w = timer->data;
    take_input(w);
    settle(w);
}

/* ---- the handshake ---- */

bool websocket_check(struct exchange *x)
{
    if (!exchange_is_upgrade(x, "websocket")) {
        exchange_error(x, 400, "invalid_request", "WebSocket upgrade required");
        return false;
    }
    const char *version = exchange_header(x, "sec-websocket-version");
    const char *key = exchange_header(x, "sec-websocket-key");
    if (!version || strcmp(version, "13") != 0) {
        exchange_add_header(x, "Sec-WebSocket-Version", "13");
        exchange_error(x, 426, "invalid_request",
                       "WebSocket version 13 is wanted in Sec-WebSocket-Version");
        return false;
    }
    if (!key || !websocket_key_is_valid(key)) {
        exchange_error(x, 400, "invalid_request",
                       "Sec-WebSocket-Key must be the base64 of 16 bytes");
        return false;
    }
    return true;
}

static struct websocket *websocket_new(struct ev_loop *loop, size_t limit,
                                       const struct websocket_events *events, void *owner)
{
    struct websocket *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    *w = (struct websocket){.loop = loop,
                            .fd = -1,
                            .events = events,
                            .owner = owner,
                            .heard_ns = clock_mono_ns(),
                            .out.limit = QUEUE_MAX};
    websocket_decoder_init(&w->decoder, limit);
    ev_timer_init(&w->pulse, on_pulse, PING_S, PING_S);
    ev_timer_init(&w->stall, on_stall, 0., STALL_S);
    ev_timer_init(&w->later, on_later, 0., 0.);
    ev_timer_init(&w->leaving, on_leaving, 0., LEAVING_S);
    w->pulse.data = w->stall.data = w->later.data = w->leaving.data = w;
    return w;
}

static void websocket_start(struct websocket *w, const char *accept)
{
    static const char head[] = "HTTP/1.1 101 Switching Protocols\r\n"
                               "Upgrade: websocket\r\n"
                               "Connection: Upgrade\r\n"
                               "Sec-WebSocket-Accept: ";
    struct strbuf answer = {0};
    int one = 1;
    (void)setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* TCP or not */
    ev_io_init(&w->reader, on_readable, w->fd, EV_READ);
    ev_io_init(&w->writer, on_room, w->fd, EV_WRITE);
    w->reader.data = w->writer.data = w;
    ev_timer_start(w->loop, &w->pulse);
    if (strbuf_addf(&answer, "%s%s\r\n\r\n", head, accept) < 0)
        w->is_broken = true;
    else
        put(w, answer.data, answer.len, "", 0);
    strbuf_free(&answer);
    settle_later(w); /* it may have sent something already */
}

struct websocket *websocket_accept(struct exchange *x, size_t limit,
                                   const struct websocket_events *events, void *owner)
{
    char accept[WEBSOCKET_ACCEPT_SIZE];
    if (!websocket_check(x))
        return NULL;
    websocket_accept_key(exchange_header(x, "sec-websocket-key"), accept);
    struct websocket *w = websocket_new(exchange_loop(x), limit, events, owner);
    if (!w) {
        exchange_cut(x);
        return NULL;
    }
    w->fd = exchange_take_socket(x, &w->in, &w->server);
    if (w->fd < 0) {
        strbuf_free(&w->in);
        free(w);
        return NULL;
    }
    w->guest.end = on_server_end;
    http_server_add_guest(w->server, &w->guest);
    websocket_start(w, accept);
    return w;
}

/* ---- the owner's calls ---- */

bool websocket_send(struct websocket *w, enum websocket_kind kind, const char *bytes, size_t n)
{
    if (w->is_closing)
        return true;
    put_frame(w, kind == WEBSOCKET_TEXT ? OPCODE_TEXT : OPCODE_BINARY, bytes, n);
    if (pending(w) > EXCHANGE_HIGH)
        w->is_full = true;
    if (w->is_broken || pending(w) > 0)
        settle_later(w);
    return !w->is_full;
}

void websocket_resume(struct websocket *w)
{
    w->is_paused = false;
    settle_later(w);
}

void websocket_close(struct websocket *w, uint16_t code, const char *reason)
{
    w->owner = NULL;
    if (!w->is_closing)
        put_close(w, code, reason, strlen(reason));
    settle_later(w);
}
