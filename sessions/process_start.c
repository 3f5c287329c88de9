/*
 * The start of a process: from the state of a session, or from nothing but its environment.
 */
#include "sessions/process.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/number.h"
#include "base/quote.h"
#include "sessions/call.h"
#include "sessions/replay.h"
#include "sessions/run.h"
#include "sessions/oom.h"
#include "sessions/sessions_internal.h"
#include "sessions/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROCESS_TEXT_SHOWN 16384 /* bytes that are kept of a text, to show it */

/* The pipes of a process, or the two ends of its terminal: ours are non-blocking, its own block as
 * programs expect. */
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
        user_give_pipe(p->has_user ? &p->user : NULL, io->theirs[i]);
        if (fd_set_nonblock(io->ours[i]) < 0)
            return error_set_sys(e, errno, "process '%s': pipe", p->id);
    }
    return 0;
}

/* The master is read by the capture and written by the feed, each with a descriptor of its own. */
static int make_terminal(const struct process *p, struct pipes *io, struct error *e)
{
    for (int i = 0; i < 3; i++)
        io->theirs[i] = io->ours[i] = -1;
    if (terminal_open(p->terminal, p->has_user ? &p->user : NULL, p->output, &io->ours[1], e) < 0)
        return error_wrap(e, "terminal '%s'", p->id);
    io->ours[0] = fcntl(io->ours[1], F_DUPFD_CLOEXEC, 0);
    return io->ours[0] < 0 ? error_set_sys(e, errno, "terminal '%s': dup", p->id) : 0;
}

static void attach_pipes(struct process *p, struct pipes *io)
{
    int fd[STREAM_COUNT] = {io->ours[1], io->ours[2]};
    p->capture.is_terminal = p->terminal != NULL;
    p->capture.on_eof = process_on_capture_eof;
    p->capture.context = p;
    capture_start(&p->capture, p->all->loop, p->output, fd);
    if (io->ours[0] >= 0)
        feed_open(&p->stdin_feed, io->ours[0], -1);
}

static int launch(struct process *p, struct spawn_plan *plan, struct error *e)
{
    struct pipes io;
    char name[24];
    snprintf(name, sizeof name, "p%llu", (unsigned long long)++p->all->numbers);
    cgroup_make(&p->cgroup, name);
    CLEANUP_FD int cgroup_fd = cgroup_open_to_start(&p->cgroup, &plan->cgroup_is_new);
    int rc = p->terminal ? make_terminal(p, &io, e) : make_pipes(p, &io, e);
    if (rc == 0) {
        for (int i = 0; i < 3; i++)
            plan->stdio[i] = p->terminal ? terminal_slave(p->terminal) : io.theirs[i];
        plan->steals_terminal = p->terminal != NULL;
        plan->user = p->has_user ? &p->user : NULL;
        plan->cgroup_fd = cgroup_fd;
        plan->on_exec = process_on_exec;
        plan->on_exit = process_on_child_exit;
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
    p->root_pid = p->child->pid;
    if (!p->is_attached && !p->terminal) /* their clients have it */
        log_stream_begin(p->all->log_feed, &p->log, p->id, p->root_pid, p->output);
    p->began_ns = clock_mono_ns();
    p->oom_before = oom_kills();
    if (p->terminal)
        terminal_tell_room(p->terminal); /* what was typed before */
    clocks_start(&p->clocks, p->output);
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

/* A shell that somebody types at: it runs no text. */
static bool is_typed_at(const struct process *p)
{
    return p->terminal && !p->argv;
}

/* What the state of a shell that reads a script has turned off, and what would end the shell at a
 * mistyped word. dash takes its own `interactive` from the state as well. */
static int add_interactive(const struct process *p, struct strbuf *main)
{
    if (p->session->shell.kind == SHELL_BASH)
        return strbuf_adds(main, "builtin set +eu -m -o emacs -o history -o histexpand\n"
                                 "builtin shopt -s expand_aliases checkwinsize\n");
    return strbuf_adds(main,
                       "set +eu -m\n(set -o interactive) 2>/dev/null && set -o interactive\n");
}

/* The folder may have that name all the same: the process itself looks, as its file system may not
 * answer. */
static int add_way_out(const struct process *p, struct strbuf *main)
{
    const char *last = p->session->last_cwd;
    if (strbuf_adds(main, "\\command cd -- ") < 0 || quote_sh(main, last, strlen(last)) < 0)
        return -1;
    return strbuf_adds(main, " 2>/dev/null || { echo 'sandbox-init: the folder of the session is "
                             "gone: started in /' >&2\n\\command cd /; }\n");
}

/* The script "main": state of the session, environment and folder of the call, then the text, or
 * the argv quoted word by word. */
static int write_main(struct process *p, struct error *e)
{
    CLEANUP_STRBUF struct strbuf main = {0};
    const char *dir = p->dir.path;
    int rc = is_typed_at(p) ? strbuf_adds(&main, "unset ENV\n") : 0; /* it led here */
    rc = rc < 0 ? rc : strbuf_addf(&main, "\\command . %s/state >/dev/null 2>&1\n", dir);
    if (is_typed_at(p) && rc == 0)
        rc = add_interactive(p, &main);
    rc = rc < 0 ? rc : env_add_exports(&main, &p->env);
    if (p->cwd_is_gone && !p->cwd && rc == 0)
        rc = add_way_out(p, &main);
    if (p->cwd && rc == 0) {
        rc = strbuf_adds(&main, p->cwd[0] == '/' ? "\\command cd -- " : "\\command cd -- ./");
        rc = rc < 0 ? rc : quote_sh(&main, p->cwd, strlen(p->cwd));
        rc = rc < 0 ? rc : strbuf_adds(&main, " || exit 125\n");
    }
    if (!p->argv && !p->terminal && rc == 0)
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

/* Run the shell on a script of the process's folder; one that is typed at, with it ("": without)
 * as its start file. */
static int launch_shell(struct process *p, const char *script, const char *const *envp,
                        const char *cwd, struct error *e)
{
    char path[sizeof p->dir.path + 8];
    const char *name = base_name(p->shell_path);
    snprintf(path, sizeof path, "%s/%s", p->dir.path, script);
    bool is_bash = p->session && p->session->shell.kind == SHELL_BASH;
    if (strcmp(name, "busybox") == 0)
        name = "ash";
    else if (is_bash)
        name = "bash"; /* called sh, it would end at the state's readonly variables */
    const char *script_argv[] = {name, path, NULL};
    const char *bash_argv[] = {name, "--rcfile", path, "-i", NULL};
    const char *posix_argv[] = {name, "-i", NULL}; /* its script comes by the variable ENV */
    const char *const *argv = !is_typed_at(p) ? script_argv : is_bash ? bash_argv : posix_argv;
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

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), end_n = strlen(end);
    return n >= end_n && strcmp(text + n - end_n, end) == 0;
}

static int begin_in_session(struct process *p, struct error *e)
{
    struct session *s = p->session;
    char start_file[sizeof p->dir.path + 16] = "";
    const char *envp[] = {s->mark, p->mark, NULL, NULL};
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
    p->cwd_is_gone = ends_with(s->last_cwd, " (deleted)"); /* proc(5): /proc/PID/cwd */
    if (!p->argv && !p->terminal && put_file(p, "text", &p->text, e) < 0)
        return -1;
    snprintf(start_file, sizeof start_file, "ENV=%s/main", p->dir.path);
    if (is_typed_at(p)) /* bash reads it when it is called sh */
        envp[2] = start_file;
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

/* What the session's shell is to look for: a terminal is not told of as there when its program
 * cannot be. NULL: nothing, or it would look elsewhere than the process. */
static const char *program_to_look_for(const struct process *p)
{
    const char *program = p->argv && p->terminal ? p->argv[0] : NULL;
    bool is_elsewhere = program && p->cwd && program[0] != '/' && strchr(program, '/');
    return is_elsewhere || env_get(&p->env, "PATH") ? NULL : program;
}

static void on_dumped(void *context, const struct error *why)
{
    struct process *p = context;
    struct error e = {0}, ending = {0};
    if (!why && p->session->teardown) { /* which may be past those that it tells to end */
        error_set(&ending, ERR_STATE, "session '%s' is ending", p->session->name);
        why = &ending;
    }
    bool has_no_program = why && why->sys;
    if (has_no_program)
        error_set_sys(&e, why->sys, "%.200s", p->argv[0]);
    bool is_begun = !why && !p->is_decided && begin_in_session(p, &e) == 0;
    leave_lock(p);
    if (p->is_decided)
        process_end_unbegun(p);
    else if (!is_begun)
        process_fail(p, has_no_program ? "exec" : "start", why && !has_no_program ? why : &e);
}

static void on_granted(void *owner)
{
    struct process *p = owner;
    struct error e = {0};
    session_note_cwd(p->session);
    if (session_dump(p->session, program_to_look_for(p), on_dumped, p, &e) == 0)
        return;
    leave_lock(p);
    process_fail(p, "start", &e);
}

static void on_refused(void *owner, const struct error *why)
{
    struct process *p = owner;
    bool is_busy = why->code == ERR_BUSY;
    p->session = NULL;
    p->is_forgotten = p->is_forgotten || is_busy; /* its id is free for another try */
    process_fail(p, is_busy ? STEP_QUEUE : "session", why);
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
    if (is_typed_at(p))
        return launch_shell(p, "", env_vector(&p->env), p->cwd, e);
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
    clocks_init(&p->clocks, p->all->loop, &q->limits, &process_clocks_events, p);
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
        return env_put(&p->env, p->mark, e) < 0 ? -1 : (q->env ? env_copy(&p->env, q->env, e) : 0);
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
        return error_set(e, ERR_LIMIT, "%u processes live, max_processes is %llu",
                         all->process_live, (unsigned long long)all->config->max_processes);
    if (fd_next_is_scarce(SESSIONS_FD_RESERVE))
        return error_set(e, ERR_LIMIT,
                         "too few descriptors are left for a process (RLIMIT_NOFILE)");
    if (q->is_terminal && processes_count_terminals(all) >= all->config->max_terminals)
        return error_set(e, ERR_LIMIT, "%u terminals live, max_terminals is %llu",
                         processes_count_terminals(all),
                         (unsigned long long)all->config->max_terminals);
    if (q->id && name_check(q->id) < 0)
        return error_set(e, ERR_INVALID, "process id '%.80s': want 1 to 64 of A-Z a-z 0-9 _ . -",
                         q->id);
    if (q->id && process_find(all, q->id, NULL))
        return error_set(e, ERR_EXISTS, "process '%s' already exists", q->id);
    if (q->id && process_find_remnant(all, q->id))
        return error_set(e, ERR_EXISTS,
                         "id '%s' belongs to a command that is over and left strays (see: "
                         "sandboxctl kill ID): choose another id",
                         q->id);
    if (q->id && run_find(all, q->id))
        return error_set(e, ERR_EXISTS, "id '%s' belongs to a command: choose another id", q->id);
    return call_check(&q->text, q->env, q->cwd, e);
}

/* Of memory while it waits. An argv is held twice: as it is, and joined to be shown. */
static size_t request_bytes(const struct process_request *q)
{
    size_t n = q->text.len + env_bytes(q->env) + (q->cwd ? strlen(q->cwd) : 0);
    for (const char *const *a = q->argv; a && *a; a++)
        n += 2 * (strlen(*a) + 1) + sizeof *a;
    return n;
}
/* A replay must lie in what the log is sure to keep of its end, three eighths (output.c). */
#define TERMINAL_KEEP_MIN (4 * REPLAY_MAX)

/* s, or the defaults, tell how much of its output is kept. */
static struct process *process_new(struct sessions *all, const struct session *s,
                                   const struct process_request *q)
{
    const char *id = q->id;
    struct process *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->all = all;
    feed_init(&p->stdin_feed, all->loop, process_on_stdin_ready, p);
    p->dir.fd = -1;
    p->capture.fd[STREAM_STDOUT] = p->capture.fd[STREAM_STDERR] = -1;
    list_init(&p->link);
    list_init(&p->starts);
    list_init(&p->waits);
    list_init(&p->kills);
    if (id)
        snprintf(p->id, sizeof p->id, "%s", id);
    else
        sessions_make_up_id(all, q->is_terminal ? 't' : 'p', p->id, sizeof p->id);
    snprintf(p->mark, sizeof p->mark, "SANDBOX_PROCESS=%s", p->id);
    p->lock = (struct lock_request){.id = p->id,
                                    .kind = q->is_terminal ? EVENT_TERMINAL : EVENT_PROCESS,
                                    .text = &p->text,
                                    .on_granted = on_granted,
                                    .on_refused = on_refused,
                                    .owner = p};
    const struct session_config *d = &all->config->defaults;
    uint64_t keep = s ? s->output_keep : d->output_keep;
    if (q->is_terminal && keep < TERMINAL_KEEP_MIN)
        keep = TERMINAL_KEEP_MIN;
    p->output = output_new(keep);
    if (p->output)
        output_limit_age(p->output, all->loop, s ? s->output_keep_age_ms : d->output_keep_age_ms);
    if (q->is_terminal)
        p->terminal = terminal_new(all->loop, q->size, &p->stdin_feed);
    return p;
}

struct process *process_start(struct sessions *all, struct session *s, struct process_request *q,
                              const struct process_events *events, void *owner, struct error *e)
{
    if (check_request(all, q, e) < 0)
        return NULL;
    size_t bytes = request_bytes(q);
    if (s && session_check_queue(s, &q->patience, bytes, e) < 0)
        return NULL;
    struct process *p = process_new(all, s, q);
    if (!p || !p->output || (q->is_terminal && !p->terminal)) {
        error_set(e, ERR_MEMORY, "process: no memory");
        if (p)
            process_free(p);
        return NULL;
    }
    p->events = events;
    p->owner = owner;
    p->has_stdin = q->has_stdin;
    p->call = q->call;
    p->is_attached = q->is_attached;
    p->is_shared = q->is_shared;
    if (q->is_shared)
        output_press_by_fastest(p->output);
    p->waits_for_output = q->waits_for_output;
    if ((q->argv && copy_argv(p, q->argv, e) < 0) || set_settings(p, s, q, e) < 0) {
        process_free(p);
        return NULL;
    }
    if (is_typed_at(p)) {
        (void)strbuf_adds(&p->text, s ? s->shell_path : p->shell_path);
    } else if (!q->argv) {
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
        p->lock.patience = q->patience;
        p->lock.bytes = bytes;
        session_enqueue(s, &p->lock);
    }
    return p;
}
