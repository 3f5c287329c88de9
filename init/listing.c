#include "init/listing.h"
#include "control/wire.h"

#include <stdlib.h>
#include <string.h>

struct listing *listing_new(struct conn *c, struct error *e)
{
    struct listing *l = calloc(1, sizeof *l);
    if (!l) {
        error_set(e, ERR_MEMORY, "no memory for the answer");
        return NULL;
    }
    l->conn = c;
    return l;
}

void listing_free(struct listing *l)
{
    strbuf_free(&l->rows);
    record_free(&l->result);
    free(l);
}

void listing_add(struct listing *l, struct record *row)
{
    size_t n = row->bytes.len;
    char *to =
        row->is_broken || n > WIRE_PAYLOAD_MAX ? NULL : strbuf_reserve(&l->rows, sizeof n + n);
    if (to) {
        memcpy(to, &n, sizeof n);
        memcpy(to + sizeof n, row->bytes.data, n);
        l->rows.len += sizeof n + n;
        l->count++;
    } else {
        l->is_truncated = true;
    }
    record_free(row);
}

static void send_rows(void *owner)
{
    struct listing *l = owner;
    while (l->at < l->rows.len) {
        size_t n;
        memcpy(&n, l->rows.data + l->at, sizeof n);
        if (conn_send(l->conn, WIRE_ROW, l->rows.data + l->at + sizeof n, n) != CONN_SENT)
            return; /* on_writable or on_closed comes */
        l->at += sizeof n + n;
    }
    if (l->is_truncated)
        record_bool(&l->result, "truncated", true);
    conn_result(l->conn, &l->result);
    listing_free(l);
}

static void on_closed(void *owner)
{
    listing_free(owner);
}

static const struct conn_events listing_events = {.on_writable = send_rows, .on_closed = on_closed};

void listing_send(struct listing *l)
{
    conn_set_owner(l->conn, &listing_events, l);
    send_rows(l);
}
