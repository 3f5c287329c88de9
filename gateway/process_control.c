/* POST …/process/:pid/kill and GET …/process/:pid/wait. */
#include "gateway/gather.h"
#include "gateway/gateway.h"
#include "gateway/json_body.h"
#include "gateway/process.h"
#include "gateway/reply.h"

#include "base/number.h"
#include "control/record_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MAX_MS ((uint64_t)365 * 24 * 3600 * 1000)

/* One call about one process, whose result is the answer. */
struct control {
    struct exchange *x;
    struct ev_loop *loop;
    struct gather *gather;
    ev_timer timeout;
    uint64_t timeout_ms;
    int (*format)(const char *result, size_t n, struct strbuf *to);
};

static struct exchange *control_free(struct control *c)
{
    struct exchange *x = c->x;
    ev_timer_stop(c->loop, &c->timeout);
    gather_close(c->gather);
    free(c);
    return x;
}

static void on_control_done(void *owner, const struct gathered *all)
{
    struct control *c = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    bool is_made = !all->error && c->format(all->result, all->result_len, &json) == 0;
    c->gather = NULL;
    struct exchange *x = control_free(c);
    if (all->error)
        reply_error(x, all->error);
    else if (is_made)
        exchange_json(x, 200, json.data);
    else
        exchange_error(x, 503, "memory", "no memory for the answer");
}

static void on_control_timeout(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct control *c = w->data;
    uint64_t ms = c->timeout_ms;
    struct exchange *x = control_free(c);
    exchange_error(x, 504, "timeout", "process '%.80s' has not ended within %" PRIu64 " ms",
                   exchange_segment(x, "pid"), ms);
}

static void on_control_closed(void *owner)
{
    (void)control_free(owner);
}

static const struct exchange_events control_events = {.on_closed = on_control_closed};

/* Send q (freed); NULL: x was answered. */
static struct control *control_open(struct exchange *x, struct client_request *q,
                                    int (*format)(const char *, size_t, struct strbuf *))
{
    const struct gateway *g = exchange_context(x);
    struct error e = {0};
    struct control *c = calloc(1, sizeof *c);
    if (!c) {
        client_request_free(q);
        exchange_error(x, 503, "memory", "process '%.80s': no memory", exchange_segment(x, "pid"));
        return NULL;
    }
    c->x = x;
    c->loop = exchange_loop(x);
    c->format = format;
    ev_timer_init(&c->timeout, on_control_timeout, 0., 0.);
    c->timeout.data = c;
    c->gather = gather_open(g->upstream, q, on_control_done, c, &e);
    if (c->gather) {
        exchange_own(x, &control_events, c);
        return c;
    }
    (void)control_free(c);
    reply_error(x, &e);
    return NULL;
}

static int format_record(const char *result, size_t n, struct strbuf *to)
{
    return strbuf_adds(to, "{") | record_to_json(to, result, n) | strbuf_adds(to, "}");
}

/* ---- kill -------------------------------------------------------------------------------- */

/* A value of the body, or else of the query, as an argument of the call. */
static int add_argument(struct exchange *x, const json_t *body, const char *key,
                        struct client_request *q)
{
    CLEANUP_STRBUF struct strbuf value = {0};
    const json_t *given = json_object_get(body, key);
    int rc = given && !json_is_null(given) ? (json_to_text(given, &value) == 0 ? 1 : -1)
                                           : exchange_parameter(x, key, &value);
    if (rc < 0 || strlen(strbuf_text(&value)) != value.len)
        return -1;
    if (rc > 0)
        client_request_add(q, key, strbuf_text(&value));
    return 0;
}

static void kill_process(struct exchange *x, const struct process_ref *ref)
{
    size_t n;
    const char *bytes = exchange_body(x, &n);
    json_t *body = n > 0 ? json_body_parse(bytes, n) : NULL;
    if (n > 0 && !json_is_object(body)) {
        json_decref(body);
        exchange_error(x, 400, "invalid_request", "Invalid JSON body");
        return;
    }
    struct client_request q;
    client_request_init(&q, "kill");
    client_request_add(&q, "id", ref->id);
    bool is_wrong =
        add_argument(x, body, "signal", &q) < 0 || add_argument(x, body, "grace_ms", &q) < 0;
    json_decref(body);
    if (!is_wrong) {
        (void)control_open(x, &q, format_record);
        return;
    }
    client_request_free(&q);
    exchange_error(x, 400, "invalid_request", "signal and grace_ms cannot be decoded");
}

void process_kill_begin(struct exchange *x)
{
    process_resolve(x, false, kill_process);
}

/* ---- wait -------------------------------------------------------------------------------- */

static void wait_for_process(struct exchange *x, const struct process_ref *ref)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    uint64_t ms = 0;
    int has_timeout = exchange_parameter(x, "timeout_ms", &text);
    if (has_timeout != 0 &&
        (has_timeout < 0 || number_parse_u64(strbuf_text(&text), WAIT_MAX_MS, &ms) < 0)) {
        exchange_error(x, 400, "invalid_request", "timeout_ms must be a number of milliseconds");
        return;
    }
    struct client_request q;
    client_request_init(&q, "wait");
    client_request_add(&q, "id", ref->id);
    struct control *c = control_open(x, &q, process_outcome_json);
    if (!c || !has_timeout)
        return;
    c->timeout_ms = ms;
    ev_now_update(c->loop);
    ev_timer_set(&c->timeout, (double)ms / 1e3, 0.);
    ev_timer_start(c->loop, &c->timeout);
}

void process_wait_begin(struct exchange *x)
{
    process_resolve(x, false, wait_for_process);
}
