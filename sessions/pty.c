#include "sessions/pty.h"
#include "base/fd.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#define PTMX       "/dev/ptmx"
#define PTMX_OWN   "/dev/pts/ptmx" /* of an instance that nobody has made /dev/ptmx lead to */
#define SLAVE_MODE (S_IRUSR | S_IWUSR | S_IWGRP) /* as login(1) leaves it */

static int open_master(struct error *e)
{
    static const int flags = O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
    int fd = open(PTMX, flags);
    if (fd >= 0)
        return fd;
    int first = errno;
    fd = open(PTMX_OWN, flags);
    if (fd >= 0)
        return fd;
    int second = errno;
    error_set_sys(e, first, "terminal: open " PTMX);
    size_t used = e ? strlen(e->text) : 0;
    if (e)
        snprintf(e->text + used, sizeof e->text - used,
                 "; open " PTMX_OWN ": %s; a terminal needs devpts mounted at /dev/pts",
                 strerror(second));
    return -1;
}

/* By the master where the kernel can (since 4.13): needs no path, so /dev/pts may be another
 * instance, or not there. */
static int open_slave(const struct pty *p, struct error *e)
{
    int fd = ioctl(p->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        fd = open(p->name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? error_set_sys(e, errno, "terminal: open %s", p->name) : fd;
}

/* So that the user can open it again by its name. A slave belongs to the user that opened the
 * master (devpts); only a privileged init can give it away. */
static void give_away(const struct pty *p, const struct user *owner)
{
    if (owner && fchown(p->slave, owner->uid, (gid_t)-1) < 0)
        LOG_WRN("terminal_owner", F_STR("path", p->name), F_STR("why", strerror(errno)));
    (void)!fchmod(p->slave, SLAVE_MODE);
}

/* The line discipline shall erase whole characters; nearly everybody sends UTF-8. */
static void set_utf8(int fd)
{
    struct termios t;
    if (tcgetattr(fd, &t) < 0)
        return;
    t.c_iflag |= IUTF8;
    tcsetattr(fd, TCSANOW, &t);
}

int pty_open(struct pty *p, struct pty_size size, const struct user *owner, struct error *e)
{
    unsigned number = 0;
    int unlock = 0;
    *p = (struct pty){.master = open_master(e), .slave = -1};
    if (p->master < 0)
        return -1;
    if (ioctl(p->master, TIOCGPTN, &number) < 0 || ioctl(p->master, TIOCSPTLCK, &unlock) < 0) {
        error_set_sys(e, errno, "terminal: unlock the other end of " PTMX);
        fd_close(&p->master);
        return -1;
    }
    snprintf(p->name, sizeof p->name, "/dev/pts/%u", number);
    p->slave = open_slave(p, e);
    if (p->slave < 0) {
        fd_close(&p->master);
        return -1;
    }
    give_away(p, owner);
    set_utf8(p->slave);
    pty_resize(p->slave, size);
    return 0;
}

void pty_resize(int fd, struct pty_size size)
{
    struct winsize w = {.ws_row = (unsigned short)size.rows, .ws_col = (unsigned short)size.cols};
    (void)ioctl(fd, TIOCSWINSZ, &w);
}

int pty_eof_character(int fd)
{
    struct termios t;
    if (tcgetattr(fd, &t) < 0 || t.c_cc[VEOF] == _POSIX_VDISABLE)
        return -1;
    return t.c_cc[VEOF];
}

bool pty_is_read(int slave)
{
    struct pollfd p = {.fd = slave, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}
