#include "sessions/run.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
    struct list link;
    struct sessions *all;
    char id[65];
    char session_name[65];
    uint64_t call;
    struct command *command; /* one of the two, until it is over */
    struct process *process;
    struct list viewers;
    unsigned holder_count;
    struct run_viewer *feeder; /* NULL: gone */
    bool had_feeder;
    bool is_kept, is_detached;
    bool has_started;
    bool is_telling; /* viewers are being told: it is not freed now */
    bool is_over;
    pid_t pid;
    struct strbuf text;    /* once it is over */
    struct output *output; /* likewise */
    struct outcome outcome;
};

const char *run_id(const struct run *r)
{
    return r->id;
}

const char *run_session(const struct run *r)
{
    return r->session_name;
}

const char *run_text(const struct run *r)
{
    return r->command   ? command_text(r->command)
           : r->process ? process_text(r->process)
                        : strbuf_text(&r->text);
}

bool run_has_started(const struct run *r)
{
    return r->has_started;
}

void run_tell_start(struct run *r)
{
    if (!r->has_started && r->process)
        process_tell_start(r->process);
}

bool run_is_waiting(const struct run *r)
{
    return r->command && command_state(r->command) == COMMAND_WAITING;
}

pid_t run_pid(const struct run *r)
{
    return r->pid;
}

struct output *run_output(const struct run *r)
{
    return r->command   ? command_output(r->command)
           : r->process ? process_output(r->process)
                        : r->output;
}

const struct outcome *run_outcome(const struct run *r)
{
    return r->is_over ? &r->outcome : NULL;
}

struct run *run_find(const struct sessions *all, const char *id)
{
    list_each(r, &all->runs, struct run, link) if (strcmp(r->id, id) == 0) return r;
    return NULL;
}

/* ---- its end ---- */

static void run_free(struct run *r)
{
    list_remove(&r->link);
    if (r->is_over && r->is_kept)
        r->all->run_kept--;
    output_free(r->output);
    strbuf_free(&r->text);
    free(r);
}

static void free_if_unwanted(struct run *r)
{
    if (r->is_over && !r->is_kept && !r->is_telling && list_is_empty(&r->viewers))
        run_free(r);
}

/* The oldest that nobody looks at go first. Kept outputs must not use up the descriptors that
 * sessions need. */
static void forget_oldest(struct sessions *all)
{
    bool are_few_left = fd_few_are_left(4 * SESSIONS_FD_RESERVE);
    list_each(r, &all->runs, struct run, link)
    {
        if (all->run_kept <= all->config->command_keep && !are_few_left)
            return;
        if (!r->is_over || !r->is_kept || r->is_telling || !list_is_empty(&r->viewers))
            continue;
        run_free(r);
        are_few_left = are_few_left && fd_few_are_left(4 * SESSIONS_FD_RESERVE);
    }
}

/* A viewer has left it: while it was looked at it could not be forgotten. */
static void leave_ended(struct run *r)
{
    struct sessions *all = r->all;
    free_if_unwanted(r);
    forget_oldest(all);
}

/* What ran gives its output away and is freed. */
static void take_over(struct run *r)
{
    if (r->command) {
        r->output = command_take_output(r->command, &r->text);
        command_free(r->command);
        r->command = NULL;
    } else {
        r->output = process_take_output(r->process, &r->text);
        process_leave(r->process);
        r->process = NULL;
    }
    output_end(r->output);
}

/* It waited longer than it would, or its client went meanwhile: nothing ran, its id is free. */
static bool has_left_queue(const struct run *r)
{
    bool is_abandoned = !r->has_started && !r->is_detached && r->holder_count == 0;
    return is_abandoned || outcome_is_busy(&r->outcome);
}

static void on_done(void *owner, const struct outcome *outcome)
{
    struct run *r = owner;
    struct sessions *all = r->all;
    r->outcome = *outcome;
    r->is_over = true;
    r->is_telling = true;
    r->is_kept = r->is_kept && !has_left_queue(r);
    take_over(r);
    if (r->is_kept) { /* the list's end is for the newest end */
        all->run_kept++;
        list_remove(&r->link);
        list_append(&all->runs, &r->link);
    }
    list_each(v, &r->viewers, struct run_viewer, link) if (v->events->on_done)
        v->events->on_done(v->owner);
    r->is_telling = false;
    free_if_unwanted(r);
    forget_oldest(all);
}

static void on_started(void *owner, pid_t pid)
{
    struct run *r = owner;
    r->has_started = true;
    r->pid = pid;
    if (!r->feeder) /* it has left while the command waited */
        run_close_stdin(r);
    list_each(v, &r->viewers, struct run_viewer, link) if (v->events->on_started)
        v->events->on_started(v->owner, pid);
}

static void on_stdin_ready(void *owner)
{
    const struct run *r = owner;
    if (r->feeder && r->feeder->events->on_stdin_ready)
        r->feeder->events->on_stdin_ready(r->feeder->owner);
}

static const struct command_events command_events = {
    .on_started = on_started, .on_stdin_ready = on_stdin_ready, .on_done = on_done};
static const struct process_events process_events = {
    .on_started = on_started, .on_stdin_ready = on_stdin_ready, .on_done = on_done};

/* ---- its beginning ---- */

int run_of_call(struct sessions *all, const struct run_call *call, struct run **run,
                struct error *e)
{
    *run = NULL;
    if (!call->id)
        return 0;
    if (name_check(call->id) < 0)
        return error_set(e, ERR_INVALID,
                         "id '%.80s': want 1 to 64 of A-Z a-z 0-9 _ . -, first a letter or digit",
                         call->id);
    *run = run_find(all, call->id);
    if (*run && !call->is_by_id && (*run)->call != call->number)
        return error_set(e, ERR_EXISTS,
                         "id '%s' belongs to another call (its text or argv, session, cwd, env or "
                         "stdin differs): choose another id",
                         call->id);
    if (!*run && process_find(all, call->id, NULL))
        return error_set(e, ERR_EXISTS, "id '%s' belongs to a process: choose another id",
                         call->id);
    return 0;
}

static struct run *run_new(struct sessions *all, const struct run_call *call, struct error *e)
{
    struct run *r = calloc(1, sizeof *r);
    if (!r) {
        error_set(e, ERR_MEMORY, "exec: no memory");
        return NULL;
    }
    r->all = all;
    r->call = call->number;
    r->is_detached = call->is_detached;
    r->is_kept = call->id || call->is_detached;
    list_init(&r->viewers);
    list_init(&r->link);
    return r;
}

static struct run *run_enter(struct run *r, const char *id)
{
    if (id != r->id)
        snprintf(r->id, sizeof r->id, "%s", id);
    list_append(&r->all->runs, &r->link);
    return r;
}

struct run *run_command(struct session *s, struct command_request *q, const struct run_call *call,
                        struct error *e)
{
    struct run *r = run_new(s->all, call, e);
    if (!r)
        return NULL;
    q->id = call->id;
    r->command = command_submit(s, q, &command_events, r, e);
    if (!r->command) {
        free(r);
        return NULL;
    }
    snprintf(r->session_name, sizeof r->session_name, "%s", s->name);
    return run_enter(r, command_id(r->command));
}

/* The kernel refused what it takes to begin (a process, a pipe, room in the runtime folder): that
 * is an answer, and the run is over. */
static struct run *run_failed(struct run *r, const struct run_call *call, const struct error *why)
{
    outcome_not_run(&r->outcome, "start", why->sys, why->text);
    r->is_over = true;
    forget_oldest(r->all);
    r->all->run_kept += r->is_kept;
    output_end(r->output);
    if (!call->id)
        sessions_make_up_id(r->all, 'p', r->id, sizeof r->id);
    return run_enter(r, call->id ? call->id : r->id);
}

struct run *run_process(struct sessions *all, struct process_request *q,
                        const struct run_call *call, struct error *e)
{
    struct run *r = run_new(all, call, e);
    if (!r)
        return NULL;
    q->id = call->id;
    q->is_attached = true;
    r->process = process_start(all, NULL, q, &process_events, r, e);
    if (r->process)
        return run_enter(r, process_id(r->process));
    if (e->sys && (r->output = output_new(0)))
        return run_failed(r, call, e);
    free(r);
    return NULL;
}

/* ---- viewers ---- */

void run_join(struct run *r, struct run_viewer *v)
{
    v->run = r;
    list_append(&r->viewers, &v->link);
    r->holder_count += v->is_holder;
    if (!r->had_feeder && v->is_holder) {
        r->feeder = v;
        r->had_feeder = true;
    }
}

int run_wait_with(const struct run *r, const struct lock_patience *patience, struct error *e)
{
    return r->command ? command_wait_with(r->command, patience, e) : 0;
}

void run_explain_wait(const struct run *r, uint64_t waited_ms, struct error *e)
{
    lock_explain(&command_session(r->command)->lock, waited_ms, e);
}

void run_leave(struct run_viewer *v)
{
    struct run *r = v->run;
    if (!r)
        return;
    v->run = NULL;
    list_remove(&v->link);
    r->holder_count -= v->is_holder;
    bool ends_stdin = r->feeder == v;
    if (ends_stdin)
        r->feeder = NULL;
    if (r->is_over)
        leave_ended(r);
    else if (v->is_holder && r->holder_count == 0 && !r->is_detached)
        run_kill(r, VERDICT_KILLED_BY_CLIENT);
    else if (ends_stdin)
        run_close_stdin(r);
}

void run_detach(struct run *r)
{
    if (!r->is_kept && r->is_over)
        r->all->run_kept++;
    r->is_detached = r->is_kept = true;
}

long run_write(struct run *r, const char *bytes, size_t n, struct error *e)
{
    if (r->is_over)
        return error_set(e, ERR_STATE, "%s is over", r->id);
    return r->command ? command_write(r->command, bytes, n, e)
                      : process_write(r->process, bytes, n, e);
}

void run_close_stdin(struct run *r)
{
    if (r->command)
        command_close_stdin(r->command);
    else if (r->process)
        (void)process_close_stdin(r->process); /* it does not wait for a session */
}

void run_kill(struct run *r, enum verdict verdict)
{
    struct error e = {0};
    if (r->command)
        command_kill(r->command, verdict, command_session(r->command)->kill_grace_ms);
    else if (r->process &&
             process_kill(r->process, verdict, process_kill_grace_ms(r->process), NULL, &e) < 0)
        LOG_ERR("kill", F_STR("id", r->id), F_STR("why", e.text));
}

/* ---- all of them ---- */

void runs_each_kept(const struct sessions *all, void (*each)(void *context, const struct run *r),
                    void *context)
{
    list_each(r, &all->runs, struct run, link) if (r->is_over && r->is_kept) each(context, r);
}

void runs_forget(struct sessions *all)
{
    list_each(r, &all->runs, struct run, link)
    {
        all->run_kept -= r->is_over && r->is_kept;
        r->is_kept = false;
        free_if_unwanted(r);
    }
}

void runs_free(struct sessions *all)
{
    list_each(r, &all->runs, struct run, link) run_free(r);
}
