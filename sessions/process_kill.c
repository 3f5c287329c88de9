/*
 * Kill, signal and timeout of a process: always its whole tree, and what outlived it.
 */
#include "sessions/process.h"
#include "base/fd.h"
#include "base/log.h"
#include "sessions/cpu_time.h"
#include "sessions/sessions_internal.h"
#include "sessions/tree.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool add_root(void *context, pid_t pid)
{
    teardown_add_root(context, pid);
    return true;
}

static void collect(void *context, struct teardown *t)
{
    process_each_root(context, add_root, t);
}

/* Nothing ends it (state D): whoever waits for the end of an exec goes on without, as for that of a
 * session's shell. It is reaped when it can die. */
static void let_go_if_stuck(struct process *p)
{
    struct proc_stat st;
    if (!p->is_attached || !p->events || !p->is_decided || !p->child ||
        proc_stat_read(p->child->pid, &st) < 0 || st.state != 'D')
        return;
    outcome_decide(&p->outcome);
    snprintf(p->outcome.message, sizeof p->outcome.message,
             "it is still there, even after SIGKILL (state D): PID %d", (int)p->child->pid);
    child_forget(p->child);
    p->child = NULL;
}

static void on_torn_down(void *context, const struct teardown_report *report)
{
    struct process *p = context;
    struct list kills;
    children_sweep(); /* may collect its child: with the teardown still set p stays here */
    p->teardown = NULL;
    list_init(&kills);
    while (!list_is_empty(&p->kills)) {
        struct list *w = p->kills.next;
        list_remove(w);
        list_append(&kills, w);
    }
    let_go_if_stuck(p);
    bool was_running = p->state == PROCESS_STOPPING && !p->child;
    if (p->child) { /* a survivor: what the kernel refused stays listed as running (case G4) … */
        p->state = PROCESS_RUNNING;
        p->is_decided = false; /* … and its end, when it comes, is its own (case G5) */
    }
    process_tell_wishes(&kills, p, report);
    if (was_running)
        process_over(p);
    else
        process_free_if_unwanted(p);
}

void process_end_unbegun(struct process *p)
{
    static const struct teardown_report nothing;
    snprintf(p->outcome.message, sizeof p->outcome.message, "killed before it began");
    process_tell_wishes(&p->kills, p, &nothing);
    process_over(p);
}

static int begin_teardown(struct process *p, uint64_t grace_ms, struct error *e)
{
    CLEANUP_FD int cgroup_fd = cgroup_open(&p->cgroup);
    struct teardown_plan plan = {.loop = p->all->loop,
                                 .first_signal = SIGTERM,
                                 .grace_ms = grace_ms,
                                 .collect = collect,
                                 .on_done = on_torn_down,
                                 .context = p,
                                 .cgroup_fd = cgroup_fd};
    p->teardown = teardown_start(&plan, e);
    return p->teardown ? 0 : error_wrap(e, "process '%s'", p->id);
}

bool process_kill_leftovers(struct process *p)
{
    struct error e = {0};
    if (process_list_leftovers(p, NULL, 0) == 0)
        return false;
    if (begin_teardown(p, p->kill_grace_ms, &e) < 0) {
        LOG_ERR("leftovers", F_STR("id", p->id), F_STR("why", e.text));
        return false;
    }
    p->state = PROCESS_STOPPING;
    return true;
}

int process_kill(struct process *p, enum verdict verdict, uint64_t grace_ms,
                 struct process_wish *wish, struct error *e)
{
    if (p->teardown) {
        teardown_hurry(p->teardown, grace_ms);
        if (wish)
            list_append(&p->kills, &wish->link);
        return 0;
    }
    if (p->state == PROCESS_WAITING) {
        p->is_decided = true;
        p->outcome.verdict = verdict;
        p->outcome.status = STATUS_KILLED;
        if (wish)
            list_append(&p->kills, &wish->link);
        /* While the shell writes its state for it the lock is not free: on_dumped() goes on. */
        if (p->session->lock.holder != &p->lock) {
            lock_leave(&p->session->lock, &p->lock);
            p->session = NULL;
            process_end_unbegun(p);
        }
        return 0;
    }
    if (begin_teardown(p, grace_ms, e) < 0)
        return -1;
    if (p->state == PROCESS_RUNNING) {
        p->state = PROCESS_STOPPING;
        if (p->child || p->is_lingering) { /* else its end was its own: the sweep is awaited */
            p->is_decided = true;
            p->outcome.verdict = verdict;
            process_hang_up(p);
        }
        if (p->is_lingering)
            outcome_decide(&p->outcome);
    }
    if (wish)
        list_append(&p->kills, &wish->link);
    return 0;
}

int process_signal(struct process *p, int sig, struct error *e)
{
    struct tree t;
    if (tree_init(&t, e) < 0)
        return -1;
    t.parent = getpid();
    process_each_root(p, tree_add, &t);
    tree_grow(&t);
    int sent = tree_signal(&t, sig, e);
    tree_free(&t);
    if (sent < 0)
        return error_wrap(e, "process '%s'", p->id);
    if (sent == 0)
        return error_set(e, ERR_STATE, "process '%s' has already exited", p->id);
    return sent;
}

/* ---- its clocks ---- */

static void on_expired(void *owner, enum clock_kind kind)
{
    struct process *p = owner;
    struct error e = {0};
    p->outcome.clock = clock_kind_name(kind);
    if (process_kill(p, VERDICT_TIMEOUT, p->kill_grace_ms, NULL, &e) < 0)
        LOG_ERR("timeout", F_STR("id", p->id), F_STR("why", e.text));
}

static bool has_unread(void *owner)
{
    const struct process *p = owner;
    return capture_has_unread(&p->capture);
}

static uint64_t cpu_ms(void *owner)
{
    const struct process *p = owner;
    return p->child ? cpu_time_ms(cpu_time_of_tree(p->child->pid)) : 0;
}

const struct clocks_events process_clocks_events = {
    .on_expired = on_expired, .has_unread = has_unread, .cpu_ms = cpu_ms};
