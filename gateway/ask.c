#include "gateway/ask.h"

#include "control/record.h"
#include "control/record_json.h"
#include "gateway/gateway.h"

#include <stdlib.h>

struct question {
    struct exchange *exchange; /* NULL: its client has left */
    struct gather *gather;
    void (*on_answer)(struct exchange *x, const struct gathered *all);
};

static void on_done(void *owner, const struct gathered *all)
{
    struct question *q = owner;
    struct exchange *x = q->exchange;
    void (*on_answer)(struct exchange *, const struct gathered *) = q->on_answer;
    free(q);
    if (!x)
        return;
    exchange_own(x, NULL, NULL);
    on_answer(x, all);
}

/* The gather lives on: what was asked for is not taken back. */
static void on_closed(void *owner)
{
    struct question *q = owner;
    q->exchange = NULL;
}

static const struct exchange_events exchange_events = {.on_closed = on_closed};

static void answer_failed(struct exchange *x, const struct error *e,
                          void (*on_answer)(struct exchange *x, const struct gathered *all))
{
    struct gathered none = {.error = e};
    on_answer(x, &none);
}

void ask(struct exchange *x, struct client_request *r,
         void (*on_answer)(struct exchange *x, const struct gathered *all))
{
    const struct gateway *g = exchange_context(x);
    struct error e = {0};
    struct question *q = calloc(1, sizeof *q);
    if (!q) {
        client_request_free(r);
        error_set(&e, ERR_MEMORY, "no memory for a request to sandbox-init");
        answer_failed(x, &e, on_answer);
        return;
    }
    q->exchange = x;
    q->on_answer = on_answer;
    q->gather = gather_open(g->upstream, r, on_done, q, &e);
    if (q->gather) {
        exchange_own(x, &exchange_events, q);
        return;
    }
    free(q);
    answer_failed(x, &e, on_answer);
}

/* ---- JSON -------------------------------------------------------------------------------- */

int row_to_json(struct strbuf *to, const char *row, size_t n, const struct row_form *form)
{
    struct record renamed = {0};
    struct field f;
    size_t at = 0;
    if (!form || !form->key)
        return record_to_json(to, row, n);
    while (record_next(row, n, &at, &f) > 0) {
        size_t length = f.key_len + f.is_literal + 1;
        int rc = field_is(&f, form->key)
                     ? strbuf_addf(&renamed.bytes, "%s%s", form->name, f.is_literal ? ":=" : "=")
                     : strbuf_add(&renamed.bytes, f.key, length);
        if (rc < 0 || strbuf_add(&renamed.bytes, f.value, f.value_len + 1) < 0) {
            record_free(&renamed);
            return -1;
        }
    }
    int rc = record_to_json(to, strbuf_text(&renamed.bytes), renamed.bytes.len);
    record_free(&renamed);
    return rc;
}

int rows_to_json(struct strbuf *to, const struct gathered *all, const struct row_form *form)
{
    const char *row, *between = "{";
    size_t at = 0, n;
    int rc = strbuf_adds(to, "[");
    while (rc == 0 && gathered_row(all, &at, &row, &n)) {
        if (form && form->wants && !form->wants(row, n))
            continue;
        rc = strbuf_adds(to, between) < 0 || row_to_json(to, row, n, form) < 0 ||
                     strbuf_adds(to, "}") < 0
                 ? -1
                 : 0;
        between = ",{";
    }
    return rc < 0 ? rc : strbuf_adds(to, "]");
}

void answer_json(struct exchange *x, int rc, const struct strbuf *json)
{
    if (rc < 0)
        exchange_error(x, 502, "exec_transport_error", "no memory for the answer");
    else
        exchange_answer(x, 200, "application/json", strbuf_text(json), json->len);
}
