/*
 * One answer: an exchange, and the call to init behind it. Either may end first. The request is
 * kept until the run has begun, since the first request of a session finds that it has to be made:
 *
 *     exec ──not_found──> session.create ──> exec
 */
#include "gateway/exec_answer.h"

#include "base/json.h"
#include "control/record.h"
#include "control/record_json.h"
#include "control/wire.h"
#include "gateway/gateway.h"
#include "gateway/json_body.h"
#include "gateway/reply.h"
#include "gateway/workspace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct exec_run {
    struct gateway *gateway;
    struct sse sse;
    struct output_events output;
    struct call *call;
    struct exec_plan plan;
    bool is_making_session;
    bool has_made_session;
    bool has_begun; /* init has told something of it */
    char id[80];    /* by which it can be come back to; "": not told yet */
};

static void run_free(struct exec_run *r)
{
    call_close(r->call);
    sse_drop(&r->sse);
    output_events_free(&r->output);
    client_request_free(&r->plan.request);
    strbuf_free(&r->plan.text);
    strbuf_free(&r->plan.program);
    free(r);
}

/* ---- events ------------------------------------------------------------------------------ */

static void tell(struct exec_run *r, const char *name, const char *id, const struct strbuf *json)
{
    sse_event(&r->sse, name, id, strbuf_text(json), json->len);
}

/* An event whose data are fields of a record. */
static void tell_record(struct exec_run *r, const char *name, const struct record *fields)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    output_events_flush(&r->output);
    if (strbuf_adds(&json, "{") == 0 &&
        record_to_json(&json, fields->bytes.data, fields->bytes.len) == 0 &&
        strbuf_adds(&json, "}") == 0)
        tell(r, name, NULL, &json);
}

/* Nothing was run: id and detail may be NULL. */
static void tell_not_run(struct exec_run *r, const char *text, const char *id, const char *detail)
{
    struct record fields = {0};
    record_str(&fields, "error", text);
    record_str(&fields, "code", "exec_error");
    if (id)
        record_str(&fields, "exec_id", id);
    if (detail)
        record_str(&fields, "detail", detail);
    tell_record(r, "error", &fields);
    record_free(&fields);
    sse_end(&r->sse);
}

static void tell_error(struct exec_run *r, const char *code, const char *text)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    output_events_finish(&r->output);
    if (strbuf_adds(&json, "{\"error\":") == 0 && json_add_string(&json, text, strlen(text)) == 0 &&
        strbuf_addf(&json, ",\"code\":\"%s\"}", code) == 0)
        tell(r, "error", NULL, &json);
    sse_end(&r->sse);
}

/* What a shell, or the contract, says on stderr; it is in no log. */
static void tell_stderr(struct exec_run *r, const char *text, size_t n)
{
    output_events_finish(&r->output);
    sse_event_base64(&r->sse, "stderr", NULL, text, n);
}

static void copy_field(struct record *to, const struct field *f)
{
    char key[64];
    int n = snprintf(key, sizeof key, "%.*s%s", (int)f->key_len, f->key, f->is_literal ? ":" : "");
    if (n > 0 && (size_t)n < sizeof key)
        record_bytes(to, key, f->value, f->value_len);
}

static void tell_started(struct exec_run *r, const char *bytes, size_t n)
{
    struct record start = {0};
    struct field f;
    size_t at = 0;
    while (record_next(bytes, n, &at, &f) > 0) {
        if (field_is(&f, "id")) {
            record_str(&start, "exec_id", f.value);
            snprintf(r->id, sizeof r->id, "%s", f.value);
        } else if (!field_is(&f, "event"))
            copy_field(&start, &f);
    }
    tell_record(r, "start", &start);
    record_free(&start);
    if (r->plan.is_in_workspace && !*r->plan.session)
        workspace_note(r->gateway->upstream, r->gateway->options.workspace, 0);
}

static void tell_lost(struct exec_run *r, const char *from, const char *to)
{
    struct record lost = {0};
    output_events_skip(&r->output, strtoull(to, NULL, 10));
    record_str(&lost, "from:", from);
    record_str(&lost, "to:", to);
    tell_record(r, "lost", &lost);
    record_free(&lost);
}

static void tell_cut(struct exec_run *r, const char *bytes, size_t n)
{
    struct record cut = {0};
    struct field f;
    size_t at = 0;
    while (record_next(bytes, n, &at, &f) > 0)
        if (!field_is(&f, "event"))
            copy_field(&cut, &f);
    tell_record(r, "cut", &cut);
    record_free(&cut);
}

static void take_note(struct exec_run *r, const char *bytes, size_t n)
{
    const char *event = record_get(bytes, n, "event");
    const char *from = record_get(bytes, n, "lost_from"), *to = record_get(bytes, n, "lost_to");
    if (from && to)
        tell_lost(r, from, to);
    else if (event && strcmp(event, "started") == 0)
        tell_started(r, bytes, n);
    else if (event && strcmp(event, "cut") == 0)
        tell_cut(r, bytes, n);
}

/* ---- the end ----------------------------------------------------------------------------- */

static void tell_timeout(struct exec_run *r, const char *bytes, size_t n)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    const char *seconds = record_get(bytes, n, "duration_s");
    const char *clock = record_get(bytes, n, "clock");
    bool is_asked_for = r->plan.has_timeout && (!clock || strcmp(clock, "total") == 0);
    double ms = is_asked_for ? r->plan.timeout_ms : seconds ? strtod(seconds, NULL) * 1000. : 0.;
    if (strbuf_adds(&text, "Command timed out after ") == 0 && number_to_text(ms, &text) == 0 &&
        strbuf_adds(&text, "ms\n") == 0)
        tell_stderr(r, text.data, text.len);
}

/* As bash says it. */
static void tell_no_program(struct exec_run *r, int why, const char *message)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    const char *program = strbuf_text(&r->plan.program);
    if (!r->plan.has_program) { /* who comes back to it does not say what it was */
        if (message && strbuf_addf(&text, "%s\n", message) == 0)
            tell_stderr(r, text.data, text.len);
        return;
    }
    bool is_name = why == ENOENT && !strchr(program, '/');
    if (strbuf_addf(&text, "/bin/bash: line 1: %s: %s\n", program,
                    is_name ? "command not found" : strerror(why)) == 0)
        tell_stderr(r, text.data, text.len);
}

static void tell_exit(struct exec_run *r, const char *bytes, size_t n)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    const char *status = record_get(bytes, n, "status");
    struct record fields = {0};
    struct field f;
    size_t at = 0;
    char id[24];
    record_str(&fields, "exit_code:", status ? status : "255");
    while (record_next(bytes, n, &at, &f) > 0) {
        if (field_is(&f, "id"))
            record_str(&fields, "exec_id", f.value);
        else if (!field_is(&f, "status"))
            copy_field(&fields, &f);
    }
    snprintf(id, sizeof id, "%" PRIu64, r->output.offset);
    output_events_finish(&r->output);
    if (strbuf_adds(&json, "{") == 0 &&
        record_to_json(&json, fields.bytes.data, fields.bytes.len) == 0 &&
        strbuf_adds(&json, "}") == 0)
        tell(r, "exit", id, &json);
    record_free(&fields);
    sse_end(&r->sse);
}

static bool is_word(const char *word, const char *other)
{
    return word && strcmp(word, other) == 0;
}

static void tell_result(struct exec_run *r, const char *bytes, size_t n)
{
    const char *verdict = record_get(bytes, n, "verdict"), *step = record_get(bytes, n, "step");
    const char *sys = record_get(bytes, n, "errno"), *message = record_get(bytes, n, "message");
    output_events_finish(&r->output);
    if (is_word(verdict, "timeout"))
        tell_timeout(r, bytes, n);
    if (is_word(verdict, "spawn_failed") && is_word(step, "exec")) {
        tell_no_program(r, sys ? atoi(sys) : ENOENT, message);
    } else if (is_word(verdict, "spawn_failed")) {
        CLEANUP_STRBUF struct strbuf text = {0};
        (void)strbuf_adds(&text, "Command execution failed");
        /* For a folder that the request names the contract has no more words: the detail has. */
        if (message && (!is_word(step, "cwd") || r->plan.is_in_workspace))
            (void)strbuf_addf(&text, ": %s", message);
        if (is_word(step, "cwd") && r->plan.is_in_workspace && sys)
            workspace_note(r->gateway->upstream, r->gateway->options.workspace, atoi(sys));
        tell_not_run(r, strbuf_text(&text), record_get(bytes, n, "id"), message);
        return;
    }
    tell_exit(r, bytes, n);
}

/* Init, or the way to it, dropped us; such a client may have read nothing for client_stall. The run
 * goes on all the same. */
static void tell_dropped(struct exec_run *r, const struct error *e)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    output_events_finish(&r->output);
    if (strbuf_adds(&text, e->text) == 0 && r->id[0])
        (void)strbuf_addf(&text,
                          "; the exec goes on: GET …/exec/%s?since=%" PRIu64 " comes back to it",
                          r->id, r->output.offset);
    tell_error(r, "exec_transport_error", strbuf_text(&text));
}

/* What it wanted to go on with is not known: in the words of the route. */
static void refuse_unknown(const struct exec_run *r, struct exchange *x, const struct error *e)
{
    const char *id = exchange_segment(x, "exec_id");
    if (*id)
        exchange_error(x, 404, "not_found", "exec '%.80s': not found (any more)", id);
    else if (r->plan.has_from)
        exchange_error(x, 404, "not_found",
                       "there is no exec with this Idempotency-Key to go on with (any more)");
    else
        reply_error(x, e);
}

/* Nothing runs: before the first event that is an HTTP status. */
static void refuse(struct exec_run *r, const struct error *e)
{
    struct exchange *x = r->sse.exchange;
    if (!x)
        return;
    if (r->sse.has_begun || r->sse.gathered.len > 0) {
        tell_dropped(r, e);
        return;
    }
    sse_drop(&r->sse);
    switch (e->code) {
    case ERR_EXISTS:
        exchange_error(x, 409, "invalid_request",
                       "the Idempotency-Key belongs to another request: %s", e->text);
        break;
    case ERR_NOT_FOUND:
        refuse_unknown(r, x, e);
        break;
    case ERR_INVALID:
    case ERR_TOO_LARGE:
        reply_error(x, e);
        break;
    case ERR_LIMIT:
        exchange_error(x, 503, "capacity_exceeded", "%s", e->text);
        break;
    default:
        exchange_failed(x, r->is_making_session ? "session_error" : "exec_transport_error",
                        r->is_making_session ? "session create" : "exec", e);
    }
}

/* ---- the call ---------------------------------------------------------------------------- */

static bool on_packet(void *owner, char channel, const char *bytes, size_t n)
{
    struct exec_run *r = owner;
    r->has_begun = true;
    if (!r->sse.exchange) { /* it has begun, and nobody listens */
        run_free(r);
        return false;
    }
    if (channel == WIRE_STDOUT || channel == WIRE_STDERR)
        output_events_add(&r->output, channel == WIRE_STDOUT ? OUTPUT_STDOUT : OUTPUT_STDERR, bytes,
                          n);
    else if (channel == WIRE_NOTE)
        take_note(r, bytes, n);
    return !r->sse.is_full;
}

static void on_idle(void *owner)
{
    struct exec_run *r = owner;
    output_events_flush(&r->output);
    (void)sse_flush(&r->sse);
}

static void begin_exec(struct exec_run *r);
static void begin_session(struct exec_run *r);

static void on_end(void *owner, char channel, const char *bytes, size_t n, const struct error *e)
{
    struct exec_run *r = owner;
    r->call = NULL;
    if (channel == WIRE_RESULT) {
        tell_result(r, bytes, n);
    } else if (e->code == ERR_NOT_FOUND && *r->plan.session && !r->has_made_session &&
               !r->plan.has_from && !r->has_begun) {
        begin_session(r);
        return;
    } else {
        refuse(r, e);
    }
    run_free(r);
}

static const struct call_events exec_events = {
    .on_packet = on_packet, .on_end = on_end, .on_idle = on_idle};

static void begin_exec(struct exec_run *r)
{
    struct error e = {0};
    struct client_request *q = &r->plan.request;
    q->text = r->plan.has_text ? strbuf_text(&r->plan.text) : NULL;
    q->text_len = r->plan.text.len;
    r->call = call_open(r->gateway->upstream, q, &exec_events, r, &e);
    if (r->call)
        return;
    refuse(r, &e);
    run_free(r);
}

static bool on_session_packet(void *owner, char channel, const char *bytes, size_t n)
{
    (void)owner;
    (void)channel;
    (void)bytes;
    (void)n;
    return true;
}

static void on_session_made(void *owner, char channel, const char *bytes, size_t n,
                            const struct error *e)
{
    struct exec_run *r = owner;
    (void)bytes;
    (void)n;
    r->call = NULL;
    if (channel == WIRE_RESULT || e->code == ERR_EXISTS) { /* or another one made it meanwhile */
        r->is_making_session = false;
        r->has_made_session = true;
        begin_exec(r);
        return;
    }
    refuse(r, e);
    run_free(r);
}

static const struct call_events session_events = {.on_packet = on_session_packet,
                                                  .on_end = on_session_made};

static void begin_session(struct exec_run *r)
{
    struct error e = {0};
    struct client_request q;
    r->is_making_session = true;
    client_request_init(&q, "session.create");
    client_request_add(&q, "name", r->plan.session);
    client_request_add(&q, "cwd", r->gateway->options.workspace);
    r->call = call_open(r->gateway->upstream, &q, &session_events, r, &e);
    client_request_free(&q);
    if (r->call)
        return;
    refuse(r, &e);
    run_free(r);
}

/* ---- the exchange ------------------------------------------------------------------------ */

static void on_writable(void *owner)
{
    struct exec_run *r = owner;
    sse_relieved(&r->sse);
    if (sse_flush(&r->sse) && r->call)
        call_resume(r->call);
}

/* The run goes on. What has not begun yet is still asked for. */
static void on_closed(void *owner)
{
    struct exec_run *r = owner;
    sse_drop(&r->sse);
    if (r->has_begun)
        run_free(r);
}

static const struct exchange_events exchange_events = {.on_writable = on_writable,
                                                       .on_closed = on_closed};

void exec_answer(struct exchange *x, struct exec_plan *plan)
{
    struct exec_run *r = calloc(1, sizeof *r);
    if (!r) {
        client_request_free(&plan->request);
        strbuf_free(&plan->text);
        strbuf_free(&plan->program);
        exchange_error(x, 502, "exec_transport_error", "exec failed: no memory");
        return;
    }
    r->gateway = exchange_context(x);
    r->plan = *plan;
    sse_init(&r->sse, x);
    output_events_init(&r->output, &r->sse, plan->has_from ? &plan->from : NULL);
    exchange_own(x, &exchange_events, r);
    begin_exec(r);
}

void exec_answer_late(struct exchange *x, double timeout_ms)
{
    static const char end[] = "{\"exit_code\":124,\"verdict\":\"timeout\",\"clock\":\"total\"}";
    CLEANUP_STRBUF struct strbuf text = {0};
    struct sse sse;
    sse_init(&sse, x);
    if (strbuf_adds(&text, "Command timed out after ") == 0 &&
        number_to_text(timeout_ms, &text) == 0 && strbuf_adds(&text, "ms\n") == 0)
        sse_event_base64(&sse, "stderr", NULL, text.data, text.len);
    sse_event(&sse, "exit", NULL, end, sizeof end - 1);
    sse_end(&sse);
}
