/* Writing a sandbox's output: byte for byte, or line by line with the stream's name. */
#ifndef CTL_OUTPUT_H
#define CTL_OUTPUT_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

/* Write all bytes to fd, which is stdout or stderr. Returns 0 or the exit code: CTL_PIPE when the
 * reader is gone, otherwise CTL_REFUSED after the reason was printed. on_turn, if not NULL, is
 * called before each write(2) and after one that a signal interrupted. */
int output_write(int fd, const char *bytes, size_t n, void (*on_turn)(void *), void *context);

/* Write a line of our own (it ends with a newline) to stderr: on a new line, where the output that
 * was written there ends in the middle of one. */
void output_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Puts a label before each line. Lines of two streams never mix: each stream has its own, and a
 * line is written when it is complete. */
struct labeller {
    const char *label;
    struct strbuf line; /* begins with the label while there is a part of a line */
};

/* Write the lines that n more bytes complete. 0 or an exit code. */
int labeller_add(struct labeller *l, const char *bytes, size_t n);
/* Write the rest, a line that never got its newline, with one. Frees the line. */
int labeller_end(struct labeller *l);

#endif
