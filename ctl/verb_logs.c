/* sandboxctl logs and service logs: stdout to stdout and stderr to stderr, or labelled lines, or
 * JSON. */
#include "ctl/ctl.h"

#include "base/json.h"
#include "base/number.h"
#include "control/record_json.h"
#include "ctl/logs.h"
#include "ctl/output.h"
#include "ctl/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CAPTURE_MAX ((size_t)256 << 20)

static int build_request(const struct args *a, struct client_request *q)
{
    bool wants_out = args_has(a, "stdout"), wants_err = args_has(a, "stderr");
    bool is_service = a->verb->run == ctl_service_logs;
    client_request_init(q, is_service ? "service.logs" : "logs");
    client_request_add(q, is_service ? "name" : "id", a->words[0]);
    request_flag(q, a, "follow");
    if (wants_out != wants_err)
        client_request_add(q, "stream", wants_out ? "stdout" : "stderr");
    if (args_has(a, "from") && args_has(a, "tail"))
        return usage_error(a->verb, "--from and --tail exclude each other");
    int code = request_number(q, a, "from", "from");
    return code ? code : request_number(q, a, "tail", "tail");
}

/* With -f and --json each packet is an object of its own, as it comes. */
static int print_chunk(const char *stream, const char *bytes, size_t n)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    if (strbuf_addf(&json, "{\"stream\":\"%s\",", stream) |
        json_add_output(&json, "data", bytes, n) | strbuf_adds(&json, "}\n"))
        return CTL_REFUSED;
    return output_write(STDOUT_FILENO, json.data, json.len, NULL, NULL);
}

int logs_take_output(struct logs *l, int stream, const char *bytes, size_t n)
{
    if (l->args->is_json && l->follows)
        return print_chunk(stream ? "stderr" : "stdout", bytes, n);
    if (l->args->is_json) {
        if (strbuf_add(&l->captured[stream], bytes, n) < 0)
            l->is_cut = true;
        return 0;
    }
    if (l->is_labelled)
        return labeller_add(&l->labellers[stream], bytes, n);
    return output_write(stream ? STDERR_FILENO : STDOUT_FILENO, bytes, n, NULL, NULL);
}

/* What the log has lost is always said: on stderr, and in the JSON. */
int logs_take_note(struct logs *l, const char *bytes, size_t n)
{
    const char *from = record_get(bytes, n, "lost_from");
    const char *to = record_get(bytes, n, "lost_to");
    if (from && to)
        output_say("sandboxctl %s: lost bytes %s..%s\n", l->args->verb->name, from, to);
    if (!l->args->is_json)
        return 0;
    if (!l->follows) {
        if (from && to)
            strbuf_addf(&l->notes, "lost[]=%s..%s%c", from, to, 0);
        else
            strbuf_add(&l->notes, bytes, n);
        return 0;
    }
    struct strbuf note = {.data = (char *)(uintptr_t)bytes, .len = n};
    print_record_json(&note);
    return fflush(stdout) == 0 ? 0 : CTL_PIPE;
}

int logs_finish(struct logs *l, const char *bytes, size_t n)
{
    CLEANUP_STRBUF struct strbuf json = {.limit = 8 * CAPTURE_MAX};
    if (!l->args->is_json)
        return 0;
    strbuf_add(&l->notes, bytes, n);
    int rc = record_to_json(&json, strbuf_text(&l->notes), l->notes.len);
    if (!l->follows)
        rc |= strbuf_adds(&json, json.len ? "," : "") |
              json_add_output(&json, "stdout", strbuf_text(&l->captured[0]), l->captured[0].len) |
              strbuf_adds(&json, ",") |
              json_add_output(&json, "stderr", strbuf_text(&l->captured[1]), l->captured[1].len) |
              strbuf_adds(&json, l->is_cut ? ",\"output_cut\":true" : "");
    if (rc != 0)
        fprintf(stderr, "sandboxctl: no memory for the output\n");
    else
        printf("{%s}\n", strbuf_text(&json));
    return rc ? CTL_REFUSED : 0;
}

/* Receive one packet. -1: go on; otherwise the exit code. */
static int take_packet(const struct args *a, struct client *c, void *context)
{
    struct logs *l = context;
    const char *bytes;
    size_t n;
    struct error e = {0};
    int code = 0;
    switch (client_receive(c, &bytes, &n, &e)) {
    case WIRE_STDOUT:
        code = logs_take_output(l, 0, bytes, n);
        break;
    case WIRE_STDERR:
        code = logs_take_output(l, 1, bytes, n);
        break;
    case WIRE_NOTE:
        code = logs_take_note(l, bytes, n);
        break;
    case WIRE_RESULT:
        return logs_finish(l, bytes, n);
    case WIRE_ERROR:
        return call_refused(a, bytes, n);
    case 0:
        error_set(&e, ERR_UNAVAILABLE, "sandbox-init closed the connection before the log's end");
        return call_failed(a, &e);
    case -1:
        return call_failed(a, &e);
    }
    return code ? code : -1;
}

/* Ask init. */
static int follow_init(struct logs *l)
{
    struct client_request q;
    int code = build_request(l->args, &q);
    if (code == 0)
        code = call_follow(l->args, &q, take_packet, l);
    client_request_free(&q);
    return code;
}

static int run_logs(const struct args *a)
{
    struct logs l = {
        .args = a,
        .is_labelled = args_has(a, "labelled"),
        .follows = args_has(a, "follow"),
        .labellers = {{.label = "stdout: "}, {.label = "stderr: "}},
        .captured = {{.limit = CAPTURE_MAX}, {.limit = CAPTURE_MAX}},
    };
    int code = args_has(a, "file") ? logs_read_file(&l, args_get(a, "file")) : follow_init(&l);
    for (int i = 0; i < 2; i++) {
        int end = labeller_end(&l.labellers[i]);
        code = code ? code : end;
        strbuf_free(&l.captured[i]);
    }
    strbuf_free(&l.notes);
    return code;
}

int ctl_logs(const struct args *a)
{
    if (args_has(a, "file") == (a->word_count > 0))
        return usage_error(a->verb, a->word_count ? "ID and --file exclude each other"
                                                  : "too few arguments: ID is missing");
    return run_logs(a);
}

int ctl_service_logs(const struct args *a)
{
    return run_logs(a);
}
