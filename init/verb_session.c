#include "init/verb.h"
#include "base/clock.h"
#include "base/head.h"
#include "base/number.h"
#include "init/listing.h"
#include "sessions/command.h"
#include "sessions/events.h"
#include "sessions/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENV_SHOWN_MAX ((size_t)24576) /* bytes of the environment in session.show */

/* A connection that waits for a session to be made, deleted or reset. */
struct pending {
    struct session_wish wish;
    struct conn *conn;
};

static void on_closed(void *owner)
{
    struct pending *p = owner;
    session_wish_drop(&p->wish);
    free(p);
}

static const struct conn_events pending_events = {.on_closed = on_closed};

static struct pending *pending_new(struct conn *c,
                                   void (*on_done)(void *owner, const struct session *s,
                                                   const struct teardown_report *report,
                                                   const struct error *e),
                                   struct error *e)
{
    struct pending *p = calloc(1, sizeof *p);
    if (!p) {
        error_set(e, ERR_MEMORY, "session: no memory");
        return NULL;
    }
    list_init(&p->wish.link);
    p->wish.on_done = on_done;
    p->wish.owner = p;
    p->conn = c;
    return p;
}

static void on_created(void *owner, const struct session *s, const struct teardown_report *report,
                       const struct error *e)
{
    struct pending *p = owner;
    struct record r = {0};
    struct error gone = {0};
    if (e) {
        conn_fail(p->conn, e);
    } else if (report && !s->ends_for_reset) {
        error_set(&gone, ERR_STATE, "session '%s' was deleted before it was ready", s->name);
        conn_fail(p->conn, &gone);
    } else {
        record_str(&r, "name", s->name);
        conn_result(p->conn, &r);
    }
    record_free(&r);
    free(p);
}

int verb_session_create(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct session_request q = {.name = request_get(r, "name"),
                                .cwd = request_get(r, "cwd"),
                                .shell = request_get(r, "shell"),
                                .user = request_get(r, "user"),
                                .setup = request_get(r, "setup"),
                                .state = r->has_text ? &r->text : NULL,
                                .state_name = request_get(r, "from")};
    if (r->has_text != (q.state_name != NULL))
        return error_set(e, ERR_INVALID, "session.create: a state needs its name in 'from'");
    if (verb_get_ms(r, "timeout_ms", &q.timeout_ms, &q.has_timeout, e) < 0)
        return -1;
    struct pending *p = pending_new(c, on_created, e);
    if (!p)
        return -1;
    int rc = verb_get_env(r, &q.env, e);
    if (rc == 0 && !session_create(&in->sessions, &q, &p->wish, e))
        rc = -1;
    env_free(&q.env);
    if (rc < 0) {
        free(p);
        return -1;
    }
    conn_set_owner(c, &pending_events, p);
    return 0;
}

static void add_row(struct record *row, const struct session *s, size_t stray_count)
{
    record_str(row, "name", s->name);
    record_str(row, "state", session_state_name(session_state(s)));
    record_str(row, "shell", s->shell_path ? s->shell_path : "");
    record_str(row, "cwd", s->last_cwd[0] ? s->last_cwd : s->cwd ? s->cwd : "");
    record_int(row, "pid", s->shell.pid);
    record_int(row, "queue", s->lock.waiter_count);
    record_int(row, "strays", (int64_t)stray_count);
    record_seconds(row, "uptime_s", (clock_mono_ns() - s->created_ns) / 1000000u);
    if (!s->lock.holder)
        return;
    record_str(row, "running", s->lock.holder->id);
    record_seconds(row, "running_s", (clock_mono_ns() - s->lock.holder->since_ns) / 1000000u);
}

int verb_session_list(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct record done = {0};
    (void)r;
    (void)e;
    list_each(s, &in->sessions.sessions, struct session, link)
    {
        struct record row = {0};
        if (session_state(s) != SESSION_BUSY && s->shell.child)
            session_note_cwd(s);
        add_row(&row, s, session_list_strays(s, NULL, 0));
        conn_row(c, &row);
        record_free(&row);
    }
    record_int(&done, "sessions", in->sessions.session_count);
    conn_result(c, &done);
    record_free(&done);
    return 0;
}

static uint64_t ms_since(uint64_t ns)
{
    return (clock_mono_ns() - ns) / 1000000u;
}

static void add_holder(struct record *to, const struct session *s)
{
    const struct lock_request *h = s->lock.holder;
    char head[EVENT_TEXT_MAX + 1];
    if (!h)
        return;
    record_str(to, "running_kind", event_kind_name(h->kind));
    record_int(to, "running_pid", s->shell.pid);
    head_copy(head, sizeof head, lock_text(h));
    record_str(to, "running_text", head);
    uint64_t last_ns = s->running ? output_last_ns(command_output(s->running)) : 0;
    if (last_ns)
        record_seconds(to, "last_output_s", ms_since(last_ns));
}

/* A row a waiter, in order. */
static void list_waiters(struct listing *to, const struct session *s)
{
    char head[EVENT_TEXT_MAX + 1];
    list_each(w, &s->lock.waiters, struct lock_request, link)
    {
        struct record row = {0};
        record_str(&row, "id", w->id);
        record_str(&row, "kind", event_kind_name(w->kind));
        record_seconds(&row, "waiting_s", ms_since(w->since_ns));
        if (w->patience.has_limit && w->patience.ms)
            record_seconds(&row, "wait_for_s", w->patience.ms);
        head_copy(head, sizeof head, lock_text(w));
        record_str(&row, "text", head);
        listing_add(to, &row);
    }
}

/* As much of the environment as has room beside the rest; session.env sends all of it. */
static void add_env(struct record *to, const struct env_set *env)
{
    size_t bytes = 0, left_out = 0;
    for (size_t i = 0; i < env->count; i++) {
        size_t n = strlen(env->items[i]);
        if (n <= ENV_SHOWN_MAX - bytes) {
            bytes += n;
            record_str(to, "env[]", env->items[i]);
        } else {
            left_out++;
        }
    }
    if (left_out)
        record_int(to, "env_left_out", (int64_t)left_out);
}

int verb_session_show(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *name = verb_required(r, "name", e);
    struct session *s = name ? session_find(&in->sessions, name, e) : NULL;
    struct listing *l = s ? listing_new(c, e) : NULL;
    if (!l)
        return -1;
    struct record *to = &l->result;
    char user[80];
    if (s->shell.child)
        session_note_cwd(s);
    struct stray strays[STRAYS_TOLD];
    size_t stray_count = session_list_strays(s, strays, STRAYS_TOLD);
    add_row(to, s, stray_count);
    record_str(to, "user", user_text(&s->user, user, sizeof user));
    record_int(to, "restarts", (int64_t)s->restarts);
    record_bool(to, "is_configured", s->is_configured);
    record_seconds(to, "command_timeout_s", s->limits.total_ms);
    record_seconds(to, "command_idle_timeout_s", s->limits.output_ms);
    record_seconds(to, "command_cpu_timeout_s", s->limits.cpu_ms);
    record_seconds(to, "command_soft_timeout_s", s->soft_timeout_ms);
    add_holder(to, s);
    if (s->why.code != ERR_NONE)
        record_str(to, "why", s->why.text);
    for (size_t i = 0; i < stray_count && i < STRAYS_TOLD; i++) {
        char stray[STRAY_TEXT];
        record_bytes(to, "stray_list[]", stray, stray_text(&strays[i], stray));
    }
    add_env(to, &s->env);
    list_each(w, &s->lock.waiters, struct lock_request, link) record_str(to, "waiters[]", w->id);
    list_waiters(l, s);
    listing_send(l);
    return 0;
}

static void on_ended(void *owner, const struct session *s, const struct teardown_report *report,
                     const struct error *e)
{
    struct pending *p = owner;
    struct record r = {0};
    if (e) { /* a reset whose fresh shell cannot be had */
        conn_fail(p->conn, e);
    } else {
        record_str(&r, "name", s->name);
        answer_teardown(&r, report);
        conn_result(p->conn, &r);
    }
    record_free(&r);
    free(p);
}

static int end_session(struct init *in, struct conn *c, struct request *r,
                       int (*end)(struct session *, struct session_wish *, struct error *),
                       struct error *e)
{
    const char *name = verb_required(r, "name", e);
    struct session *s = name ? session_find(&in->sessions, name, e) : NULL;
    if (!s)
        return -1;
    struct pending *p = pending_new(c, on_ended, e);
    if (!p)
        return -1;
    if (end(s, &p->wish, e) < 0) {
        free(p);
        return -1;
    }
    conn_set_owner(c, &pending_events, p);
    return 0;
}

int verb_session_delete(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    return end_session(in, c, r, session_delete, e);
}

int verb_session_reset(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    return end_session(in, c, r, session_reset, e);
}
