/* POST …/process/:pid/kill, POST …/stray/:pid/kill and GET …/process/:pid/wait. */
#include "gateway/gather.h"
#include "gateway/gateway.h"
#include "gateway/json_body.h"
#include "gateway/process.h"
#include "gateway/reply.h"

#include "base/number.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MAX_MS ((uint64_t)365 * 24 * 3600 * 1000)

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

/* What is named by key (id, stray) of the verb kill. */
static void kill_named(struct exchange *x, const char *key, const char *name)
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
    client_request_add(&q, key, name);
    bool is_wrong =
        add_argument(x, body, "signal", &q) < 0 || add_argument(x, body, "grace_ms", &q) < 0;
    reply_warn_unknown(x, body, (const char *const[]){"signal", "grace_ms", NULL});
    json_decref(body);
    if (!is_wrong) {
        ask(x, &q, NULL, process_answer_result);
        return;
    }
    client_request_free(&q);
    exchange_error(x, 400, "invalid_request", "signal and grace_ms cannot be decoded");
}

static void kill_chosen(struct exchange *x, const struct gathered *all, const char *note)
{
    struct process_ref ref;
    (void)note;
    if (process_chosen(x, all, &ref))
        kill_named(x, "id", ref.id);
}

void process_kill_begin(struct exchange *x)
{
    process_choose(x, false, kill_chosen);
}

/* init takes no PID but one that it lists as a stray. */
void stray_kill_begin(struct exchange *x)
{
    kill_named(x, "stray", exchange_segment(x, "pid"));
}

/* ---- wait -------------------------------------------------------------------------------- */

/* Unlike other questions this one may take days: it is taken back when its client leaves. */
struct wait {
    struct exchange *x;
    struct ev_loop *loop;
    struct gather *gather;
    ev_timer timeout;
    uint64_t timeout_ms;
};

static struct exchange *wait_free(struct wait *w)
{
    struct exchange *x = w->x;
    ev_timer_stop(w->loop, &w->timeout);
    gather_close(w->gather);
    free(w);
    return x;
}

static void on_wait_done(void *owner, const struct gathered *all)
{
    struct wait *w = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    w->gather = NULL;
    struct exchange *x = wait_free(w);
    if (all->error)
        reply_error(x, all->error);
    else
        answer_json(x, process_outcome_json(all->result, all->result_len, &json), &json);
}

static void on_wait_timeout(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    struct wait *w = timer->data;
    uint64_t ms = w->timeout_ms;
    struct exchange *x = wait_free(w);
    exchange_error(x, 504, "timeout", "process '%.80s' has not ended within %" PRIu64 " ms",
                   exchange_segment(x, "pid"), ms);
}

static void on_wait_closed(void *owner)
{
    (void)wait_free(owner);
}

static const struct exchange_events wait_events = {.on_closed = on_wait_closed};

static struct wait *wait_open(struct exchange *x, const char *id, struct error *e)
{
    const struct gateway *g = exchange_context(x);
    struct client_request q;
    struct wait *w = calloc(1, sizeof *w);
    if (!w) {
        error_set(e, ERR_MEMORY, "process '%.80s': no memory", id);
        return NULL;
    }
    w->x = x;
    w->loop = exchange_loop(x);
    ev_timer_init(&w->timeout, on_wait_timeout, 0., 0.);
    w->timeout.data = w;
    client_request_init(&q, "wait");
    client_request_add(&q, "id", id);
    w->gather = gather_open(g->upstream, &q, on_wait_done, w, e);
    if (w->gather)
        return w;
    (void)wait_free(w);
    return NULL;
}

static void wait_for_chosen(struct exchange *x, const struct gathered *all, const char *note)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    struct process_ref ref;
    struct error e = {0};
    uint64_t ms = 0;
    (void)note;
    if (!process_chosen(x, all, &ref))
        return;
    int has_timeout = exchange_parameter(x, "timeout_ms", &text);
    if (has_timeout != 0 &&
        (has_timeout < 0 || number_parse_u64(strbuf_text(&text), WAIT_MAX_MS, &ms) < 0)) {
        exchange_error(x, 400, "invalid_request", "timeout_ms must be a number of milliseconds");
        return;
    }
    struct wait *w = wait_open(x, ref.id, &e);
    if (!w) {
        reply_error(x, &e);
        return;
    }
    exchange_own(x, &wait_events, w);
    if (!has_timeout)
        return;
    w->timeout_ms = ms;
    ev_now_update(w->loop);
    ev_timer_set(&w->timeout, (double)ms / 1e3, 0.);
    ev_timer_start(w->loop, &w->timeout);
}

void process_wait_begin(struct exchange *x)
{
    process_choose(x, false, wait_for_chosen);
}
