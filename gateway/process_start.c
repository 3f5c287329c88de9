/*
 * POST …/process: start something in the background. The first request of a session finds that it
 * has to be made:
 *
 *     start ──not_found──> session.create ──> start
 */
#include "gateway/gather.h"
#include "gateway/gateway.h"
#include "gateway/path.h"
#include "gateway/process.h"
#include "gateway/process_body.h"
#include "gateway/reply.h"
#include "gateway/session_name.h"
#include "gateway/workspace.h"

#include "control/record_json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct start {
    struct exchange *x;
    struct upstream *upstream;
    const char *workspace;
    struct gather *gather;
    struct process_body body;
    char session[SESSION_NAME_SIZE];
    bool has_made_session;
};

static struct exchange *start_free(struct start *s)
{
    struct exchange *x = s->x;
    gather_close(s->gather);
    process_body_free(&s->body);
    free(s);
    return x;
}

/* The folder that it could not begin in is one that the request did not name. */
static bool is_of_workspace(const struct start *s, const struct error *e)
{
    char cwd[PATH_MAX];
    snprintf(cwd, sizeof cwd, "cwd %s: ", s->workspace);
    return e->sys != 0 && !s->body.has_cwd && strstr(e->text, cwd);
}

/* A program or folder that is not there is the request's mistake, not the gateway's. */
static void start_fail(struct start *s, const struct error *e)
{
    bool has_no_workspace = is_of_workspace(s, e);
    if (has_no_workspace)
        workspace_note(s->upstream, s->workspace, e->sys);
    struct exchange *x = start_free(s);
    if (has_no_workspace)
        exchange_error(x, 502, "workspace_unavailable", "%s", e->text);
    else if (e->code == ERR_SYSTEM && e->sys != 0)
        exchange_error(x, 400, "spawn_failed", "%s", e->text);
    else
        reply_error(x, e);
}

static void send_start(struct start *s);

static void on_session_made(void *owner, const struct gathered *all)
{
    struct start *s = owner;
    s->gather = NULL;
    if (all->error && all->error->code != ERR_EXISTS) { /* another request was quicker */
        start_fail(s, all->error);
        return;
    }
    s->has_made_session = true;
    send_start(s);
}

static void make_session(struct start *s)
{
    struct error e = {0};
    struct client_request q;
    client_request_init(&q, "session.create");
    client_request_add(&q, "name", s->session);
    client_request_add(&q, "cwd", s->workspace);
    s->gather = gather_open(s->upstream, &q, on_session_made, s, &e);
    if (!s->gather)
        start_fail(s, &e);
}

static void on_process_started(void *owner, const struct gathered *all)
{
    struct start *s = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    s->gather = NULL;
    if (all->error && all->error->code == ERR_NOT_FOUND && *s->session && !s->has_made_session) {
        make_session(s);
    } else if (all->error) {
        start_fail(s, all->error);
    } else if ((strbuf_adds(&json, "{") | record_to_json(&json, all->result, all->result_len) |
                strbuf_adds(&json, "}")) == 0) {
        exchange_json(start_free(s), 200, json.data);
    } else {
        exchange_error(start_free(s), 503, "memory", "no memory for the answer");
    }
}

/* The request stays here: it may have to be sent twice. */
static void send_start(struct start *s)
{
    struct error e = {0};
    struct client_request q = s->body.request;
    memset(&q.args, 0, sizeof q.args);
    if (strbuf_add(&q.args, s->body.request.args.data, s->body.request.args.len) < 0)
        q.is_broken = true;
    if (s->body.has_command) {
        q.text = strbuf_text(&s->body.command);
        q.text_len = s->body.command.len;
    }
    s->gather = gather_open(s->upstream, &q, on_process_started, s, &e);
    if (!s->gather)
        start_fail(s, &e);
}

static void on_start_closed(void *owner)
{
    (void)start_free(owner); /* what runs goes on */
}

static const struct exchange_events start_events = {.on_closed = on_start_closed};

/* The session of the header or the body. 0, or -1: its form is wrong. */
static int choose_session(struct start *s)
{
    const char *id = exchange_header(s->x, "session-id");
    if (!id || !*id)
        id = strbuf_text(&s->body.session);
    if (!*id)
        return 0;
    if (!is_session_id(id))
        return -1;
    session_name_of(id, s->session);
    client_request_add(&s->body.request, "session", s->session);
    return 0;
}

void process_start_begin(struct exchange *x)
{
    const struct gateway *g = exchange_context(x);
    const char *why = "no memory for the request";
    size_t n;
    const char *bytes = exchange_body(x, &n);
    struct start *s = calloc(1, sizeof *s);
    int status = s ? process_body_parse(&s->body, bytes, n, g->options.workspace, &why) : 503;
    if (s) {
        s->x = x;
        s->upstream = g->upstream;
        s->workspace = g->options.workspace;
    }
    if (status == 0 && choose_session(s) < 0) {
        status = 400;
        why = "Invalid session ID format";
    }
    if (status) {
        exchange_error(x, status, status == 503 ? "memory" : "invalid_request", "%s", why);
        if (s)
            (void)start_free(s);
        return;
    }
    reply_warn_ignored(x, strbuf_text(&s->body.ignored));
    if (!*s->session && !s->body.has_cwd)
        client_request_add(&s->body.request, "cwd", g->options.workspace);
    exchange_own(x, &start_events, s);
    send_start(s);
}
