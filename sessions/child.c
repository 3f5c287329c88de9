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

#define BUCKETS       256
#define SWEEP_SLICE   ((uint64_t)2 * 1000000)    /* ns of one turn of the loop, for a wish */
#define SWEEP_WISH_NS ((uint64_t)2000 * 1000000) /* where the dead never end */

static struct {
    struct ev_loop *loop;
    struct list buckets[BUCKETS];
    struct children_stats stats;
    struct list wishes; /* struct sweep_wish, oldest first */
    ev_timer sweep_on;  /* for them, in the next turn */
    bool is_sweeping;
} table;

static struct list *bucket_of(pid_t pid)
{
    return &table.buckets[(unsigned)pid % BUCKETS];
}

static void on_sweep_on(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)w;
    (void)events;
    bool is_done;
    children_sweep_until(clock_mono_ns() + SWEEP_SLICE, &is_done);
}

void children_init(struct ev_loop *loop)
{
    table.loop = loop;
    list_init(&table.wishes);
    ev_timer_init(&table.sweep_on, on_sweep_on, 0., 0.);
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

const char *child_exit_why(const struct child_exit *how)
{
    if (how->step && strcmp(how->step, spawn_step_name(SPAWN_EXEC)) == 0 &&
        how->detail == SPAWN_NO_INTERPRETER)
        return "its interpreter (of the line #!) or loader is not there";
    return strerror(how->sys);
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

void child_look_for_exec(struct child *c)
{
    char probe;
    if (c->exec_pipe < 0 || recv(c->exec_pipe, &probe, 1, MSG_PEEK | MSG_DONTWAIT) != 0)
        return;
    stop_exec_watch(c);
    c->is_started = true;
    if (c->on_exec)
        c->on_exec(c->context);
}

static void on_exec_pipe(struct ev_loop *loop, ev_io *w, int events)
{
    (void)events;
    struct child *c = w->data;
    /* Either it is there, or a failure is, which is read when the child's end is collected. */
    ev_io_stop(loop, w);
    child_look_for_exec(c);
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

void child_has_executed(struct child *c)
{
    if (c->is_started || c->on_exec)
        return;
    stop_exec_watch(c);
    c->is_started = true;
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

/* A sweep has come to its end, or not. */
static void fulfil_wishes(bool is_done)
{
    while (!list_is_empty(&table.wishes)) {
        struct sweep_wish *w = list_entry(table.wishes.next, struct sweep_wish, link);
        if (!is_done && clock_mono_ns() < w->until_ns) {
            ev_timer_start(table.loop, &table.sweep_on);
            return;
        }
        list_remove(&w->link);
        w->on_swept(w->context);
    }
    ev_timer_stop(table.loop, &table.sweep_on);
}

void children_await_sweep(struct sweep_wish *w, void (*on_swept)(void *context), void *context)
{
    uint64_t now = clock_mono_ns();
    bool is_done;
    w->on_swept = on_swept;
    w->context = context;
    w->until_ns = now + SWEEP_WISH_NS;
    list_append(&table.wishes, &w->link);
    if (!table.is_sweeping) /* or that sweep goes on for it */
        children_sweep_until(now + SWEEP_SLICE, &is_done);
}

void sweep_wish_drop(struct sweep_wish *w)
{
    if (w->link.next)
        list_remove(&w->link);
}

unsigned children_sweep_until(uint64_t until_ns, bool *is_done)
{
    unsigned strangers = 0;
    bool is_outermost = !table.is_sweeping;
    table.is_sweeping = true;
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
    if (is_outermost) {
        table.is_sweeping = false;
        fulfil_wishes(*is_done);
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

const struct children_stats *children_stats(void)
{
    return &table.stats;
}
