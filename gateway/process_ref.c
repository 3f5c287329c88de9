/* From the segment :pid of a path to a process (process.h), by init's list of them. */
#include "gateway/gather.h"
#include "gateway/gateway.h"
#include "gateway/process.h"
#include "gateway/reply.h"

#include "control/record.h"
#include "control/record_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lookup {
    struct exchange *x;
    struct gather *gather;
    void (*then)(struct exchange *x, const struct process_ref *ref);
};

static void not_found(struct exchange *x)
{
    exchange_error(x, 404, "not_found", "process '%.80s': not found", exchange_segment(x, "pid"));
}

static bool is_number(const char *text)
{
    return *text && text[strspn(text, "0123456789")] == '\0';
}

/* How well a row fits: 3 by its id, 2 by the PID of one that runs, 1 of one that has ended. */
static int fit(const char *row, size_t n, const char *wanted)
{
    const char *id = record_get(row, n, "id"), *pid = record_get(row, n, "pid");
    const char *state = record_get(row, n, "state");
    if (!id || !*id)
        return 0;
    if (strcmp(id, wanted) == 0)
        return 3;
    if (!pid || strcmp(pid, "0") == 0 || strcmp(pid, wanted) != 0)
        return 0;
    return state && strcmp(state, "exited") == 0 ? 1 : 2;
}

static void on_list(void *owner, const struct gathered *all)
{
    struct lookup *l = owner;
    struct exchange *x = l->x;
    void (*then)(struct exchange *, const struct process_ref *) = l->then;
    const char *wanted = exchange_segment(x, "pid");
    struct process_ref ref = {0};
    const char *row;
    size_t n;
    int best = 0;
    free(l);
    if (all->error) {
        reply_error(x, all->error);
        return;
    }
    for (size_t at = 0; gathered_row(all, &at, &row, &n);) {
        int now = fit(row, n, wanted);
        if (now <= best)
            continue;
        best = now;
        ref = (struct process_ref){record_get(row, n, "id"), row, n};
    }
    if (best > 0)
        then(x, &ref);
    else
        not_found(x);
}

static void on_lookup_closed(void *owner)
{
    struct lookup *l = owner;
    gather_close(l->gather);
    free(l);
}

static const struct exchange_events lookup_events = {.on_closed = on_lookup_closed};

void process_resolve(struct exchange *x, bool wants_row,
                     void (*then)(struct exchange *x, const struct process_ref *ref))
{
    const struct gateway *g = exchange_context(x);
    const char *wanted = exchange_segment(x, "pid");
    struct error e = {0};
    if (strlen(wanted) > 64) {
        not_found(x);
        return;
    }
    exchange_pause_body(x);
    if (!wants_row && !is_number(wanted)) {
        const struct process_ref ref = {.id = wanted};
        then(x, &ref);
        return;
    }
    struct client_request q;
    struct lookup *l = calloc(1, sizeof *l);
    client_request_init(&q, "ps");
    if (l) {
        l->x = x;
        l->then = then;
        l->gather = gather_open(g->upstream, &q, on_list, l, &e);
    } else {
        error_set(&e, ERR_MEMORY, "process '%.80s': no memory", wanted);
        client_request_free(&q);
    }
    if (l && l->gather) {
        exchange_own(x, &lookup_events, l);
        return;
    }
    free(l);
    reply_error(x, &e);
}

/* `exit_code` is the name of `status` over HTTP, as in the event of exec. */
int process_outcome_json(const char *result, size_t n, struct strbuf *to)
{
    struct record fields = {0};
    struct field f;
    const char *status = record_get(result, n, "status");
    record_str(&fields, "exit_code:", status ? status : "null");
    for (size_t at = 0; record_next(result, n, &at, &f) > 0;) {
        char key[64];
        snprintf(key, sizeof key, "%.*s%s", (int)f.key_len, f.key, f.is_literal ? ":" : "");
        if (!field_is(&f, "status"))
            record_bytes(&fields, key, f.value, f.value_len);
    }
    int rc = fields.is_broken
                 ? -1
                 : strbuf_adds(to, "{") | record_to_json(to, fields.bytes.data, fields.bytes.len) |
                       strbuf_adds(to, "}");
    record_free(&fields);
    return rc;
}
