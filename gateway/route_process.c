/*
 * Processes: what runs in the background, by init's verbs start, ps, logs, kill, wait and send.
 * This file has the table, starting and listing; process.h names the others.
 */
#include "gateway/gateway.h"
#include "gateway/process.h"
#include "gateway/reply.h"

#include "control/record_json.h"

#include <string.h>

/* ---- lists ------------------------------------------------------------------------------- */

static void answer_list(struct exchange *x, const struct gathered *all, const char *note)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    (void)note;
    if (all->error)
        reply_error(x, all->error);
    else
        answer_json(x,
                    strbuf_adds(&json, "{\"processes\":") | rows_to_json(&json, all, NULL) |
                        strbuf_adds(&json, "}"),
                    &json);
}

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
    struct client_request q;
    client_request_init(&q, "ps");
    if (add_selection(x, &q) == 0) {
        ask(x, &q, NULL, answer_list);
        return;
    }
    client_request_free(&q);
    exchange_error(x, 400, "invalid_request", "the query cannot be decoded");
}

static void show_chosen(struct exchange *x, const struct gathered *all, const char *note)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    struct process_ref ref;
    (void)note;
    if (process_chosen(x, all, &ref))
        answer_json(x,
                    strbuf_adds(&json, "{") | record_to_json(&json, ref.row, ref.row_len) |
                        strbuf_adds(&json, "}"),
                    &json);
}

static void show_begin(struct exchange *x)
{
    process_choose(x, true, show_chosen);
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
