#include "sessions/process.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/number.h"
#include "base/quote.h"
#include "sessions/proc.h"
#include "sessions/spawn.h"
#include "sessions/tree_signal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROCESS_TEXT_SHOWN 16384 /* bytes that are kept of a text, to show it */

struct process {
    struct list link;
    struct sessions *all;
    char id[65];
    char mark[88];         /* "SANDBOX_PROCESS=ID" */
    char session_name[65]; /* "" for a stateless one */
    struct session *session; /* while it waits for the session's lock or dump */
    struct lock_request lock;
    enum process_state state;
    bool is_attached;
    const struct process_events *events; /* NULL: nobody */
    void *owner;

    struct strbuf text; /* what to show: the text, or the argv joined */
    char **argv;        /* owned, NULL-terminated; NULL: run the text */
    struct env_set env; /* of the call; stateless: complete */
    char *cwd, *shell_path;
    struct user user;
    bool has_user;
    uint64_t timeout_ms, kill_grace_ms;
    bool has_stdin;

    struct workdir dir;
    struct child *child;
    struct output *output;
    struct capture capture;
    int stdin_fd;
    ev_io stdin_io;
    ev_timer timeout;
    struct teardown *teardown;
    struct list waits, kills; /* struct process_wish */
    uint64_t began_ns;
    struct outcome outcome;
    bool is_decided;
    bool cwd_is_gone; /* the session's folder was deleted: it starts in "/" and says so */
};

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

const struct outcome *process_outcome(const struct process *p)
{
    return p->state == PROCESS_EXITED ? &p->outcome : NULL;
}

struct process *process_find(struct sessions *all, const char *id, struct error *e)
{
    list_each(p, &all->processes, struct process, link) if (strcmp(p->id, id) == 0) return p;
    error_set(e, ERR_NOT_FOUND, "process '%.80s': not found (see: sandboxctl ps)", id);
    return NULL;
}

/* ---- what belongs to it ---- */

struct marked_walk {
    const struct process *process;
    bool (*each)(void *context, pid_t pid);
    void *context;
};

static bool on_init_child(void *context, pid_t pid)
{
    struct marked_walk *w = context;
    if (child_find(pid) || !proc_environ_has(pid, w->process->mark))
        return true;
    return w->each(w->context, pid);
}

void process_each_root(const struct process *p, bool (*each)(void *context, pid_t pid),
                       void *context)
{
    struct marked_walk w = {.process = p, .each = each, .context = context};
    if (p->child)
        each(context, p->child->pid);
    proc_children(getpid(), on_init_child, &w);
}

static bool count_live(void *context, pid_t pid)
{
    struct proc_stat st;
    *(unsigned *)context += proc_stat_read(pid, &st) == 0 && st.state != 'Z' && st.state != 'X';
    return true;
}

unsigned process_count_strays(const struct process *p)
{
    unsigned n = 0;
    if (p->state == PROCESS_EXITED)
        process_each_root(p, count_live, &n);
    return n;
}

/* ---- its end ---- */

static void process_free(struct process *p)
{
    if (p->link.next && !list_is_empty(&p->link))
        list_remove(&p->link);
    ev_timer_stop(p->all->loop, &p->timeout);
    process_close_stdin(p);
    if (p->capture.output)
        capture_stop(&p->capture);
    if (p->teardown)
        teardown_cancel(p->teardown);
    if (p->child)
        child_forget(p->child);
    workdir_close(&p->dir, p->all->runtime);
    output_free(p->output);
    strbuf_free(&p->text);
    for (char **a = p->argv; a && *a; a++)
        free(*a);
    free(p->argv);
    env_free(&p->env);
    free(p->cwd);
    free(p->shell_path);
    free(p);
}

/* Ended processes stay listed up to a number; the oldest that nobody looks at goes first. */
static void forget_oldest(struct sessions *all)
{
    if (all->is_walking) /* it could be the one that the walk comes to next */
        return;
    list_each(p, &all->processes, struct process, link)
    {
        if (all->process_ended <= all->config->process_keep)
            return;
        if (p->state != PROCESS_EXITED || p->teardown || !list_is_empty(&p->kills) || p->events)
            continue;
        all->process_ended--;
        process_free(p);
    }
}

static void tell_wishes(struct list *wishes, struct process *p,
                        const struct teardown_report *report)
{
    while (!list_is_empty(wishes)) {
        struct process_wish *w = list_entry(wishes->next, struct process_wish, link);
        list_remove(&w->link);
        w->on_done(w->owner, p, report);
    }
}

static bool add_stray(void *context, pid_t pid)
{
    struct outcome *o = context;
    struct proc_stat st;
    if (proc_stat_read(pid, &st) < 0 || st.state == 'Z' || st.state == 'X')
        return true;
    if (o->stray_count < STRAYS_TOLD) {
        o->strays[o->stray_count].pid = pid;
        snprintf(o->strays[o->stray_count].comm, sizeof o->strays[0].comm, "%s", st.comm);
    }
    o->stray_count++;
    return true;
}

/* An attached process that is over and that nobody holds any more is forgotten. */
static void free_if_unwanted(struct process *p)
{
    if (!p->is_attached || p->events || p->state != PROCESS_EXITED || p->teardown)
        return;
    p->all->process_ended--;
    process_free(p);
}

/* Its status is known (or it never ran). The log is complete before anybody hears of it. */
static void process_over(struct process *p)
{
    struct sessions *all = p->all;
    ev_timer_stop(all->loop, &p->timeout);
    process_close_stdin(p);
    if (p->capture.output)
        capture_drain(&p->capture);
    output_end(p->output);
    if (p->began_ns)
        p->outcome.duration_ms = (clock_mono_ns() - p->began_ns) / 1000000u;
    process_each_root(p, add_stray, &p->outcome);
    p->state = PROCESS_EXITED;
    all->process_live--;
    all->process_ended++;
    all->last_busy_ns = clock_mono_ns();
    LOG_INF("process_end", F_STR("id", p->id), F_STR("session", p->session_name),
            F_STR("verdict", verdict_name(p->outcome.verdict)), F_INT("status", p->outcome.status),
            F_INT("ms", p->outcome.duration_ms));
    workdir_close(&p->dir, all->runtime); /* its script is read; the log is elsewhere */
    tell_wishes(&p->waits, p, NULL);
    const struct process_events *events = p->events;
    if (events)
        events->on_done(p->owner, &p->outcome); /* may free it: process_leave() */
    else
        free_if_unwanted(p);
    forget_oldest(all);
}

static void on_child_exit(void *context, const struct child_exit *how)
{
    struct process *p = context;
    p->child = NULL;
    outcome_of_exit(&p->outcome, how, p->is_decided);
    if (how->step && strcmp(how->step, "exec") == 0)
        snprintf(p->outcome.message, sizeof p->outcome.message, "%.200s: %s",
                 p->argv ? p->argv[0] : p->shell_path, strerror(how->sys));
    else if (how->step && strcmp(how->step, "cwd") == 0)
        snprintf(p->outcome.message, sizeof p->outcome.message, "cwd %.200s: %s",
                 p->cwd ? p->cwd : ".", strerror(how->sys));
    /* While it is torn down it is over only when all of it is gone (case F8). */
    if (!p->teardown)
        process_over(p);
}

static void on_exec(void *context)
{
    struct process *p = context;
    if (p->events && p->events->on_started)
        p->events->on_started(p->owner, process_pid(p));
}

static void on_capture_eof(void *context)
{
    struct process *p = context;
    capture_stop(&p->capture);
}

/* It never ran. */
static void fail(struct process *p, const char *step, const struct error *why)
{
    outcome_not_run(&p->outcome, step, why->sys, why->text);
    process_over(p);
}

/* ---- kill ---- */

static bool add_root(void *context, pid_t pid)
{
    teardown_add_root(context, pid);
    return true;
}

static void collect(void *context, struct teardown *t)
{
    process_each_root(context, add_root, t);
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
    bool was_running = p->state == PROCESS_STOPPING && !p->child;
    if (p->child) /* a survivor: what the kernel refused stays listed as running (case G4) */
        p->state = PROCESS_RUNNING;
    tell_wishes(&kills, p, report);
    if (was_running)
        process_over(p);
    else
        free_if_unwanted(p);
}

/* It was killed before it had begun. */
static void end_unbegun(struct process *p)
{
    static const struct teardown_report nothing;
    snprintf(p->outcome.message, sizeof p->outcome.message, "killed before it began");
    tell_wishes(&p->kills, p, &nothing);
    process_over(p);
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
            end_unbegun(p);
        }
        return 0;
    }
    struct teardown_plan plan = {.loop = p->all->loop,
                                 .first_signal = SIGTERM,
                                 .grace_ms = grace_ms,
                                 .collect = collect,
                                 .on_done = on_torn_down,
                                 .context = p,
                                 .cgroup_fd = -1};
    p->teardown = teardown_start(&plan, e);
    if (!p->teardown)
        return error_wrap(e, "process '%s'", p->id);
    if (p->state == PROCESS_RUNNING) {
        p->state = PROCESS_STOPPING;
        p->is_decided = true;
        p->outcome.verdict = verdict;
    }
    if (wish)
        list_append(&p->kills, &wish->link);
    return 0;
}

int process_signal(struct process *p, int sig, struct error *e)
{
    struct tree_signal t;
    if (tree_signal_init(&t, e) < 0)
        return -1;
    process_each_root(p, tree_signal_add, &t);
    int sent = tree_signal_send(&t, sig, e);
    if (sent < 0)
        return error_wrap(e, "process '%s'", p->id);
    if (sent == 0)
        return error_set(e, ERR_STATE, "process '%s' has already exited", p->id);
    return sent;
}

static void on_timeout(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct process *p = w->data;
    struct error e = {0};
    ev_timer_stop(loop, w);
    if (process_kill(p, VERDICT_TIMEOUT, p->kill_grace_ms, NULL, &e) < 0)
        LOG_ERR("timeout", F_STR("id", p->id), F_STR("why", e.text));
}

void process_leave(struct process *p)
{
    struct error e = {0};
    p->events = NULL;
    if (!p->is_attached)
        return;
    if (p->state == PROCESS_EXITED) {
        free_if_unwanted(p);
        return;
    }
    if (process_kill(p, VERDICT_KILLED_BY_CLIENT, p->kill_grace_ms, NULL, &e) < 0)
        LOG_ERR("kill", F_STR("id", p->id), F_STR("why", e.text));
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

/* ---- stdin ---- */

static void on_stdin_writable(struct ev_loop *loop, ev_io *w, int events)
{
    (void)events;
    struct process *p = w->data;
    ev_io_stop(loop, w);
    if (p->events && p->events->on_stdin_ready)
        p->events->on_stdin_ready(p->owner);
}

long process_write(struct process *p, const char *bytes, size_t n, struct error *e)
{
    if (p->state == PROCESS_WAITING)
        return 0;
    if (p->state == PROCESS_EXITED)
        return error_set(e, ERR_STATE, "process '%s' has already exited", p->id);
    if (p->stdin_fd < 0)
        return error_set(e, ERR_STATE, "process '%s': its stdin is %s", p->id,
                         p->has_stdin ? "closed" : "/dev/null (start it with --stdin)");
    ssize_t k = write(p->stdin_fd, bytes, n);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        k = 0;
    if (k < 0)
        return error_set_sys(e, errno, "process '%s': write to its stdin", p->id);
    if ((size_t)k < n)
        ev_io_start(p->all->loop, &p->stdin_io);
    return k;
}

void process_close_stdin(struct process *p)
{
    if (p->stdin_fd < 0)
        return;
    ev_io_stop(p->all->loop, &p->stdin_io);
    fd_close(&p->stdin_fd);
}

/* ---- its beginning ---- */

/* The pipes of a process: ours are non-blocking, its own ends block as programs expect. */
struct pipes {
    int theirs[3], ours[3];
};

static void close_pipes(int fds[3])
{
    for (int i = 0; i < 3; i++)
        fd_close(&fds[i]);
}

static int make_pipes(const struct process *p, struct pipes *io, struct error *e)
{
    for (int i = 0; i < 3; i++)
        io->theirs[i] = io->ours[i] = -1;
    for (int i = p->has_stdin ? 0 : 1; i < 3; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
            return error_set_sys(e, errno, "process '%s': pipe", p->id);
        io->ours[i] = ends[i == 0 ? 1 : 0];
        io->theirs[i] = ends[i == 0 ? 0 : 1];
        if (fd_set_nonblock(io->ours[i]) < 0)
            return error_set_sys(e, errno, "process '%s': pipe", p->id);
    }
    return 0;
}

static void attach_pipes(struct process *p, struct pipes *io)
{
    int fd[STREAM_COUNT] = {io->ours[1], io->ours[2]};
    p->capture.on_eof = on_capture_eof;
    p->capture.context = p;
    capture_start(&p->capture, p->all->loop, p->output, fd);
    p->stdin_fd = io->ours[0];
    if (p->stdin_fd >= 0) {
        ev_io_init(&p->stdin_io, on_stdin_writable, p->stdin_fd, EV_WRITE);
        p->stdin_io.data = p;
    }
}

static int launch(struct process *p, struct spawn_plan *plan, struct error *e)
{
    struct pipes io;
    int rc = make_pipes(p, &io, e);
    if (rc == 0) {
        memcpy(plan->stdio, io.theirs, sizeof plan->stdio);
        plan->user = p->has_user ? &p->user : NULL;
        plan->on_exec = on_exec;
        plan->on_exit = on_child_exit;
        plan->context = p;
        p->child = spawn(plan, e);
        rc = p->child ? 0 : -1;
    }
    close_pipes(io.theirs);
    if (rc < 0) {
        close_pipes(io.ours);
        return -1;
    }
    attach_pipes(p, &io);
    strbuf_cut(&p->text, PROCESS_TEXT_SHOWN);
    p->state = PROCESS_RUNNING;
    p->began_ns = clock_mono_ns();
    if (p->timeout_ms) {
        ev_timer_set(&p->timeout, (double)p->timeout_ms / 1000.0, 0.);
        ev_timer_start(p->all->loop, &p->timeout);
    }
    return 0;
}

static int put_file(struct process *p, const char *name, const struct strbuf *bytes,
                    struct error *e)
{
    CLEANUP_FD int fd = workdir_file(&p->dir, name, p->has_user ? &p->user : NULL, e);
    return fd < 0 ? -1 : workdir_fill(&p->dir, fd, name, bytes->data, bytes->len, e);
}

static int make_folder(struct process *p, struct error *e)
{
    char name[32];
    snprintf(name, sizeof name, "p%llu", (unsigned long long)++p->all->numbers);
    return workdir_open(&p->dir, p->all->runtime, name, e);
}

/* The script "main": state of the session, environment and folder of the call, then the text, or
 * the argv quoted word by word. */
static int write_main(struct process *p, struct error *e)
{
    CLEANUP_STRBUF struct strbuf main = {0};
    const char *dir = p->dir.path;
    int rc = strbuf_addf(&main, "\\command . %s/state >/dev/null 2>&1\n", dir);
    rc = rc < 0 ? rc : env_add_exports(&main, &p->env);
    if (p->cwd_is_gone && !p->cwd && rc == 0)
        rc = strbuf_adds(&main, "echo 'sandbox-init: the folder of the session is gone: started "
                                "in /' >&2\n\\command cd /\n");
    if (p->cwd && rc == 0) {
        rc = strbuf_adds(&main, p->cwd[0] == '/' ? "\\command cd -- " : "\\command cd -- ./");
        rc = rc < 0 ? rc : quote_sh(&main, p->cwd, strlen(p->cwd));
        rc = rc < 0 ? rc : strbuf_adds(&main, " || exit 125\n");
    }
    if (!p->argv && rc == 0)
        rc = strbuf_addf(&main, "\\command . %s/text\n", dir);
    if (p->argv && rc == 0) {
        rc = strbuf_adds(&main, "exec");
        for (char **a = p->argv; *a && rc == 0; a++)
            rc = strbuf_adds(&main, " ") < 0 ? -1 : quote_sh(&main, *a, strlen(*a));
        rc = rc < 0 ? rc : strbuf_adds(&main, "\n");
    }
    if (rc < 0)
        return error_set(e, ERR_MEMORY, "process '%s': no memory", p->id);
    return put_file(p, "main", &main, e);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Run the shell on a script of the process's folder. */
static int launch_shell(struct process *p, const char *script, const char *const *envp,
                        const char *cwd, struct error *e)
{
    char path[sizeof p->dir.path + 8];
    const char *name = base_name(p->shell_path);
    snprintf(path, sizeof path, "%s/%s", p->dir.path, script);
    const char *argv[] = {strcmp(name, "busybox") == 0 ? "ash" : name, path, NULL};
    struct spawn_plan plan = spawn_plan_empty();
    plan.program = p->shell_path;
    plan.argv = argv;
    plan.envp = envp;
    plan.cwd = cwd;
    plan.is_subreaper = true;
    return launch(p, &plan, e);
}

/* The folder that it starts in: the call's own (relative to the session's), or the session's. That
 * it can't be entered is then known before anybody is told a PID. 0, or -1 with *e. */
static int start_folder(const struct process *p, struct strbuf *to, struct error *e)
{
    const char *base = p->cwd_is_gone ? "/" : p->session->last_cwd;
    bool is_relative = p->cwd && p->cwd[0] != '/';
    int rc = 0;
    if (!p->cwd || is_relative)
        rc = strbuf_adds(to, base);
    if (is_relative && rc == 0 && *base)
        rc = strbuf_adds(to, "/");
    if (p->cwd && rc == 0)
        rc = strbuf_adds(to, p->cwd);
    return rc < 0 ? error_set(e, ERR_MEMORY, "process '%s': no memory", p->id) : 0;
}

static int begin_in_session(struct process *p, struct error *e)
{
    struct session *s = p->session;
    const char *envp[] = {s->mark, p->mark, NULL};
    CLEANUP_STRBUF struct strbuf folder = {0};
    /* A reset while it waited may have changed them. */
    free(p->shell_path);
    p->shell_path = strdup(s->shell_path);
    p->user = s->user;
    p->has_user = s->has_user;
    if (!p->shell_path)
        return error_set(e, ERR_MEMORY, "process '%s': no memory", p->id);
    if (make_folder(p, e) < 0 || session_take_state(s, &p->dir, e) < 0)
        return -1;
    p->cwd_is_gone = s->last_cwd[0] && access(s->last_cwd, F_OK) < 0 && errno == ENOENT;
    if (!p->argv && put_file(p, "text", &p->text, e) < 0)
        return -1;
    if (write_main(p, e) < 0 || start_folder(p, &folder, e) < 0)
        return -1;
    return launch_shell(p, "main", envp, folder.len ? strbuf_text(&folder) : NULL, e);
}

static void leave_lock(struct process *p)
{
    struct session *s = p->session;
    p->session = NULL;
    lock_leave(&s->lock, &p->lock);
    session_step(s);
}

static void on_dumped(void *context, const struct error *why)
{
    struct process *p = context;
    struct error e = {0};
    bool is_begun = !why && !p->is_decided && begin_in_session(p, &e) == 0;
    leave_lock(p);
    if (p->is_decided)
        end_unbegun(p);
    else if (!is_begun)
        fail(p, "start", why ? why : &e);
}

static void on_granted(void *owner)
{
    struct process *p = owner;
    struct error e = {0};
    session_note_cwd(p->session);
    if (session_dump(p->session, on_dumped, p, &e) == 0)
        return;
    leave_lock(p);
    fail(p, "start", &e);
}

static void on_refused(void *owner, const struct error *why)
{
    struct process *p = owner;
    p->session = NULL;
    fail(p, "session", why);
}

static int begin_stateless(struct process *p, struct error *e)
{
    if (p->argv) {
        struct spawn_plan plan = spawn_plan_empty();
        plan.argv = (const char *const *)(const void *)p->argv;
        plan.envp = env_vector(&p->env);
        plan.cwd = p->cwd;
        return launch(p, &plan, e);
    }
    if (make_folder(p, e) < 0 || put_file(p, "text", &p->text, e) < 0)
        return -1;
    return launch_shell(p, "text", env_vector(&p->env), p->cwd, e);
}

static int copy_argv(struct process *p, const char *const *argv, struct error *e)
{
    size_t n = 0;
    while (argv[n])
        n++;
    p->argv = calloc(n + 1, sizeof *p->argv);
    for (size_t i = 0; p->argv && i < n; i++) {
        if (!(p->argv[i] = strdup(argv[i])) || (i && strbuf_adds(&p->text, " ") < 0) ||
            strbuf_adds(&p->text, argv[i]) < 0)
            return error_set(e, ERR_MEMORY, "process: no memory");
    }
    return p->argv ? 0 : error_set(e, ERR_MEMORY, "process: no memory");
}

/* Settings that come from the session, or from the defaults for all. */
static int set_settings(struct process *p, struct session *s, const struct process_request *q,
                        struct error *e)
{
    const struct session_config *d = &p->all->config->defaults;
    const char *shell = s ? "" : d->shell ? d->shell : sessions_default_shell();
    const char *cwd = q->cwd ? q->cwd : s ? NULL : d->cwd;
    p->kill_grace_ms = s ? s->kill_grace_ms : d->kill_grace_ms;
    p->timeout_ms = q->timeout_ms;
    if (!(p->shell_path = strdup(shell)) || (cwd && !(p->cwd = strdup(cwd))))
        return error_set(e, ERR_MEMORY, "process: no memory");
    user_self(&p->user);
    if (s) {
        snprintf(p->session_name, sizeof p->session_name, "%s", s->name);
    } else if (d->user) {
        if (user_lookup(d->user, &p->user, e) < 0)
            return -1;
        p->has_user = p->user.uid != geteuid() || p->user.gid != getegid();
    }
    if (s)
        return env_put(&p->env, p->mark, e) < 0 ? -1
                                                : (q->env ? env_copy(&p->env, q->env, e) : 0);
    if (sessions_add_env(p->all, p->has_user ? &p->user : NULL, &p->env, e) < 0 ||
        env_put(&p->env, p->mark, e) < 0)
        return -1;
    return q->env ? env_copy(&p->env, q->env, e) : 0;
}

static int check_request(struct sessions *all, const struct process_request *q, struct error *e)
{
    if (all->is_stopping)
        return error_set(e, ERR_UNAVAILABLE, "init is stopping");
    if (all->process_live >= all->config->max_processes)
        return error_set(e, ERR_LIMIT, "%u processes live, max_processes is %llu", all->process_live,
                         (unsigned long long)all->config->max_processes);
    if (fd_next_is_scarce(SESSIONS_FD_RESERVE))
        return error_set(e, ERR_LIMIT,
                         "too few descriptors are left for a process (RLIMIT_NOFILE)");
    if (q->cwd && !*q->cwd)
        return error_set(e, ERR_INVALID, "cwd: empty");
    if (q->id && name_check(q->id) < 0)
        return error_set(e, ERR_INVALID, "process id '%.80s': want 1 to 64 of A-Z a-z 0-9 _ . -",
                         q->id);
    if (q->id && process_find(all, q->id, NULL))
        return error_set(e, ERR_EXISTS, "process '%s' already exists", q->id);
    const char *nul = q->text.len ? memchr(q->text.data, '\0', q->text.len) : NULL;
    if (nul)
        return error_set(e, ERR_INVALID, "text: NUL byte at offset %zu; a shell cannot carry it",
                         (size_t)(nul - q->text.data));
    for (size_t i = 0; q->env && i < q->env->count; i++)
        if (env_check(q->env->items[i], e) < 0)
            return -1;
    return 0;
}

static struct process *process_new(struct sessions *all, const char *id, uint64_t output_keep)
{
    struct process *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->all = all;
    p->stdin_fd = -1;
    p->dir.fd = -1;
    p->capture.fd[STREAM_STDOUT] = p->capture.fd[STREAM_STDERR] = -1;
    list_init(&p->link);
    list_init(&p->waits);
    list_init(&p->kills);
    if (id)
        snprintf(p->id, sizeof p->id, "%s", id);
    else
        snprintf(p->id, sizeof p->id, "p%llu", (unsigned long long)++all->numbers);
    snprintf(p->mark, sizeof p->mark, "SANDBOX_PROCESS=%s", p->id);
    p->lock = (struct lock_request){
        .id = p->id, .on_granted = on_granted, .on_refused = on_refused, .owner = p};
    ev_timer_init(&p->timeout, on_timeout, 0., 0.);
    p->timeout.data = p;
    p->output = output_new(output_keep);
    return p;
}

struct process *process_start(struct sessions *all, struct session *s, struct process_request *q,
                              const struct process_events *events, void *owner, struct error *e)
{
    if (check_request(all, q, e) < 0)
        return NULL;
    if (s && session_check_queue(s, e) < 0)
        return NULL;
    uint64_t keep = s ? s->output_keep : all->config->defaults.output_keep;
    struct process *p = process_new(all, q->id, keep);
    if (!p || !p->output) {
        error_set(e, ERR_MEMORY, "process: no memory");
        free(p);
        return NULL;
    }
    p->events = events;
    p->owner = owner;
    p->has_stdin = q->has_stdin;
    p->is_attached = q->is_attached;
    if ((q->argv && copy_argv(p, q->argv, e) < 0) || set_settings(p, s, q, e) < 0) {
        process_free(p);
        return NULL;
    }
    if (!q->argv) {
        p->text = q->text;
        q->text = (struct strbuf){0};
    }
    if (!s && begin_stateless(p, e) < 0) {
        process_free(p);
        return NULL;
    }
    list_append(&all->processes, &p->link);
    all->process_live++;
    if (s) {
        p->session = s;
        lock_wait(&s->lock, &p->lock);
    }
    return p;
}

/* ---- all of them ---- */

void processes_each_of(struct sessions *all, const struct session *s,
                       bool (*each)(void *context, pid_t pid), void *context)
{
    list_each(p, &all->processes, struct process, link) if (!s ||
                                                            strcmp(p->session_name, s->name) == 0)
        process_each_root(p, each, context);
}

void processes_session_ends(struct sessions *all, const struct session *s, const char *why)
{
    list_each(p, &all->processes, struct process, link)
    {
        if (p->state != PROCESS_RUNNING || strcmp(p->session_name, s->name) != 0)
            continue;
        p->is_decided = true;
        p->outcome.verdict = VERDICT_KILLED_BY_CLIENT;
        snprintf(p->outcome.message, sizeof p->outcome.message, "%s", why);
    }
}

bool processes_own(const struct sessions *all, pid_t pid)
{
    list_each(p, &all->processes, struct process, link) if (proc_environ_has(pid, p->mark)) return true;
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

void processes_free(struct sessions *all)
{
    list_each(p, &all->processes, struct process, link) process_free(p);
}
