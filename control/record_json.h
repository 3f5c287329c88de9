/* Records as JSON, for clients; PID 1 needs none. */
#ifndef CONTROL_RECORD_JSON_H
#define CONTROL_RECORD_JSON_H

#include "base/strbuf.h"

#include <stddef.h>

/* Append the fields of a record as JSON members without the braces: `:=` values raw, keys that
 * end in [] as arrays. 0 or -1 (no memory). */
int record_to_json(struct strbuf *to, const char *bytes, size_t n);

#endif
