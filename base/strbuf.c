#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *strbuf_reserve(struct strbuf *b, size_t n)
{
    size_t limit = b->limit ? b->limit : STRBUF_LIMIT;
    size_t want;
    if (__builtin_add_overflow(b->len, n, &want) || want > limit)
        return NULL;
    if (want + 1 > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < want + 1)
            cap *= 2;
        char *data = realloc(b->data, cap);
        if (!data)
            return NULL;
        b->data = data;
        b->cap = cap;
    }
    b->data[want] = '\0';
    return b->data + b->len;
}

int strbuf_add(struct strbuf *b, const void *bytes, size_t n)
{
    char *to = strbuf_reserve(b, n);
    if (!to)
        return -1;
    if (n)
        memcpy(to, bytes, n);
    b->len += n;
    return 0;
}

int strbuf_adds(struct strbuf *b, const char *text)
{
    return strbuf_add(b, text, strlen(text));
}

int strbuf_addf(struct strbuf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return -1;
    char *to = strbuf_reserve(b, (size_t)n);
    if (!to)
        return -1;
    va_start(ap, fmt);
    vsnprintf(to, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

const char *strbuf_text(const struct strbuf *b)
{
    return b->data ? b->data : "";
}

void strbuf_clear(struct strbuf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

void strbuf_free(struct strbuf *b)
{
    free(b->data);
    b->data = NULL;
    b->len = 0;
    b->cap = 0;
}

void strbuf_drop(struct strbuf *b, size_t n)
{
    if (n == 0)
        return;
    b->len -= n;
    memmove(b->data, b->data + n, b->len + 1); /* with the NUL */
}

void strbuf_cut(struct strbuf *b, size_t n)
{
    if (b->len <= n)
        return;
    b->len = n;
    b->data[n] = '\0';
    char *less = realloc(b->data, n + 1);
    if (less) {
        b->data = less;
        b->cap = n + 1;
    }
}
