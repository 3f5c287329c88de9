#include "base/byte_queue.h"

#include <string.h>

size_t byte_queue_len(const struct byte_queue *q)
{
    return q->bytes.len - q->head;
}

const char *byte_queue_first(const struct byte_queue *q)
{
    return q->bytes.data ? q->bytes.data + q->head : NULL;
}

char *byte_queue_reserve(struct byte_queue *q, size_t n)
{
    size_t waiting = byte_queue_len(q);
    if (q->limit && (waiting > q->limit || n > q->limit - waiting))
        return NULL;
    if (q->head >= waiting) {
        strbuf_drop(&q->bytes, q->head);
        q->head = 0;
    }
    return strbuf_reserve(&q->bytes, n);
}

int byte_queue_put(struct byte_queue *q, const void *bytes, size_t n)
{
    char *to = byte_queue_reserve(q, n);
    if (!to)
        return -1;
    if (n > 0)
        memcpy(to, bytes, n);
    q->bytes.len += n;
    return 0;
}

int byte_queue_put_rest(struct byte_queue *q, const struct iovec *pieces, size_t count, size_t skip)
{
    for (size_t i = 0; i < count; i++) {
        size_t gone = skip < pieces[i].iov_len ? skip : pieces[i].iov_len;
        skip -= gone;
        if (gone < pieces[i].iov_len && byte_queue_put(q, (const char *)pieces[i].iov_base + gone,
                                                       pieces[i].iov_len - gone) < 0)
            return -1;
    }
    return 0;
}

void byte_queue_take(struct byte_queue *q, size_t n)
{
    q->head += n;
    if (q->head < q->bytes.len)
        return;
    if (q->bytes.cap > q->keep)
        strbuf_free(&q->bytes);
    else
        strbuf_clear(&q->bytes);
    q->head = 0;
}

void byte_queue_free(struct byte_queue *q)
{
    strbuf_free(&q->bytes);
    q->head = 0;
}
