#include "sessions/log_writer.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "logger/logger.h"
#include "sessions/spawn.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define TURN_ANSWERS   256
#define PAUSE_S        0.1
#define RESTART_MIN_MS 100
#define RESTART_MAX_MS 10000

void log_writer_watch(struct log_writer *w)
{
    ev_io_stop(w->loop, &w->io);
    if (w->fd < 0)
        return;
    bool for_room = w->wants_room && !ev_is_active(&w->pause);
    ev_io_set(&w->io, w->fd, EV_READ | (for_room ? EV_WRITE : 0));
    ev_io_start(w->loop, &w->io);
}

/* The kernel takes nothing now, for another reason than a full socket: try again a little later. */
static void pause_sending(struct log_writer *w, int sys)
{
    if (ev_is_active(&w->pause))
        return;
    LOG_DBG("log_pause", F_STR("why", strerror(sys)));
    ev_timer_set(&w->pause, PAUSE_S, 0.);
    ev_timer_start(w->loop, &w->pause);
    log_writer_watch(w);
}

static void on_pause(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop;
    (void)events;
    log_writer_watch(t->data);
}

bool log_writer_send(struct log_writer *w, const struct logger_message *m, const char *bytes,
                     size_t n)
{
    struct iovec parts[2] = {{(void *)(uintptr_t)m, sizeof *m}, {(void *)(uintptr_t)bytes, n}};
    struct msghdr h = {.msg_iov = parts, .msg_iovlen = 2};
    if (w->fd < 0)
        return false;
    if (sendmsg(w->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return true;
    if (errno != EAGAIN && errno != EINTR) /* a writer that has ended is noticed as a child */
        pause_sending(w, errno);
    return false;
}

/* ---- what it says ---- */

/* One answer. False: none is there now. */
static bool read_answer(struct log_writer *w)
{
    struct logger_message m;
    char text[LOG_WRITER_TEXT_MAX];
    struct iovec parts[2] = {{&m, sizeof m}, {text, sizeof text - 1}};
    struct msghdr h = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t k;
    do /* A writer that died with packets unread leaves an error before its last answers. */
        k = recvmsg(w->fd, &h, MSG_DONTWAIT);
    while (k < 0 && errno == ECONNRESET);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (k < (ssize_t)sizeof m) { /* it has ended, or will now; the reaper tells */
        fd_close(&w->fd);
        log_writer_kill(w);
        return false;
    }
    size_t n = (size_t)k - sizeof m;
    text[n] = '\0';
    w->on_answer(w->context, &m, text, n);
    return true;
}

static void on_io(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop;
    struct log_writer *w = io->data;
    if (events & EV_READ)
        for (unsigned i = 0; i < TURN_ANSWERS && w->fd >= 0 && read_answer(w); i++)
            continue;
    if (events & EV_WRITE && w->fd >= 0)
        w->on_room(w->context);
    log_writer_watch(w);
}

/* ---- its life ---- */

static void put_off_restart(struct log_writer *w, uint64_t ms)
{
    ev_timer_set(&w->restart, (double)ms / 1000.0, 0.);
    ev_timer_start(w->loop, &w->restart);
}

static void on_writer_exit(void *context, const struct child_exit *how)
{
    struct log_writer *w = context;
    w->child = NULL;
    /* What it has done is done: its last words are still in the socket. */
    while (w->fd >= 0 && read_answer(w))
        continue;
    ev_io_stop(w->loop, &w->io);
    fd_close(&w->fd);
    if (!w->is_ending) {
        if (clock_mono_ns() - w->started_ns > (uint64_t)RESTART_MAX_MS * 1000000u)
            w->restart_ms = RESTART_MIN_MS;
        LOG_WRN("log_writer_ended", F_STR("step", how->step), F_INT("wait_status", how->status),
                F_INT("restart_ms", w->restart_ms));
        put_off_restart(w, w->restart_ms);
        w->restart_ms = 2 * w->restart_ms < RESTART_MAX_MS ? 2 * w->restart_ms : RESTART_MAX_MS;
    }
    w->on_ended(w->context);
}

static void on_restart(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop;
    (void)events;
    log_writer_start(t->data);
}

static struct child *spawn_writer(struct log_writer *w, int theirs, struct error *e)
{
    const char *argv[2 + sizeof w->args / sizeof w->args[0] + 1] = {"sandbox-init", LOGGER_OPTION};
    memcpy(argv + 2, w->args, sizeof w->args);
    struct spawn_plan plan = spawn_plan_self(argv);
    plan.stdio[0] = theirs;
    plan.user = w->has_owner ? &w->owner : NULL;
    plan.on_exit = on_writer_exit;
    plan.context = w;
    return spawn(&plan, e);
}

void log_writer_start(struct log_writer *w)
{
    struct error e = {0};
    int ends[2];
    ev_timer_stop(w->loop, &w->restart);
    if (w->child)
        return;
    w->started_ns = clock_mono_ns();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
        w->child = spawn_writer(w, ends[1], &e);
        close(ends[1]);
        if (w->child)
            w->fd = ends[0];
        else
            close(ends[0]);
    } else {
        error_set_sys(&e, errno, "log writer: socketpair");
    }
    if (!w->child) {
        LOG_ERR("log_writer", F_STR("why", e.text));
        if (!w->is_ending)
            put_off_restart(w, RESTART_MAX_MS);
        return;
    }
    LOG_INF("log_writer", F_INT("pid", w->child->pid), F_STR("dir", w->args[0]));
    w->on_started(w->context);
    log_writer_watch(w);
}

void log_writer_init(struct log_writer *w, struct ev_loop *loop)
{
    w->loop = loop;
    w->fd = -1;
    w->restart_ms = RESTART_MIN_MS;
    ev_io_init(&w->io, on_io, -1, EV_READ);
    ev_timer_init(&w->restart, on_restart, 0., 0.);
    ev_timer_init(&w->pause, on_pause, 0., 0.);
    w->io.data = w->restart.data = w->pause.data = w;
}

void log_writer_finish(struct log_writer *w)
{
    if (w->fd >= 0)
        shutdown(w->fd, SHUT_WR);
}

void log_writer_end(struct log_writer *w)
{
    w->is_ending = true;
    ev_timer_stop(w->loop, &w->restart);
}

void log_writer_kill(struct log_writer *w)
{
    if (w->child)
        (void)child_signal(w->child, SIGKILL);
}

void log_writer_close(struct log_writer *w)
{
    ev_io_stop(w->loop, &w->io);
    ev_timer_stop(w->loop, &w->restart);
    ev_timer_stop(w->loop, &w->pause);
    if (w->child)
        child_forget(w->child);
    w->child = NULL;
    fd_close(&w->fd);
}
