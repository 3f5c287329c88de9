/*
 * POST …/process/:pid/stdin: the body goes to the process's stdin as it comes, as fast as the
 * process reads; ?eof=1 closes its stdin behind it. The answer says how many bytes init has passed
 * on.
 */
#include "gateway/gateway.h"
#include "gateway/process.h"
#include "gateway/reply.h"
#include "gateway/upstream.h"

#include "control/record.h"
#include "control/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sender {
    struct exchange *x;
    struct call *call;
    struct strbuf waiting; /* of the body: for room in the call */
    bool has_eof;          /* the process's stdin is to be closed */
    bool is_body_over;
    bool is_sent; /* all of it, and the end */
};

static struct exchange *sender_free(struct sender *s)
{
    struct exchange *x = s->x;
    if (s->call)
        call_close(s->call);
    strbuf_free(&s->waiting);
    free(s);
    return x;
}

/* Send what waits as far as there is room, then the end. */
static void sender_step(struct sender *s)
{
    size_t sent = 0;
    while (sent < s->waiting.len) {
        size_t left = s->waiting.len - sent;
        size_t n = left < WIRE_PAYLOAD_MAX ? left : WIRE_PAYLOAD_MAX;
        if (!call_send(s->call, WIRE_STDIN, s->waiting.data + sent, n))
            break;
        sent += n;
    }
    if (sent < s->waiting.len) {
        strbuf_drop(&s->waiting, sent);
        exchange_pause_body(s->x);
        return;
    }
    strbuf_clear(&s->waiting);
    if (!s->is_body_over) {
        exchange_resume_body(s->x);
        return;
    }
    if (s->is_sent || (s->has_eof && !call_send(s->call, WIRE_STDIN, "", 0)))
        return;
    s->is_sent = true;
    call_end_sending(s->call);
}

static void on_stdin_body(void *owner, const char *bytes, size_t n)
{
    struct sender *s = owner;
    if (strbuf_add(&s->waiting, bytes, n) == 0) {
        sender_step(s);
        return;
    }
    exchange_error(sender_free(s), 503, "memory", "no memory for the body");
}

static void on_stdin_body_end(void *owner)
{
    struct sender *s = owner;
    s->is_body_over = true;
    sender_step(s);
}

static void on_stdin_closed(void *owner)
{
    (void)sender_free(owner);
}

static const struct exchange_events sender_exchange_events = {
    .on_body = on_stdin_body, .on_body_end = on_stdin_body_end, .on_closed = on_stdin_closed};

static bool on_send_packet(void *owner, char channel, const char *bytes, size_t n)
{
    (void)owner;
    (void)channel;
    (void)bytes;
    (void)n;
    return true;
}

static void on_send_end(void *owner, char channel, const char *bytes, size_t n,
                        const struct error *e)
{
    struct sender *s = owner;
    char json[64];
    const char *count = channel == WIRE_RESULT ? record_get(bytes, n, "bytes") : NULL;
    snprintf(json, sizeof json, "{\"bytes\":%.20s}", count ? count : "null");
    s->call = NULL;
    struct exchange *x = sender_free(s);
    if (channel == WIRE_RESULT)
        exchange_json(x, 200, json);
    else
        reply_error(x, e);
}

static void on_send_writable(void *owner)
{
    sender_step(owner);
}

static const struct call_events send_events = {
    .on_packet = on_send_packet, .on_end = on_send_end, .on_writable = on_send_writable};

static void send_to_chosen(struct exchange *x, const struct gathered *all, const char *note)
{
    const struct gateway *g = exchange_context(x);
    struct process_ref ref;
    (void)note;
    if (!process_chosen(x, all, &ref))
        return;
    CLEANUP_STRBUF struct strbuf eof = {0};
    struct client_request q;
    struct error e = {0};
    struct sender *s = calloc(1, sizeof *s);
    client_request_init(&q, "send");
    client_request_add(&q, "id", ref.id);
    if (s) {
        s->x = x;
        s->has_eof = exchange_parameter(x, "eof", &eof) == 1 && strcmp(strbuf_text(&eof), "0") != 0;
        s->call = call_open(g->upstream, &q, &send_events, s, &e);
    } else {
        error_set(&e, ERR_MEMORY, "process '%.80s': no memory", ref.id);
    }
    client_request_free(&q);
    if (!s || !s->call) {
        if (s)
            (void)sender_free(s);
        reply_error(x, &e);
        return;
    }
    exchange_own(x, &sender_exchange_events, s);
    exchange_resume_body(x);
}

void process_stdin_begin(struct exchange *x)
{
    exchange_pause_body(x); /* until there is somebody who takes it */
    process_choose(x, false, send_to_chosen);
}
