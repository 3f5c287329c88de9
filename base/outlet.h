/*
 * A descriptor that init was started with, stdout or stderr, as a place for whole lines: writing
 * never waits, whatever stands at its other end (a pipe that nobody reads, a terminal that was
 * stopped, a full disk, nothing).
 *
 * The descriptor is shared with others (the main command has it too), so O_NONBLOCK must not be
 * set on it: it belongs to the open file description. A pipe or terminal is therefore opened anew
 * through /proc/self/fd, which gives a description of our own. Where that is refused (a pipe of
 * another user) each write asks poll() first and stays below PIPE_BUF, which a writable pipe takes
 * at once (pipe(7)). A file is written as it is: its description knows where the others are.
 */
#ifndef BASE_OUTLET_H
#define BASE_OUTLET_H

#include "base/line_queue.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define OUTLET_QUEUE ((size_t)512 * 1024)

struct outlet {
    int fd;
    bool is_own;  /* fd is a description of our own with O_NONBLOCK, and ours to close */
    bool is_file; /* nobody who reads it can hold us up */
    struct line_queue queue;
};

/* fd stays the caller's. */
void outlet_open(struct outlet *o, int fd);
/* Write a line now, or put it behind those that wait, if it finds room there. False: dropped.
 * Without others before it a line never waits. */
bool outlet_write(struct outlet *o, const char *line, size_t n);
/* Write what waits, as far as it goes now. Returns the bytes that went out; *sys is 0 if nothing is
 * left, EAGAIN if more can go out when fd has room, and else why it cannot. */
size_t outlet_flush(struct outlet *o, int *sys);
/* True if both lead to the same file, pipe or terminal. */
bool outlet_is_same(int a, int b);
void outlet_close(struct outlet *o);

#endif
