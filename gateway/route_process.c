/*
 * Processes: what runs in the background, by init's verbs start, ps, logs, kill, wait and send.
 * This file has the table, starting and listing; process.h names the others.
 */
#include "gateway/gather.h"
#include "gateway/gateway.h"
#include "gateway/json_body.h"
#include "gateway/path.h"
#include "gateway/process.h"
#include "gateway/reply.h"

#include "control/record_json.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists ------------------------------------------------------------------------------- */

struct list_request {
    struct exchange *x;
    struct gather *gather;
};

static int add_rows(const struct gathered *all, struct strbuf *to)
{
    const char *row;
    size_t n, count = 0;
    int rc = strbuf_adds(to, "{\"processes\":[");
    for (size_t at = 0; rc == 0 && gathered_row(all, &at, &row, &n);)
        rc = strbuf_adds(to, count++ ? ",{" : "{") | record_to_json(to, row, n) |
             strbuf_adds(to, "}");
    return rc | strbuf_adds(to, "]}");
}

static void on_listed(void *owner, const struct gathered *all)
{
    struct list_request *l = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    struct exchange *x = l->x;
    free(l);
    if (all->error)
        reply_error(x, all->error);
    else if (add_rows(all, &json) == 0)
        exchange_json(x, 200, json.data);
    else
        exchange_error(x, 503, "memory", "no memory for the list");
}

static void on_list_closed(void *owner)
{
    struct list_request *l = owner;
    gather_close(l->gather);
    free(l);
}

static const struct exchange_events list_events = {.on_closed = on_list_closed};

/* ?kind= (process if absent, all) and ?session=. 0 or -1: cannot be decoded. */
static int add_selection(struct exchange *x, struct client_request *q)
{
    CLEANUP_STRBUF struct strbuf kind = {0};
    CLEANUP_STRBUF struct strbuf session = {0};
    int has_kind = exchange_parameter(x, "kind", &kind);
    int has_session = exchange_parameter(x, "session", &session);
    if (has_kind < 0 || has_session < 0)
        return -1;
    if (!has_kind || strcmp(strbuf_text(&kind), "all") != 0)
        client_request_add(q, "kind", has_kind ? strbuf_text(&kind) : "process");
    if (has_session)
        client_request_add(q, "session", strbuf_text(&session));
    return 0;
}

static void list_begin(struct exchange *x)
{
    const struct gateway *g = exchange_context(x);
    struct client_request q;
    struct error e = {0};
    client_request_init(&q, "ps");
    struct list_request *l = calloc(1, sizeof *l);
    if (add_selection(x, &q) < 0)
        error_set(&e, ERR_INVALID, "the query cannot be decoded");
    else if (!l)
        error_set(&e, ERR_MEMORY, "processes: no memory");
    if (e.code == ERR_NONE) {
        l->x = x;
        l->gather = gather_open(g->upstream, &q, on_listed, l, &e);
    } else {
        client_request_free(&q);
    }
    if (e.code == ERR_NONE) {
        exchange_own(x, &list_events, l);
        return;
    }
    free(l);
    reply_error(x, &e);
}

static void show_process(struct exchange *x, const struct process_ref *ref)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    if ((strbuf_adds(&json, "{") | record_to_json(&json, ref->row, ref->row_len) |
         strbuf_adds(&json, "}")) == 0)
        exchange_json(x, 200, json.data);
    else
        exchange_error(x, 503, "memory", "no memory for the answer");
}

static void show_begin(struct exchange *x)
{
    process_resolve(x, true, show_process);
}

const struct route routes_process[] = {
    {"POST", "/v1/sandbox/:id/process", BODY_WHOLE, 0, 0, NULL, process_start_begin},
    {"GET", "/v1/sandbox/:id/process", BODY_IGNORED, 0, 0, NULL, list_begin},
    {"GET", "/v1/sandbox/:id/process/:pid", BODY_IGNORED, 0, 0, NULL, show_begin},
    {"GET", "/v1/sandbox/:id/process/:pid/logs", BODY_IGNORED, 0, 0, NULL, process_logs_begin},
    {"POST", "/v1/sandbox/:id/process/:pid/kill", BODY_WHOLE, 0, 64 * 1024, NULL,
     process_kill_begin},
    {"GET", "/v1/sandbox/:id/process/:pid/wait", BODY_IGNORED, 0, 0, NULL, process_wait_begin},
    {"POST", "/v1/sandbox/:id/process/:pid/stdin", BODY_STREAMED, 0, SIZE_MAX, NULL,
     process_stdin_begin},
    {NULL, NULL, BODY_IGNORED, 0, 0, NULL, NULL},
};
