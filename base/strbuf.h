/*
 * A byte buffer that grows up to a limit. It may hold any byte; data is always followed by a NUL
 * that does not count, so text can be used as a C string. An append that would pass the limit or
 * that gets no memory fails and leaves the buffer as it was.
 */
#ifndef BASE_STRBUF_H
#define BASE_STRBUF_H

#include <stddef.h>

#define STRBUF_LIMIT ((size_t)64 << 20) /* bytes; the limit of a buffer that names none */

struct strbuf {
    char *data; /* NULL while empty */
    size_t len;
    size_t cap;
    size_t limit; /* 0: STRBUF_LIMIT */
};

/* Append n bytes. Returns 0, or -1 with nothing changed (limit reached, no memory). */
int strbuf_add(struct strbuf *b, const void *bytes, size_t n);

/* Append a string without its NUL. */
int strbuf_adds(struct strbuf *b, const char *text);

/* Append formatted text. */
int strbuf_addf(struct strbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Make room for n more bytes and return where they go, or NULL; commit with b->len += n. */
char *strbuf_reserve(struct strbuf *b, size_t n);

/* The text as a C string, "" while empty. Valid until the next change of the buffer. */
const char *strbuf_text(const struct strbuf *b);

/* Forget the first n bytes, n <= len; keep the memory. The others are moved to the front: what is
 * taken away in small pieces belongs into a byte_queue. */
void strbuf_drop(struct strbuf *b, size_t n);

/* Keep the first n bytes at most, and no more memory than they need. */
void strbuf_cut(struct strbuf *b, size_t n);

/* Forget the content, keep the memory. */
void strbuf_clear(struct strbuf *b);

/* Free the memory; the buffer is empty and usable afterwards. */
void strbuf_free(struct strbuf *b);

#define CLEANUP_STRBUF __attribute__((cleanup(strbuf_free)))

#endif
