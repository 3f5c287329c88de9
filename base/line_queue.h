/*
 * Whole lines on their way to somebody who takes bytes as he likes: a queue of bytes that only ever
 * gets a line whole or not at all, within a limit. Any byte but the newline may stand in a line.
 */
#ifndef BASE_LINE_QUEUE_H
#define BASE_LINE_QUEUE_H

#include "base/byte_queue.h"

#include <stdbool.h>
#include <stddef.h>

struct line_queue {
    struct byte_queue bytes;
    size_t limit; /* bytes that may wait */
};

void line_queue_init(struct line_queue *q, size_t limit);
/* Append a line, given in two parts of which the second ends with its newline. `more` bytes are
 * allowed above the limit. False, with nothing changed: no room, or no memory. */
bool line_queue_put(struct line_queue *q, const char *head, size_t head_n, const char *text,
                    size_t n, size_t more);
/* Bytes that wait. */
size_t line_queue_used(const struct line_queue *q);
/* The bytes behind the first `skip` ones, as many as wait; good until the next change. */
const char *line_queue_bytes(const struct line_queue *q, size_t skip);
/* The length of as many whole lines, behind the first `skip` bytes, as `most` bytes hold; of the
 * first line if it alone is longer (its end may then lie beyond `most`). 0: none waits. */
size_t line_queue_lines(const struct line_queue *q, size_t skip, size_t most);
/* The first n bytes are where they were to go. */
void line_queue_take(struct line_queue *q, size_t n);
void line_queue_free(struct line_queue *q);

#endif
