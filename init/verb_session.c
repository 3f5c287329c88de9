#include "init/verb.h"
#include "base/clock.h"
#include "base/head.h"
#include "base/number.h"
#include "base/quote.h"
#include "init/listing.h"
#include "sessions/command.h"
#include "sessions/events.h"
#include "sessions/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A user without a name (not in /etc/passwd, or init's own) is told by number. */
static const char *user_text(const struct user *u, char *buf, size_t size)
{
    if (u->name[0])
        return u->name;
    snprintf(buf, size, "%u", (unsigned)u->uid);
    return buf;
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
    for (size_t i = 0; i < s->env.count; i++)
        record_str(to, "env[]", s->env.items[i]);
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

/* ---- session.env ---- */

/* A change of variables: a set, and names to unset ("NAME\0NAME\0"). */
struct env_change {
    struct env_set set;
    struct strbuf unset;
    struct conn *conn;
    struct command *command; /* that carries it out in a session */
};

static void env_change_free(struct env_change *x)
{
    env_free(&x->set);
    strbuf_free(&x->unset);
    free(x);
}

static struct env_change *env_change_new(const struct request *r, struct conn *c, struct error *e)
{
    struct field f;
    size_t at = 0;
    struct env_change *x = calloc(1, sizeof *x);
    if (!x) {
        error_set(e, ERR_MEMORY, "session.env: no memory");
        return NULL;
    }
    x->conn = c;
    int rc = verb_get_env(r, &x->set, e);
    while (rc == 0 && record_next(r->args.data, r->args.len, &at, &f) > 0) {
        if (!field_is(&f, "unset"))
            continue;
        if (env_name_check(f.value, f.value_len) < 0)
            rc = error_set(e, ERR_INVALID, "env name '%.64s': want letters, digits and _", f.value);
        else if (strbuf_add(&x->unset, f.value, f.value_len + 1) < 0)
            rc = error_set(e, ERR_MEMORY, "session.env: no memory");
    }
    if (rc == 0)
        return x;
    env_change_free(x);
    return NULL;
}

/* In what a session's fresh shells begin with. */
static int env_change_apply(const struct env_change *x, struct env_set *to, struct error *e)
{
    const char *end = x->unset.data + x->unset.len;
    for (const char *name = x->unset.data; name < end; name += strlen(name) + 1)
        env_unset(to, name);
    return env_copy(to, &x->set, e);
}

/* For all sessions to come. */
static int env_change_apply_to_all(const struct env_change *x, struct sessions *all,
                                   struct error *e)
{
    const char *end = x->unset.data + x->unset.len;
    int rc = 0;
    for (const char *name = x->unset.data; name < end && rc == 0; name += strlen(name) + 1)
        rc = sessions_set_env(all, name, NULL, e);
    for (size_t i = 0; i < x->set.count && rc == 0; i++) {
        char *item = x->set.items[i], *sign = strchr(item, '=');
        *sign = '\0';
        rc = sessions_set_env(all, item, sign + 1, e);
        *sign = '=';
    }
    return rc;
}

/* As a text for the session's shell. One list: its status tells whether all of it was done. A
 * function called export or unset is not meant, nor one that has the name of a variable. */
static int env_change_text(const struct env_change *x, struct strbuf *text, struct error *e)
{
    int rc = 0;
    const char *end = x->unset.data + x->unset.len;
    for (const char *name = x->unset.data; name < end && rc == 0; name += strlen(name) + 1)
        rc = strbuf_addf(text, "\\command unset -v %s &&\n", name);
    for (size_t i = 0; i < x->set.count && rc == 0; i++) {
        const char *item = x->set.items[i], *value = strchr(item, '=') + 1;
        rc = strbuf_addf(text, "\\command export %.*s", (int)(value - item), item) |
             quote_sh(text, value, strlen(value)) | strbuf_adds(text, " &&\n");
    }
    if (rc < 0 || strbuf_adds(text, ":\n") < 0)
        return error_set(e, ERR_MEMORY, "session.env: no memory");
    return 0;
}

/* What the shell had to say, on one line: "dev: bash: R: readonly variable". */
static void explain_env_failure(const struct env_change *x, const struct outcome *o,
                                struct error *e)
{
    char said[256];
    size_t n = output_last_bytes(command_output(x->command), STREAM_STDERR, said, sizeof said - 1);
    while (n > 0 && said[n - 1] == '\n')
        n--;
    said[n] = '\0';
    const char *why = o->message[0] ? o->message : n ? said : verdict_name(o->verdict);
    error_set(e, ERR_STATE, "session '%s': its shell refused the change: %s",
              command_session(x->command)->name, why);
}

static void on_env_done(void *owner, const struct outcome *o)
{
    struct env_change *x = owner;
    struct record r = {0};
    struct error e = {0};
    bool is_done = o->verdict == VERDICT_EXITED && o->status == 0;
    if (!is_done)
        explain_env_failure(x, o, &e);
    else if (env_change_apply(x, &command_session(x->command)->env, &e) < 0)
        is_done = false;
    if (is_done)
        conn_result(x->conn, &r);
    else
        conn_fail(x->conn, &e);
    command_free(x->command);
    env_change_free(x);
}

static void on_env_closed(void *owner)
{
    struct env_change *x = owner;
    command_abandon(x->command);
    env_change_free(x);
}

static const struct command_events env_events = {.on_done = on_env_done};
static const struct conn_events env_conn_events = {.on_closed = on_env_closed};

int verb_session_env(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *name = request_get(r, "name");
    struct session *s = name ? session_find(&in->sessions, name, e) : NULL;
    struct command_request q = {.title = "(session env)"}; /* values may be secrets */
    struct env_change *x = name && !s ? NULL : env_change_new(r, c, e);
    if (!x)
        return -1;
    if (!s) {
        struct record done = {0};
        int rc = env_change_apply_to_all(x, &in->sessions, e);
        env_change_free(x);
        if (rc == 0)
            conn_result(c, &done);
        return rc;
    }
    q.limits = s->limits;
    if (env_change_text(x, &q.text, e) == 0)
        x->command = command_submit(s, &q, &env_events, x, e);
    strbuf_free(&q.text);
    if (!x->command) {
        env_change_free(x);
        return -1;
    }
    conn_set_owner(c, &env_conn_events, x);
    session_step(s);
    return 0;
}
