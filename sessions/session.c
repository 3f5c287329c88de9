#include "sessions/session.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/number.h"
#include "sessions/command.h"
#include "sessions/proc.h"
#include "sessions/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAILED_STARTS_MAX 3
#define STRAYS_KEEP       ((uint64_t)256 * 1024) /* bytes kept of what strays write */

static const char *const state_names[] = {
    [SESSION_STARTING] = "starting", [SESSION_IDLE] = "idle",     [SESSION_BUSY] = "busy",
    [SESSION_FAILED] = "failed",     [SESSION_ENDING] = "ending",
};
_Static_assert(sizeof(state_names) / sizeof(state_names[0]) == SESSION_STATE_COUNT, "all named");

const char *session_state_name(enum session_state state)
{
    return state_names[state];
}

enum session_state session_state(const struct session *s)
{
    if (s->teardown)
        return SESSION_ENDING;
    if (s->why.code != ERR_NONE && !s->shell.child)
        return SESSION_FAILED;
    if (!s->is_ready)
        return SESSION_STARTING;
    return s->lock.holder ? SESSION_BUSY : SESSION_IDLE;
}

/* Tell everybody who waits for the session and forget them. */
static void tell_wishes(struct session *s, const struct teardown_report *report,
                        const struct error *e)
{
    while (!list_is_empty(&s->wishes)) {
        struct session_wish *w = list_entry(s->wishes.next, struct session_wish, link);
        list_remove(&w->link);
        w->on_done(w->owner, s, report, e);
    }
}

void session_wish_drop(struct session_wish *w)
{
    if (w->link.next)
        list_remove(&w->link);
}

static void add_wish(struct session *s, struct session_wish *w)
{
    if (w)
        list_append(&s->wishes, &w->link);
}

/* ---- making one ---- */

static void session_free(struct session *s)
{
    list_each(l, &s->leftovers, struct leftover, link)
    {
        capture_stop(&l->capture);
        list_remove(&l->link);
        free(l);
    }
    output_free(s->stray_output);
    shell_release(&s->shell);
    fd_close(&s->state_fd);
    fd_close(&s->text_fd);
    fd_close(&s->call_fd);
    fd_close(&s->go_fd);
    workdir_close(&s->dir, s->all->runtime);
    env_free(&s->env);
    free(s->older);
    free(s->shell_path);
    free(s->cwd);
    if (s->link.next && !list_is_empty(&s->link)) {
        list_remove(&s->link);
        s->all->session_count--;
    }
    free(s);
}

static int set_string(char **to, const char *first, const char *second, const char *third,
                      struct error *e)
{
    const char *from = first ? first : second ? second : third;
    if (from && !(*to = strdup(from)))
        return error_set(e, ERR_MEMORY, "session: no memory");
    return 0;
}

/* The environment a fresh shell begins with: that of all sessions, of the file, of the request. */
static int set_env(struct session *s, const struct session_request *q, struct error *e)
{
    if (env_copy(&s->env, &s->all->base_env, e) < 0)
        return -1;
    if (s->has_user) {
        char text[320];
        snprintf(text, sizeof text, "HOME=%s", s->user.home);
        if (env_put(&s->env, text, e) < 0)
            return -1;
        snprintf(text, sizeof text, "USER=%s", s->user.name);
        if (s->user.name[0] && env_put(&s->env, text, e) < 0)
            return -1;
    }
    const struct session_config *c = q->configured;
    for (size_t i = 0; c && i < c->env.count; i++)
        if (env_put(&s->env, c->env.items[i], e) < 0)
            return -1;
    for (size_t i = 0; i < q->env.count; i++)
        if (env_check(q->env.items[i], e) < 0 || env_put(&s->env, q->env.items[i], e) < 0)
            return -1;
    return env_put(&s->env, s->mark, e);
}

static int set_settings(struct session *s, const struct session_request *q, struct error *e)
{
    const struct session_config *d = &s->all->config->defaults, *c = q->configured;
    const struct session_config *limits = c ? c : d;
    s->command_timeout_ms = q->has_timeout ? q->timeout_ms : limits->command_timeout_ms;
    s->kill_grace_ms = limits->kill_grace_ms;
    s->queue_limit = limits->queue_limit;
    s->output_keep = limits->output_keep;
    s->is_configured = c != NULL;
    if (set_string(&s->shell_path, q->shell, c ? c->shell : NULL, d->shell, e) < 0 ||
        set_string(&s->cwd, q->cwd, c ? c->cwd : NULL, d->cwd, e) < 0)
        return -1;
    if (!s->shell_path && set_string(&s->shell_path, sessions_default_shell(), NULL, NULL, e) < 0)
        return -1;
    if (s->shell_path[0] != '/')
        return error_set(e, ERR_INVALID, "shell %s: want an absolute path", s->shell_path);
    if (s->cwd && s->cwd[0] != '/')
        return error_set(e, ERR_INVALID, "cwd %s: want an absolute path", s->cwd);
    const char *user = q->user ? q->user : c && c->user ? c->user : d->user;
    user_self(&s->user);
    if (!user)
        return 0;
    if (user_lookup(user, &s->user, e) < 0)
        return -1;
    s->has_user = s->user.uid != geteuid() || s->user.gid != getegid();
    if (s->has_user && geteuid() != 0)
        return error_set(e, ERR_DENIED, "user %s: init runs as uid %u and cannot switch users", user,
                         (unsigned)geteuid());
    return 0;
}

static const struct user *owner_of(const struct session *s)
{
    return s->has_user ? &s->user : NULL;
}

static const struct shell_events shell_events;

static int make_folder(struct session *s, struct error *e)
{
    char name[32];
    snprintf(name, sizeof name, "s%llu", (unsigned long long)++s->all->numbers);
    if (workdir_open(&s->dir, s->all->runtime, name, e) < 0)
        return -1;
    const struct user *u = owner_of(s);
    if ((s->state_fd = workdir_file(&s->dir, "state", u, e)) < 0 ||
        (s->text_fd = workdir_file(&s->dir, "text", u, e)) < 0 ||
        (s->call_fd = workdir_file(&s->dir, "call", u, e)) < 0 ||
        (s->go_fd = workdir_file(&s->dir, "go", u, e)) < 0)
        return -1;
    s->has_dirty_fifos = true; /* made with the first command */
    return shell_init(&s->shell, s->all->loop, &s->dir, u, &shell_events, s, e);
}

static bool is_own_file(int fd)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && st.st_nlink > 0;
}

int session_fill(struct session *s, int *fd, const char *name, const struct strbuf *bytes,
                 struct error *e)
{
    if (!is_own_file(*fd)) {
        fd_close(fd);
        *fd = workdir_file(&s->dir, name, owner_of(s), e);
        if (*fd < 0)
            return -1;
    }
    return workdir_fill(&s->dir, *fd, name, bytes->data, bytes->len, e);
}

/* The state file of a shell that starts with nothing but its environment. */
static int write_first_state(struct session *s, struct error *e)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    if (env_add_exports(&text, &s->env) < 0)
        return error_set(e, ERR_MEMORY, "session '%s': no memory", s->name);
    s->has_state_text = true;
    return session_fill(s, &s->state_fd, "state", &text, e);
}

static int start_shell(struct session *s, struct error *e)
{
    struct shell_plan plan = {
        .path = s->shell_path, .user = owner_of(s), .mark = s->mark, .cwd = s->cwd};
    if (s->last_cwd[0])
        plan.cwd = s->uses_fallback_cwd ? "/" : s->last_cwd;
    s->is_ready = false;
    s->why.code = ERR_NONE;
    s->start_sequence = shell_start(&s->shell, &plan, e);
    if (!s->start_sequence)
        return error_wrap(e, "session '%s'", s->name);
    return 0;
}

static int name_session(struct sessions *all, struct session *s, const char *name, struct error *e)
{
    if (name && name_check(name) < 0)
        return error_set(e, ERR_INVALID,
                         "session name '%.80s': want 1 to 64 of A-Z a-z 0-9 _ . -, first a letter "
                         "or digit",
                         name);
    if (name)
        snprintf(s->name, sizeof s->name, "%s", name);
    else
        snprintf(s->name, sizeof s->name, "session-%llu", (unsigned long long)++all->numbers);
    snprintf(s->mark, sizeof s->mark, "SANDBOX_SESSION=%s", s->name);
    list_each(other, &all->sessions, struct session, link) if (strcmp(other->name, s->name) == 0)
    {
        return error_set(e, ERR_EXISTS, "session '%s' %s", s->name,
                         other->teardown ? "is being deleted" : "already exists");
    }
    return 0;
}

struct session *session_create(struct sessions *all, const struct session_request *q,
                               struct session_wish *wish, struct error *e)
{
    if (all->is_stopping) {
        error_set(e, ERR_UNAVAILABLE, "init is stopping");
        return NULL;
    }
    if (all->session_count >= all->config->max_sessions) {
        error_set(e, ERR_LIMIT, "%u sessions exist, max_sessions is %llu", all->session_count,
                  (unsigned long long)all->config->max_sessions);
        return NULL;
    }
    struct session *s = calloc(1, sizeof *s);
    if (!s) {
        error_set(e, ERR_MEMORY, "session: no memory");
        return NULL;
    }
    s->all = all;
    s->dir.fd = s->state_fd = s->text_fd = s->call_fd = s->go_fd = -1;
    s->created_ns = clock_mono_ns();
    lock_init(&s->lock);
    list_init(&s->leftovers);
    list_init(&s->wishes);
    if (name_session(all, s, q->name, e) < 0 || set_settings(s, q, e) < 0 ||
        set_env(s, q, e) < 0 || make_folder(s, e) < 0 || write_first_state(s, e) < 0 ||
        start_shell(s, e) < 0) {
        session_free(s);
        return NULL;
    }
    list_append(&all->sessions, &s->link);
    all->session_count++;
    add_wish(s, wish);
    return s;
}

struct session *session_find(struct sessions *all, const char *name, struct error *e)
{
    list_each(s, &all->sessions, struct session, link) if (strcmp(s->name, name) == 0)
    {
        if (!s->teardown || s->ends_for_reset)
            return s;
        error_set(e, ERR_STATE, "session '%s' is being deleted", name);
        return NULL;
    }
    error_set(e, ERR_NOT_FOUND, "session '%.80s': not found (see: sandboxctl session list)", name);
    return NULL;
}

/* ---- its shell ---- */

void session_note_cwd(struct session *s)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/cwd", (int)s->shell.pid);
    ssize_t k = readlink(path, s->last_cwd, sizeof s->last_cwd - 1);
    s->last_cwd[k > 0 ? k : 0] = '\0';
}

/* True if the shell wrote its whole state before it ended: the file closes with a mark. */
static bool has_full_state(const struct session *s)
{
    static const char end[] = "# end\n";
    char tail[sizeof end - 1];
    struct stat st;
    if (fstat(s->state_fd, &st) < 0 || st.st_size < (off_t)sizeof tail)
        return false;
    return pread(s->state_fd, tail, sizeof tail, st.st_size - (off_t)sizeof tail) ==
               (ssize_t)sizeof tail &&
           memcmp(tail, end, sizeof tail) == 0;
}

static void end_all_commands(struct session *s, const struct error *why)
{
    while (!list_is_empty(&s->lock.waiters)) {
        struct lock_request *r = list_entry(s->lock.waiters.next, struct lock_request, link);
        lock_leave(&s->lock, r);
        r->on_refused(r->owner, why);
    }
}

/* No shell can be had: whoever waits hears why; the session stays for another try. */
static void give_up(struct session *s, const struct error *why)
{
    bool is_new = !list_is_empty(&s->wishes) && s->restarts == 0;
    s->why = *why;
    LOG_WRN("session_failed", F_STR("session", s->name), F_STR("why", why->text));
    end_all_commands(s, why);
    if (is_new) {
        tell_wishes(s, NULL, why);
        session_free(s);
        return;
    }
    tell_wishes(s, NULL, why);
}

static void explain_start_failure(const struct session *s, const struct child_exit *how,
                                  struct error *e)
{
    if (how->step && strcmp(how->step, "cwd") == 0)
        error_set_sys(e, how->sys, "session '%s': cwd %s", s->name,
                      s->last_cwd[0] ? s->last_cwd : s->cwd ? s->cwd : ".");
    else if (how->step)
        error_set_sys(e, how->sys, "session '%s': shell %s: %s", s->name, s->shell_path, how->step);
    else
        error_set(e, ERR_STATE, "session '%s': shell %s ended before it was ready (wait status %d)",
                  s->name, s->shell_path, how->status);
}

static void restart_shell(struct session *s)
{
    struct error e = {0};
    s->restarts++;
    if (start_shell(s, &e) < 0)
        give_up(s, &e);
}

static void on_start_failed(struct session *s, const struct child_exit *how)
{
    struct error e = {0};
    explain_start_failure(s, how, &e);
    s->failed_starts++;
    /* The folder is gone: a session goes on in "/", which its next answer tells (case M1). */
    if (how->step && strcmp(how->step, "cwd") == 0 && s->last_cwd[0] && !s->uses_fallback_cwd) {
        s->uses_fallback_cwd = true;
        restart_shell(s);
    } else if (!how->step && s->restarts > 0 && s->failed_starts < FAILED_STARTS_MAX &&
               write_first_state(s, &e) == 0) {
        s->was_state_lost = true;
        restart_shell(s);
    } else {
        give_up(s, &e);
    }
}

static void on_shell_end(void *owner, const struct child_exit *how)
{
    struct session *s = owner;
    struct error e = {0};
    bool was_ready = s->is_ready;
    s->is_ready = false;
    if (s->on_dumped) {
        void (*on_dumped)(void *, const struct error *) = s->on_dumped;
        s->on_dumped = NULL;
        error_set(&e, ERR_STATE, "session '%s': the shell ended while it wrote its state", s->name);
        on_dumped(s->dump_context, &e);
    }
    if (s->teardown) {
        if (s->running)
            command_shell_ended(s->running, how, false);
        return;
    }
    if (!was_ready && !s->all->is_stopping) {
        on_start_failed(s, how);
        return;
    }
    bool has_state = has_full_state(s);
    LOG_INF("shell_ended", F_STR("session", s->name), F_INT("wait_status", how->status),
            F_STR("state", has_state ? "restored" : "lost"));
    s->was_restarted = true;
    s->was_state_lost = !has_state;
    s->older_count = 0;
    s->has_errexit = true; /* not known: do not order a nonzero status into the new shell */
    if (s->running)
        command_shell_ended(s->running, how, has_state);
    if (s->all->is_stopping)
        return;
    if (!has_state && write_first_state(s, &e) < 0) {
        give_up(s, &e);
        return;
    }
    restart_shell(s);
}

static void on_shell_status(void *owner, uint64_t sequence, int status, const char *flags)
{
    struct session *s = owner;
    if (flags[0] == '!') {
        if (s->running)
            command_cwd_refused(s->running);
        return;
    }
    s->has_errexit = strchr(flags, 'e') != NULL;
    if (sequence == s->start_sequence) {
        s->start_sequence = 0;
        s->is_ready = true;
        s->failed_starts = 0;
        session_note_children(s);
        tell_wishes(s, NULL, NULL);
        session_step(s);
    } else if (sequence == s->dump_sequence) {
        s->dump_sequence = 0;
        s->has_state_text = true;
        void (*on_dumped)(void *, const struct error *) = s->on_dumped;
        s->on_dumped = NULL;
        struct error e = {0};
        bool is_written = has_full_state(s);
        if (!is_written)
            error_set(&e, ERR_STATE, "session '%s': the shell could not write its state", s->name);
        if (on_dumped)
            on_dumped(s->dump_context, is_written ? NULL : &e);
    } else if (s->running) {
        s->last_status = status;
        command_status_came(s->running, status);
    }
}

void session_replace_shell(struct session *s, const char *reason)
{
    LOG_WRN("shell_replaced", F_STR("session", s->name), F_STR("why", reason));
    if (ftruncate(s->state_fd, 0) < 0)
        LOG_WRN("state_truncate", F_STR("session", s->name), F_STR("why", strerror(errno)));
    shell_kill(&s->shell);
}

static void on_shell_deaf(void *owner)
{
    session_replace_shell(owner, "it reads for orders but does not carry them out");
}

static const struct shell_events shell_events = {
    .on_status = on_shell_status, .on_deaf = on_shell_deaf, .on_end = on_shell_end};

int session_dump(struct session *s, void (*on_dumped)(void *context, const struct error *e),
                 void *context, struct error *e)
{
    CLEANUP_STRBUF struct strbuf empty = {0};
    if (session_fill(s, &s->state_fd, "state", &empty, e) < 0)
        return -1;
    s->dump_sequence = shell_dump(&s->shell, e);
    if (!s->dump_sequence)
        return -1;
    s->on_dumped = on_dumped;
    s->dump_context = context;
    return 0;
}

int session_take_state(struct session *s, const struct workdir *to, struct error *e)
{
    if (renameat(s->dir.fd, "state", to->fd, "state") < 0)
        return error_set_sys(e, errno, "move %s/state to %s", s->dir.path, to->path);
    fd_close(&s->state_fd);
    s->has_state_text = false;
    s->state_fd = workdir_file(&s->dir, "state", owner_of(s), e);
    return s->state_fd < 0 ? -1 : 0;
}

/* ---- the lock ---- */

static void forget_old_state(struct session *s)
{
    if (s->has_state_text && ftruncate(s->state_fd, 0) == 0)
        s->has_state_text = false;
}

void session_step(struct session *s)
{
    struct error e = {0};
    if (s->is_stepping)
        return;
    s->is_stepping = true;
    if (session_state(s) == SESSION_FAILED && s->lock.waiter_count > 0 && !s->all->is_stopping) {
        s->failed_starts = 0;
        if (write_first_state(s, &e) < 0 || (s->restarts++, start_shell(s, &e) < 0))
            give_up(s, &e);
    }
    while (session_state(s) == SESSION_IDLE) {
        struct lock_request *r = lock_grant(&s->lock);
        if (!r)
            break;
        if (!shell_is_sound(&s->shell)) {
            lock_return(&s->lock);
            s->is_ready = false;
            s->was_restarted = s->was_state_lost = true;
            session_replace_shell(s, "its control pipe is gone");
            s->is_ready = true; /* its end is that of a ready shell */
            break;
        }
        forget_old_state(s);
        r->on_granted(r->owner);
    }
    s->is_stepping = false;
}

/* ---- what is left behind ---- */

struct stray_walk {
    const struct session *session;
    bool (*each)(void *context, pid_t pid);
    void *context;
    bool is_done;
};

static bool on_shell_child(void *context, pid_t pid)
{
    struct stray_walk *w = context;
    w->is_done = !w->each(w->context, pid);
    return !w->is_done;
}

static bool on_init_child(void *context, pid_t pid)
{
    struct stray_walk *w = context;
    if (child_find(pid) || !proc_environ_has(pid, w->session->mark))
        return true;
    return on_shell_child(context, pid);
}

void session_each_stray(const struct session *s, bool (*each)(void *context, pid_t pid),
                        void *context)
{
    struct stray_walk w = {.session = s, .each = each, .context = context};
    if (s->shell.pid > 0)
        proc_children(s->shell.pid, on_shell_child, &w);
    if (!w.is_done)
        proc_children(getpid(), on_init_child, &w);
}

static bool count_live(void *context, pid_t pid)
{
    struct proc_stat st;
    *(unsigned *)context += proc_stat_read(pid, &st) == 0 && st.state != 'Z' && st.state != 'X';
    return true;
}

unsigned session_count_strays(const struct session *s)
{
    unsigned n = 0;
    if (!s->running)
        session_each_stray(s, count_live, &n);
    return n;
}

#define OLDER_MAX 4096

static bool note_child(void *context, pid_t pid)
{
    struct session *s = context;
    if ((s->older_count & (s->older_count + 1)) == 0 || !s->older) {
        pid_t *more = realloc(s->older, (2 * s->older_count + 2) * sizeof *more);
        if (!more)
            return false;
        s->older = more;
    }
    s->older[s->older_count++] = pid;
    return s->older_count < OLDER_MAX;
}

void session_note_children(struct session *s)
{
    s->older_count = 0;
    /* Between two commands it is a shell, which has one thread. */
    if (s->shell.pid > 0)
        proc_children_of_only_thread(s->shell.pid, note_child, s);
}

static void on_leftover_eof(void *context)
{
    struct leftover *l = context;
    capture_stop(&l->capture);
    list_remove(&l->link);
    free(l);
}

void session_keep_leftover(struct session *s, struct capture *from)
{
    struct leftover *l = calloc(1, sizeof *l);
    if (!s->stray_output)
        s->stray_output = output_new(STRAYS_KEEP);
    s->has_dirty_fifos = true;
    if (!l || !s->stray_output) {
        free(l);
        capture_stop(from);
        return;
    }
    int fd[STREAM_COUNT] = {from->fd[STREAM_STDOUT], from->fd[STREAM_STDERR]};
    capture_detach(from);
    l->session = s;
    l->capture.on_eof = on_leftover_eof;
    l->capture.context = l;
    capture_start(&l->capture, s->all->loop, s->stray_output, fd);
    list_append(&s->leftovers, &l->link);
}

int session_open_fifos(struct session *s, int fd[STREAM_COUNT], struct error *e)
{
    static const char *const names[STREAM_COUNT] = {"out", "err"};
    for (int i = 0; i < STREAM_COUNT; i++) {
        struct error ignored;
        fd[i] = s->has_dirty_fifos ? -1 : workdir_fifo_reader(&s->dir, names[i], &ignored);
        if (fd[i] >= 0)
            continue;
        int made = workdir_fifo(&s->dir, names[i], owner_of(s), e);
        bool is_made = made >= 0;
        /* A reader that opens while there is no writer sees no hang-up until one has come and
         * gone (fifo(7)); so the descriptor that made it is closed first. */
        fd_close(&made);
        if (is_made)
            fd[i] = workdir_fifo_reader(&s->dir, names[i], e);
        if (fd[i] < 0) {
            if (i > 0)
                fd_close(&fd[0]);
            return -1;
        }
    }
    s->has_dirty_fifos = false;
    return 0;
}

/* ---- ending ---- */

static bool add_root(void *context, pid_t pid)
{
    teardown_add_root(context, pid);
    return true;
}

static void collect(void *context, struct teardown *t)
{
    struct session *s = context;
    if (s->shell.pid > 0)
        teardown_add_root(t, s->shell.pid);
    session_each_stray(s, add_root, t);
    processes_each_of(s->all, s, add_root, t);
}

static void finish_ending(void *context, const struct teardown_report *report)
{
    struct session *s = context;
    struct error why = {0};
    children_sweep();
    error_set(&why, ERR_STATE, "session '%s' was %s", s->name,
              s->ends_for_reset ? "reset" : "deleted");
    if (s->running)
        command_shell_ended(s->running, NULL, false);
    if (!s->ends_for_reset)
        end_all_commands(s, &why);
    s->teardown = NULL;
    LOG_INF(s->ends_for_reset ? "session_reset" : "session_deleted", F_STR("session", s->name),
            F_INT("ended", report->ended), F_INT("survivors", report->survivor_count));
    tell_wishes(s, report, NULL);
    if (!s->ends_for_reset) {
        session_free(s);
        return;
    }
    if (s->shell.child)
        child_forget(s->shell.child);
    s->last_cwd[0] = '\0';
    s->last_status = 0;
    s->older_count = 0;
    s->was_restarted = s->was_state_lost = false;
    if (write_first_state(s, &why) < 0)
        give_up(s, &why);
    else
        restart_shell(s);
}

static int begin_ending(struct session *s, bool is_reset, struct session_wish *wish,
                        struct error *e)
{
    if (s->teardown) {
        s->ends_for_reset = s->ends_for_reset && is_reset;
        add_wish(s, wish);
        return 0;
    }
    struct teardown_plan plan = {.loop = s->all->loop,
                                 .first_signal = SIGTERM,
                                 .grace_ms = s->kill_grace_ms,
                                 .collect = collect,
                                 .on_done = finish_ending,
                                 .context = s,
                                 .cgroup_fd = -1};
    s->ends_for_reset = is_reset;
    s->teardown = teardown_start(&plan, e);
    if (!s->teardown)
        return error_wrap(e, "session '%s'", s->name);
    add_wish(s, wish);
    return 0;
}

int session_delete(struct session *s, struct session_wish *wish, struct error *e)
{
    if (s->is_configured)
        return error_set(e, ERR_DENIED,
                         "session '%s' is declared in the configuration: it can be reset, not "
                         "deleted",
                         s->name);
    return begin_ending(s, false, wish, e);
}

int session_reset(struct session *s, struct session_wish *wish, struct error *e)
{
    return begin_ending(s, true, wish, e);
}

/* ---- all of them ---- */

void sessions_stop(struct sessions *all)
{
    struct error why = {0};
    error_set(&why, ERR_UNAVAILABLE, "init is stopping");
    all->is_stopping = true;
    list_each(s, &all->sessions, struct session, link) end_all_commands(s, &why);
}

void sessions_free(struct sessions *all)
{
    processes_free(all);
    list_each(s, &all->sessions, struct session, link)
    {
        if (s->teardown)
            teardown_cancel(s->teardown);
        s->teardown = NULL;
        session_free(s);
    }
    env_free(&all->base_env);
}
