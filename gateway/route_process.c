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

/* Those of the kind that the note names, and the strays in any case: who looks at what runs wants
 * to know what was left, too. */
static void answer_list(struct exchange *x, const struct gathered *all, const char *note)
{
    static const struct row_form strays = {.kind = "stray"};
    const struct row_form chosen = {.kind = strcmp(note, "all") == 0 ? NULL : note};
    CLEANUP_STRBUF struct strbuf json = {0};
    if (all->error)
        reply_error(x, all->error);
    else
        answer_json(x,
                    strbuf_adds(&json, "{\"processes\":") | rows_to_json(&json, all, &chosen) |
                        strbuf_adds(&json, ",\"strays\":") | rows_to_json(&json, all, &strays) |
                        strbuf_adds(&json, "}"),
                    &json);
}

/* ?kind= (process if absent, all) and ?session=. */
static void list_begin(struct exchange *x)
{
    CLEANUP_STRBUF struct strbuf kind = {0};
    CLEANUP_STRBUF struct strbuf session = {0};
    struct client_request q;
    int has_kind = exchange_parameter(x, "kind", &kind);
    int has_session = exchange_parameter(x, "session", &session);
    if (has_kind < 0 || has_session < 0) {
        exchange_error(x, 400, "invalid_request", "the query cannot be decoded");
        return;
    }
    client_request_init(&q, "ps");
    if (has_session)
        client_request_add(&q, "session", strbuf_text(&session));
    ask(x, &q, has_kind ? strbuf_text(&kind) : "process", answer_list);
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
    {"POST", "/v1/sandbox/:id/stray/:pid/kill", BODY_WHOLE, 0, 64 * 1024, NULL, stray_kill_begin},
    {NULL, NULL, BODY_IGNORED, 0, 0, NULL, NULL},
};
