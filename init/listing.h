/*
 * An answer of many rows. They are put together at once, so that they tell of one moment, and sent
 * as fast as the client reads; the last packet is the result.
 */
#ifndef INIT_LISTING_H
#define INIT_LISTING_H

#include "control/record.h"
#include "control/server.h"

struct listing {
    struct conn *conn;
    struct strbuf rows; /* each behind its length */
    size_t at;          /* what is sent */
    unsigned count;
    bool is_truncated; /* there are more than can be told */
    struct record result;
};

/* NULL with *e: no memory. */
struct listing *listing_new(struct conn *c, struct error *e);
/* Takes the row. */
void listing_add(struct listing *l, struct record *row);
/* The rows, then l->result (with `truncated` where rows are missing). The listing belongs to the
 * connection from here on. */
void listing_send(struct listing *l);
/* Instead of sending it. */
void listing_free(struct listing *l);

#endif
