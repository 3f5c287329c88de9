/*
 * start: a process in the background. The answer comes when its program runs, or when it is known
 * that it never will. The same call under the same id asks for the process that there is.
 */
#include "init/verb.h"
#include "sessions/process.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>

/* A connection that waits for the start. */
struct starter {
    struct process_wish wish;
    struct process *process; /* lives while the wish waits */
    struct conn *conn;
    struct ev_loop *loop;
    struct lock_patience patience; /* this client's own: others may wait for the same start */
    ev_timer impatience;
};

static void starter_free(struct starter *s)
{
    ev_timer_stop(s->loop, &s->impatience);
    free(s);
}

static void fail_start(struct conn *c, const struct process *p, const struct outcome *o)
{
    struct error e = {0};
    error_set(&e, outcome_is_busy(o) ? ERR_BUSY : ERR_SYSTEM, "start %s: %s", process_id(p),
              o->message);
    e.sys = o->sys;
    conn_fail(c, &e);
}

static void on_started(void *owner, struct process *p, const struct teardown_report *report)
{
    struct starter *s = owner;
    struct record r = {0};
    const struct outcome *o = process_outcome(p);
    (void)report;
    if (o && (process_first_pid(p) == 0 || o->verdict == VERDICT_SPAWN_FAILED)) {
        fail_start(s->conn, p, o);
    } else {
        record_str(&r, "id", process_id(p));
        record_int(&r, "pid", process_first_pid(p));
        conn_result(s->conn, &r);
    }
    record_free(&r);
    starter_free(s);
}

static void on_closed(void *owner)
{
    struct starter *s = owner;
    process_wish_drop(&s->wish);
    process_leave_queue(s->process);
    starter_free(s);
}

/* The lock refuses a start that nobody waits for any longer; this is for one that others wait for.
 */
static void on_impatient(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct starter *s = w->data;
    struct error e = {0};
    if (!process_explain_wait(s->process, s->patience.ms, &e))
        return;
    conn_fail(s->conn, &e);
    on_closed(s);
}

static void start_patience(struct starter *s)
{
    double seconds = s->patience.has_limit ? (double)s->patience.ms / 1000.0 : 0.;
    ev_timer_init(&s->impatience, on_impatient, seconds, 0.);
    s->impatience.data = s;
    if (seconds <= 0.)
        return;
    ev_now_update(s->loop);
    ev_timer_start(s->loop, &s->impatience);
}

static const struct conn_events conn_events = {.on_closed = on_closed};

/* The process of this id, if the same call has asked for it before: *p, or NULL. 0 or -1 with *e.
 */
static int find_started(struct init *in, const char *id, uint64_t call, struct process **p,
                        struct error *e)
{
    *p = id ? process_find(&in->sessions, id, NULL) : NULL;
    if (!*p || (!process_is_attached(*p) && process_call(*p) == call))
        return 0;
    return error_set(e, ERR_EXISTS,
                     "process '%s' already exists, and belongs to another call (its text or argv, "
                     "session, cwd, env or stdin differs): choose another id",
                     id);
}

static struct process *begin(struct init *in, struct session *s, struct request *r, uint64_t call,
                             struct error *e)
{
    const char **argv = NULL;
    struct env_set env = {0};
    struct process *p = NULL;
    struct process_request q = {.id = request_get(r, "id"),
                                .call = call,
                                .env = &env,
                                .cwd = request_get(r, "cwd"),
                                .has_stdin = request_get(r, "stdin") != NULL};
    if (verb_get_patience(r, &q.patience, e) == 0 && verb_get_argv(r, &argv, e) == 0 &&
        verb_get_env(r, &env, e) == 0) {
        q.argv = argv;
        if (!argv)
            q.text = request_take_text(r);
        p = process_start(&in->sessions, s, &q, NULL, NULL, e);
    }
    strbuf_free(&q.text);
    free(argv);
    env_free(&env);
    return p;
}

int verb_start(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *name = request_get(r, "session"), *id = request_get(r, "id");
    struct session *session = name ? session_find(&in->sessions, name, e) : NULL;
    struct process *p;
    uint64_t call = id ? verb_call_number(r) : 0;
    if (find_started(in, id, call, &p, e) < 0 || (name && !session && !p))
        return -1;
    bool is_new = p == NULL;
    struct starter *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(e, ERR_MEMORY, "start: no memory");
    if (verb_get_patience(r, &s->patience, e) < 0 ||
        (!is_new && process_wait_with(p, &s->patience, e) < 0)) {
        free(s);
        return -1;
    }
    if (is_new && !(p = begin(in, session, r, call, e))) {
        free(s);
        return -1;
    }
    s->conn = c;
    s->loop = in->loop;
    s->process = p;
    s->wish.on_done = on_started;
    s->wish.owner = s;
    conn_set_owner(c, &conn_events, s);
    start_patience(s);
    process_await_start(p, &s->wish);
    if (is_new && session)
        session_step(session);
    return 0;
}
