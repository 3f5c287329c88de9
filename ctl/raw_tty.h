/*
 * The caller's own terminal in raw mode, and back: whatever ends this program, short of SIGKILL,
 * leaves it as it was. A stop (SIGTSTP from outside) gives it back for as long as it lasts.
 */
#ifndef CTL_RAW_TTY_H
#define CTL_RAW_TTY_H

#include "base/error.h"

#include <stdbool.h>

/* Put the terminal at fd into raw mode and catch the signals that end or stop a program. 0, or -1
 * with *e. */
int raw_tty_enter(int fd, struct error *e);
/* As it was before; harmless without an enter and a second time. */
void raw_tty_leave(void);

struct window {
    unsigned rows, cols; /* 0: there is no terminal, or it does not know its size */
};
/* The window of the first of stdin, stdout, stderr that is a terminal. */
struct window raw_tty_window(void);

/* A descriptor that is readable when the window may have another size: after SIGWINCH, and when a
 * stopped program goes on. -1 with *e. */
int raw_tty_watch_window(struct error *e);
/* Read it empty. */
void raw_tty_window_seen(void);

#endif
