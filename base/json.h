/* Writing JSON. Nothing in this program's PID 1 reads any. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/strbuf.h"

#include <stdbool.h>

/* Append n bytes as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
int json_add_string(struct strbuf *to, const char *bytes, size_t n);

/* True if the bytes are well-formed UTF-8 (RFC 3629: no surrogates, nothing overlong). */
bool utf8_is_valid(const char *bytes, size_t n);

/* Length of the valid UTF-8 sequence at the start of n > 0 bytes, 0 if there is none. */
size_t utf8_sequence(const char *bytes, size_t n);

#endif
