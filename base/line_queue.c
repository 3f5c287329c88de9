#include "base/line_queue.h"

#include <string.h>

#define IDLE_BYTES 4096 /* of memory that an empty queue holds on to */

void line_queue_init(struct line_queue *q, size_t limit)
{
    *q = (struct line_queue){.bytes.keep = IDLE_BYTES, .limit = limit};
}

size_t line_queue_used(const struct line_queue *q)
{
    return byte_queue_len(&q->bytes);
}

bool line_queue_put(struct line_queue *q, const char *head, size_t head_n, const char *text,
                    size_t n, size_t more)
{
    if (line_queue_used(q) + head_n + n > q->limit + more)
        return false;
    char *to = byte_queue_reserve(&q->bytes, head_n + n);
    if (!to)
        return false;
    memcpy(to, head, head_n);
    memcpy(to + head_n, text, n);
    q->bytes.bytes.len += head_n + n;
    return true;
}

const char *line_queue_bytes(const struct line_queue *q, size_t skip)
{
    return byte_queue_first(&q->bytes) + skip;
}

size_t line_queue_lines(const struct line_queue *q, size_t skip, size_t most)
{
    size_t used = line_queue_used(q);
    if (used <= skip)
        return 0;
    size_t n = used - skip;
    const char *bytes = line_queue_bytes(q, skip);
    if (n <= most)
        return n;
    const char *end = memrchr(bytes, '\n', most);
    if (!end)
        end = memchr(bytes + most, '\n', n - most);
    return end ? (size_t)(end - bytes) + 1 : n;
}

void line_queue_take(struct line_queue *q, size_t n)
{
    byte_queue_take(&q->bytes, n);
}

void line_queue_free(struct line_queue *q)
{
    byte_queue_free(&q->bytes);
}
