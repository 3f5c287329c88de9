/*
 * A stray is nobody's child but its session's shell's, so its end is seen by a pidfd: no walk, no
 * wake-up but that end itself. The number of watched ones is bounded; of others only "left" is
 * told.
 */
#include "sessions/stray_watch.h"
#include "base/fd.h"
#include "base/list.h"
#include "sessions/sessions.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILES_SHARE 8 /* this part of all descriptors at most */

struct watched {
    struct list link;
    pid_t pid;
    int pidfd;
    ev_io io;
    char name[32], listen[96], session[65], id[65];
};

static struct list all = {&all, &all};
static unsigned count;

static void tell(const struct watched *w, const char *what)
{
    EVENT(EVENT_STRAY, what, F_STR("session", w->session), F_STR("id", w->id), F_INT("pid", w->pid),
          F_STR("name", w->name), F_STR("listen", w->listen));
}

static void forget(struct ev_loop *loop, struct watched *w)
{
    ev_io_stop(loop, &w->io);
    fd_close(&w->pidfd);
    list_remove(&w->link);
    count--;
    free(w);
}

static void on_end(struct ev_loop *loop, ev_io *io, int events)
{
    (void)events;
    struct watched *w = io->data;
    tell(w, "ended");
    forget(loop, w);
}

/* The end may have come, though the loop has not seen it yet: then the pid is another's. */
static bool is_watched(struct ev_loop *loop, pid_t pid)
{
    list_each(w, &all, struct watched, link)
    {
        if (w->pid != pid)
            continue;
        if (syscall(SYS_pidfd_send_signal, w->pidfd, 0, NULL, 0) == 0 || errno != ESRCH)
            return true;
        on_end(loop, &w->io, 0);
    }
    return false;
}

static void watch(struct ev_loop *loop, const struct watched *wanted)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || count >= files.rlim_cur / FILES_SHARE ||
        count >= STRAYS_WATCHED || fd_few_are_left(4 * SESSIONS_FD_RESERVE))
        return;
    struct watched *w = malloc(sizeof *w);
    if (!w)
        return;
    *w = *wanted;
    w->pidfd = (int)syscall(SYS_pidfd_open, w->pid, 0);
    if (w->pidfd < 0) {
        if (errno == ESRCH)
            tell(w, "ended");
        free(w);
        return;
    }
    ev_io_init(&w->io, on_end, w->pidfd, EV_READ);
    w->io.data = w;
    ev_io_start(loop, &w->io);
    list_append(&all, &w->link);
    count++;
}

void stray_watch(struct ev_loop *loop, const char *session, const char *id, const struct outcome *o)
{
    for (size_t i = 0; i < o->stray_count && i < STRAYS_TOLD; i++) {
        struct watched w = {.pid = o->strays[i].pid, .pidfd = -1};
        if (is_watched(loop, w.pid))
            continue;
        snprintf(w.name, sizeof w.name, "%s", o->strays[i].comm);
        snprintf(w.listen, sizeof w.listen, "%s", o->strays[i].ports);
        snprintf(w.session, sizeof w.session, "%s", session);
        snprintf(w.id, sizeof w.id, "%s", id);
        tell(&w, "left");
        watch(loop, &w);
    }
}

void stray_watch_end(struct ev_loop *loop)
{
    list_each(w, &all, struct watched, link)
    {
        struct pollfd p = {.fd = w->pidfd, .events = POLLIN};
        if (poll(&p, 1, 0) == 1)
            tell(w, "ended");
        forget(loop, w);
    }
}
