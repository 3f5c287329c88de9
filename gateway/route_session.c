/* Sessions over HTTP: make one, end one, list them, look at one and its queue. */
#include "base/clock.h"
#include "control/record.h"
#include "gateway/ask.h"
#include "gateway/gateway.h"
#include "gateway/json_body.h"
#include "gateway/path.h"
#include "gateway/reply.h"
#include "gateway/session_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BAD_ID "Invalid session ID format"

static const struct row_form session_form = {.key = "name", .name = "id"};

/* The id of the path, decoded. False: x was answered. */
static bool get_session_id(struct exchange *x, struct strbuf *id)
{
    const char *segment = exchange_segment(x, "sid");
    if (percent_decode(segment, strlen(segment), false, id) == 0 && is_session_id(strbuf_text(id)))
        return true;
    exchange_error(x, 400, "invalid_request", BAD_ID);
    return false;
}

static void ask_for_session(struct exchange *x, const char *verb, answer_handler *handler)
{
    CLEANUP_STRBUF struct strbuf id = {0};
    char name[SESSION_NAME_SIZE];
    struct client_request q;
    if (!get_session_id(x, &id))
        return;
    session_name_of(strbuf_text(&id), name);
    client_request_init(&q, verb);
    client_request_add(&q, "name", name);
    ask(x, &q, strbuf_text(&id), handler);
}

/* ---- POST …/session ---------------------------------------------------------------------- */

/* What is asked for. */
struct wish {
    char id[160]; /* is_session_id() */
    struct client_request request;
};

/* No two in a row are the same. */
static void make_id(struct gateway *g, char id[160])
{
    uint64_t now_ms = clock_real_ns() / 1000000u;
    g->last_session_ms = now_ms > g->last_session_ms ? now_ms : g->last_session_ms + 1;
    snprintf(id, 160, "session-%" PRIu64, g->last_session_ms);
}

static const char *set_id(struct wish *w, const json_t *id, struct gateway *g)
{
    if (!id || json_is_null(id)) {
        make_id(g, w->id);
        return NULL;
    }
    const char *text = json_string_value(id);
    if (!text || strlen(text) != json_string_length(id) || !is_session_id(text))
        return BAD_ID;
    snprintf(w->id, sizeof w->id, "%s", text);
    return NULL;
}

static const char *set_cwd(struct wish *w, const json_t *cwd, const char *workspace)
{
    CLEANUP_STRBUF struct strbuf path = {0};
    const char *text = json_string_value(cwd);
    if (cwd && !json_is_null(cwd) && (!text || strlen(text) != json_string_length(cwd)))
        return "cwd must be a string without NUL characters";
    bool is_relative = text && *text && *text != '/';
    if (!text || !*text || is_relative)
        w->request.is_broken |= strbuf_adds(&path, workspace) < 0;
    if (is_relative)
        w->request.is_broken |= strbuf_adds(&path, "/") < 0;
    if (text)
        w->request.is_broken |= strbuf_adds(&path, text) < 0;
    client_request_add(&w->request, "cwd", strbuf_text(&path));
    return NULL;
}

static const char *set_env(struct wish *w, json_t *env)
{
    const char *name;
    json_t *value;
    if (env && !json_is_null(env) && !json_is_object(env))
        return "env must be an object";
    json_object_foreach(env, name, value)
    {
        CLEANUP_STRBUF struct strbuf item = {0};
        if (json_is_null(value))
            continue;
        if (strbuf_addf(&item, "%s=", name) < 0 || json_to_text(value, &item) < 0)
            w->request.is_broken = true;
        if (item.len != strlen(strbuf_text(&item)))
            return "env must not contain NUL characters";
        client_request_add(&w->request, "env", strbuf_text(&item));
    }
    return NULL;
}

/* Why it is refused, or NULL. */
static const char *read_wish(struct wish *w, const json_t *body, struct gateway *g)
{
    char name[SESSION_NAME_SIZE];
    const char *why = set_id(w, json_object_get(body, "id"), g);
    if (why)
        return why;
    session_name_of(w->id, name);
    client_request_add(&w->request, "name", name);
    why = set_cwd(w, json_object_get(body, "cwd"), g->options.workspace);
    return why ? why : set_env(w, json_object_get(body, "env"));
}

/* The id stands in the answer as it was asked for, also where init has another name for it. */
static void answer_made(struct exchange *x, const struct gathered *all, const char *id)
{
    char json[256];
    const struct error *e = all->error;
    if (!e) {
        snprintf(json, sizeof json, "{\"id\":\"%s\"}", id);
        exchange_json(x, 200, json);
    } else if (e->code == ERR_EXISTS) {
        exchange_error(x, 502, "session_error",
                       "session create failed: Session '%s' already exists", id);
    } else if (e->code == ERR_INVALID) {
        exchange_error(x, 400, "invalid_request", "%s", e->text);
    } else if (e->code == ERR_LIMIT) {
        exchange_error(x, 503, "capacity_exceeded", "%s", e->text);
    } else {
        exchange_failed(x, "session_error", "session create", e);
    }
}

/* A body that is no JSON counts as {}. */
static void begin_create(struct exchange *x)
{
    struct wish w = {0};
    size_t n;
    const char *bytes = exchange_body(x, &n);
    json_t *body = json_body_parse(bytes, n);
    client_request_init(&w.request, "session.create");
    const char *why = read_wish(&w, body, exchange_context(x));
    reply_warn_unknown(x, body, (const char *const[]){"id", "cwd", "env", NULL});
    json_decref(body);
    if (!why) {
        ask(x, &w.request, w.id, answer_made);
        return;
    }
    client_request_free(&w.request);
    exchange_error(x, 400, "invalid_request", "%s", why);
}

/* ---- DELETE …/session/:sid --------------------------------------------------------------- */

static void answer_deleted(struct exchange *x, const struct gathered *all, const char *id)
{
    char json[256], utc[32];
    uint64_t now_ms = clock_real_ns() / 1000000u;
    if (all->error && all->error->code == ERR_NOT_FOUND) {
        exchange_error(x, 502, "session_error", "session delete failed: Session '%s' not found",
                       id);
        return;
    }
    if (all->error) {
        exchange_failed(x, "session_error", "session delete", all->error);
        return;
    }
    clock_utc(now_ms / 1000, utc);
    snprintf(json, sizeof json,
             "{\"success\":true,\"sessionId\":\"%s\",\"timestamp\":\"%s.%03uZ\"}", id, utc,
             (unsigned)(now_ms % 1000));
    exchange_json(x, 200, json);
}

static void begin_delete(struct exchange *x)
{
    ask_for_session(x, "session.delete", answer_deleted);
}

/* ---- GET …/session, GET …/session/:sid --------------------------------------------------- */

static void answer_list(struct exchange *x, const struct gathered *all, const char *note)
{
    (void)note;
    answer_rows(x, all, "sessions", &session_form);
}

static void begin_list(struct exchange *x)
{
    struct client_request q;
    client_request_init(&q, "session.list");
    ask(x, &q, NULL, answer_list);
}

/* What runs stands in the fields, who waits in the list, in order. */
static void answer_shown(struct exchange *x, const struct gathered *all, const char *id)
{
    static const struct row_form waiter_form = {.key = "id", .name = "exec_id"};
    CLEANUP_STRBUF struct strbuf json = {0};
    if (all->error && all->error->code == ERR_NOT_FOUND) {
        exchange_error(x, 404, "not_found", "Session '%s' not found", id);
        return;
    }
    if (all->error) {
        reply_error(x, all->error);
        return;
    }
    int rc = strbuf_adds(&json, "{") < 0 ||
                     row_to_json(&json, all->result, all->result_len, &session_form) < 0 ||
                     strbuf_adds(&json, ",\"waiting\":") < 0 ||
                     rows_to_json(&json, all, &waiter_form) < 0 || strbuf_adds(&json, "}") < 0
                 ? -1
                 : 0;
    answer_json(x, rc, &json);
}

static void begin_show(struct exchange *x)
{
    ask_for_session(x, "session.show", answer_shown);
}

const struct route routes_session[] = {
    {"POST", "/v1/sandbox/:id/session", BODY_WHOLE, 0, 0, NULL, begin_create},
    {"GET", "/v1/sandbox/:id/session", BODY_IGNORED, 0, 0, NULL, begin_list},
    {"GET", "/v1/sandbox/:id/session/:sid", BODY_IGNORED, 0, 0, NULL, begin_show},
    {"DELETE", "/v1/sandbox/:id/session/:sid", BODY_IGNORED, 0, 0, NULL, begin_delete},
    {.method = NULL},
};
