/*
 * A command from its request to its answer. How it begins and how it is killed stand in
 * command_begin.c and command_kill.c.
 */
#include "sessions/command.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "sessions/call.h"
#include "sessions/oom.h"
#include "sessions/sessions_internal.h"
#include "sessions/process.h"
#include "sessions/stray_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A shell that was interrupted has this long beyond the teardown of its tree to come back. */
#define RETURN_S 1.0
/* The interrupt is sent anew after this time, then after twice that, and so on. */
#define AGAIN_S 0.002

/* CPU time comes in ticks of 10 ms or so: of a shorter command there is nothing to tell, and its
 * answer need not wait for a look. */
#define USAGE_MIN_MS 2

/* Repetitions of its teardown after it is back. */
#define LATE_WALKS 3

const char *command_id(const struct command *c)
{
    return c->id;
}

struct session *command_session(const struct command *c)
{
    return c->session;
}

const char *command_text(const struct command *c)
{
    return strbuf_text(c->lock.text);
}

enum command_state command_state(const struct command *c)
{
    return c->state;
}

uint64_t command_since_ns(const struct command *c)
{
    return c->lock.since_ns;
}

struct output *command_output(const struct command *c)
{
    return c->output;
}

struct output *command_take_output(struct command *c, struct strbuf *text)
{
    struct output *o = c->output;
    strbuf_cut(&c->text, COMMAND_TEXT_SHOWN); /* a command that never ran still has it all */
    struct strbuf *shown = c->title.len ? &c->title : &c->text;
    *text = *shown;
    *shown = (struct strbuf){0};
    c->output = NULL;
    return o;
}

void command_free(struct command *c)
{
    if (!c)
        return;
    output_free(c->output);
    strbuf_free(&c->text);
    strbuf_free(&c->title);
    env_free(&c->env);
    free(c->cwd);
    free(c->cpu_older);
    free(c);
}

/* ---- stdin ---- */

static void on_stdin_ready(void *context)
{
    struct command *c = context;
    if (c->events && c->events->on_stdin_ready)
        c->events->on_stdin_ready(c->owner);
}

long command_write(struct command *c, const char *bytes, size_t n, struct error *e)
{
    if (c->state == COMMAND_WAITING)
        return 0;
    if (!feed_is_open(&c->stdin_feed))
        return error_set(e, ERR_STATE, "command %s: its stdin is closed", c->id);
    long k = feed_write(&c->stdin_feed, bytes, n);
    return k < 0 ? error_set_sys(e, errno, "command %s: write to its stdin", c->id) : k;
}

void command_close_stdin(struct command *c)
{
    feed_end(&c->stdin_feed);
}

/* ---- the end ---- */

static void stop_watching(struct command *c)
{
    struct ev_loop *loop = c->session->all->loop;
    clocks_stop(&c->clocks);
    ev_timer_stop(loop, &c->patience);
    ev_timer_stop(loop, &c->again);
    feed_close(&c->stdin_feed);
}

void command_tell_done(struct command *c)
{
    const struct session *s = c->session;
    const struct outcome *o = &c->outcome;
    enum verdict verdict = o->verdict;
    int status = o->status;
    uint64_t ms = o->duration_ms;
    char id[sizeof c->id];
    memcpy(id, c->id, sizeof id);
    s->all->command_count--;
    s->all->last_busy_ns = clock_mono_ns();
    c->state = COMMAND_DONE;
    if (!c->began_ns) /* there never was any output */
        c->outcome.is_drained = true;
    outcome_tell(EVENT_COMMAND, s->name, id, o);
    stray_watch(s->all->loop, s->name, id, o);
    while (!list_is_empty(&c->wishes)) {
        struct command_wish *w = list_entry(c->wishes.next, struct command_wish, link);
        list_remove(&w->link);
        w->on_done(w->owner, c, &c->torn_down.report);
    }
    if (c->events)
        c->events->on_done(c->owner, o);
    else
        command_free(c);
    /* The log may be a slow disk: the client need not wait for it. */
    LOG_INF("command_end", F_STR("session", s->name), F_STR("id", id),
            F_STR("verdict", verdict_name(verdict)), F_INT("status", status), F_INT("ms", ms));
}

static void take_rest_of_output(struct command *c)
{
    struct session *s = c->session;
    capture_drain(&c->capture);
    c->outcome.is_drained = !late_output_take(&s->all->late_outputs, &c->capture, s->name);
    s->has_dirty_fifos = s->has_dirty_fifos || !c->outcome.is_drained;
}

/* A session that is deleted, or ends with init, has no shell and no state any more to tell of; one
 * that is reset begins anew, whatever became of the shell that it had. */
static void judge_end_of_session(struct command *c)
{
    const struct session *s = c->session;
    struct outcome *o = &c->outcome;
    bool is_stopping = s->all->is_stopping;
    if (!s->teardown && !is_stopping)
        return;
    if (!is_stopping && s->ends_for_reset) {
        o->was_reset = o->shell_restarted;
        return;
    }
    if (is_stopping && o->shell_restarted && !o->message[0])
        snprintf(o->message, sizeof o->message, "init is stopping");
    o->shell_restarted = o->state_lost = o->was_interrupted = false;
    o->functions_lost = o->folder_lost = false;
}

/* Both the shell is back (or gone) and what had to be torn down is gone. */
static void finish(struct command *c)
{
    struct session *s = c->session;
    stop_watching(c);
    take_rest_of_output(c);
    c->outcome.shell_restarted = c->outcome.shell_restarted || c->poisons_shell;
    c->outcome.duration_ms = (clock_mono_ns() - c->began_ns) / 1000000u;
    oom_judge(&c->outcome, c->oom_before, c->is_decided, c->id);
    bool has_children = session_tell_new_strays(s, &c->outcome);
    if (c->outcome.duration_ms >= USAGE_MIN_MS)
        session_take_usage(s, &c->outcome);
    c->outcome.shell_restarted = c->outcome.shell_restarted || s->was_restarted;
    c->outcome.state_lost = c->outcome.state_lost || s->was_state_lost;
    c->outcome.functions_lost = s->were_functions_lost;
    c->outcome.folder_lost = c->outcome.state_lost && !s->last_cwd[0];
    s->was_restarted = s->was_state_lost = s->were_functions_lost = false;
    judge_end_of_session(c);
    if (has_children)
        session_note_children(s);
    else
        s->older_count = 0;
    if (c->poisons_shell) /* only now: its end takes its children to init */
        session_renew_shell(s);
    output_end(c->output);
    lock_leave(&s->lock, &c->lock);
    s->running = NULL;
    bool is_short = c->outcome.duration_ms < USAGE_MIN_MS;
    command_tell_done(c);
    if (is_short)
        session_take_usage(s, NULL);
    session_step(s);
}

/* A shell that is interrupted right before a fork still makes that child: the walk of the teardown
 * may have been before it, and is repeated once the shell is back, or gone. */
void command_finish_if_complete(struct command *c)
{
    struct error e = {0};
    if (!c->has_returned || c->teardown || c->look)
        return;
    if (c->state == COMMAND_KILLING && c->late_walks < LATE_WALKS && command_has_late_child(c)) {
        c->late_walks++;
        if (command_begin_teardown(c, c->session->kill_grace_ms, &e) == 0)
            return;
        LOG_ERR("teardown", F_STR("id", c->id), F_STR("why", e.text));
    }
    finish(c);
}

/* bash would run the text with the readonly value that there is: its driver's lines tell instead.
 */
void command_env_refused(struct command *c, const char *name)
{
    char message[128];
    snprintf(message, sizeof message, "env %.60s: readonly in the session", name);
    if (!c->is_decided)
        outcome_not_run(&c->outcome, "env", EPERM, message);
    c->has_returned = true;
    command_finish_if_complete(c);
}

/* The shell that this text may have broken wrote its state, and another takes over. */
static void on_poisoned_dumped(void *context, const struct error *e)
{
    struct command *c = context;
    c->poisons_shell = !e;
    c->has_returned = true;
    command_finish_if_complete(c);
}

void command_status_came(struct command *c, int status)
{
    if (!c->is_decided) {
        c->outcome.verdict = VERDICT_EXITED;
        c->outcome.status = status;
        /* 128+n is how a shell tells that its last command died by signal n. */
        if (status > 128 && status <= 128 + SIGRTMAX)
            c->outcome.signal = status - 128;
    }
    capture_drain(&c->capture);
    struct error e = {0};
    if (session_is_poisoned(c->session, status, c->output) &&
        session_dump(c->session, NULL, on_poisoned_dumped, c, &e) == 0)
        return;
    c->has_returned = true;
    command_finish_if_complete(c);
}

struct newer_look {
    const struct session *session;
    bool has_found;
};

static bool note_newer(void *context, pid_t pid)
{
    struct newer_look *look = context;
    struct proc_stat st;
    look->has_found = proc_stat_read(pid, &st) == 0 && !session_is_older(look->session, &st);
    return !look->has_found;
}

/* Its shell is gone. What the text started and left may still hold the FIFO; with nobody there who
 * has closed it in between is told by the second look. */
static bool has_begun(const struct command *c)
{
    struct newer_look look = {.session = c->session};
    if (!capture_is_untouched(&c->capture))
        return true;
    session_each_orphan(c->session, note_newer, &look);
    return look.has_found || !capture_is_untouched(&c->capture);
}

/* The shell ended between two texts (a child of the one before killed it, say) when the order was
 * on its way: the status is not this text's. */
static void tell_not_begun(struct command *c)
{
    char message[sizeof c->outcome.message], signal[16];
    const struct outcome *o = &c->outcome;
    if (o->signal)
        snprintf(message, sizeof message, "the session's shell ended before the text began: %s",
                 signal_name(o->signal, signal, sizeof signal));
    else
        snprintf(message, sizeof message,
                 "the session's shell ended before the text began, with status %d", o->status);
    outcome_not_run(&c->outcome, "shell", ECHILD, message);
    c->outcome.signal = 0;
}

void command_shell_ended(struct command *c, const struct child_exit *how, bool has_state)
{
    bool was_refused = command_drop_look(c); /* its folder, before it began: that stands */
    if (how && !was_refused) {
        outcome_of_exit(&c->outcome, how, c->is_decided);
        if (!c->is_decided && !has_begun(c))
            tell_not_begun(c);
    } else if (!was_refused && !c->is_decided) {
        c->outcome = (struct outcome){.verdict = VERDICT_SHELL_ENDED, .status = STATUS_KILLED};
    }
    if (c->outcome.has_usage)
        session_leave_usage(c->session, &c->outcome);
    if (how && c->shell_pid > 0 && c->session->shell.stuck_pid == c->shell_pid)
        snprintf(c->outcome.message, sizeof c->outcome.message,
                 "its shell is still there, even after SIGKILL (state D): PID %d",
                 (int)c->shell_pid);
    c->outcome.shell_restarted = true;
    c->outcome.state_lost = !has_state;
    c->has_returned = true;
    command_finish_if_complete(c);
}

void command_session_ends(struct command *c, const char *why)
{
    if (c->is_decided || c->has_returned)
        return;
    clocks_stop(&c->clocks);
    c->is_decided = true;
    c->outcome.verdict = VERDICT_KILLED_BY_CLIENT;
    c->outcome.status = STATUS_KILLED;
    snprintf(c->outcome.message, sizeof c->outcome.message, "%s", why);
}

void command_session_gone(struct command *c)
{
    if (c->teardown)
        teardown_cancel(c->teardown); /* the session's own has ended all of it */
    c->teardown = NULL;
    c->late_walks = LATE_WALKS; /* or told who cannot be ended */
    command_shell_ended(c, NULL, false);
}

void command_discard(struct command *c)
{
    stop_watching(c);
    command_drop_look(c);
    if (c->teardown)
        teardown_cancel(c->teardown);
    if (c->capture.output)
        capture_stop(&c->capture);
    command_free(c);
}

static void on_refused(void *owner, const struct error *why)
{
    struct command *c = owner;
    outcome_not_run(&c->outcome, why->code == ERR_BUSY ? STEP_QUEUE : "session", why->sys,
                    why->text);
    command_tell_done(c);
}

void command_refuse(struct command *c, const char *step, const struct error *why)
{
    struct session *s = c->session;
    stop_watching(c);
    if (c->capture.output)
        capture_stop(&c->capture);
    lock_leave(&s->lock, &c->lock);
    s->running = NULL;
    outcome_not_run(&c->outcome, step, why->sys, why->text);
    command_tell_done(c);
    session_step(s);
}

/* ---- the request ---- */

int command_wait_with(struct command *c, const struct lock_patience *patience, struct error *e)
{
    if (c->state != COMMAND_WAITING)
        return 0;
    if (patience->has_limit && patience->ms == 0)
        return lock_explain(&c->session->lock, 0, e);
    lock_extend(&c->lock, patience);
    return 0;
}

static size_t request_bytes(const struct command_request *q)
{
    return q->text.len + env_bytes(q->env) + (q->cwd ? strlen(q->cwd) : 0);
}

static int check_request(const struct session *s, const struct command_request *q, struct error *e)
{
    if (s->all->is_stopping)
        return error_set(e, ERR_UNAVAILABLE, "init is stopping");
    if (!q->is_first && session_check_queue(s, &q->patience, request_bytes(q), e) < 0)
        return -1;
    return call_check(&q->text, q->env, q->cwd, e);
}

struct command *command_submit(struct session *s, struct command_request *q,
                               const struct command_events *events, void *owner, struct error *e)
{
    if (check_request(s, q, e) < 0)
        return NULL;
    struct command *c = calloc(1, sizeof *c);
    if (!c) {
        error_set(e, ERR_MEMORY, "command: no memory");
        return NULL;
    }
    c->session = s;
    feed_init(&c->stdin_feed, s->all->loop, on_stdin_ready, c);
    list_init(&c->wishes);
    c->events = events;
    c->owner = owner;
    clocks_init(&c->clocks, s->all->loop, &q->limits, &command_clocks_events, c);
    c->has_stdin = q->has_stdin;
    c->output = output_new(s->output_keep);
    if (c->output)
        output_limit_age(c->output, s->all->loop, s->output_keep_age_ms);
    if (!c->output || (q->title && strbuf_adds(&c->title, q->title) < 0) ||
        (q->cwd && !(c->cwd = strdup(q->cwd))) || (q->env && env_copy(&c->env, q->env, e) < 0)) {
        error_set(e, ERR_MEMORY, "command: no memory");
        command_free(c);
        return NULL;
    }
    size_t bytes = request_bytes(q);
    c->text = q->text;
    q->text = (struct strbuf){0};
    if (q->id)
        snprintf(c->id, sizeof c->id, "%s", q->id);
    else
        sessions_make_up_id(s->all, 'c', c->id, sizeof c->id);
    ev_timer_init(&c->patience, command_on_impatient, 0., RETURN_S);
    ev_set_priority(&c->patience, EV_MINPRI); /* it may just have come back */
    ev_timer_init(&c->again, command_on_again, 0., AGAIN_S);
    c->patience.data = c->again.data = c;
    c->lock = (struct lock_request){.id = c->id,
                                    .kind = EVENT_COMMAND,
                                    .text = q->title ? &c->title : &c->text,
                                    .patience = q->patience,
                                    .bytes = bytes,
                                    .on_granted = command_on_granted,
                                    .on_refused = on_refused,
                                    .owner = c};
    s->all->command_count++;
    session_enqueue(s, &c->lock);
    if (q->is_first)
        lock_hurry(&s->lock, &c->lock);
    return c;
}

struct command *command_find(const struct sessions *all, const char *id)
{
    list_each(s, &all->sessions, struct session, link)
    {
        if (s->running && strcmp(s->running->id, id) == 0)
            return s->running;
        list_each(r, &s->lock.waiters, struct lock_request,
                  link) if (r->on_granted == command_on_granted &&
                            strcmp(r->id, id) == 0) return r->owner;
    }
    return NULL;
}
