#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

void fd_close(int *fd)
{
    if (*fd < 0)
        return;
    int saved = errno;
    close(*fd);
    errno = saved;
    *fd = -1;
}

int fd_take(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

int fd_send_packet(int socket, const struct iovec *parts, size_t n, int fd, int flags)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr m = {.msg_iov = (struct iovec *)(size_t)parts, .msg_iovlen = n};
    if (fd >= 0) {
        m.msg_control = control;
        m.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    ssize_t k;
    do
        k = sendmsg(socket, &m, flags | MSG_NOSIGNAL);
    while (k < 0 && errno == EINTR);
    return k < 0 ? -1 : 0;
}

ssize_t fd_send_pieces(int socket, const struct iovec *pieces, size_t n, int flags)
{
    struct msghdr m = {.msg_iov = (struct iovec *)(size_t)pieces, .msg_iovlen = n};
    ssize_t k;
    do
        k = sendmsg(socket, &m, flags | MSG_NOSIGNAL | MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    return k;
}

void fd_close_foreign(int fd)
{
    const struct linger never = {0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &never, sizeof never);
    close(fd);
}

int fd_set_nonblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return -1;
    return flags & O_NONBLOCK ? 0 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

bool fd_is_scarce(int fd, unsigned reserve)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur > INT_MAX)
        return false;
    return fd < 0 || (rlim_t)fd + reserve >= r.rlim_cur;
}

bool fd_next_is_scarce(unsigned reserve)
{
    CLEANUP_FD int fd = open("/", O_PATH | O_CLOEXEC);
    return fd_is_scarce(fd, reserve);
}

/* How many below a number this process has. -1: it cannot be known. */
static long count_open(rlim_t below)
{
    long n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.' && strtoul(e->d_name, NULL, 10) < below;
    closedir(d);
    return n - 1; /* without that of the folder */
}

/* They are counted only if the highest number outside the reserve is in use: it is not before there
 * were that many. */
bool fd_few_are_left(unsigned reserve)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur > INT_MAX)
        return false;
    if (r.rlim_cur <= reserve)
        return true;
    long edge = (long)(r.rlim_cur - reserve);
    if (fcntl((int)edge - 1, F_GETFD) < 0)
        return false;
    long n = count_open(r.rlim_cur);
    return n < 0 || n >= edge;
}

int fd_write_all(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

long fd_read_file(int dirfd, const char *path, char *buf, size_t size)
{
    CLEANUP_FD int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -1;
    size_t len = 0;
    while (len + 1 < size) {
        ssize_t k = read(fd, buf + len, size - 1 - len);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        if (k == 0)
            break;
        len += (size_t)k;
    }
    buf[len] = '\0';
    return (long)len;
}
