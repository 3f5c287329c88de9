#include "sessions/feed.h"
#include "base/fd.h"

#include <errno.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

/* How soon, and how seldom at most, it is looked whether a shell that is late has opened it. */
#define END_S     0.001
#define END_MAX_S 5.0

static void on_writable(struct ev_loop *loop, ev_io *w, int events)
{
    (void)events;
    struct feed *f = w->data;
    ev_io_stop(loop, w);
    f->on_ready(f->context);
}

/* A child of init has a copy of the keeper until it execs: what it was locked with says so. */
static bool keeper_is_gone(const struct feed *f)
{
    return flock(f->fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

/* A writer of a FIFO that nobody reads polls POLLERR: the shell has not opened it yet. */
static bool is_read(const struct feed *f)
{
    struct pollfd p = {.fd = f->fd};
    return poll(&p, 1, 0) == 0 || !(p.revents & POLLERR);
}

static void on_end(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct feed *f = w->data;
    if (keeper_is_gone(f) && is_read(f)) {
        feed_close(f);
        return;
    }
    w->repeat = w->repeat < END_MAX_S / 2 ? w->repeat * 2 : END_MAX_S;
    ev_timer_again(loop, w);
}

void feed_init(struct feed *f, struct ev_loop *loop, void (*on_ready)(void *context), void *context)
{
    *f = (struct feed){
        .loop = loop, .fd = -1, .keeper = -1, .on_ready = on_ready, .context = context};
    ev_init(&f->io, on_writable);
    ev_timer_init(&f->end, on_end, 0., END_S);
    f->io.data = f->end.data = f;
}

void feed_open(struct feed *f, int fd, int keeper)
{
    f->fd = fd;
    f->keeper = keeper;
    ev_io_set(&f->io, fd, EV_WRITE);
}

bool feed_is_open(const struct feed *f)
{
    return f->fd >= 0 && !ev_is_active(&f->end); /* it has not ended, late as the shell may be */
}

long feed_write(struct feed *f, const char *bytes, size_t n)
{
    ssize_t k = write(f->fd, bytes, n);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        k = 0;
    if (k >= 0 && (size_t)k < n)
        ev_io_start(f->loop, &f->io);
    return k;
}

void feed_end(struct feed *f)
{
    if (!feed_is_open(f))
        return;
    if (f->keeper < 0) {
        feed_close(f);
        return;
    }
    /* A lock is the open file's, with all its copies, and ends with the last of them: flock(2). Who
     * has a lock already has opened it: its reader itself. */
    if (flock(f->keeper, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        feed_close(f);
        return;
    }
    fd_close(&f->keeper);
    f->end.repeat = END_S;
    on_end(f->loop, &f->end, 0);
}

void feed_close(struct feed *f)
{
    ev_timer_stop(f->loop, &f->end);
    ev_io_stop(f->loop, &f->io);
    fd_close(&f->fd);
    fd_close(&f->keeper);
}
