/*
 * A pair of pseudo-terminal ends (pty(7)), whatever the container has for it: /dev/ptmx, or the
 * ptmx of a devpts instance of its own.
 */
#ifndef SESSIONS_PTY_H
#define SESSIONS_PTY_H

#include "base/error.h"
#include "sessions/user.h"

#include <stdbool.h>

#define PTY_ROWS     24 /* of a terminal whose size nobody has told: the kernel's own 0 by 0 */
#define PTY_COLS     80 /* makes programs wrap at the first column (case S2) */
#define PTY_SIZE_MAX 10000

struct pty_size {
    unsigned rows, cols; /* 0: not known */
};

struct pty {
    int master; /* non-blocking */
    int slave;
    char name[32]; /* "/dev/pts/3" */
};

/* Open a pair of this size; the slave belongs to owner (NULL: init's own user). Both descriptors
 * are the caller's. 0, or -1 with *e: what was opened and why it failed. */
int pty_open(struct pty *p, struct pty_size size, const struct user *owner, struct error *e);

/* Set the window size through either end; the foreground group hears SIGWINCH if it differs. */
void pty_resize(int fd, struct pty_size size);

/* The character that means end of file there now; -1: it has none. */
int pty_eof_character(int fd);

/* True if nothing that was typed waits to be read by the slave's side. */
bool pty_is_read(int slave);

#endif
