/* From the segment :pid of a path to a process (process.h), by init's list of them. */
#include "gateway/process.h"
#include "gateway/reply.h"

#include "control/record.h"
#include "control/record_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_MAX 64 /* bytes of an id of init's */

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

void process_choose(struct exchange *x, bool wants_row, answer_handler *handler)
{
    struct client_request q;
    if (!wants_row && !is_number(exchange_segment(x, "pid"))) {
        handler(x, NULL, "");
        return;
    }
    client_request_init(&q, "ps");
    ask(x, &q, NULL, handler);
}

bool process_chosen(struct exchange *x, const struct gathered *all, struct process_ref *ref)
{
    const char *wanted = exchange_segment(x, "pid"), *row;
    size_t at = 0, n;
    int best = 0;
    *ref = (struct process_ref){.id = wanted};
    if (!all && strlen(wanted) <= ID_MAX)
        return true;
    if (all && all->error) {
        reply_error(x, all->error);
        return false;
    }
    while (all && gathered_row(all, &at, &row, &n)) {
        int now = fit(row, n, wanted);
        if (now > best)
            *ref = (struct process_ref){record_get(row, n, "id"), row, n};
        best = now > best ? now : best;
    }
    if (best == 0)
        exchange_error(x, 404, "not_found", "process '%.80s': not found", wanted);
    return best > 0;
}

void process_answer_result(struct exchange *x, const struct gathered *all, const char *note)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    (void)note;
    if (all->error)
        reply_error(x, all->error);
    else
        answer_json(x,
                    strbuf_adds(&json, "{") | record_to_json(&json, all->result, all->result_len) |
                        strbuf_adds(&json, "}"),
                    &json);
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
