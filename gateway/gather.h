/*
 * A call to init whose whole answer is wanted at once: its rows and its result, within a bound.
 */
#ifndef GATEWAY_GATHER_H
#define GATEWAY_GATHER_H

#include "gateway/upstream.h"

#include <stdint.h>

#define GATHER_MAX ((size_t)16 << 20) /* bytes of all rows */

struct gather;

/* What came, valid during the callback. */
struct gathered {
    struct strbuf rows; /* step through them with gathered_row() */
    size_t count;
    const char *result; /* a record; NULL: error is set */
    size_t result_len;
    const struct error *error;
};

/* Begin the call; frees q. on_done comes exactly once, unless gather_close() came before it, and
 * not from inside; the gather is gone after it. NULL with *e set. */
struct gather *gather_open(struct upstream *u, struct client_request *q,
                           void (*on_done)(void *owner, const struct gathered *all), void *owner,
                           struct error *e);
/* Hang up. NULL is fine. */
void gather_close(struct gather *g);

/* Step through the rows: *at starts at 0; false at the end. */
bool gathered_row(const struct gathered *all, size_t *at, const char **row, size_t *n);

#endif
