/*
 * kill and kill-all. Both answer when what was to end has ended: the command has its status, the
 * tree of the process is gone or its survivors are known.
 */
#include "init/verb.h"
#include "base/number.h"
#include "sessions/command.h"
#include "sessions/process.h"
#include "sessions/run.h"
#include "sessions/session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- kill ---- */

/* A connection that waits for the end of what it killed. */
struct killer {
    struct process_wish process;
    struct command_wish command;
    struct stray_wish stray;
    struct conn *conn;
};

static void killer_answer(struct killer *k, const char *id, bool has_ended,
                          const struct teardown_report *report)
{
    struct record r = {0};
    record_str(&r, "id", id);
    answer_teardown(&r, report);
    record_str(&r, "state", has_ended ? "exited" : "running");
    conn_result(k->conn, &r);
    record_free(&r);
    free(k);
}

/* A process whose own PID is still there survived: it is listed as running again. */
static void on_process_killed(void *owner, struct process *p, const struct teardown_report *report)
{
    killer_answer(owner, process_id(p), process_pid(p) == 0, report);
}

static void on_command_killed(void *owner, const struct command *c,
                              const struct teardown_report *report)
{
    killer_answer(owner, command_id(c), true, report);
}

static void on_stray_killed(void *owner, pid_t pid, const struct teardown_report *report)
{
    char id[16];
    bool is_there = false;
    for (size_t i = 0; i < report->survivors_told; i++)
        is_there = is_there || report->survivors[i].pid == pid;
    snprintf(id, sizeof id, "%d", (int)pid);
    killer_answer(owner, id, !is_there, report);
}

static void on_killer_closed(void *owner)
{
    struct killer *k = owner;
    stray_wish_drop(&k->stray);
    process_wish_drop(&k->process);
    command_wish_drop(&k->command);
    free(k);
}

static const struct conn_events killer_events = {.on_closed = on_killer_closed};

static struct killer *killer_new(struct conn *c, struct error *e)
{
    struct killer *k = calloc(1, sizeof *k);
    if (!k) {
        error_set(e, ERR_MEMORY, "kill: no memory");
        return NULL;
    }
    k->conn = c;
    list_init(&k->process.link);
    list_init(&k->command.link);
    k->process.on_done = on_process_killed;
    k->command.on_done = on_command_killed;
    list_init(&k->stray.link);
    k->stray.on_done = on_stray_killed;
    k->process.owner = k->command.owner = k->stray.owner = k;
    conn_set_owner(c, &killer_events, k);
    return k;
}

/* There is nothing to wait for. */
static void killer_drop(struct killer *k)
{
    conn_set_owner(k->conn, NULL, NULL);
    free(k);
}

/* What a kill asks for. A signal alone is sent and nothing more; KILL, and TERM with a grace, are
 * the two that a teardown sends itself. */
struct wanted {
    uint64_t grace_ms;
    bool has_grace;
    int only_signal; /* 0: a teardown */
};

static int get_wanted(const struct request *r, struct wanted *w, struct error *e)
{
    int sig = 0;
    const char *name = request_get(r, "signal");
    if (verb_get_ms(r, "grace_ms", &w->grace_ms, &w->has_grace, e) < 0)
        return -1;
    if (name && signal_parse(name, &sig) < 0)
        return error_set(e, ERR_INVALID, "kill: unknown signal '%.20s'", name);
    if (sig == SIGKILL) {
        w->grace_ms = 0;
        w->has_grace = true;
    } else if (sig != SIGTERM || !w->has_grace) {
        w->only_signal = sig;
    }
    return 0;
}

static int answer_signalled(struct conn *c, const char *id, int sent)
{
    struct record r = {0};
    if (sent < 0)
        return -1;
    record_str(&r, "id", id);
    record_int(&r, "signalled", sent);
    conn_result(c, &r);
    record_free(&r);
    return 0;
}

static int kill_command(struct conn *c, struct command *k, const struct wanted *w, struct error *e)
{
    if (w->only_signal)
        return answer_signalled(c, command_id(k), command_signal(k, w->only_signal, e));
    struct killer *killer = killer_new(c, e);
    if (!killer)
        return -1;
    command_await(k, &killer->command);
    command_kill(k, VERDICT_KILLED_BY_CLIENT,
                 w->has_grace ? w->grace_ms : command_session(k)->kill_grace_ms);
    return 0;
}

static int answer_over(struct conn *c, const char *id)
{
    struct record r = {0};
    record_str(&r, "id", id);
    answer_teardown(&r, NULL);
    record_str(&r, "state", "exited");
    conn_result(c, &r);
    record_free(&r);
    return 0;
}

static bool is_over(const struct process *p)
{
    return process_state(p) == PROCESS_EXITED && process_list_strays(p, NULL, 0) == 0;
}

static int kill_process(struct conn *c, struct process *p, const struct wanted *w, struct error *e)
{
    if (w->only_signal)
        return answer_signalled(c, process_id(p), process_signal(p, w->only_signal, e));
    if (is_over(p) && process_terminal(p)) /* to close one twice is no mistake (case S7) */
        return answer_over(c, process_id(p));
    if (is_over(p))
        return error_set(e, ERR_STATE, "process '%s' has already exited", process_id(p));
    struct killer *killer = killer_new(c, e);
    if (!killer)
        return -1;
    if (process_kill(p, VERDICT_KILLED_BY_CLIENT,
                     w->has_grace ? w->grace_ms : process_kill_grace_ms(p), &killer->process,
                     e) == 0)
        return 0;
    killer_drop(killer);
    return -1;
}

static int kill_stray(struct init *in, struct conn *c, const char *text, const struct wanted *w,
                      struct error *e)
{
    uint64_t pid;
    if (number_parse_u64(text, INT32_MAX, &pid) < 0)
        return error_set(e, ERR_INVALID, "kill: stray '%.40s' is not a PID", text);
    if (w->only_signal)
        return answer_signalled(c, text,
                                stray_signal(&in->sessions, (pid_t)pid, w->only_signal, e));
    struct killer *killer = killer_new(c, e);
    if (!killer)
        return -1;
    uint64_t grace_ms = w->has_grace ? w->grace_ms : in->sessions.config->defaults.kill_grace_ms;
    if (stray_kill(&in->sessions, (pid_t)pid, grace_ms, &killer->stray, e) == 0)
        return 0;
    killer_drop(killer);
    return -1;
}

int verb_kill(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct wanted w = {0};
    const char *running = request_get(r, "running"), *stray = request_get(r, "stray");
    if (get_wanted(r, &w, e) < 0)
        return -1;
    if (stray)
        return kill_stray(in, c, stray, &w, e);
    if (running) {
        struct session *s = session_find(&in->sessions, running, e);
        if (!s)
            return -1;
        if (!s->running)
            return error_set(e, ERR_STATE, "session '%s': no command runs", running);
        return kill_command(c, s->running, &w, e);
    }
    const char *id = verb_required(r, "id", e);
    struct command *k = id ? command_find(&in->sessions, id) : NULL;
    if (k)
        return kill_command(c, k, &w, e);
    struct process *p = id ? process_find_remnant(&in->sessions, id) : NULL;
    if (id && !p && run_find(&in->sessions, id) && run_outcome(run_find(&in->sessions, id)))
        return error_set(e, ERR_STATE, "command '%s' has already exited", id);
    if (id && !p)
        p = verb_find_process(in, id, "stop", e);
    const char *kind = request_get(r, "kind");
    if (p && kind && strcmp(kind, "terminal") == 0 && !process_terminal(p))
        return error_set(e, ERR_NOT_FOUND, "terminal '%s': not found (it is no terminal)", id);
    return p ? kill_process(c, p, &w, e) : -1;
}

/* ---- kill-all ---- */

/* The connection, and a member for each process whose end it waits for. */
struct kill_all {
    struct conn *conn;
    const char *session; /* while the request is at hand */
    uint64_t grace_ms;
    bool has_grace;
    struct list members;
    struct record answer; /* survivors so far */
    size_t killed;
    unsigned processes;
    bool is_begun; /* all of them were told to end */
};

struct kill_all_member {
    struct list link;
    struct process_wish wish;
    struct kill_all *all;
};

static void kill_all_free(struct kill_all *k)
{
    list_each(m, &k->members, struct kill_all_member, link)
    {
        process_wish_drop(&m->wish);
        list_remove(&m->link);
        free(m);
    }
    record_free(&k->answer);
    free(k);
}

static void kill_all_finish_if_complete(struct kill_all *k)
{
    if (!k->is_begun || !list_is_empty(&k->members))
        return;
    record_int(&k->answer, "killed", (int64_t)k->killed);
    record_int(&k->answer, "processes", k->processes);
    conn_result(k->conn, &k->answer);
    kill_all_free(k);
}

static void on_member_killed(void *owner, struct process *p, const struct teardown_report *report)
{
    struct kill_all_member *m = owner;
    struct kill_all *k = m->all;
    (void)p;
    k->killed += report->ended;
    k->processes++;
    answer_survivors(&k->answer, report);
    list_remove(&m->link);
    free(m);
    kill_all_finish_if_complete(k);
}

static void kill_one(void *context, struct process *p)
{
    struct kill_all *k = context;
    struct error e;
    bool is_exec = process_is_attached(p) && !process_is_remnant(p) && !process_terminal(p);
    if (is_exec || is_over(p))
        return;
    if (k->session && strcmp(k->session, process_session(p)) != 0)
        return;
    struct kill_all_member *m = calloc(1, sizeof *m);
    if (m) {
        m->all = k;
        list_append(&k->members, &m->link);
        list_init(&m->wish.link);
        m->wish.on_done = on_member_killed;
        m->wish.owner = m;
    }
    uint64_t grace_ms = k->has_grace ? k->grace_ms : process_kill_grace_ms(p);
    if (process_kill(p, VERDICT_KILLED_BY_CLIENT, grace_ms, m ? &m->wish : NULL, &e) < 0 && m) {
        record_str(&k->answer, "survivors[]", e.text);
        list_remove(&m->link);
        free(m);
    }
}

static void on_kill_all_closed(void *owner)
{
    kill_all_free(owner);
}

static const struct conn_events kill_all_events = {.on_closed = on_kill_all_closed};

int verb_kill_all(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *session = request_get(r, "session");
    if (session && !session_find(&in->sessions, session, e))
        return -1;
    struct kill_all *k = calloc(1, sizeof *k);
    if (!k)
        return error_set(e, ERR_MEMORY, "kill-all: no memory");
    list_init(&k->members);
    if (verb_get_ms(r, "grace_ms", &k->grace_ms, &k->has_grace, e) < 0) {
        kill_all_free(k);
        return -1;
    }
    k->conn = c;
    k->session = session;
    conn_set_owner(c, &kill_all_events, k);
    processes_each(&in->sessions, kill_one, k);
    k->session = NULL;
    k->is_begun = true;
    kill_all_finish_if_complete(k);
    return 0;
}
