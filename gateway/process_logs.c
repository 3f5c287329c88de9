/*
 * GET …/process/:pid/logs: what a process has written, as events `stdout` and `stderr` like those
 * of exec, with the offset behind them as id. ?follow=1 goes on with what comes; Last-Event-ID or
 * ?since= begins at such an id, ?tail= with so many lines. First comes `start`; what is not kept
 * any more is told by `lost`; the last event is `exit` with the outcome if the process has ended,
 * else `end`.
 */
#include "gateway/gateway.h"
#include "gateway/output_events.h"
#include "gateway/process.h"
#include "gateway/reply.h"

#include "base/json.h"
#include "base/number.h"
#include "control/record.h"
#include "control/wire.h"
#include "gateway/gather.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct logs {
    struct sse sse;
    struct output_events output;
    struct output_place place;
    struct strbuf tail;
    struct upstream *upstream;
    struct call *call;     /* logs, then … */
    struct gather *waiter; /* … wait */
    char id[65];
    bool follows, has_place, has_exited;
};

static void logs_free(struct logs *l)
{
    if (l->call)
        call_close(l->call);
    gather_close(l->waiter);
    output_events_free(&l->output);
    sse_drop(&l->sse);
    strbuf_free(&l->tail);
    free(l);
}

/* The rest cannot be told. */
static void logs_break(struct logs *l, const struct error *e)
{
    struct exchange *x = l->sse.exchange;
    bool has_begun = l->sse.has_begun;
    logs_free(l);
    if (!x)
        return;
    if (has_begun)
        exchange_cut(x);
    else
        reply_error(x, e);
}

/* ---- the end ----------------------------------------------------------------------------- */

static void on_outcome(void *owner, const struct gathered *all)
{
    struct logs *l = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    l->waiter = NULL;
    if (all->error) {
        logs_break(l, all->error);
        return;
    }
    if (process_outcome_json(all->result, all->result_len, &json) == 0)
        sse_event(&l->sse, "exit", NULL, json.data, json.len);
    sse_end(&l->sse);
    logs_free(l);
}

static void tell_outcome(struct logs *l)
{
    struct client_request q;
    struct error e = {0};
    client_request_init(&q, "wait");
    client_request_add(&q, "id", l->id);
    l->waiter = gather_open(l->upstream, &q, on_outcome, l, &e);
    if (!l->waiter)
        logs_break(l, &e);
}

static void on_logs_end(void *owner, char channel, const char *bytes, size_t n,
                        const struct error *e)
{
    struct logs *l = owner;
    char json[64];
    (void)bytes;
    (void)n;
    l->call = NULL;
    if (channel != WIRE_RESULT) {
        logs_break(l, e);
        return;
    }
    output_events_finish(&l->output);
    if (l->follows || l->has_exited) {
        tell_outcome(l);
        return;
    }
    int len = snprintf(json, sizeof json, "{\"to\":%" PRIu64 "}", l->output.offset);
    sse_event(&l->sse, "end", NULL, json, (size_t)len);
    sse_end(&l->sse);
    logs_free(l);
}

/* ---- what comes -------------------------------------------------------------------------- */

static void begin_output(struct logs *l, uint64_t from)
{
    char json[160], id[24];
    if (!l->has_place)
        l->place = (struct output_place){.offset = from};
    output_events_init(&l->output, &l->sse, &l->place);
    snprintf(id, sizeof id, "%" PRIu64, from);
    int n = snprintf(json, sizeof json, "{\"id\":\"%s\",\"from\":%" PRIu64 "}", l->id, from);
    sse_event(&l->sse, "start", NULL, json, (size_t)n); /* an id is of plain characters */
}

static void tell_lost(struct logs *l, uint64_t from, uint64_t to)
{
    char json[96], id[24];
    output_events_skip(&l->output, to);
    snprintf(id, sizeof id, "%" PRIu64, to);
    int n = snprintf(json, sizeof json, "{\"from\":%" PRIu64 ",\"to\":%" PRIu64 "}", from, to);
    sse_event(&l->sse, "lost", id, json, (size_t)n);
}

static void take_note(struct logs *l, const char *bytes, size_t n)
{
    uint64_t from, to;
    const char *begin = record_get(bytes, n, "from");
    const char *lost_from = record_get(bytes, n, "lost_from");
    const char *lost_to = record_get(bytes, n, "lost_to");
    if (begin && number_parse_u64(begin, INT64_MAX, &from) == 0)
        begin_output(l, from);
    if (lost_from && lost_to && number_parse_u64(lost_from, INT64_MAX, &from) == 0 &&
        number_parse_u64(lost_to, INT64_MAX, &to) == 0)
        tell_lost(l, from, to);
}

static bool on_logs_packet(void *owner, char channel, const char *bytes, size_t n)
{
    struct logs *l = owner;
    if (channel == WIRE_NOTE)
        take_note(l, bytes, n);
    else if (channel == WIRE_STDOUT || channel == WIRE_STDERR)
        output_events_add(&l->output, channel == WIRE_STDOUT ? OUTPUT_STDOUT : OUTPUT_STDERR, bytes,
                          n);
    if (!l->sse.exchange) { /* no memory: it was cut */
        logs_free(l);
        return false;
    }
    return !l->sse.is_full;
}

static void on_logs_idle(void *owner)
{
    struct logs *l = owner;
    output_events_flush(&l->output);
    (void)sse_flush(&l->sse);
    if (!l->sse.exchange)
        logs_free(l);
}

static const struct call_events logs_call_events = {
    .on_packet = on_logs_packet, .on_end = on_logs_end, .on_idle = on_logs_idle};

/* ---- the client -------------------------------------------------------------------------- */

static void on_logs_writable(void *owner)
{
    struct logs *l = owner;
    sse_relieved(&l->sse);
    if (l->call)
        call_resume(l->call);
}

static void on_logs_closed(void *owner)
{
    logs_free(owner);
}

static const struct exchange_events logs_events = {.on_writable = on_logs_writable,
                                                   .on_closed = on_logs_closed};

/* ---- the request ------------------------------------------------------------------------- */

static int logs_open(struct logs *l, struct error *e)
{
    char from[24];
    struct client_request q;
    client_request_init(&q, "logs");
    client_request_add(&q, "id", l->id);
    if (l->follows)
        client_request_add(&q, "follow", "1");
    snprintf(from, sizeof from, "%" PRIu64, l->place.offset);
    if (l->has_place)
        client_request_add(&q, "from", from);
    else if (l->tail.len > 0)
        client_request_add(&q, "tail", l->tail.data);
    l->call = call_open(l->upstream, &q, &logs_call_events, l, e);
    client_request_free(&q);
    return l->call ? 0 : -1;
}

static bool is_set(struct exchange *x, const char *name)
{
    CLEANUP_STRBUF struct strbuf value = {0};
    return exchange_parameter(x, name, &value) == 1 && strcmp(strbuf_text(&value), "0") != 0 &&
           strcmp(strbuf_text(&value), "false") != 0;
}

/* NULL, or what is wrong. */
static const char *get_parameters(struct exchange *x, struct logs *l)
{
    CLEANUP_STRBUF struct strbuf since = {0};
    uint64_t lines;
    const char *last = exchange_header(x, "last-event-id");
    int has_since = last && *last ? (strbuf_adds(&since, last) == 0 ? 1 : -1)
                                  : exchange_parameter(x, "since", &since);
    l->has_place = has_since > 0;
    if (has_since < 0 || (l->has_place && output_place_parse(strbuf_text(&since), &l->place) < 0))
        return "Last-Event-ID and since must be the id of an event, or an offset";
    if (exchange_parameter(x, "tail", &l->tail) < 0 ||
        (l->tail.len > 0 && number_parse_u64(l->tail.data, UINT32_MAX, &lines) < 0))
        return "tail must be a number of lines";
    return NULL;
}

static void logs_of_chosen(struct exchange *x, const struct gathered *all, const char *note)
{
    const struct gateway *g = exchange_context(x);
    struct process_ref ref;
    struct error e = {0};
    (void)note;
    if (!process_chosen(x, all, &ref))
        return;
    struct logs *l = calloc(1, sizeof *l);
    if (!l) {
        exchange_error(x, 503, "memory", "process '%.80s': no memory", ref.id);
        return;
    }
    const char *state = ref.row ? record_get(ref.row, ref.row_len, "state") : NULL;
    l->upstream = g->upstream;
    l->follows = is_set(x, "follow");
    l->has_exited = state && strcmp(state, "exited") == 0;
    snprintf(l->id, sizeof l->id, "%s", ref.id);
    sse_init(&l->sse, x);
    const char *wrong = get_parameters(x, l);
    if (wrong)
        error_set(&e, ERR_INVALID, "%s", wrong);
    if (wrong || logs_open(l, &e) < 0) {
        logs_break(l, &e);
        return;
    }
    exchange_own(x, &logs_events, l);
}

void process_logs_begin(struct exchange *x)
{
    process_choose(x, !is_set(x, "follow"), logs_of_chosen);
}
