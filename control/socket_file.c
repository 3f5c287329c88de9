/*
 * The socket's file: made with the right mode, never stolen from a live server, removed only while
 * it is still ours. unix(7): bind() creates the file with the mode of the socket's inode less the
 * umask; PID 1 has one thread, so the umask can be set around the call.
 */
#include "control/server_internal.h"

#include "base/fd.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_BACKLOG 1024

static int make_address(struct sockaddr_un *to, const char *path, struct error *e)
{
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof to->sun_path)
        return error_set(e, ERR_INVALID,
                         "control socket %.200s: the path has %zu bytes, 1 to %zu are possible",
                         path, n, sizeof to->sun_path - 1);
    memset(to, 0, sizeof *to);
    to->sun_family = AF_UNIX;
    memcpy(to->sun_path, path, n);
    return 0;
}

static int new_socket(struct error *e)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 ? fd : error_set_sys(e, errno, "control socket");
}

/* Remove a socket that nobody listens on. A refused connection proves that; a full backlog, a
 * listener of another type or missing permission all mean that somebody is there. */
static int remove_stale(const struct sockaddr_un *address, struct error *e)
{
    const char *path = address->sun_path;
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : error_set_sys(e, errno, "control socket %s", path);
    if (!S_ISSOCK(st.st_mode))
        return error_set(e, ERR_EXISTS,
                         "control socket %s: something that is not a socket is there", path);
    CLEANUP_FD int probe = new_socket(e);
    if (probe < 0)
        return -1;
    int rc = connect(probe, (const struct sockaddr *)address, sizeof *address);
    if (rc == 0 || errno != ECONNREFUSED)
        return error_set(e, ERR_EXISTS, "control socket %s: another server is live there", path);
    if (unlink(path) < 0 && errno != ENOENT)
        return error_set_sys(e, errno, "control socket %s: cannot remove the stale one", path);
    return 0;
}

/* Bind fd at the address, private from the first moment, and listen. */
static int bind_and_listen(int fd, const struct sockaddr_un *address, struct stat *st,
                           struct error *e)
{
    const char *path = address->sun_path;
    mode_t old = umask(0177);
    int rc = bind(fd, (const struct sockaddr *)address, sizeof *address);
    int bind_errno = errno;
    umask(old);
    if (rc < 0)
        return error_set_sys(e, bind_errno, "control socket %s: bind", path);
    if (listen(fd, LISTEN_BACKLOG) == 0 && lstat(path, st) == 0)
        return 0;
    error_set_sys(e, errno, "control socket %s: listen", path);
    unlink(path);
    return -1;
}

int socket_file_open(struct socket_file *f, const char *path, struct error *e)
{
    struct sockaddr_un address;
    struct stat st = {0};
    f->fd = -1;
    if (make_address(&address, path, e) < 0 || remove_stale(&address, e) < 0)
        return -1;
    int fd = new_socket(e);
    if (fd >= 0 && bind_and_listen(fd, &address, &st, e) < 0)
        fd_close(&fd);
    *f = (struct socket_file){.fd = fd, .dev = st.st_dev, .ino = st.st_ino};
    return fd >= 0 ? 0 : -1;
}

bool socket_file_is_ours(const struct socket_file *f, const char *path)
{
    struct stat st;
    return f->fd >= 0 && lstat(path, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino;
}

void socket_file_close(struct socket_file *f, const char *path)
{
    if (socket_file_is_ours(f, path))
        unlink(path);
    fd_close(&f->fd);
}
