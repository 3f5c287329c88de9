#include "sessions/capture.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Read in one turn of the loop from one stream: more than this would let a flood starve timers and
 * other sessions (case E8). */
#define TURN_BYTES (4 * OUTPUT_CHUNK)

/* More than the kernel keeps for a terminal: its buffers hold 640 KiB (tty_buffer.c). */
#define TERMINAL_DRAIN (1024 * 1024)

/* One buffer serves every read: the loop is single-threaded and the bytes are handed on at once. */
static char chunk[OUTPUT_CHUNK];

static void close_stream(struct capture *c, enum stream s)
{
    ev_io_stop(c->loop, &c->io[s]);
    c->is_ready[s] = false;
    fd_close(&c->fd[s]);
}

/* A pipe that was full is made larger: writer and reader then take turns less often. Where the
 * user's share of pipe memory is used up (pipe(7)) it stays as it is. */
static void widen(struct capture *c, enum stream s)
{
    c->is_wide[s] = true;
    (void)fcntl(c->fd[s], F_SETPIPE_SZ, CAPTURE_PIPE_BYTES);
}

/* Read at most `most` bytes of a stream. False: nothing more now (empty or ended). */
static bool read_some(struct capture *c, enum stream s, size_t most)
{
    size_t want = most < sizeof chunk ? most : sizeof chunk;
    ssize_t k = read(c->fd[s], chunk, want);
    if (k > 0) {
        if ((size_t)k == sizeof chunk && !c->is_wide[s])
            widen(c, s);
        output_append(c->output, s, chunk, (size_t)k);
        return true;
    }
    if (k == 0 || (errno != EAGAIN && errno != EINTR))
        close_stream(c, s);
    return false;
}

static void set_reading(struct capture *c, bool on)
{
    for (enum stream s = 0; s < STREAM_COUNT; s++) {
        if (c->fd[s] < 0)
            continue;
        if (on) {
            ev_io_start(c->loop, &c->io[s]);
        } else {
            ev_io_stop(c->loop, &c->io[s]);
            c->is_ready[s] = false;
        }
    }
}

void capture_resume(struct capture *c)
{
    set_reading(c, true);
}

static void on_relief(void *context)
{
    capture_resume(context);
}

/* libev hands out the events of one turn last first (base/arrivals.h, which would hand them to the
 * capture after the end of its command): the stream that it tells of last was written to first. So
 * the reading waits until it has told of both. */
static void on_readable(struct ev_loop *loop, ev_io *w, int events)
{
    (void)events;
    struct capture *c = w->data;
    c->first = w == &c->io[STREAM_STDOUT] ? STREAM_STDOUT : STREAM_STDERR;
    c->is_ready[c->first] = true;
    ev_feed_event(loop, &c->turn, EV_CUSTOM);
}

/* One stream's share of a turn. False: those who follow the output lag, it has to wait. */
static bool read_share(struct capture *c, enum stream s)
{
    c->is_ready[s] = false;
    for (size_t got = 0; got < TURN_BYTES; got += sizeof chunk) {
        if (output_is_pressed(c->output)) {
            set_reading(c, false);
            return false;
        }
        if (!read_some(c, s, sizeof chunk))
            break;
    }
    return true;
}

static void on_turn(struct ev_loop *loop, ev_check *w, int events)
{
    (void)loop;
    (void)events;
    struct capture *c = w->data;
    enum stream first = c->first, other = (enum stream)(STREAM_COUNT - 1 - first);
    if ((c->is_ready[first] && !read_share(c, first)) ||
        (c->is_ready[other] && !read_share(c, other)))
        return;
    if (c->fd[STREAM_STDOUT] < 0 && c->fd[STREAM_STDERR] < 0 && c->on_eof)
        c->on_eof(c->context);
}

void capture_start(struct capture *c, struct ev_loop *loop, struct output *output,
                   const int fd[STREAM_COUNT])
{
    c->loop = loop;
    c->output = output;
    ev_check_init(&c->turn, on_turn);
    c->turn.data = c;
    for (enum stream s = 0; s < STREAM_COUNT; s++) {
        c->fd[s] = fd[s];
        c->is_wide[s] = c->is_ready[s] = false;
        ev_io_init(&c->io[s], on_readable, fd[s], EV_READ);
        ev_set_priority(&c->io[s], EV_MAXPRI);
        c->io[s].data = c;
        if (fd[s] >= 0)
            ev_io_start(loop, &c->io[s]);
    }
    output_on_relief(output, on_relief, c);
}

void capture_drain(struct capture *c)
{
    for (enum stream s = 0; s < STREAM_COUNT; s++) {
        int left = TERMINAL_DRAIN;
        if (c->fd[s] < 0 || (!c->is_terminal && ioctl(c->fd[s], FIONREAD, &left) < 0))
            continue;
        while (left > 0 && c->fd[s] >= 0) {
            uint64_t before = output_end_offset(c->output);
            if (!read_some(c, s, (size_t)left))
                break;
            left -= (int)(output_end_offset(c->output) - before);
        }
    }
}

bool capture_has_unread(const struct capture *c)
{
    for (enum stream s = 0; s < STREAM_COUNT; s++) {
        int left = 0;
        if (c->fd[s] >= 0 && ioctl(c->fd[s], FIONREAD, &left) == 0 && left > 0)
            return true;
    }
    return false;
}

/* A FIFO that no writer has opened yet shows no hang-up, and would not ever (fifo(7)): a writer
 * that comes and goes makes it show. */
static void touch_writer(int fd)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CLEANUP_FD __attribute__((unused)) int writer =
        open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

bool capture_is_at_eof(struct capture *c)
{
    for (enum stream s = 0; s < STREAM_COUNT; s++) {
        struct pollfd p = {.fd = c->fd[s], .events = POLLIN};
        if (c->fd[s] < 0)
            continue;
        if (poll(&p, 1, 0) == 0) {
            touch_writer(c->fd[s]);
            (void)poll(&p, 1, 0);
        }
        if ((p.revents & POLLIN) || !(p.revents & POLLHUP))
            return false;
    }
    return true;
}

bool capture_is_untouched(const struct capture *c)
{
    struct pollfd p = {.fd = c->fd[STREAM_STDOUT], .events = POLLIN};
    return p.fd >= 0 && poll(&p, 1, 0) == 0;
}

void capture_detach(struct capture *c)
{
    set_reading(c, false);
    ev_clear_pending(c->loop, &c->turn);
    output_on_relief(c->output, NULL, NULL);
    c->output = NULL;
    c->fd[STREAM_STDOUT] = c->fd[STREAM_STDERR] = -1;
}

void capture_stop(struct capture *c)
{
    if (c->output)
        output_on_relief(c->output, NULL, NULL);
    for (enum stream s = 0; s < STREAM_COUNT; s++)
        close_stream(c, s);
    ev_clear_pending(c->loop, &c->turn);
    c->output = NULL;
}
