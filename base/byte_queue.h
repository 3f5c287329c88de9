/*
 * Bytes on their way to somebody who takes them as he likes: put in at the end, taken from the
 * front.
 *
 * Invariants: what was taken is less than what waits, or is moved over before more is put in, so
 * each byte moves a few times at most; at most `limit` bytes wait; an empty queue holds `keep`
 * bytes of memory at most.
 */
#ifndef BASE_BYTE_QUEUE_H
#define BASE_BYTE_QUEUE_H

#include "base/strbuf.h"

#include <stddef.h>
#include <sys/uio.h>

/* All zero is an empty queue without memory; limit and keep are the owner's to set before. */
struct byte_queue {
    struct strbuf bytes;
    size_t head;  /* of bytes: taken already */
    size_t limit; /* bytes that may wait; 0: STRBUF_LIMIT */
    size_t keep;
};

/* Bytes that wait. */
size_t byte_queue_len(const struct byte_queue *q);
/* The first of them; good until the next change. NULL if none has ever waited. */
const char *byte_queue_first(const struct byte_queue *q);
/* Make room for n more bytes and return where they go, or NULL (limit, no memory); commit with
 * q->bytes.len += n. */
char *byte_queue_reserve(struct byte_queue *q, size_t n);
/* Append n bytes. 0, or -1 with nothing changed. */
int byte_queue_put(struct byte_queue *q, const void *bytes, size_t n);
/* Append the pieces, of which the first `skip` bytes (of all together) have gone already. 0, or -1:
 * some are missing, and the receiver must not be told that it got all. */
int byte_queue_put_rest(struct byte_queue *q, const struct iovec *pieces, size_t count,
                        size_t skip);
/* The first n bytes (n <= byte_queue_len()) are where they were to go. */
void byte_queue_take(struct byte_queue *q, size_t n);
/* Forget all, and free the memory; the queue is empty and usable afterwards. */
void byte_queue_free(struct byte_queue *q);

#endif
