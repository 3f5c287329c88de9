/*
 * Everything between fork and exec. The child of a single-threaded program may call anything, but
 * this file keeps to system calls and memory made beforehand: no allocation, no log, no locks.
 */
#include "sessions/spawn.h"
#include "base/fd.h"
#include "base/folder.h"
#include "sessions/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const step_names[] = {
    [SPAWN_SESSION] = "setsid",
    [SPAWN_GROUP] = "process group",
    [SPAWN_SIGNALS] = "signals",
    [SPAWN_SUBREAPER] = "prctl",
    [SPAWN_CGROUP] = "cgroup",
    [SPAWN_OOM_SCORE] = "oom_score_adj",
    [SPAWN_NICE] = "nice",
    [SPAWN_STDIO] = "stdio",
    [SPAWN_OPEN] = "open",
    [SPAWN_GROUPS] = "setgroups",
    [SPAWN_UID] = "setuid",
    [SPAWN_CWD] = "cwd",
    [SPAWN_LIMITS] = "rlimits",
    [SPAWN_CAPABILITIES] = "capabilities",
    [SPAWN_NO_NEW_PRIVS] = "no_new_privs",
    [SPAWN_EXEC] = "exec",
};
_Static_assert(sizeof(step_names) / sizeof(step_names[0]) == SPAWN_STEP_COUNT, "a name per step");

/* What every child gets back, or loses. */
static struct {
    int base_folder;
    struct rlimit files;
    bool has_files;
    cap_t nothing; /* no capability at all */
} birthright = {.base_folder = -1};

const char *spawn_step_name(enum spawn_step step)
{
    return (size_t)step < SPAWN_STEP_COUNT ? step_names[step] : "spawn";
}

void spawn_init(int base_folder, const struct rlimit *files)
{
    birthright.base_folder = base_folder;
    birthright.files = *files;
    birthright.has_files = files->rlim_cur > 0;
    birthright.nothing = cap_init();
}

void spawn_exit(void)
{
    cap_free(birthright.nothing);
    birthright.nothing = NULL;
}

struct spawn_plan spawn_plan_empty(void)
{
    return (struct spawn_plan){.stdio = {-1, -1, -1},
                               .script_fd = -1,
                               .extra_fd = -1,
                               .extra_at = -1,
                               .open_at = -1,
                               .cgroup_fd = -1,
                               .umask = (mode_t)-1};
}

struct spawn_plan spawn_plan_self(const char *const *argv)
{
    static const char *const no_environment[] = {NULL};
    struct spawn_plan plan = spawn_plan_empty();
    plan.program = "/proc/self/exe";
    plan.argv = argv;
    plan.envp = no_environment;
    plan.cwd = "/";
    return plan;
}

static _Noreturn void fail_with(int report, enum spawn_step step, int detail)
{
    struct spawn_failure f = {.step = step, .sys = errno, .detail = detail};
    (void)!write(report, &f, sizeof f);
    _exit(127);
}

static _Noreturn void fail(int report, enum spawn_step step)
{
    fail_with(report, step, 0);
}

/* The child is the leader of a foreground group of init's terminal. TTOU is still blocked here, so
 * tcsetpgrp(3) from the background neither stops nor fails. */
static int take_terminal(void)
{
    if (setpgid(0, 0) < 0)
        return -1;
    if (tcsetpgrp(0, getpid()) < 0 && errno != ENOTTY)
        return -1;
    return 0;
}

/* Set the action of every signal to its default. */
static void signals_reset_actions(void)
{
    /* The kernel's own call: the C library refuses the two signals that it keeps for itself, and
     * one of them may have been inherited as ignored. All zeroes is SIG_DFL (rt_sigaction(2)). */
    static const unsigned long default_action[4];
    for (int sig = 1; sig <= 64; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            syscall(SYS_rt_sigaction, sig, default_action, NULL, 8);
}

static void reset_signals(int report)
{
    sigset_t none;
    signals_reset_actions();
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
        fail(report, SPAWN_SIGNALS);
}

static bool is_filled(const struct spawn_plan *p, int fd)
{
    return (fd >= 0 && fd <= SPAWN_SCRIPT_FD) ||
           (fd >= 0 && (fd == p->extra_at || fd == p->open_at));
}

/* Lift a descriptor off those that the plan fills, so that filling cannot overwrite a source. */
static int lift(const struct spawn_plan *p, int fd)
{
    if (!is_filled(p, fd))
        return fd;
    int lifted = fcntl(fd, F_DUPFD_CLOEXEC, SPAWN_FD_MIN);
    while (is_filled(p, lifted))
        lifted = fcntl(lifted, F_DUPFD_CLOEXEC, lifted + 1);
    return lifted;
}

/* dup2(2), and the copy is inherited also where both are the same. */
static int place(int from, int to)
{
    return from == to ? fcntl(to, F_SETFD, 0) : dup2(from, to);
}

static void place_stdio(const struct spawn_plan *p, int report)
{
    int from[4];
    for (int i = 0; i < 4; i++) {
        int fd = i < 3 ? p->stdio[i] : p->script_fd;
        from[i] = lift(p, fd);
        if (fd >= 0 && from[i] < 0)
            fail(report, SPAWN_STDIO);
    }
    int extra = p->extra_fd < 0 ? -1 : lift(p, p->extra_fd);
    if (p->extra_fd >= 0 && extra < 0)
        fail(report, SPAWN_STDIO);
    for (int i = 0; i < 4; i++) {
        if (from[i] < 0 && i == SPAWN_SCRIPT_FD)
            break;
        if (from[i] < 0)
            from[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (from[i] < 0 || place(from[i], i) < 0)
            fail(report, SPAWN_STDIO);
    }
    if (extra >= 0 && place(extra, p->extra_at) < 0)
        fail(report, SPAWN_STDIO);
}

/* Close all but 0, 1, 2 and those in kept. */
static void close_others(const int *kept, size_t n)
{
    for (int from = 3; from >= 0;) {
        int next = -1;
        for (size_t i = 0; i < n; i++)
            if (kept[i] >= from && (next < 0 || kept[i] < next))
                next = kept[i];
        if (next != from)
            (void)close_range((unsigned)from, next < 0 ? ~0u : (unsigned)next - 1, 0);
        from = next < 0 ? -1 : next + 1;
    }
}

/* The file system may hang: then the child stays here with nothing of init's but what is kept. */
static void open_file(const struct spawn_plan *p, const int *kept, size_t n, int report)
{
    if (p->open_path || p->make_dir)
        close_others(kept, n);
    if (p->make_dir)
        (void)folder_make(p->make_dir, p->make_for->uid, p->make_for->gid);
    if (!p->open_path)
        return;
    int fd = open(p->open_path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || place(fd, p->open_at) < 0)
        fail(report, SPAWN_OPEN);
}

/* Before the limits, which could forbid the opening of a file. */
static int set_oom_score(int value)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%d", value);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t k = write(fd, text, (size_t)n);
    int saved = errno;
    close(fd);
    errno = saved;
    return k < 0 ? -1 : 0;
}

static void set_limits(const struct spawn_plan *p, int report)
{
    if (p->has_oom_score_adj && set_oom_score(p->oom_score_adj) < 0)
        fail(report, SPAWN_OOM_SCORE);
    if (p->has_nice && setpriority(PRIO_PROCESS, 0, p->nice) < 0)
        fail(report, SPAWN_NICE);
    if (birthright.has_files && setrlimit(RLIMIT_NOFILE, &birthright.files) < 0)
        fail_with(report, SPAWN_LIMITS, RLIMIT_NOFILE);
    for (size_t i = 0; i < p->limit_count; i++)
        if (setrlimit((__rlimit_resource_t)p->limits[i].resource, &p->limits[i].value) < 0)
            fail_with(report, SPAWN_LIMITS, p->limits[i].resource);
    if (p->umask != (mode_t)-1)
        umask(p->umask);
}

static bool is_other_user(const struct user *u)
{
    return u && (u->uid != geteuid() || u->gid != getegid());
}

static void become_user(const struct user *u, bool sets_groups, int report)
{
    if (!is_other_user(u) && !(u && sets_groups))
        return;
    if (setgroups(u->group_count, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0)
        fail(report, SPAWN_GROUPS);
    if (setresuid(u->uid, u->uid, u->uid) < 0)
        fail(report, SPAWN_UID);
}

/* errno says why not; ENOENT of a file that is there means its interpreter: that is *detail. */
static void try_exec(const struct spawn_plan *p, const char *path, int *detail)
{
    execve(path, (char *const *)(const void *)p->argv, (char *const *)(const void *)p->envp);
    int sys = errno;
    if (sys == ENOENT && access(path, F_OK) == 0)
        *detail = SPAWN_NO_INTERPRETER;
    errno = sys;
}

/* As execvpe(3), with the PATH of the new environment and without its fallback to a shell. */
static void exec_program(const struct spawn_plan *p, const char *name, int *detail)
{
    char path[4096];
    const char *dirs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    int denied = 0;
    if (!*name) {
        errno = ENOENT;
        return;
    }
    if (strchr(name, '/')) {
        try_exec(p, name, detail);
        return;
    }
    for (const char *const *v = p->envp; *v; v++)
        if (strncmp(*v, "PATH=", 5) == 0)
            dirs = *v + 5;
    for (const char *d = dirs;; d++) {
        size_t n = strcspn(d, ":");
        int k = snprintf(path, sizeof path, "%.*s%s%s", (int)n, d, n ? "/" : "./", name);
        if (k > 0 && (size_t)k < sizeof path) {
            try_exec(p, path, detail);
            if (errno == EACCES)
                denied = EACCES;
            else if (errno != ENOENT && errno != ENOTDIR)
                return;
        }
        d += n;
        if (!*d)
            break;
    }
    errno = denied ? denied : ENOENT;
}

/* What init had open is closed by the exec; but a folder or program on a file system that does not
 * answer would hold the child up before that, and with it the ends of others' pipes. */
static void close_rest(const struct spawn_plan *p, int report)
{
    const int kept[] = {report, p->script_fd >= 0 ? SPAWN_SCRIPT_FD : -1,
                        p->extra_fd >= 0 ? p->extra_at : -1, p->open_path ? p->open_at : -1};
    close_others(kept, sizeof kept / sizeof *kept); /* without close_range(2): by the exec */
}

static _Noreturn void run_child(const struct spawn_plan *p, bool is_born_there, int report)
{
    /* The report must survive the filling. */
    report = lift(p, report);
    int cgroup = lift(p, p->cgroup_fd), base_folder = lift(p, birthright.base_folder);
    place_stdio(p, report);
    open_file(p,
              (const int[]){report, cgroup, base_folder, p->script_fd < 0 ? -1 : SPAWN_SCRIPT_FD,
                            p->extra_at},
              5, report);
    if (p->takes_terminal ? take_terminal() < 0 : setsid() < 0)
        fail(report, p->takes_terminal ? SPAWN_GROUP : SPAWN_SESSION);
    if (p->steals_terminal)
        ioctl(0, TIOCSCTTY, 0); /* fails where it controls another session: no job control then */
    reset_signals(report);
    if (p->is_subreaper && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        fail(report, SPAWN_SUBREAPER);
    if (cgroup >= 0 && !is_born_there)
        cgroup_join(cgroup); /* if it is gone: the tree is found by walks all the same */
    set_limits(p, report);
    bool is_other = is_other_user(p->user);
    become_user(p->user, p->sets_groups, report);
    if (base_folder >= 0 && fchdir(base_folder) < 0 && !p->cwd)
        fail(report, SPAWN_CWD);
    close_rest(p, report);
    if (p->cwd && chdir(p->cwd) < 0)
        fail(report, SPAWN_CWD);
    /* setuid(2) takes them from a root that becomes another user, but not from an init that has
     * them without being root. */
    if ((is_other || p->has_no_privileges) && birthright.nothing &&
        cap_set_proc(birthright.nothing) < 0)
        fail(report, SPAWN_CAPABILITIES);
    if (p->has_no_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        fail(report, SPAWN_NO_NEW_PRIVS);
    int detail = 0;
    exec_program(p, p->program ? p->program : p->argv[0], &detail);
    if (p->or_path && errno == ENOENT)
        exec_program(p, p->argv[0], &detail);
    fail_with(report, SPAWN_EXEC, errno == ENOENT ? detail : 0);
}

/* Where a birth in the cgroup is refused, and not for want of processes or memory, the child joins
 * it. */
static pid_t fork_child(const struct spawn_plan *p, bool *is_born_there)
{
    if (*is_born_there) {
        pid_t pid = cgroup_fork(p->cgroup_fd);
        if (pid >= 0 || errno == EAGAIN || errno == ENOMEM)
            return pid;
    }
    *is_born_there = false;
    return fork();
}

struct child *spawn(const struct spawn_plan *p, struct error *e)
{
    /* A socket pair, since its other end can be looked at without reading (child.c). */
    int report[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report) < 0) {
        error_set_sys(e, errno, "start %s: pipe", p->argv[0]);
        return NULL;
    }
    bool is_born_there = p->cgroup_is_new;
    pid_t pid = fork_child(p, &is_born_there);
    if (pid == 0) {
        close(report[0]);
        run_child(p, is_born_there, report[1]);
    }
    int saved = errno;
    close(report[1]);
    if (pid < 0) {
        close(report[0]);
        error_set_sys(e, saved, "start %s: fork", p->argv[0]);
        return NULL;
    }
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd >= 0)
        fcntl(pidfd, F_SETFD, FD_CLOEXEC);
    fcntl(report[0], F_SETFL, O_NONBLOCK);
    struct child *c = child_add(pid, pidfd, report[0]);
    if (!c) {
        /* No memory for the record: the child must not live without one. The sweep reaps it. */
        kill(pid, SIGKILL);
        fd_close(&pidfd);
        close(report[0]);
        error_set(e, ERR_MEMORY, "start %s: no memory for its record", p->argv[0]);
        return NULL;
    }
    if (p->on_exec)
        child_on_exec(c, p->on_exec);
    c->on_exit = p->on_exit;
    c->context = p->context;
    return c;
}
