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

/* Open one of the two and learn the pair's number. *e gets one more reason. Returns the descriptor
 * or -1. */
static int try_master(const char *path, unsigned *number, struct error *e)
{
    int fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && ioctl(fd, TIOCGPTN, number) == 0)
        return fd;
    int saved = errno;
    fd_close(&fd);
    if (e && e->code != ERR_NONE) {
        size_t used = strlen(e->text);
        snprintf(e->text + used, sizeof e->text - used, "; open %s: %s", path, strerror(saved));
    } else {
        error_set_sys(e, saved, "open %s", path);
    }
    return -1;
}

static int open_master(unsigned *number, struct error *e)
{
    struct error why = {0};
    int fd = try_master(PTMX, number, &why);
    if (fd < 0)
        fd = try_master(PTMX_OWN, number, &why);
    if (fd < 0 && e) {
        *e = why;
        size_t used = strlen(e->text);
        snprintf(e->text + used, sizeof e->text - used,
                 "; a terminal needs devpts mounted at /dev/pts");
    }
    return fd;
}

/* By the master where the kernel can (since 4.13): needs no path, so /dev/pts may be another
 * instance, or not there. */
static int open_slave(const struct pty *p, struct error *e)
{
    int fd = ioctl(p->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        fd = open(p->name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? error_set_sys(e, errno, "open %s", p->name) : fd;
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
    *p = (struct pty){.master = open_master(&number, e), .slave = -1};
    if (p->master < 0)
        return -1;
    if (ioctl(p->master, TIOCSPTLCK, &unlock) < 0) {
        error_set_sys(e, errno, "unlock /dev/pts/%u", number);
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
