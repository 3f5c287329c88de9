/*
 * Kill and timeout of a command: the interrupt of its shell, the teardown of what it started, and
 * the patience with a shell that must come back.
 */
#include "sessions/command.h"
#include "base/log.h"
#include "sessions/sessions_internal.h"
#include "sessions/proc.h"
#include "sessions/process.h"
#include "sessions/tree.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MAX_S 0.128 /* between two interrupts of one shell, at most */
#define AGAIN_WALKS 4     /* while it is not back */

/* A shell that has had so much CPU could have come back. */
#define ENOUGH_CPU_US 500000
#define WAITS_MORE    10 /* of one command, each as long as its patience */

/* Walks what a command has started. */
struct tree_walk {
    const struct command *command;
    struct teardown *teardown; /* NULL: only look whether there is any */
    bool is_found;
};

/* Nothing ends it (state D): another teardown would tell the same, seconds later. */
static bool is_known_survivor(const struct command *c, pid_t pid)
{
    for (size_t i = 0; i < c->torn_down.report.survivors_told; i++)
        if (c->torn_down.survivors[i].pid == pid)
            return true;
    return false;
}

static bool take_child(void *context, pid_t pid)
{
    struct tree_walk *w = context;
    struct proc_stat st;
    if (proc_stat_read(pid, &st) < 0 || proc_stat_is_dead(&st) ||
        session_is_older(w->command->session, &st))
        return true;
    if (!w->teardown && is_known_survivor(w->command, pid))
        return true;
    w->is_found = true;
    if (w->teardown)
        teardown_add_root(w->teardown, pid);
    return w->teardown != NULL;
}

static bool on_orphan(void *context, pid_t pid)
{
    const struct tree_walk *w = context;
    return processes_own(w->command->session->all, pid) || take_child(context, pid);
}

/* The command's tree: the shell's children that were not there when it began; if that shell is
 * gone, those orphans of the session that are not older. */
static void walk_tree(struct tree_walk *w)
{
    const struct command *c = w->command;
    const struct session *s = c->session;
    if (s->shell.pid > 0 && s->shell.pid == c->shell_pid)
        proc_children(s->shell.pid, take_child, w);
    else
        session_each_orphan(s, on_orphan, w);
}

static void collect(void *context, struct teardown *t)
{
    struct tree_walk w = {.command = context, .teardown = t};
    walk_tree(&w);
}

/* What it has used itself. */
static uint64_t cpu_us(const struct proc_stat *s)
{
    return proc_ticks_us(s->user_ticks + s->system_ticks);
}

static void begin_patience(struct command *c)
{
    struct proc_stat s;
    c->patience_us = proc_stat_read(c->session->shell.pid, &s) < 0 ? 0 : cpu_us(&s);
    ev_timer_again(c->session->all->loop, &c->patience);
}

/* A shell that wants to run has not refused to come back before it had a CPU: on a busy machine it
 * may have waited for one all the time. */
static bool is_starved(struct command *c)
{
    struct proc_stat s;
    return proc_stat_read(c->session->shell.pid, &s) == 0 && s.state == 'R' &&
           cpu_us(&s) - c->patience_us < ENOUGH_CPU_US && c->waits_more++ < WAITS_MORE;
}

static void on_torn_down(void *context, const struct teardown_report *report)
{
    struct command *c = context;
    c->teardown = NULL;
    teardown_keep(&c->torn_down, report);
    if (!c->has_returned && !ev_is_active(&c->patience))
        begin_patience(c);
    command_finish_if_complete(c);
}

/* The shell cannot be brought back: it shall end, at best by itself and with its state written. */
static void give_up_shell(struct command *c, const char *why)
{
    struct session *s = c->session;
    ev_timer_stop(s->all->loop, &c->again);
    if (!c->was_asked_to_end && shell_ask_to_end(&s->shell)) {
        c->was_asked_to_end = true;
        begin_patience(c);
        return;
    }
    ev_timer_stop(s->all->loop, &c->patience);
    session_replace_shell(s, why);
}

void command_on_impatient(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct command *c = w->data;
    if (c->has_returned) /* the shell that is there now may be another one */
        ev_timer_stop(loop, w);
    else if (is_starved(c))
        ev_timer_again(loop, w);
    else
        give_up_shell(c, "it did not come back from an interrupt");
}

/* A shell that was interrupted right before a fork waits for a child that no walk has seen. It has
 * all its patience again after that one. */
static void end_late_child(struct command *c)
{
    struct error e = {0};
    if (c->teardown || c->walks_again == AGAIN_WALKS || !command_has_late_child(c))
        return;
    c->walks_again++;
    if (command_begin_teardown(c, c->session->kill_grace_ms, &e) == 0)
        ev_timer_stop(c->session->all->loop, &c->patience);
    else
        LOG_ERR("teardown", F_STR("id", c->id), F_STR("why", e.text));
}

/* The first signal may have come before the shell had begun the text, or have unwound no more than
 * a frame that the text itself had made (`command eval` in dash and ash). */
void command_on_again(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct command *c = w->data;
    if (c->has_returned || c->session->shell.pid != c->shell_pid ||
        !shell_interrupt(&c->session->shell)) {
        ev_timer_stop(loop, w);
        return;
    }
    end_late_child(c);
    w->repeat = w->repeat < AGAIN_MAX_S ? 2 * w->repeat : AGAIN_MAX_S;
    ev_timer_again(loop, w);
}

int command_begin_teardown(struct command *c, uint64_t grace_ms, struct error *e)
{
    struct teardown_plan plan = {.loop = c->session->all->loop,
                                 .first_signal = SIGTERM,
                                 .grace_ms = grace_ms,
                                 .collect = collect,
                                 .on_done = on_torn_down,
                                 .context = c,
                                 .cgroup_fd = -1};
    c->teardown = teardown_start(&plan, e);
    return c->teardown ? 0 : -1;
}

bool command_has_late_child(const struct command *c)
{
    struct tree_walk w = {.command = c};
    walk_tree(&w);
    return w.is_found;
}

static void begin_kill(struct command *c, uint64_t grace_ms)
{
    struct session *s = c->session;
    struct error e = {0};
    c->state = COMMAND_KILLING;
    clocks_stop(&c->clocks);
    c->outcome.was_interrupted = true;
    /* The signal comes first: the shell takes it before its next statement, so nothing that
     * follows the killed child in the text runs. */
    if (shell_interrupt(&s->shell))
        ev_timer_again(s->all->loop, &c->again);
    else
        give_up_shell(c, "its text took the interrupt trap away");
    if (command_begin_teardown(c, grace_ms, &e) < 0)
        LOG_ERR("teardown", F_STR("session", s->name), F_STR("id", c->id), F_STR("why", e.text));
    if (!c->teardown)
        begin_patience(c);
}

void command_kill(struct command *c, enum verdict verdict, uint64_t grace_ms)
{
    if (c->state == COMMAND_DONE || c->has_returned)
        return;
    if (c->state == COMMAND_KILLING) {
        if (c->teardown)
            teardown_hurry(c->teardown, grace_ms);
        return;
    }
    c->is_decided = true;
    c->outcome.verdict = verdict;
    c->outcome.status = verdict == VERDICT_TIMEOUT ? STATUS_TIMEOUT : STATUS_KILLED;
    if (c->state == COMMAND_WAITING) {
        struct session *s = c->session;
        bool is_holder = s->lock.holder == &c->lock;
        lock_leave(&s->lock, &c->lock);
        command_tell_done(c);
        if (is_holder)
            session_step(s);
        return;
    }
    begin_kill(c, grace_ms);
}

void command_await(struct command *c, struct command_wish *wish)
{
    list_append(&c->wishes, &wish->link);
}

void command_wish_drop(struct command_wish *w)
{
    if (w->link.next)
        list_remove(&w->link);
}

struct signal_walk {
    const struct session *session;
    struct tree tree;
};

static bool signal_child(void *context, pid_t pid)
{
    struct signal_walk *w = context;
    struct proc_stat st;
    if (proc_stat_read(pid, &st) < 0 || session_is_older(w->session, &st))
        return true;
    return tree_add(&w->tree, pid);
}

int command_signal(struct command *c, int sig, struct error *e)
{
    struct signal_walk w = {.session = c->session};
    if (tree_init(&w.tree, e) < 0)
        return -1;
    w.tree.parent = c->session->shell.pid;
    if (c->state != COMMAND_WAITING && c->session->shell.pid > 0)
        proc_children(c->session->shell.pid, signal_child, &w);
    tree_grow(&w.tree);
    int sent = tree_signal(&w.tree, sig, e);
    tree_free(&w.tree);
    if (sent < 0)
        return error_wrap(e, "command %s", c->id);
    if (sent == 0)
        return error_set(e, ERR_STATE, "command %s has no process that a signal could be sent to",
                         c->id);
    return sent;
}

void command_abandon(struct command *c)
{
    c->events = NULL;
    if (c->state == COMMAND_DONE)
        command_free(c);
    else
        command_kill(c, VERDICT_KILLED_BY_CLIENT, c->session->kill_grace_ms);
}
