/*
 * Records of the control protocol: NUL-terminated KEY=VALUE and KEY:=VALUE strings in a row.
 * Building never fails half-way: the first append that finds no room marks the record as broken
 * and later ones do nothing. Reading works on views and copies nothing.
 */
#include "control/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void add_field(struct record *r, const char *key, const char *sign, const char *value,
                      size_t n)
{
    if (r->is_broken)
        return;
    size_t before = r->bytes.len;
    if (strbuf_adds(&r->bytes, key) == 0 && strbuf_adds(&r->bytes, sign) == 0 &&
        strbuf_add(&r->bytes, value, n) == 0 && strbuf_add(&r->bytes, "", 1) == 0)
        return;
    r->bytes.len = before; /* what is there stays well-formed */
    r->is_broken = true;
}

void record_str(struct record *r, const char *key, const char *value)
{
    add_field(r, key, "=", value, strlen(value));
}

void record_bytes(struct record *r, const char *key, const char *value, size_t n)
{
    if (n > 0 && memchr(value, '\0', n))
        r->is_broken = true;
    else
        add_field(r, key, "=", value, n);
}

void record_int(struct record *r, const char *key, int64_t value)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%" PRId64, value);
    add_field(r, key, ":=", text, (size_t)n);
}

void record_bool(struct record *r, const char *key, bool value)
{
    const char *text = value ? "true" : "false";
    add_field(r, key, ":=", text, strlen(text));
}

void record_seconds(struct record *r, const char *key, uint64_t ms)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%" PRIu64 ".%03u", ms / 1000, (unsigned)(ms % 1000));
    add_field(r, key, ":=", text, (size_t)n);
}

void record_free(struct record *r)
{
    strbuf_free(&r->bytes);
    r->is_broken = false;
}

int record_next(const char *bytes, size_t n, size_t *at, struct field *f)
{
    if (*at >= n)
        return 0;
    const char *start = bytes + *at;
    const char *end = memchr(start, '\0', n - *at);
    if (!end)
        return -1;
    const char *sign = memchr(start, '=', (size_t)(end - start));
    if (!sign)
        return -1;
    f->key = start;
    f->key_len = (size_t)(sign - start);
    f->is_literal = f->key_len > 0 && sign[-1] == ':';
    if (f->is_literal)
        f->key_len--;
    if (f->key_len == 0)
        return -1;
    f->value = sign + 1;
    f->value_len = (size_t)(end - f->value);
    *at = (size_t)(end - bytes) + 1;
    return 1;
}

const char *record_get(const char *bytes, size_t n, const char *key)
{
    struct field f;
    size_t at = 0;
    const char *found = NULL;
    int rc;
    while ((rc = record_next(bytes, n, &at, &f)) > 0)
        if (!found && field_is(&f, key))
            found = f.value;
    return rc < 0 ? NULL : found;
}

bool field_is(const struct field *f, const char *key)
{
    return strlen(key) == f->key_len && memcmp(key, f->key, f->key_len) == 0;
}

bool field_is_same(const struct field *a, const struct field *b)
{
    return a->key_len == b->key_len && memcmp(a->key, b->key, a->key_len) == 0;
}

bool field_is_list(const struct field *f)
{
    return f->key_len > 2 && memcmp(f->key + f->key_len - 2, "[]", 2) == 0;
}
