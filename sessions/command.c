#include "sessions/command.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/number.h"
#include "base/quote.h"
#include "sessions/proc.h"
#include "sessions/process.h"
#include "sessions/tree_signal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/wait.h>
#include <unistd.h>

/* A shell that was interrupted has this long beyond the teardown of its tree to come back. */
#define RETURN_S 1.0

/* Repetitions of its teardown after it is back. */
#define LATE_WALKS 3

/* How soon, and at the latest, a stdin that has ended is closed for a shell that is late. */
#define STDIN_END_S     0.001
#define STDIN_END_MAX_S 5.0

#define COMMAND_SURVIVORS_MAX 4 /* that are told of */

struct command {
    char id[24];
    struct session *session;
    enum command_state state;
    struct lock_request lock;
    const struct command_events *events; /* NULL: abandoned */
    void *owner;

    struct strbuf text;
    struct env_set env;
    char *cwd;
    uint64_t timeout_ms;
    bool has_stdin;

    struct output *output;
    struct capture capture;
    int stdin_fd;     /* write end of the FIFO "in", or -1 */
    int stdin_keeper; /* both ends of it: no open waits and no write fails while the shell is late */
    ev_io stdin_io;
    ev_timer stdin_end; /* until the shell has opened it, so that it may be closed */
    ev_timer timeout;
    ev_timer patience; /* KILLING: until the shell must be back */
    struct teardown *teardown;
    struct teardown_report report; /* of the teardown that was */
    struct teardown_survivor survivors[COMMAND_SURVIVORS_MAX];
    struct list wishes; /* struct command_wish */
    uint64_t began_ns;
    struct outcome outcome;
    unsigned late_walks;
    pid_t shell_pid; /* of the shell that runs it */
    uint64_t began_ticks;
    bool is_decided;   /* timeout or kill: the verdict stands */
    bool has_returned; /* the status came, or the shell ended */
    bool poisons_shell; /* its shell must not run another text */
};

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
    return strbuf_text(&c->text);
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

void command_free(struct command *c)
{
    if (!c)
        return;
    output_free(c->output);
    strbuf_free(&c->text);
    env_free(&c->env);
    free(c->cwd);
    free(c);
}

/* ---- stdin ---- */

static void on_stdin_writable(struct ev_loop *loop, ev_io *w, int events)
{
    (void)events;
    struct command *c = w->data;
    ev_io_stop(loop, w);
    if (c->events && c->events->on_stdin_ready)
        c->events->on_stdin_ready(c->owner);
}

long command_write(struct command *c, const char *bytes, size_t n, struct error *e)
{
    if (c->state == COMMAND_WAITING)
        return 0;
    if (c->stdin_fd < 0)
        return error_set(e, ERR_STATE, "command %s: its stdin is closed", c->id);
    ssize_t k = write(c->stdin_fd, bytes, n);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        k = 0;
    if (k < 0)
        return error_set_sys(e, errno, "command %s: write to its stdin", c->id);
    if ((size_t)k < n)
        ev_io_start(c->session->all->loop, &c->stdin_io);
    return k;
}

static void drop_stdin(struct command *c)
{
    ev_timer_stop(c->session->all->loop, &c->stdin_end);
    if (c->stdin_fd >= 0)
        ev_io_stop(c->session->all->loop, &c->stdin_io);
    fd_close(&c->stdin_fd);
    fd_close(&c->stdin_keeper);
}

/* A writer of a pipe that nobody reads polls POLLERR: the shell has not opened it yet. Closing now
 * would leave its open(2) waiting for a writer for ever. */
static void on_stdin_end(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct command *c = w->data;
    struct pollfd p = {.fd = c->stdin_fd};
    if (poll(&p, 1, 0) == 1 && (p.revents & POLLERR) && w->repeat < STDIN_END_MAX_S) {
        w->repeat *= 2;
        ev_timer_again(loop, w);
        return;
    }
    drop_stdin(c);
}

void command_close_stdin(struct command *c)
{
    if (c->stdin_fd < 0)
        return;
    fd_close(&c->stdin_keeper);
    c->stdin_end.repeat = STDIN_END_S;
    on_stdin_end(c->session->all->loop, &c->stdin_end, 0);
}

/* ---- the end ---- */

static void stop_watching(struct command *c)
{
    struct ev_loop *loop = c->session->all->loop;
    ev_timer_stop(loop, &c->timeout);
    ev_timer_stop(loop, &c->patience);
    drop_stdin(c);
}

static bool add_stray(void *context, pid_t pid)
{
    struct outcome *o = context;
    struct proc_stat st;
    if (proc_stat_read(pid, &st) < 0 || st.state == 'Z' || st.state == 'X')
        return true;
    if (o->stray_count < STRAYS_TOLD) {
        struct stray *stray = &o->strays[o->stray_count];
        stray->pid = pid;
        snprintf(stray->comm, sizeof stray->comm, "%s", st.comm);
    }
    o->stray_count++;
    return true;
}

/* Hand the answer to the owner; nothing of the command may be touched afterwards. */
static void tell_done(struct command *c)
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
    while (!list_is_empty(&c->wishes)) {
        struct command_wish *w = list_entry(c->wishes.next, struct command_wish, link);
        list_remove(&w->link);
        w->on_done(w->owner, c, &c->report);
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
    if (capture_is_at_eof(&c->capture))
        capture_stop(&c->capture);
    else
        session_keep_leftover(s, &c->capture);
}

/* Both the shell is back (or gone) and what had to be torn down is gone. */
static void finish(struct command *c)
{
    struct session *s = c->session;
    stop_watching(c);
    take_rest_of_output(c);
    if (c->poisons_shell) {
        c->outcome.shell_restarted = true;
        session_renew_shell(s);
    }
    c->outcome.duration_ms = (clock_mono_ns() - c->began_ns) / 1000000u;
    session_note_children(s);
    for (size_t i = 0; i < s->older_count; i++)
        add_stray(&c->outcome, s->older[i]);
    output_end(c->output);
    lock_leave(&s->lock, &c->lock);
    s->running = NULL;
    tell_done(c);
    session_step(s);
}

static bool has_late_child(const struct command *c);
static int begin_teardown(struct command *c, uint64_t grace_ms, struct error *e);

/* A shell that is interrupted right before a fork still makes that child: the walk of the teardown
 * may have been before it, and is repeated once the shell is back, or gone. */
static void finish_if_complete(struct command *c)
{
    struct error e = {0};
    if (!c->has_returned || c->teardown)
        return;
    if (c->state == COMMAND_KILLING && c->late_walks < LATE_WALKS && has_late_child(c)) {
        c->late_walks++;
        if (begin_teardown(c, c->session->kill_grace_ms, &e) == 0)
            return;
        LOG_ERR("teardown", F_STR("id", c->id), F_STR("why", e.text));
    }
    finish(c);
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
    c->has_returned = true;
    capture_drain(&c->capture);
    c->poisons_shell = session_is_poisoned(c->session, status, c->output);
    finish_if_complete(c);
}

void command_shell_ended(struct command *c, const struct child_exit *how, bool has_state)
{
    if (how)
        outcome_of_exit(&c->outcome, how, c->is_decided);
    else if (!c->is_decided)
        c->outcome = (struct outcome){.verdict = VERDICT_SHELL_ENDED, .status = STATUS_KILLED};
    c->outcome.has_usage = false; /* the shell's, not the command's */
    c->outcome.shell_restarted = true;
    c->outcome.state_lost = !has_state;
    c->has_returned = true;
    finish_if_complete(c);
}

void command_session_ends(struct command *c, const char *why)
{
    if (c->is_decided || c->has_returned)
        return;
    ev_timer_stop(c->session->all->loop, &c->timeout);
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
    command_shell_ended(c, NULL, false);
}

void command_discard(struct command *c)
{
    stop_watching(c);
    if (c->teardown)
        teardown_cancel(c->teardown);
    if (c->capture.output)
        capture_stop(&c->capture);
    command_free(c);
}

/* Why the session's user cannot enter a folder: asked with that user's identity on the file system
 * (setfsuid(2)), relative to where its shell is. */
static int why_not_enter(const struct command *c)
{
    const struct session *s = c->session;
    char path[PATH_MAX];
    if (c->cwd[0] == '/')
        snprintf(path, sizeof path, "%s", c->cwd);
    else
        snprintf(path, sizeof path, "/proc/%d/cwd/%s", (int)s->shell.pid, c->cwd);
    if (s->has_user) {
        setfsgid(s->user.gid);
        setfsuid(s->user.uid);
    }
    /* "/." asks for the right to search the folder, not only to find it. */
    size_t n = strlen(path);
    if (n + 3 < sizeof path)
        memcpy(path + n, "/.", 3);
    CLEANUP_FD int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int why = fd < 0 ? errno : EACCES;
    if (s->has_user) {
        setfsuid(geteuid());
        setfsgid(getegid());
    }
    return why;
}

void command_cwd_refused(struct command *c)
{
    char message[256];
    if (!c->cwd) {
        command_status_came(c, STATUS_NOT_RUN); /* the text wrote to the status FIFO itself */
        return;
    }
    int why = why_not_enter(c);
    snprintf(message, sizeof message, "cwd %.160s: %s", c->cwd, strerror(why));
    if (!c->is_decided)
        outcome_not_run(&c->outcome, "cwd", why, message);
    c->has_returned = true;
    finish_if_complete(c);
}

static void on_refused(void *owner, const struct error *why)
{
    struct command *c = owner;
    outcome_not_run(&c->outcome, "session", why->sys, why->text);
    tell_done(c);
}

/* It never ran though it holds the lock: give it back and say why. */
static void refuse(struct command *c, const char *step, const struct error *why)
{
    struct session *s = c->session;
    stop_watching(c);
    if (c->capture.output)
        capture_stop(&c->capture);
    lock_leave(&s->lock, &c->lock);
    s->running = NULL;
    outcome_not_run(&c->outcome, step, why->sys, why->text);
    tell_done(c);
    session_step(s);
}

/* ---- kill and timeout ---- */

static bool is_older(const struct session *s, pid_t pid)
{
    for (size_t i = 0; i < s->older_count; i++)
        if (s->older[i] == pid)
            return true;
    return false;
}

/* Walks what a command has started. */
struct tree_walk {
    const struct command *command;
    struct teardown *teardown; /* NULL: only look whether there is any */
    bool is_found;
};

static bool take_child(struct tree_walk *w, pid_t pid, uint64_t since_ticks)
{
    struct proc_stat st;
    if (proc_stat_read(pid, &st) < 0 || proc_stat_is_dead(&st) || st.start_ticks < since_ticks)
        return true;
    w->is_found = true;
    if (w->teardown)
        teardown_add_root(w->teardown, pid);
    return w->teardown != NULL;
}

static bool on_shell_child(void *context, pid_t pid)
{
    struct tree_walk *w = context;
    return is_older(w->command->session, pid) || take_child(w, pid, 0);
}

static bool on_orphan(void *context, pid_t pid)
{
    struct tree_walk *w = context;
    return processes_own(w->command->session->all, pid) ||
           take_child(w, pid, w->command->began_ticks);
}

/* The command's tree: the shell's children that were not there when it began; if that shell is gone,
 * those orphans of the session that are not older. */
static void walk_tree(struct tree_walk *w)
{
    const struct command *c = w->command;
    const struct session *s = c->session;
    if (s->shell.pid > 0 && s->shell.pid == c->shell_pid)
        proc_children(s->shell.pid, on_shell_child, w);
    else
        session_each_orphan(s, on_orphan, w);
}

static void collect(void *context, struct teardown *t)
{
    struct tree_walk w = {.command = context, .teardown = t};
    walk_tree(&w);
}

static void on_torn_down(void *context, const struct teardown_report *report)
{
    struct command *c = context;
    c->teardown = NULL;
    c->report = *report;
    c->report.survivors = c->survivors;
    if (c->report.survivors_told > COMMAND_SURVIVORS_MAX)
        c->report.survivors_told = COMMAND_SURVIVORS_MAX;
    if (c->report.survivors_told)
        memcpy(c->survivors, report->survivors, c->report.survivors_told * sizeof c->survivors[0]);
    if (!c->has_returned && !ev_is_active(&c->patience))
        ev_timer_again(c->session->all->loop, &c->patience);
    finish_if_complete(c);
}

static void on_impatient(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct command *c = w->data;
    ev_timer_stop(loop, w);
    session_replace_shell(c->session, "it did not come back from an interrupt");
}

static int begin_teardown(struct command *c, uint64_t grace_ms, struct error *e)
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

static bool has_late_child(const struct command *c)
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
    /* The signal comes first: the shell takes it before its next statement, so nothing that
     * follows the killed child in the text runs. */
    bool listens = shell_interrupt(&s->shell);
    if (begin_teardown(c, grace_ms, &e) < 0)
        LOG_ERR("teardown", F_STR("session", s->name), F_STR("id", c->id), F_STR("why", e.text));
    if (!listens)
        session_replace_shell(s, "its text took the interrupt trap away");
    else if (!c->teardown)
        ev_timer_again(s->all->loop, &c->patience);
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
        tell_done(c);
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
    struct tree_signal set;
};

static bool signal_child(void *context, pid_t pid)
{
    struct signal_walk *w = context;
    return is_older(w->session, pid) || tree_signal_add(&w->set, pid);
}

int command_signal(struct command *c, int sig, struct error *e)
{
    struct signal_walk w = {.session = c->session};
    if (tree_signal_init(&w.set, e) < 0)
        return -1;
    if (c->state != COMMAND_WAITING && c->session->shell.pid > 0)
        proc_children(c->session->shell.pid, signal_child, &w);
    int sent = tree_signal_send(&w.set, sig, e);
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

static void on_timeout(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct command *c = w->data;
    ev_timer_stop(loop, w);
    command_kill(c, VERDICT_TIMEOUT, c->session->kill_grace_ms);
}

/* ---- the beginning ---- */

/* stdin asked for: a FIFO of its own; its end of file is our close. */
static int open_stdin(struct command *c, struct error *e)
{
    struct session *s = c->session;
    c->stdin_keeper = workdir_fifo(&s->dir, "in", s->has_user ? &s->user : NULL, e);
    if (c->stdin_keeper < 0)
        return -1;
    c->stdin_fd = openat(s->dir.fd, "in", O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (c->stdin_fd < 0)
        return error_set_sys(e, errno, "%s/in", s->dir.path);
    ev_io_init(&c->stdin_io, on_stdin_writable, c->stdin_fd, EV_WRITE);
    c->stdin_io.data = c;
    return 0;
}

/* The file "go": change to the call's folder, or tell (flag "!") that it cannot be. */
static int write_go(struct command *c, struct error *e)
{
    struct session *s = c->session;
    CLEANUP_STRBUF struct strbuf go = {0};
    const char *dir = s->dir.path;
    /* "./" keeps CDPATH and a leading "-" out of it. */
    CLEANUP_STRBUF struct strbuf path = {0};
    if ((c->cwd[0] != '/' && strbuf_adds(&path, "./") < 0) || strbuf_adds(&path, c->cwd) < 0 ||
        strbuf_adds(&go, "\\command cd -- ") < 0 || quote_sh(&go, path.data, path.len) < 0 ||
        strbuf_addf(&go,
                    " 2>/dev/null || { \\command printf '%%s\\n' '%llu 125 !' >%s/status; return 125; "
                    "}\n\\command . %s/text\n",
                    (unsigned long long)s->shell.sequence + 1, dir, dir) < 0)
        return error_set(e, ERR_MEMORY, "command %s: no memory", c->id);
    return session_fill(s, &s->go_fd, "go", &go, e);
}

/* The file "call": the text with the call's environment as temporary assignments before it, which
 * the shell takes back by itself, value and export flag (checked on bash 5.2, dash, busybox ash).
 * With a cwd PWD and OLDPWD are such assignments too, and the order goes back to $PWD after it. */
static int write_call(struct command *c, struct error *e)
{
    struct session *s = c->session;
    CLEANUP_STRBUF struct strbuf call = {0};
    if (c->cwd && (write_go(c, e) < 0 || strbuf_adds(&call, "PWD=$PWD OLDPWD=${OLDPWD-} ") < 0))
        return -1;
    for (size_t i = 0; i < c->env.count; i++) {
        const char *item = c->env.items[i], *value = strchr(item, '=') + 1;
        if (strbuf_add(&call, item, (size_t)(value - item)) < 0 ||
            quote_sh(&call, value, strlen(value)) < 0 || strbuf_adds(&call, " ") < 0)
            return error_set(e, ERR_MEMORY, "command %s: no memory", c->id);
    }
    if (strbuf_addf(&call, "\\command . %s/%s\n", s->dir.path, c->cwd ? "go" : "text") < 0)
        return error_set(e, ERR_MEMORY, "command %s: no memory", c->id);
    return session_fill(s, &s->call_fd, "call", &call, e);
}

static int prepare(struct command *c, struct error *e)
{
    struct session *s = c->session;
    int fd[STREAM_COUNT];
    if (session_fill(s, &s->text_fd, "text", &c->text, e) < 0)
        return -1;
    if ((c->cwd || c->env.count) && write_call(c, e) < 0)
        return -1;
    if (c->has_stdin && open_stdin(c, e) < 0)
        return -1;
    if (session_open_fifos(s, fd, e) < 0)
        return -1;
    capture_start(&c->capture, s->all->loop, c->output, fd);
    return 0;
}

static void on_granted(void *owner)
{
    struct command *c = owner;
    struct session *s = c->session;
    struct error e = {0};
    char in[sizeof s->dir.path + 8];
    if (prepare(c, &e) < 0) {
        refuse(c, "files", &e);
        return;
    }
    snprintf(in, sizeof in, "%s%s", c->has_stdin ? s->dir.path : "/dev/null",
             c->has_stdin ? "/in" : "");
    strbuf_cut(&c->text, COMMAND_TEXT_SHOWN); /* the file has it all */
    session_note_cwd(s);
    s->running = c;
    c->state = COMMAND_RUNNING;
    c->began_ns = clock_mono_ns();
    c->began_ticks = proc_ticks_now();
    c->shell_pid = s->shell.pid;
    bool has_call = c->cwd || c->env.count;
    if (!shell_run(&s->shell, has_call ? "call" : "text", in, s->has_errexit ? 0 : s->last_status,
                   c->cwd != NULL, &e)) {
        refuse(c, "order", &e);
        session_replace_shell(s, "it takes no orders");
        return;
    }
    if (c->timeout_ms) {
        ev_timer_set(&c->timeout, (double)c->timeout_ms / 1000.0, 0.);
        ev_timer_start(s->all->loop, &c->timeout);
    }
    if (c->events && c->events->on_started)
        c->events->on_started(c->owner, s->shell.pid);
}

static int check_request(const struct session *s, const struct command_request *q, struct error *e)
{
    if (s->all->is_stopping)
        return error_set(e, ERR_UNAVAILABLE, "init is stopping");
    if (session_check_queue(s, e) < 0)
        return -1;
    const char *nul = q->text.len ? memchr(q->text.data, '\0', q->text.len) : NULL;
    if (nul)
        return error_set(e, ERR_INVALID, "command text: NUL byte at offset %zu; a shell cannot "
                         "carry it", (size_t)(nul - q->text.data));
    for (size_t i = 0; q->env && i < q->env->count; i++)
        if (env_check(q->env->items[i], e) < 0)
            return -1;
    if (q->cwd && !*q->cwd)
        return error_set(e, ERR_INVALID, "cwd: empty");
    return 0;
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
    c->stdin_fd = c->stdin_keeper = -1;
    list_init(&c->wishes);
    c->events = events;
    c->owner = owner;
    c->timeout_ms = q->has_timeout ? q->timeout_ms : s->command_timeout_ms;
    c->has_stdin = q->has_stdin;
    c->output = output_new(s->output_keep);
    if (!c->output || (q->cwd && !(c->cwd = strdup(q->cwd))) ||
        (q->env && env_copy(&c->env, q->env, e) < 0)) {
        error_set(e, ERR_MEMORY, "command: no memory");
        command_free(c);
        return NULL;
    }
    c->text = q->text;
    q->text = (struct strbuf){0};
    snprintf(c->id, sizeof c->id, "c%llu", (unsigned long long)++s->all->numbers);
    ev_timer_init(&c->timeout, on_timeout, 0., 0.);
    ev_timer_init(&c->patience, on_impatient, 0., RETURN_S);
    ev_timer_init(&c->stdin_end, on_stdin_end, 0., STDIN_END_S);
    c->timeout.data = c->patience.data = c->stdin_end.data = c;
    c->lock = (struct lock_request){
        .id = c->id, .on_granted = on_granted, .on_refused = on_refused, .owner = c};
    s->all->command_count++;
    lock_wait(&s->lock, &c->lock);
    return c;
}

struct command *command_find(const struct sessions *all, const char *id)
{
    list_each(s, &all->sessions, struct session, link)
    {
        if (s->running && strcmp(s->running->id, id) == 0)
            return s->running;
        list_each(r, &s->lock.waiters, struct lock_request, link) if (
            r->on_granted == on_granted && strcmp(r->id, id) == 0) return r->owner;
    }
    return NULL;
}
