/*
 * The pseudo-terminal of a process, and who looks at it. A process that has one is a terminal: the
 * rest of its life (start, kill, end, listing) is that of any process.
 *
 * Init keeps the slave open for as long as the program lives: so the master shows no hang-up that
 * could make the loop spin, whoever closes and reopens the terminal meanwhile. When the program has
 * ended the slave is closed, the master is read until it is empty, and closing that hangs up
 * whoever still holds the terminal (case S8).
 */
#ifndef SESSIONS_TERMINAL_H
#define SESSIONS_TERMINAL_H

#include "base/list.h"
#include "sessions/feed.h"
#include "sessions/output.h"
#include "sessions/pty.h"

#include <ev.h>

struct terminal;

/* Somebody who is attached. The list is in order of use: the first that knows its size is in front,
 * and the terminal has that size. */
struct viewer {
    struct list link;
    struct terminal *terminal;    /* NULL: not attached (any more) */
    struct pty_size size;         /* 0: its own is not known, or not told (read-only ones) */
    void (*on_room)(void *owner); /* the terminal takes input again */
    void (*on_resized)(void *owner, struct pty_size size);
    void *owner;
};

/* NULL for want of memory. input: where typed bytes go. */
struct terminal *terminal_new(struct ev_loop *loop, struct pty_size size, struct feed *input);
void terminal_free(struct terminal *t); /* NULL is fine; viewers are let go */

/* Open the pair. *master is the caller's, the slave stays open until terminal_end(). Watches o, the
 * output that the master is going to be read into. 0 or -1 with *e. */
int terminal_open(struct terminal *t, const struct user *owner, struct output *o, int *master,
                  struct error *e);
int terminal_slave(const struct terminal *t); /* -1: not open */
void terminal_end(struct terminal *t);

/* "/dev/pts/3", or "". */
const char *terminal_name(const struct terminal *t);
struct pty_size terminal_size(const struct terminal *t);
unsigned terminal_viewers(const struct terminal *t);

/* Where output may be cut: replay.h. */
uint64_t terminal_replay_begin(const struct terminal *t);
uint64_t terminal_safe_from(const struct terminal *t, uint64_t offset);

/* Set the size, whoever is in front. */
void terminal_resize(struct terminal *t, struct pty_size size);
/* There is room for input: all viewers hear it. */
void terminal_tell_room(struct terminal *t);
/* No more will be typed: whoever reads finds end of file, as often as it reads (a timer types the
 * character that means it whenever all before is read). Typing ends that. */
void terminal_type_eof(struct terminal *t);

void viewer_attach(struct viewer *v, struct terminal *t);
void viewer_detach(struct viewer *v);
/* It typed, or its own window has another size: it comes to the front. */
void viewer_typed(struct viewer *v);
void viewer_resized(struct viewer *v, struct pty_size size);

#endif
