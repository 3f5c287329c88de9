#include "gateway/ask.h"

#include "control/record.h"
#include "control/record_json.h"
#include "gateway/gateway.h"
#include "gateway/reply.h"

#include <stdlib.h>
#include <string.h>

struct question {
    struct exchange *exchange; /* NULL: its client has left */
    struct gather *gather;
    answer_handler *handler;
    char note[];
};

static void on_done(void *owner, const struct gathered *all)
{
    struct question *q = owner;
    if (q->exchange) {
        exchange_own(q->exchange, NULL, NULL);
        q->handler(q->exchange, all, q->note);
    }
    free(q);
}

/* The gather lives on: what was asked for is not taken back. */
static void on_closed(void *owner)
{
    struct question *q = owner;
    q->exchange = NULL;
}

static const struct exchange_events exchange_events = {.on_closed = on_closed};

void ask(struct exchange *x, struct client_request *r, const char *note, answer_handler *handler)
{
    const struct gateway *g = exchange_context(x);
    struct error e = {0};
    size_t n = note ? strlen(note) : 0;
    struct question *q = calloc(1, sizeof *q + n + 1);
    if (q) {
        q->exchange = x;
        q->handler = handler;
        memcpy(q->note, note ? note : "", n);
        q->gather = gather_open(g->upstream, r, on_done, q, &e);
    } else {
        client_request_free(r);
        error_set(&e, ERR_MEMORY, "no memory for a request to sandbox-init");
    }
    if (q && q->gather) {
        exchange_own(x, &exchange_events, q);
        return;
    }
    struct gathered none = {.error = &e};
    free(q);
    handler(x, &none, note ? note : "");
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

static bool is_wanted(const char *row, size_t n, const struct row_form *form)
{
    const char *kind = form && form->kind ? record_get(row, n, "kind") : NULL;
    if (form && form->kind && (!kind || strcmp(kind, form->kind) != 0))
        return false;
    return !form || !form->wants || form->wants(row, n);
}

int rows_to_json(struct strbuf *to, const struct gathered *all, const struct row_form *form)
{
    const char *row, *between = "{";
    size_t at = 0, n;
    int rc = strbuf_adds(to, "[");
    while (rc == 0 && gathered_row(all, &at, &row, &n)) {
        if (!is_wanted(row, n, form))
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

void answer_rows(struct exchange *x, const struct gathered *all, const char *key,
                 const struct row_form *form)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    if (all->error) {
        reply_error(x, all->error);
        return;
    }
    bool is_whole = strbuf_addf(&json, "{\"%s\":", key) == 0 &&
                    rows_to_json(&json, all, form) == 0 && strbuf_adds(&json, "}") == 0;
    answer_json(x, is_whole ? 0 : -1, &json);
}
