#include "base/line_queue.h"

#include <string.h>

#define IDLE_BYTES 4096 /* of memory that an empty queue holds on to */

void line_queue_init(struct line_queue *q, size_t limit)
{
    *q = (struct line_queue){.limit = limit};
}

size_t line_queue_used(const struct line_queue *q)
{
    return q->bytes.len - q->head;
}

/* Bytes that were taken are moved over when they are half of all, so each moves a few times only.
 */
static void compact(struct line_queue *q)
{
    size_t used = line_queue_used(q);
    if (used == 0) {
        if (q->bytes.cap > IDLE_BYTES)
            strbuf_free(&q->bytes);
        else
            strbuf_clear(&q->bytes);
    } else if (q->head >= used) {
        memmove(q->bytes.data, q->bytes.data + q->head, used);
        q->bytes.len = used;
    } else {
        return;
    }
    q->head = 0;
}

bool line_queue_put(struct line_queue *q, const char *head, size_t head_n, const char *text,
                    size_t n, size_t more)
{
    size_t used = line_queue_used(q), before = q->bytes.len;
    if (used + head_n + n > q->limit + more)
        return false;
    if (strbuf_add(&q->bytes, head, head_n) < 0)
        return false;
    if (strbuf_add(&q->bytes, text, n) == 0)
        return true;
    q->bytes.len = before;
    return false;
}

const char *line_queue_bytes(const struct line_queue *q, size_t skip)
{
    return q->bytes.data + q->head + skip;
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
    q->head += n;
    compact(q);
}

void line_queue_free(struct line_queue *q)
{
    strbuf_free(&q->bytes);
    q->head = 0;
}
