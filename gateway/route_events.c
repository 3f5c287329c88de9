/*
 * GET /v1/events: what happens in the sandbox, as server-sent events: init's events (verb
 * `events`), each named by its kind, with its number as id. What follows Last-Event-ID (or ?since=)
 * comes first, or all that init keeps, then what happens from now on.
 */
#include "gateway/gateway.h"
#include "gateway/reply.h"
#include "gateway/sse.h"

#include "base/number.h"
#include "control/record.h"
#include "control/record_json.h"
#include "control/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct event_stream {
    struct sse sse;
    struct upstream *upstream;
    struct call *call;
    struct strbuf kinds;   /* as the query has them: a comma list */
    struct strbuf session; /* "" is all */
    struct strbuf tail;    /* number, "" is all */
    bool has_since, is_ending;
    uint64_t since; /* the last one that the client has */
};

static void stream_free(struct event_stream *s)
{
    if (s->call)
        call_close(s->call);
    sse_drop(&s->sse);
    strbuf_free(&s->kinds);
    strbuf_free(&s->session);
    strbuf_free(&s->tail);
    free(s);
}

static int stream_open(struct event_stream *s, struct error *e);

/* ---- what init sends --------------------------------------------------------------------- */

static bool on_row(void *owner, char channel, const char *bytes, size_t n)
{
    struct event_stream *s = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    const char *kind = record_get(bytes, n, "kind");
    const char *number = record_get(bytes, n, "number");
    if (channel != WIRE_ROW || !kind)
        return true;
    if (!number)
        number = record_get(bytes, n, "to"); /* of those that are lost */
    if (strbuf_adds(&json, "{") == 0 && record_to_json(&json, bytes, n) == 0 &&
        strbuf_adds(&json, "}") == 0)
        sse_event(&s->sse, kind, number, json.data, json.len);
    if (!s->sse.exchange) { /* no memory: it was cut */
        stream_free(s);
        return false;
    }
    return !s->sse.is_full;
}

static void on_rows_idle(void *owner)
{
    struct event_stream *s = owner;
    (void)sse_flush(&s->sse);
}

/* Numbers begin anew with init: a client that knows a later one has seen another life of it. */
static bool began_anew(struct event_stream *s, const struct error *e)
{
    struct error again = {0};
    if (e->code != ERR_INVALID || !s->has_since || s->sse.has_begun)
        return false;
    s->has_since = false;
    return stream_open(s, &again) == 0;
}

static void on_rows_end(void *owner, char channel, const char *bytes, size_t n,
                        const struct error *e)
{
    struct event_stream *s = owner;
    (void)bytes;
    (void)n;
    s->call = NULL;
    if (channel != WIRE_RESULT && began_anew(s, e))
        return;
    struct exchange *x = s->sse.exchange;
    bool is_answered = s->sse.has_begun || channel == WIRE_RESULT;
    if (channel == WIRE_RESULT)
        sse_end(&s->sse);
    stream_free(s);
    if (!is_answered)
        reply_error(x, e);
    else if (channel != WIRE_RESULT)
        exchange_cut(x); /* the client comes again with its Last-Event-ID */
}

static const struct call_events row_events = {
    .on_packet = on_row, .on_end = on_rows_end, .on_idle = on_rows_idle};

/* ---- the client -------------------------------------------------------------------------- */

static void on_stream_writable(void *owner)
{
    struct event_stream *s = owner;
    sse_relieved(&s->sse);
    if (s->call)
        call_resume(s->call);
}

static void on_stream_closed(void *owner)
{
    stream_free(owner);
}

static const struct exchange_events stream_events = {.on_writable = on_stream_writable,
                                                     .on_closed = on_stream_closed};

/* ---- the request ------------------------------------------------------------------------- */

static void add_kinds(struct client_request *q, const char *list)
{
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        char kind[64];
        snprintf(kind, sizeof kind, "%.*s", (int)n, at);
        if (n > 0)
            client_request_add(q, "kind", kind);
        at += n + (at[n] == ',');
    }
}

static int stream_open(struct event_stream *s, struct error *e)
{
    struct client_request q;
    char from[24];
    client_request_init(&q, "events");
    add_kinds(&q, strbuf_text(&s->kinds));
    if (s->session.len > 0)
        client_request_add(&q, "session", s->session.data);
    if (!s->is_ending)
        client_request_add(&q, "follow", "1");
    snprintf(from, sizeof from, "%" PRIu64, s->since + 1);
    if (s->has_since)
        client_request_add(&q, "from", from);
    else if (s->tail.len > 0)
        client_request_add(&q, "tail", s->tail.data);
    s->call = call_open(s->upstream, &q, &row_events, s, e);
    client_request_free(&q);
    return s->call ? 0 : -1;
}

/* NULL, or what is wrong. */
static const char *get_parameters(struct exchange *x, struct event_stream *s)
{
    CLEANUP_STRBUF struct strbuf since = {0};
    CLEANUP_STRBUF struct strbuf follow = {0};
    const char *last = exchange_header(x, "last-event-id");
    int has_since =
        last && *last ? strbuf_adds(&since, last) == 0 : exchange_parameter(x, "since", &since);
    uint64_t number;
    s->has_since = has_since != 0;
    if (has_since < 0 ||
        (has_since && number_parse_u64(strbuf_text(&since), INT64_MAX - 1, &s->since) < 0))
        return "Last-Event-ID and since must be the number of an event";
    if (exchange_parameter(x, "tail", &s->tail) < 0 ||
        (s->tail.len > 0 && number_parse_u64(s->tail.data, UINT32_MAX, &number) < 0))
        return "tail must be a number of events";
    if (exchange_parameter(x, "kind", &s->kinds) < 0 ||
        exchange_parameter(x, "session", &s->session) < 0 ||
        exchange_parameter(x, "follow", &follow) < 0)
        return "the query cannot be decoded";
    s->is_ending = strcmp(strbuf_text(&follow), "0") == 0;
    return NULL;
}

static void events_begin(struct exchange *x)
{
    const struct gateway *g = exchange_context(x);
    struct error e = {0};
    struct event_stream *s = calloc(1, sizeof *s);
    if (!s) {
        exchange_error(x, 503, "memory", "events: no memory");
        return;
    }
    s->upstream = g->upstream;
    sse_init(&s->sse, x);
    exchange_own(x, &stream_events, s);
    const char *wrong = get_parameters(x, s);
    if (wrong)
        error_set(&e, ERR_INVALID, "%s", wrong);
    if (!wrong && stream_open(s, &e) == 0) {
        if (!s->is_ending)
            exchange_follow(x);
        return;
    }
    stream_free(s);
    reply_error(x, &e);
}

const struct route routes_events[] = {
    {"GET", "/v1/events", BODY_IGNORED, 0, 0, NULL, events_begin},
    {NULL, NULL, BODY_IGNORED, 0, 0, NULL, NULL},
};
