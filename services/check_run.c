/*
 * Checks by a process: a command, spawned as the service would be, or a look at a path (look.h) as
 * init itself. It is killed whole when its time is over, and nothing that it started outlives it.
 * The last line that it said explains a failure.
 */
#include "services/check_attempt.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/number.h"
#include "sessions/look.h"
#include "sessions/orphan.h"
#include "sessions/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define FD_RESERVE  16 /* descriptors that no check takes: a spawn needs several */
#define OUTPUT_KEEP 4096
#define SAID_MAX    160
#define HELD_NS     1000000000ull /* what was killed so long ago is held up */

/* ---- what belongs to it ---- */

static bool owns(const void *owner, const struct proc_stat *st)
{
    const struct check_run *r = owner;
    /* A session's number is nobody else's while it is in use. */
    if (st->sid == r->pid && (r->child || st->start_ticks <= r->ended_ticks))
        return true;
    return proc_environ_has(st->pid, r->mark);
}

/* Those that init has adopted from it. */
static void each_orphan(struct check_run *r, bool (*each)(void *context, pid_t pid), void *context)
{
    orphans_each(owns, r, each, context);
}

static bool note(void *context, pid_t pid)
{
    (void)pid;
    *(bool *)context = true;
    return false;
}

static bool add_root(void *context, pid_t pid)
{
    teardown_add_root(context, pid);
    return true;
}

static void collect(void *context, struct teardown *t)
{
    struct check_attempt *a = context;
    if (a->run.child)
        teardown_add_root(t, a->run.child->pid);
    each_orphan(&a->run, add_root, t);
}

/* ---- the verdict ---- */

/* The last line of its output, behind `head`; "": it said nothing. */
static void add_said(const struct check_attempt *a, const char *head, char *buf, size_t size)
{
    char said[SAID_MAX];
    size_t n = output_last_bytes(a->run.output, STREAM_STDOUT, said, sizeof said);
    while (n > 0 && (said[n - 1] == '\n' || said[n - 1] == '\r' || said[n - 1] == ' '))
        n--;
    size_t from = n;
    while (from > 0 && said[from - 1] != '\n')
        from--;
    for (size_t i = from; i < n; i++)
        if ((unsigned char)said[i] < ' ' || said[i] == 127)
            said[i] = ' ';
    snprintf(buf, size, "%s%.*s", n > from ? head : "", (int)(n - from), said + from);
}

static bool is_look(const struct check_attempt *a)
{
    return a->kind != CHECK_COMMAND;
}

static const char *what_looks(const struct check_attempt *a)
{
    return a->kind == CHECK_UNIX ? "connect to " : "";
}

static void explain_look(struct check_attempt *a)
{
    const struct child_exit *how = &a->run.how;
    const char *what = what_looks(a), *path = a->plan.check->target;
    char said[SAID_MAX], time[32];
    add_said(a, "", said, sizeof said);
    number_format_duration(a->plan.timeout_ms, time, sizeof time);
    if (a->run.is_expired && said[0])
        error_set(&a->why, ERR_STATE, "%s%s: its queue was full for %s", what, path, time);
    else if (a->run.is_expired)
        error_set(&a->why, ERR_STATE, "%s%s: the file system has not answered within %s", what,
                  path, time);
    else if (how->step)
        error_set_sys(&a->why, how->sys, "%s%s: %s", what, path, how->step);
    else
        error_set(&a->why, ERR_STATE, "%s%s: %s", what, path, said[0] ? said : "not looked at");
}

static void explain(struct check_attempt *a)
{
    const struct child_exit *how = &a->run.how;
    const char *name = a->plan.check->argv[0];
    char said[SAID_MAX + 4], buf[32];
    add_said(a, ": ", said, sizeof said);
    if (a->run.is_expired)
        error_set(&a->why, ERR_STATE, "command '%s' was killed after %s%s", name,
                  number_format_duration(a->plan.timeout_ms, buf, sizeof buf), said);
    else if (how->step)
        error_set_sys(&a->why, how->sys, "command '%s': %s", name, how->step);
    else if (WIFSIGNALED(how->status))
        error_set(&a->why, ERR_STATE, "command '%s' ended by %s%s", name,
                  signal_name(WTERMSIG(how->status), buf, sizeof buf), said);
    else
        error_set(&a->why, ERR_STATE, "command '%s' exited with %d%s", name,
                  WEXITSTATUS(how->status), said);
}

/* The command is over and so is all that it started, or the kernel lets nobody end it. */
static void settle(struct check_attempt *a)
{
    const struct child_exit *how = &a->run.how;
    if (a->is_cancelled) {
        check_attempt_free(a);
        return;
    }
    bool is_ok =
        !a->run.is_expired && !how->step && WIFEXITED(how->status) && WEXITSTATUS(how->status) == 0;
    if (!is_ok && is_look(a))
        explain_look(a);
    else if (!is_ok)
        explain(a);
    check_conclude(a, is_ok);
}

static void on_torn_down(void *context, const struct teardown_report *report)
{
    struct check_attempt *a = context;
    children_sweep(); /* may collect the command: while the teardown is set that only sets facts */
    a->run.teardown = NULL;
    if (report->survivor_count > 0)
        LOG_WRN("check_survivors", F_STR("check", a->text),
                F_INT("survivors", report->survivor_count), F_INT("pid", report->survivors[0].pid),
                F_STR("why", report->survivors[0].why));
    if (a->run.child) { /* it is one of them */
        child_forget(a->run.child);
        a->run.child = NULL;
    }
    settle(a);
}

static bool begin_teardown(struct check_attempt *a)
{
    struct error e = {0};
    struct teardown_plan plan = {.loop = a->plan.loop,
                                 .first_signal = SIGKILL,
                                 .collect = collect,
                                 .on_done = on_torn_down,
                                 .context = a,
                                 .cgroup_fd = -1};
    a->run.teardown = teardown_start(&plan, &e);
    if (!a->run.teardown)
        LOG_ERR("check_kill", F_STR("check", a->text), F_STR("why", e.text));
    return a->run.teardown;
}

static void on_exit_status(void *context, const struct child_exit *how)
{
    struct check_attempt *a = context;
    bool has_left_some = false;
    a->run.child = NULL;
    a->run.how = *how;
    a->run.ended_ticks = proc_ticks_now();
    if (a->run.teardown)
        return;
    if (!a->is_cancelled)
        capture_drain(&a->run.capture);
    each_orphan(&a->run, note, &has_left_some);
    if (!has_left_some || !begin_teardown(a))
        settle(a);
}

/* ---- one attempt ---- */

/* The service's environment and the mark. NULL without memory. */
static const char **environment(const struct check_attempt *a)
{
    size_t n = 0;
    while (a->plan.envp && a->plan.envp[n])
        n++;
    const char **envp = calloc(n + 2, sizeof *envp);
    if (!envp)
        return NULL;
    if (n > 0)
        memcpy(envp, a->plan.envp, n * sizeof *envp);
    envp[n] = a->run.mark;
    return envp;
}

static int spawn_it(struct check_attempt *a, int output_fd, struct error *e)
{
    const char **envp = environment(a);
    if (!envp)
        return error_set(e, ERR_MEMORY, "no memory for a check");
    const struct check *c = a->plan.check;
    const char *look[] = {"sandbox-init", LOOK_OPTION,
                          c->kind == CHECK_UNIX ? LOOK_UNIX : LOOK_FILE, c->target, NULL};
    struct spawn_plan plan = is_look(a) ? spawn_plan_self(look) : spawn_plan_empty();
    plan.envp = envp;
    plan.stdio[1] = plan.stdio[2] = output_fd;
    if (!is_look(a)) {
        plan.argv = (const char *const *)(const void *)c->argv;
        plan.cwd = a->plan.cwd;
        plan.user = a->plan.user;
        plan.is_subreaper = true;
    }
    plan.on_exit = on_exit_status;
    plan.context = a;
    a->run.child = spawn(&plan, e);
    free(envp);
    if (!a->run.child)
        return -1;
    a->run.pid = a->run.child->pid;
    return 0;
}

/* The process of an earlier attempt, which was killed, is still there. */
static bool is_held(const struct check_hold *h)
{
    struct proc_stat st;
    return h && h->pid && proc_stat_read(h->pid, &st) == 0 && st.start_ticks == h->start_ticks &&
           !proc_stat_is_dead(&st);
}

static int refuse_held(struct check_attempt *a, struct error *e)
{
    const struct check_hold *h = a->plan.hold;
    const struct check *c = a->plan.check;
    if (clock_mono_ns() - h->since_ns < HELD_NS) /* about to go; it says nothing of the service */
        return error_set(e, ERR_BUSY, "the process of an earlier check is still there");
    if (is_look(a))
        error_set(&a->why, ERR_STATE,
                  "%s%s: the file system has not answered (process %d waits for it)", what_looks(a),
                  c->target, (int)h->pid);
    else
        error_set(&a->why, ERR_STATE,
                  "command '%s': process %d of an earlier check cannot be ended", c->argv[0],
                  (int)h->pid);
    check_conclude(a, false);
    return 0;
}

int check_run_begin(struct check_attempt *a, struct error *e)
{
    const struct check *c = a->plan.check;
    const size_t most = sizeof((struct sockaddr_un *)NULL)->sun_path - 1;
    int ends[2];
    if (a->kind == CHECK_UNIX && strlen(c->target) > most)
        return error_set(e, ERR_INVALID, "socket %.100s…: the path has %zu bytes, at most %zu do",
                         c->target, strlen(c->target), most);
    if (is_held(a->plan.hold))
        return refuse_held(a, e);
    snprintf(a->run.mark, sizeof a->run.mark, "SANDBOX_CHECK=%llx",
             (unsigned long long)clock_mono_ns());
    if (fd_next_is_scarce(FD_RESERVE))
        return error_set(e, ERR_LIMIT, "too few descriptors are left for a check (RLIMIT_NOFILE)");
    if (!(a->run.output = output_new(OUTPUT_KEEP)))
        return error_set(e, ERR_MEMORY, "no memory for a check");
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_sys(e, errno, "a pipe for a check");
    CLEANUP_FD int ours = ends[0], theirs = ends[1];
    if (fd_set_nonblock(ours) < 0)
        return error_set_sys(e, errno, "a pipe for a check");
    if (spawn_it(a, theirs, e) < 0)
        return -1;
    capture_start(&a->run.capture, a->plan.loop, a->run.output, (int[]){fd_take(&ours), -1});
    return 0;
}

void check_run_expire(struct check_attempt *a)
{
    struct check_hold *h = a->plan.hold;
    struct proc_stat st;
    a->run.is_expired = true;
    if (h && a->run.child && proc_stat_read(a->run.pid, &st) == 0)
        *h = (struct check_hold){
            .pid = a->run.pid, .start_ticks = st.start_ticks, .since_ns = clock_mono_ns()};
    if (a->run.teardown || begin_teardown(a))
        return;
    /* No memory for a walk: at least the command itself; its end goes on from here. */
    if (a->run.child)
        child_signal(a->run.child, SIGKILL);
}

void check_run_end(struct check_attempt *a)
{
    if (a->run.child)
        child_forget(a->run.child);
    if (a->run.capture.output)
        capture_stop(&a->run.capture);
    output_free(a->run.output);
}

bool check_run_is_live(const struct check_attempt *a)
{
    return a->run.child || a->run.teardown;
}
