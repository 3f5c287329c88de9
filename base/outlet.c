#include "base/outlet.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TURN_BYTES  ((size_t)256 * 1024)
#define FILE_BYTES  ((size_t)64 * 1024)
#define OWN_RESERVE ((size_t)64 * 1024) /* of the queue, for lines of outlet_write() */

void outlet_open(struct outlet *o, int fd)
{
    char path[32];
    struct stat st;
    *o = (struct outlet){.fd = fd};
    line_queue_init(&o->queue, OUTLET_QUEUE);
    o->is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (o->is_file)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own < 0)
        return;
    o->fd = own;
    o->is_own = true;
}

bool outlet_is_same(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino &&
           x.st_rdev == y.st_rdev;
}

/* How many bytes of whole lines are written at once: what a pipe takes whole or not at all, so that
 * no line is mixed with what others write into it. A longer line goes as far as it can. */
static size_t piece(const struct outlet *o)
{
    size_t most = o->is_file ? FILE_BYTES : PIPE_BUF;
    size_t n = line_queue_lines(&o->queue, 0, most);
    return n > most && !o->is_own && !o->is_file ? most : n;
}

/* Like write(2), and never waits. */
static ssize_t write_now(const struct outlet *o, const char *bytes, size_t n)
{
    if (!o->is_own && !o->is_file) {
        ssize_t k = send(o->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k >= 0 || errno != ENOTSOCK)
            return k;
        struct pollfd p = {.fd = o->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT)) {
            errno = p.revents & POLLERR ? EPIPE : EAGAIN;
            return -1;
        }
    }
    return write(o->fd, bytes, n);
}

size_t outlet_flush(struct outlet *o, int *sys)
{
    size_t done = 0, n;
    *sys = 0;
    while ((n = piece(o)) > 0) {
        ssize_t k = done < TURN_BYTES ? write_now(o, line_queue_bytes(&o->queue, 0), n) : -1;
        if (k <= 0) {
            *sys = done >= TURN_BYTES || k == 0 || errno == EINTR ? EAGAIN : errno;
            break;
        }
        line_queue_take(&o->queue, (size_t)k);
        done += (size_t)k;
    }
    return done;
}

bool outlet_write(struct outlet *o, const char *line, size_t n)
{
    int sys;
    if (line_queue_used(&o->queue))
        (void)outlet_flush(o, &sys);
    if (line_queue_used(&o->queue) == 0)
        return write_now(o, line, n) == (ssize_t)n;
    return line_queue_put(&o->queue, "", 0, line, n, OWN_RESERVE);
}

void outlet_close(struct outlet *o)
{
    line_queue_free(&o->queue);
    if (o->is_own)
        fd_close(&o->fd);
    o->is_own = false;
}
