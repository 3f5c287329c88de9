/*
 * purge: end every session, process, terminal and exec, and forget what is over, so that nothing of
 * who was here before is left. Configured sessions get a fresh shell; services and the main command
 * are not touched. What begins meanwhile stays.
 */
#include "init/verb.h"
#include "init/gateway.h"
#include "sessions/process.h"
#include "sessions/run.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>

/* The connection, and a member for each session and process whose end it waits for. */
struct purge {
    struct init *init;
    struct conn *conn;
    struct list members;
    struct record answer; /* survivors so far */
    size_t killed;
    unsigned sessions, processes;
    bool is_begun; /* all of them were told to end */
};

struct purge_member {
    struct list link;
    struct purge *purge;
    struct session_wish session;
    struct process_wish process;
};

static void member_free(struct purge_member *m)
{
    session_wish_drop(&m->session);
    process_wish_drop(&m->process);
    list_remove(&m->link);
    free(m);
}

static void purge_free(struct purge *p)
{
    list_each(m, &p->members, struct purge_member, link) member_free(m);
    record_free(&p->answer);
    free(p);
}

static void finish_if_complete(struct purge *p)
{
    if (!p->is_begun || !list_is_empty(&p->members))
        return;
    gateway_wake_helpers(p->init->gateway); /* nobody is left who would stop them again */
    record_int(&p->answer, "killed", (int64_t)p->killed);
    record_int(&p->answer, "sessions", p->sessions);
    record_int(&p->answer, "processes", p->processes);
    conn_result(p->conn, &p->answer);
    purge_free(p);
}

static void note(struct purge_member *m, const struct teardown_report *report)
{
    struct purge *p = m->purge;
    if (report) {
        p->killed += report->ended;
        answer_survivors(&p->answer, report);
    }
    member_free(m);
    finish_if_complete(p);
}

static void on_session_done(void *owner, const struct session *s,
                            const struct teardown_report *report, const struct error *e)
{
    (void)s;
    (void)e; /* a fresh shell that cannot be had is told when it is asked for */
    note(owner, report);
}

static void on_process_done(void *owner, struct process *p, const struct teardown_report *report)
{
    (void)p;
    note(owner, report);
}

static struct purge_member *member_new(struct purge *p)
{
    struct purge_member *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->purge = p;
    list_append(&p->members, &m->link);
    list_init(&m->session.link);
    list_init(&m->process.link);
    m->session.on_done = on_session_done;
    m->process.on_done = on_process_done;
    m->session.owner = m->process.owner = m;
    return m;
}

/* A reset lets those wait on who wait for the session. */
static void empty_queue(struct session *s)
{
    struct error why = {0};
    error_set(&why, ERR_STATE, "session '%s' was purged", s->name);
    session_refuse_waiters(s, &why);
}

static void end_session(struct purge *p, struct session *s)
{
    struct error e = {0};
    struct purge_member *m = member_new(p);
    struct session_wish *wish = m ? &m->session : NULL;
    p->sessions++;
    empty_queue(s);
    if ((s->is_configured ? session_reset(s, wish, &e) : session_delete(s, wish, &e)) == 0)
        return;
    record_str(&p->answer, "survivors[]", e.text);
    if (m)
        member_free(m);
}

static bool is_ended_with_its_session(const struct purge *p, const struct process *q)
{
    list_each(s, &p->init->sessions.sessions, struct session,
              link) if (strcmp(s->name, process_session(q)) == 0) return s->teardown != NULL;
    return false;
}

static void end_process(void *context, struct process *q)
{
    struct purge *p = context;
    struct error e = {0};
    bool is_over = process_state(q) == PROCESS_EXITED && process_list_strays(q, NULL, 0) == 0;
    if (is_over || is_ended_with_its_session(p, q))
        return;
    struct purge_member *m = member_new(p);
    p->processes++;
    if (process_kill(q, VERDICT_KILLED_BY_CLIENT, process_kill_grace_ms(q), m ? &m->process : NULL,
                     &e) == 0)
        return;
    record_str(&p->answer, "survivors[]", e.text);
    if (m)
        member_free(m);
}

static void on_closed(void *owner)
{
    purge_free(owner); /* what was told to end does so */
}

static const struct conn_events purge_events = {.on_closed = on_closed};

int verb_purge(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    (void)r;
    struct purge *p = calloc(1, sizeof *p);
    if (!p)
        return error_set(e, ERR_MEMORY, "purge: no memory");
    p->init = in;
    p->conn = c;
    list_init(&p->members);
    conn_set_owner(c, &purge_events, p);
    runs_forget(&in->sessions);
    processes_forget(&in->sessions);
    list_each(s, &in->sessions.sessions, struct session, link) end_session(p, s);
    processes_each(&in->sessions, end_process, p);
    p->is_begun = true;
    finish_if_complete(p);
    return 0;
}
