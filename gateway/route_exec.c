/*
 * Exec over HTTP: begin one, come back to one, kill one, list them. A run without a session is its
 * program itself, started by init; one with a session is a text of that session's shell. Each is
 * detached: it goes on when its client leaves, and init keeps its outcome.
 */
#include "base/number.h"
#include "control/record.h"
#include "control/record_json.h"
#include "gateway/ask.h"
#include "gateway/exec_answer.h"
#include "gateway/exec_body.h"
#include "gateway/gateway.h"
#include "gateway/json_body.h"
#include "gateway/path.h"
#include "gateway/reply.h"
#include "gateway/run_id.h"
#include "gateway/shell_words.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_TIMEOUT_MS (365. * 24 * 3600 * 1000) /* what init takes */

/* ---- POST …/exec ------------------------------------------------------------------------- */

static void add_number(struct client_request *q, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.0f", value);
    client_request_add(q, key, text);
}

/* As text where a shell is needed, else as it is. */
static void add_argv(struct exec_plan *p, const struct exec_body *b)
{
    struct client_request *q = &p->request;
    p->has_text = *p->session || needs_shell(b->argv.data);
    if (p->has_text) {
        q->is_broken |= shell_words(b->argv.data, b->argv.len, &p->text) < 0;
        return;
    }
    for (size_t at = 0; at < b->argv.len; at += strlen(b->argv.data + at) + 1)
        client_request_add(q, "arg", b->argv.data + at);
    p->has_program = strbuf_adds(&p->program, b->argv.data) == 0;
}

static void plan_exec(struct exec_plan *p, const struct gateway *g, const struct exec_body *b)
{
    struct client_request *q = &p->request;
    client_request_add(q, "detach", "1");
    client_request_add(q, "soft_timeout_ms", "0"); /* it would send the client away */
    if (*p->session)
        client_request_add(q, "session", p->session);
    else
        client_request_add(q, "drain", "1");
    p->is_in_workspace = !b->has_cwd;
    if (b->has_cwd || !*p->session)
        client_request_add(q, "cwd", b->has_cwd ? strbuf_text(&b->cwd) : g->options.workspace);
    if (b->has_timeout) {
        p->has_timeout = true;
        p->timeout_ms = b->timeout_ms;
        add_number(q, "timeout_ms", ceil(fmin(b->timeout_ms, LONGEST_TIMEOUT_MS)));
    }
    add_argv(p, b);
}

/* Where the client goes on, by the header or the parameter. 1, 0 none, -1 it is no id. */
static int get_place(const struct exchange *x, struct output_place *to)
{
    CLEANUP_STRBUF struct strbuf since = {0};
    const char *id = exchange_header(x, "last-event-id");
    if (!id || !*id) {
        int found = exchange_parameter(x, "since", &since);
        if (found <= 0)
            return found;
        id = strbuf_text(&since);
    }
    return output_place_parse(id, to) < 0 ? -1 : 1;
}

/* A key makes the call at-most-once: init knows the run by the id that the key gives. */
static int plan_key(struct exec_plan *p, const struct exchange *x)
{
    const char *key = exchange_header(x, "idempotency-key");
    char id[RUN_ID_SIZE];
    if (!key || !*key)
        return 0;
    run_id_of_key(key, id);
    client_request_add(&p->request, "id", id);
    int rc = get_place(x, &p->from);
    p->has_from = rc > 0;
    if (p->has_from)
        add_number(&p->request, "from", (double)p->from.offset);
    return rc < 0 ? -1 : 0;
}

static void answer_exec(struct exchange *x, const struct exec_body *b, const char *session)
{
    struct exec_plan plan = {0};
    reply_warn_ignored(x, strbuf_text(&b->ignored));
    if (b->has_timeout && b->timeout_ms <= 0.) {
        exec_answer_late(x, b->timeout_ms);
        return;
    }
    client_request_init(&plan.request, "exec");
    if (*session)
        session_name_of(session, plan.session);
    plan_exec(&plan, exchange_context(x), b);
    if (plan_key(&plan, x) == 0) {
        exec_answer(x, &plan);
        return;
    }
    client_request_free(&plan.request);
    strbuf_free(&plan.text);
    strbuf_free(&plan.program);
    exchange_error(x, 400, "invalid_request", "Last-Event-ID must be the id of an event");
}

static void begin_exec(struct exchange *x)
{
    const struct gateway *g = exchange_context(x);
    const char *session = exchange_header(x, "session-id"), *why = "";
    struct exec_body body;
    size_t n;
    if (session && *session && !is_session_id(session)) {
        exchange_error(x, 400, "invalid_request", "Invalid session ID format");
        return;
    }
    const char *bytes = exchange_body(x, &n);
    int status = exec_body_parse(&body, bytes, n, g->options.workspace, &why);
    if (status)
        exchange_error(x, status, status == 503 ? "exec_transport_error" : "invalid_request", "%s",
                       why);
    else
        answer_exec(x, &body, session ? session : "");
    exec_body_free(&body);
}

/* ---- GET …/exec/:exec_id ----------------------------------------------------------------- */

/* The id of the path, or NULL: x has been answered. */
static const char *get_run_id(struct exchange *x)
{
    const char *id = exchange_segment(x, "exec_id");
    if (name_check(id) == 0)
        return id;
    exchange_error(x, 404, "not_found", "exec '%.80s': not found", id);
    return NULL;
}

static void begin_attach(struct exchange *x)
{
    struct exec_plan plan = {0};
    const char *id = get_run_id(x);
    if (!id)
        return;
    if (get_place(x, &plan.from) < 0) {
        exchange_error(x, 400, "invalid_request",
                       "since and Last-Event-ID must be the id of an event");
        return;
    }
    plan.has_from = true;
    client_request_init(&plan.request, "exec");
    client_request_add(&plan.request, "id", id);
    client_request_add(&plan.request, "soft_timeout_ms", "0");
    add_number(&plan.request, "from", (double)plan.from.offset);
    exec_answer(x, &plan);
}

/* ---- GET …/exec -------------------------------------------------------------------------- */

static bool is_run(const char *row, size_t n)
{
    const char *kind = record_get(row, n, "kind");
    return kind && (strcmp(kind, "command") == 0 || strcmp(kind, "exec") == 0);
}

static const struct row_form run_form = {.wants = is_run, .key = "id", .name = "exec_id"};

static void answer_list(struct exchange *x, const struct gathered *all, const char *note)
{
    (void)note;
    answer_rows(x, all, "execs", &run_form);
}

static void begin_list(struct exchange *x)
{
    struct client_request q;
    client_request_init(&q, "ps");
    ask(x, &q, NULL, answer_list);
}

/* ---- POST …/exec/:exec_id/kill ----------------------------------------------------------- */

static void answer_kill(struct exchange *x, const struct gathered *all, const char *note)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    (void)note;
    if (all->error) {
        reply_error(x, all->error);
        return;
    }
    int rc = strbuf_adds(&json, "{") < 0 ||
                     row_to_json(&json, all->result, all->result_len, &run_form) < 0 ||
                     strbuf_adds(&json, "}") < 0
                 ? -1
                 : 0;
    answer_json(x, rc, &json);
}

/* The body: nothing, or {"signal"?: name or number, "grace_ms"?: number}. False: x was answered. */
static bool add_kill_body(struct client_request *q, struct exchange *x)
{
    CLEANUP_STRBUF struct strbuf signal = {0};
    size_t n;
    const char *bytes = exchange_body(x, &n);
    json_t *body = json_body_parse(bytes, n);
    const json_t *name = json_object_get(body, "signal");
    const json_t *grace = json_object_get(body, "grace_ms");
    bool is_good = n == 0 || json_is_object(body);
    const char *why = NULL;
    if (is_good && name && !json_is_null(name) && json_to_text(name, &signal) == 0)
        client_request_add(q, "signal", strbuf_text(&signal));
    bool has_grace = grace && !json_is_null(grace);
    if (is_good && has_grace && json_is_number(grace))
        add_number(q, "grace_ms", fmax(0., json_number_value(grace)));
    else if (has_grace)
        why = "grace_ms must be a number of milliseconds";
    reply_warn_unknown(x, body, (const char *const[]){"signal", "grace_ms", NULL});
    json_decref(body);
    if (!is_good || why)
        exchange_error(x, 400, "invalid_request", "%s", is_good ? why : "Invalid JSON body");
    return is_good && !why;
}

static void begin_kill(struct exchange *x)
{
    struct client_request q;
    const char *id = get_run_id(x);
    if (!id)
        return;
    client_request_init(&q, "kill");
    client_request_add(&q, "id", id);
    if (add_kill_body(&q, x))
        ask(x, &q, NULL, answer_kill);
    else
        client_request_free(&q);
}

const struct route routes_exec[] = {
    {"POST", "/v1/sandbox/:id/exec", BODY_WHOLE, 0, 0, NULL, begin_exec},
    {"GET", "/v1/sandbox/:id/exec", BODY_IGNORED, 0, 0, NULL, begin_list},
    {"GET", "/v1/sandbox/:id/exec/:exec_id", BODY_IGNORED, 0, 0, NULL, begin_attach},
    {"POST", "/v1/sandbox/:id/exec/:exec_id/kill", BODY_WHOLE, 0, 0, NULL, begin_kill},
    {.method = NULL},
};
