/*
 * The way into a command's or process's stdin: the write end of a pipe or FIFO, never blocking.
 *
 * A FIFO is opened by a shell that may be late. Until then a second descriptor, of both ends, keeps
 * writes from failing; and an end of file that comes early waits, since closing the last writer
 * would leave the shell's open(2) waiting for ever.
 */
#ifndef SESSIONS_FEED_H
#define SESSIONS_FEED_H

#include "base/error.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

struct feed {
    struct ev_loop *loop;
    int fd;     /* -1: closed */
    int keeper; /* both ends of the FIFO; -1: a pipe, or no longer needed */
    ev_io io;
    ev_timer end;                    /* until the shell has opened it */
    void (*on_ready)(void *context); /* there is room again */
    void *context;
};

/* A feed that is closed. */
void feed_init(struct feed *f, struct ev_loop *loop, void (*on_ready)(void *context),
               void *context);
/* Open it; takes both descriptors (keeper may be -1). */
void feed_open(struct feed *f, int fd, int keeper);
/* And takes bytes: false from feed_end() on. */
bool feed_is_open(const struct feed *f);
/* How many of n bytes were taken, 0 … n; less than n: on_ready comes. -1 with errno. */
long feed_write(struct feed *f, const char *bytes, size_t n);
/* End of file, as soon as somebody reads. Nothing follows it. */
void feed_end(struct feed *f);
/* Close now: the reader is over. */
void feed_close(struct feed *f);

#endif
