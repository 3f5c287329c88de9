/* Records of the control protocol (wire.h): built by one side, walked by the other. */
#ifndef CONTROL_RECORD_H
#define CONTROL_RECORD_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

/* A record under construction. A failed append (no memory) is remembered in is_broken, so that
 * callers may add without looking and check once. NUL in a value is refused the same way. */
struct record {
    struct strbuf bytes;
    bool is_broken;
};

void record_str(struct record *r, const char *key, const char *value);
void record_bytes(struct record *r, const char *key, const char *value, size_t n);
void record_int(struct record *r, const char *key, int64_t value);
void record_bool(struct record *r, const char *key, bool value);
/* Seconds with milliseconds, from milliseconds: 1500 -> 1.500 */
void record_seconds(struct record *r, const char *key, uint64_t ms);
void record_free(struct record *r);

/* One KEY=VALUE string of a record or a request, as views into its bytes (value is
 * NUL-terminated). is_literal: written with := */
struct field {
    const char *key;
    size_t key_len;
    const char *value;
    size_t value_len;
    bool is_literal;
};

/* Step through n bytes of a record: *at starts at 0; returns 1 and fills *f, 0 at the end, -1 if
 * the bytes are malformed (no NUL at the end, no '=', an empty key). */
int record_next(const char *bytes, size_t n, size_t *at, struct field *f);

/* The value of the first field with this key, or NULL. Malformed bytes yield NULL. */
const char *record_get(const char *bytes, size_t n, const char *key);

/* True if the field's key is this word. */
bool field_is(const struct field *f, const char *key);
/* True if both have the same key. */
bool field_is_same(const struct field *a, const struct field *b);
/* True for one element of a list: the key ends in []. */
bool field_is_list(const struct field *f);

#endif
