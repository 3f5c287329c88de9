/*
 * A process: its record, its end, and who waits for it. How it starts and how it is killed stand in
 * process_start.c and process_kill.c.
 */
#include "sessions/process.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "sessions/events.h"
#include "sessions/oom.h"
#include "sessions/orphan.h"
#include "sessions/sessions_internal.h"
#include "sessions/stray_watch.h"
#include "sessions/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANG_UP_AGAIN_S 0.2 /* until the shell of a terminal has heard it */
#define KEPT_ANYWAY     8   /* ended ones, however few descriptors are left */

static const char *const state_names[] = {[PROCESS_WAITING] = "waiting",
                                          [PROCESS_RUNNING] = "running",
                                          [PROCESS_STOPPING] = "stopping",
                                          [PROCESS_EXITED] = "exited"};
_Static_assert(sizeof(state_names) / sizeof(state_names[0]) == PROCESS_STATE_COUNT, "all named");

const char *process_state_name(enum process_state s)
{
    return state_names[s];
}

const char *process_id(const struct process *p)
{
    return p->id;
}

const char *process_session(const struct process *p)
{
    return p->session_name;
}

const char *process_text(const struct process *p)
{
    return strbuf_text(&p->text);
}

enum process_state process_state(const struct process *p)
{
    return p->state;
}

bool process_is_attached(const struct process *p)
{
    return p->is_attached;
}

pid_t process_pid(const struct process *p)
{
    return p->child ? p->child->pid : 0;
}

pid_t process_first_pid(const struct process *p)
{
    return p->root_pid;
}

uint64_t process_call(const struct process *p)
{
    return p->call;
}

uint64_t process_began_ns(const struct process *p)
{
    return p->began_ns;
}

uint64_t process_kill_grace_ms(const struct process *p)
{
    return p->kill_grace_ms;
}

struct output *process_output(const struct process *p)
{
    return p->output;
}

/* What outlived it goes on writing, to nobody; a terminal hangs up. */
static void leave_output(struct process *p)
{
    if (p->capture.output && p->terminal)
        capture_stop(&p->capture);
    else if (p->capture.output)
        (void)late_output_take(&p->all->late_outputs, &p->capture, p->session_name);
}

struct output *process_take_output(struct process *p, struct strbuf *text)
{
    struct output *o = p->output;
    leave_output(p);
    *text = p->text;
    p->text = (struct strbuf){0};
    p->output = NULL;
    return o;
}

const struct outcome *process_outcome(const struct process *p)
{
    return p->state == PROCESS_EXITED ? &p->outcome : NULL;
}

struct process *process_find(struct sessions *all, const char *id, struct error *e)
{
    list_each(p, &all->processes, struct process,
              link) if (!p->is_remnant && strcmp(p->id, id) == 0) return p;
    error_set(e, ERR_NOT_FOUND, "process '%.80s': not found (see: sandboxctl ps)", id);
    return NULL;
}

struct process *process_find_shared(struct sessions *all, const struct session *s)
{
    list_each(p, &all->processes, struct process, link)
    {
        bool is_wanted = p->state == PROCESS_WAITING || p->state == PROCESS_RUNNING;
        if (p->is_shared && is_wanted && !p->is_decided && strcmp(p->session_name, s->name) == 0)
            return p;
    }
    return NULL;
}

/* ---- what belongs to it ---- */

bool process_owns_orphan(const struct process *p, const struct proc_stat *st)
{
    if (child_find(st->pid))
        return false;
    /* One that is being loaded while its parent ends shows no mark yet, and one may clear its
     * environment: then its session tells, whose number is nobody else's while it is in use. */
    bool is_led = p->root_pid > 0 && st->sid == p->root_pid &&
                  (p->child || st->start_ticks <= p->ended_ticks);
    return is_led || proc_environ_has(st->pid, p->mark) || cgroup_has(&p->cgroup, st->pid);
}

static bool owns_orphan(const void *owner, const struct proc_stat *st)
{
    return process_owns_orphan(owner, st);
}

void process_each_root(const struct process *p, bool (*each)(void *context, pid_t pid),
                       void *context)
{
    if (p->child)
        each(context, p->child->pid);
    orphans_each(owns_orphan, p, each, context);
}

size_t process_list_leftovers(const struct process *p, struct stray *to, size_t room)
{
    struct tree t;
    if (tree_init(&t, NULL) < 0)
        return 0;
    t.limit = STRAYS_MAX;
    member_release_pidfds(&t.set, 0); /* it is only looked at */
    t.parent = getpid();
    process_each_root(p, tree_add, &t);
    tree_grow(&t);
    size_t count = t.set.count;
    strays_describe(&t, to, room);
    tree_free(&t);
    return count;
}

struct terminal *process_terminal(const struct process *p)
{
    return p->terminal;
}

size_t process_list_strays(const struct process *p, struct stray *to, size_t room)
{
    return p->state == PROCESS_EXITED ? process_list_leftovers(p, to, room) : 0;
}

/* ---- its end ---- */

void process_free(struct process *p)
{
    if (p->link.next && !list_is_empty(&p->link))
        list_remove(&p->link);
    if (p->is_remnant)
        p->all->process_remnants--;
    clocks_stop(&p->clocks);
    ev_timer_stop(p->all->loop, &p->hang_up);
    feed_close(&p->stdin_feed);
    leave_output(p);
    if (p->teardown)
        teardown_cancel(p->teardown);
    if (p->child)
        child_forget(p->child);
    sweep_wish_drop(&p->swept);
    terminal_free(p->terminal);
    workdir_close(&p->dir, p->all->runtime);
    cgroup_remove(&p->cgroup);
    log_stream_leave(p->log, p->output);
    strbuf_free(&p->text);
    for (char **a = p->argv; a && *a; a++)
        free(*a);
    free(p->argv);
    env_free(&p->env);
    free(p->cwd);
    free(p->shell_path);
    free(p);
}

/* Ended processes stay listed up to a number; the oldest that nobody looks at goes first. Their
 * outputs must not use up the descriptors that sessions need. */
static void forget_oldest(struct sessions *all)
{
    if (all->is_walking) /* it could be the one that the walk comes to next */
        return;
    bool are_few_left = fd_few_are_left(4 * SESSIONS_FD_RESERVE);
    list_each(p, &all->processes, struct process, link)
    {
        if (all->process_ended <= all->config->process_keep &&
            (!are_few_left || all->process_ended <= KEPT_ANYWAY))
            return;
        if (p->state != PROCESS_EXITED || p->teardown || !list_is_empty(&p->kills) || p->events ||
            p->is_remnant)
            continue;
        all->process_ended--;
        process_free(p);
        are_few_left = are_few_left && fd_few_are_left(4 * SESSIONS_FD_RESERVE);
    }
}

void process_tell_wishes(struct list *wishes, struct process *p,
                         const struct teardown_report *report)
{
    while (!list_is_empty(wishes)) {
        struct process_wish *w = list_entry(wishes->next, struct process_wish, link);
        list_remove(&w->link);
        w->on_done(w->owner, p, report);
    }
}

void process_free_if_unwanted(struct process *p)
{
    if (!(p->is_attached || p->is_forgotten) || p->events || p->state != PROCESS_EXITED ||
        p->teardown || process_become_remnant(p))
        return;
    if (!p->is_remnant)
        p->all->process_ended--;
    process_free(p);
}

/* What has a client attached is an exec, a command to its user. */
static enum event_kind event_kind_of_process(const struct process *p)
{
    return p->terminal ? EVENT_TERMINAL : p->is_attached ? EVENT_COMMAND : EVENT_PROCESS;
}

void process_over(struct process *p)
{
    struct sessions *all = p->all;
    sweep_wish_drop(&p->swept);
    clocks_stop(&p->clocks);
    feed_close(&p->stdin_feed);
    if (p->terminal)
        terminal_end(p->terminal);
    if (p->capture.output)
        capture_drain(&p->capture);
    p->outcome.is_drained = !p->capture.output || capture_is_at_eof(&p->capture);
    output_end(p->output);
    log_stream_exited(p->log, p->outcome.status, verdict_name(p->outcome.verdict));
    if (!p->capture.output)
        log_stream_drained(p->log);
    if (p->began_ns)
        p->outcome.duration_ms = (clock_mono_ns() - p->began_ns) / 1000000u;
    if (p->began_ns)
        oom_judge(&p->outcome, p->oom_before, p->is_decided, p->id);
    p->outcome.stray_count = process_list_leftovers(p, p->outcome.strays, STRAYS_TOLD);
    if (p->outcome.stray_count == 0)
        cgroup_remove(&p->cgroup);
    if (p->terminal && p->capture.output)
        capture_stop(&p->capture); /* the hang-up, for whoever still holds it (case S8) */
    p->state = PROCESS_EXITED;
    all->process_live--;
    all->process_ended++;
    all->last_busy_ns = clock_mono_ns();
    outcome_tell(event_kind_of_process(p), p->session_name, p->id, &p->outcome);
    stray_watch(all->loop, p->session_name, p->id, &p->outcome);
    LOG_INF("process_end", F_STR("id", p->id), F_STR("session", p->session_name),
            F_STR("verdict", verdict_name(p->outcome.verdict)), F_INT("status", p->outcome.status),
            F_INT("ms", p->outcome.duration_ms));
    workdir_close(&p->dir, all->runtime); /* its script is read; the log is elsewhere */
    process_tell_wishes(&p->starts, p, NULL);
    process_tell_wishes(&p->waits, p, NULL);
    const struct process_events *events = p->events;
    if (events)
        events->on_done(p->owner, &p->outcome); /* may free it: process_leave() */
    else
        process_free_if_unwanted(p);
    forget_oldest(all);
}

static bool is_output_held(struct process *p)
{
    if (p->capture.output)
        capture_drain(&p->capture);
    return p->capture.output && !capture_is_at_eof(&p->capture);
}

static void on_swept(void *context)
{
    struct process *p = context;
    /* While it is torn down it is over only when all of it is gone (case F8). */
    if (p->teardown || (p->all->config->leftovers == LEFTOVERS_KILL && !p->all->is_stopping &&
                        process_kill_leftovers(p)))
        return;
    p->is_lingering = p->waits_for_output && !p->is_decided && is_output_held(p);
    if (!p->is_lingering)
        process_over(p);
}

void process_on_child_exit(void *context, const struct child_exit *how)
{
    struct process *p = context;
    p->ended_ticks = proc_ticks_now();
    p->child = NULL;
    ev_timer_stop(p->all->loop, &p->hang_up);
    outcome_of_exit(&p->outcome, how, p->is_decided);
    if (how->step && strcmp(how->step, "exec") == 0)
        snprintf(p->outcome.message, sizeof p->outcome.message, "%.200s: %s",
                 p->argv ? p->argv[0] : p->shell_path, child_exit_why(how));
    else if (how->step && strcmp(how->step, "cwd") == 0)
        snprintf(p->outcome.message, sizeof p->outcome.message, "cwd %.200s: %s",
                 p->cwd ? p->cwd : ".", strerror(how->sys));
    if (!p->waits_for_output)
        clocks_stop(&p->clocks);
    children_await_sweep(&p->swept, on_swept, p);
}

void process_on_exec(void *context)
{
    struct process *p = context;
    EVENT(event_kind_of_process(p), p->terminal ? "opened" : "started",
          F_STR("session", p->session_name), F_STR("id", p->id), F_INT("pid", process_pid(p)),
          F_STR("text", strbuf_text(&p->text)));
    p->has_executed = true;
    process_tell_wishes(&p->starts, p, NULL);
    if (p->events && p->events->on_started)
        p->events->on_started(p->owner, process_pid(p));
}

void process_tell_start(struct process *p)
{
    if (!p->has_executed && p->child)
        child_look_for_exec(p->child);
}

void process_on_capture_eof(void *context)
{
    struct process *p = context;
    capture_stop(&p->capture);
    log_stream_drained(p->log);
    if (p->is_lingering && !p->teardown)
        process_over(p);
}

void process_fail(struct process *p, const char *step, const struct error *why)
{
    outcome_not_run(&p->outcome, step, why->sys, why->text);
    process_over(p);
}

void process_leave(struct process *p)
{
    struct error e = {0};
    p->events = NULL;
    if (!p->is_attached)
        return;
    if (p->state == PROCESS_EXITED) {
        process_free_if_unwanted(p);
        return;
    }
    if (process_kill(p, VERDICT_KILLED_BY_CLIENT, p->kill_grace_ms, NULL, &e) < 0)
        LOG_ERR("kill", F_STR("id", p->id), F_STR("why", e.text));
}

static bool is_in_queue(const struct process *p)
{
    return p->state == PROCESS_WAITING && p->session && p->session->lock.holder != &p->lock;
}

int process_wait_with(struct process *p, const struct lock_patience *patience, struct error *e)
{
    if (!is_in_queue(p))
        return 0;
    if (patience->has_limit && patience->ms == 0)
        return lock_explain(&p->session->lock, 0, e);
    lock_extend(&p->lock, patience);
    return 0;
}

bool process_explain_wait(const struct process *p, uint64_t waited_ms, struct error *e)
{
    if (!is_in_queue(p))
        return false;
    lock_explain(&p->session->lock, waited_ms, e);
    return true;
}

bool process_leave_queue(struct process *p)
{
    if (!is_in_queue(p) || !list_is_empty(&p->starts))
        return false;
    p->is_forgotten = true;
    (void)process_kill(p, VERDICT_KILLED_BY_CLIENT, 0, NULL, NULL); /* waiting: it cannot fail */
    return true;
}

void process_await_start(struct process *p, struct process_wish *wish)
{
    list_init(&wish->link);
    if (p->state == PROCESS_EXITED || p->has_executed)
        wish->on_done(wish->owner, p, NULL);
    else
        list_append(&p->starts, &wish->link);
}

void process_wait(struct process *p, struct process_wish *wish)
{
    list_init(&wish->link);
    if (p->state == PROCESS_EXITED)
        wish->on_done(wish->owner, p, NULL);
    else
        list_append(&p->waits, &wish->link);
}

void process_wish_drop(struct process_wish *w)
{
    if (w->link.next)
        list_remove(&w->link);
}

/* A shell that is about to read a line forgets the first one (seen in bash): it is told again. */
static void on_hang_up(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct process *p = w->data;
    if (p->child)
        (void)child_signal(p->child, SIGHUP);
    else
        ev_timer_stop(loop, w);
}

void process_hang_up(struct process *p)
{
    if (!p->terminal || !p->child)
        return;
    (void)child_signal(p->child, SIGHUP);
    if (ev_is_active(&p->hang_up))
        return;
    ev_timer_init(&p->hang_up, on_hang_up, 0., HANG_UP_AGAIN_S);
    p->hang_up.data = p;
    ev_timer_again(p->all->loop, &p->hang_up);
}

/* ---- stdin ---- */

void process_on_stdin_ready(void *context)
{
    struct process *p = context;
    if (p->terminal)
        terminal_tell_room(p->terminal);
    if (p->events && p->events->on_stdin_ready)
        p->events->on_stdin_ready(p->owner);
}

long process_write(struct process *p, const char *bytes, size_t n, struct error *e)
{
    if (p->state == PROCESS_WAITING)
        return 0;
    if (p->state == PROCESS_EXITED && p->terminal)
        return error_set(e, ERR_STATE, "terminal '%s': has exited (%d)", p->id, p->outcome.status);
    if (p->state == PROCESS_EXITED)
        return error_set(e, ERR_STATE, "process '%s' has already exited", p->id);
    if (!feed_is_open(&p->stdin_feed))
        return error_set(e, ERR_STATE, "process '%s': its stdin is %s", p->id,
                         p->has_stdin ? "closed" : "/dev/null (start it with --stdin)");
    long k = feed_write(&p->stdin_feed, bytes, n);
    return k < 0 ? error_set_sys(e, errno, "process '%s': write to its stdin", p->id) : k;
}

bool process_close_stdin(struct process *p)
{
    if (p->state == PROCESS_WAITING)
        return false;
    if (p->terminal)
        terminal_type_eof(p->terminal);
    else
        feed_end(&p->stdin_feed);
    return true;
}

/* ---- all of them ---- */

void processes_each_of(struct sessions *all, const struct session *s,
                       bool (*each)(void *context, pid_t pid), void *context)
{
    list_each(p, &all->processes, struct process,
              link) if (!s || strcmp(p->session_name, s->name) == 0)
        process_each_root(p, each, context);
}

void processes_session_ends(struct sessions *all, const struct session *s, const char *why)
{
    list_each(p, &all->processes, struct process, link)
    {
        if (p->state != PROCESS_RUNNING || strcmp(p->session_name, s->name) != 0)
            continue;
        p->is_decided = true;
        process_hang_up(p);
        p->outcome.verdict = VERDICT_KILLED_BY_CLIENT;
        snprintf(p->outcome.message, sizeof p->outcome.message, "%s", why);
    }
}

bool processes_own(const struct sessions *all, pid_t pid)
{
    struct proc_stat st;
    if (list_is_empty(&all->processes) || proc_stat_read(pid, &st) < 0)
        return false;
    list_each(p, &all->processes, struct process,
              link) if (process_owns_orphan(p, &st)) return true;
    return false;
}

void processes_each(struct sessions *all, void (*each)(void *context, struct process *p),
                    void *context)
{
    all->is_walking = true;
    list_each(p, &all->processes, struct process, link) each(context, p);
    all->is_walking = false;
    forget_oldest(all);
}

unsigned processes_count_terminals(const struct sessions *all)
{
    unsigned n = 0;
    list_each(p, &all->processes, struct process, link) n +=
        p->terminal && p->state != PROCESS_EXITED;
    return n;
}

void processes_stop(struct sessions *all)
{
    list_each(p, &all->processes, struct process, link) process_hang_up(p);
}

void processes_forget(struct sessions *all)
{
    list_each(p, &all->processes, struct process, link)
    {
        p->is_forgotten = true;
        if (p->state != PROCESS_EXITED || p->teardown || !list_is_empty(&p->kills) || p->events ||
            p->is_remnant || process_list_leftovers(p, NULL, 0) > 0)
            continue;
        all->process_ended--;
        process_free(p);
    }
}

void processes_free(struct sessions *all)
{
    list_each(p, &all->processes, struct process, link) process_free(p);
}
