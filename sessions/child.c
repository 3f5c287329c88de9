#include "sessions/child.h"
#include "base/clock.h"
#include "base/fd.h"
#include "sessions/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUCKETS 256

static struct {
    struct ev_loop *loop;
    struct list buckets[BUCKETS];
    struct children_stats stats;
} table;

static struct list *bucket_of(pid_t pid)
{
    return &table.buckets[(unsigned)pid % BUCKETS];
}

void children_init(struct ev_loop *loop)
{
    table.loop = loop;
    for (size_t i = 0; i < BUCKETS; i++)
        list_init(&table.buckets[i]);
}

struct child *child_find(pid_t pid)
{
    list_each(c, bucket_of(pid), struct child, link) if (c->pid == pid) return c;
    return NULL;
}

/* What the child wrote before exec: nothing while it is on its way or after a success. */
static bool take_failure(struct child *c, struct spawn_failure *f)
{
    return c->exec_pipe >= 0 && read(c->exec_pipe, f, sizeof *f) == (ssize_t)sizeof *f;
}

static void stop_exec_watch(struct child *c)
{
    ev_io_stop(table.loop, &c->exec_io);
    fd_close(&c->exec_pipe);
}

static void child_ended(struct child *c, int status, const struct rusage *usage)
{
    struct child_exit how = {.status = status, .usage = *usage};
    struct spawn_failure f;
    if (take_failure(c, &f)) {
        how.step = spawn_step_name(f.step);
        how.sys = f.sys;
        how.detail = f.detail;
    } else if (!c->is_started && c->on_exec) {
        c->is_started = true;
        c->on_exec(c->context);
    }
    stop_exec_watch(c);
    ev_io_stop(table.loop, &c->pidfd_io);
    list_remove(&c->link);
    table.stats.live--;
    if (c->on_exit)
        c->on_exit(c->context, &how);
    fd_close(&c->pidfd);
    free(c);
}

static void on_exec_pipe(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    struct child *c = w->data;
    char probe;
    ssize_t k = recv(c->exec_pipe, &probe, 1, MSG_PEEK | MSG_DONTWAIT);
    if (k != 0) {
        /* A failure is on its way; it is read when the child's end is collected. */
        ev_io_stop(table.loop, w);
        return;
    }
    stop_exec_watch(c);
    c->is_started = true;
    if (c->on_exec)
        c->on_exec(c->context);
}

static void on_pidfd(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    struct child *c = w->data;
    int status;
    struct rusage usage;
    pid_t pid;
    do
        pid = wait4(c->pid, &status, WNOHANG, &usage);
    while (pid < 0 && errno == EINTR);
    if (pid == c->pid)
        child_ended(c, status, &usage);
    else if (pid < 0)
        ev_io_stop(table.loop, w); /* collected elsewhere: cannot be, but must not spin */
}

struct child *child_add(pid_t pid, int pidfd, int exec_pipe)
{
    struct child *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->pid = pid;
    c->pidfd = pidfd;
    c->exec_pipe = exec_pipe;
    ev_io_init(&c->exec_io, on_exec_pipe, exec_pipe, EV_READ);
    c->exec_io.data = c;
    if (pidfd >= 0) {
        ev_io_init(&c->pidfd_io, on_pidfd, pidfd, EV_READ);
        c->pidfd_io.data = c;
        ev_io_start(table.loop, &c->pidfd_io);
    }
    list_append(bucket_of(pid), &c->link);
    table.stats.live++;
    return c;
}

void child_on_exec(struct child *c, void (*on_exec)(void *context))
{
    c->on_exec = on_exec;
    ev_io_start(table.loop, &c->exec_io);
}

void child_forget(struct child *c)
{
    c->on_exec = NULL;
    c->on_exit = NULL;
    c->context = NULL;
}

int child_signal(const struct child *c, int sig)
{
    if (c->pidfd >= 0)
        return (int)syscall(SYS_pidfd_send_signal, c->pidfd, sig, NULL, 0);
    return kill(c->pid, sig);
}

unsigned children_sweep_until(uint64_t until_ns, bool *is_done)
{
    unsigned strangers = 0;
    for (*is_done = false; clock_mono_ns() < until_ns;) {
        int status;
        struct rusage usage;
        pid_t pid = wait4(-1, &status, WNOHANG, &usage);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0) {
            *is_done = true;
            break;
        }
        struct child *c = child_find(pid);
        if (c) {
            child_ended(c, status, &usage);
        } else {
            strangers++;
            table.stats.orphans_reaped++;
        }
    }
    return strangers;
}

void children_sweep(void)
{
    bool is_done;
    children_sweep_until(UINT64_MAX, &is_done);
}

bool children_exist(void)
{
    siginfo_t si;
    return waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

bool children_any(void)
{
    return table.stats.live > 0;
}

const struct children_stats *children_stats(void)
{
    return &table.stats;
}
