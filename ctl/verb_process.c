/* sandboxctl start, ps, kill, kill-all, send. */
#include "ctl/ctl.h"

#include "base/number.h"
#include "ctl/print.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int ctl_start(const struct args *a)
{
    struct client_request q;
    CLEANUP_STRBUF struct strbuf text = {0};
    client_request_init(&q, "start");
    request_option(&q, a, "session", "session");
    request_option(&q, a, "id", "id");
    request_option(&q, a, "cwd", "cwd");
    request_flag(&q, a, "stdin");
    int code = request_env(&q, a);
    if (code == 0)
        code = request_patience(&q, a);
    if (code == 0)
        code = request_program(&q, a, &text);
    if (code == 0)
        code = call_show(a, &q, print_started);
    client_request_free(&q);
    return code;
}

static bool has_ports(const struct answer *answer)
{
    for (size_t i = 0; i < answer->row_count; i++)
        if (*field_text(&answer->rows[i], "listen"))
            return true;
    return false;
}

int ctl_ps(const struct args *a)
{
    static const struct column list[] = {
        {"id", "ID"},         {"session", "SESSION"},
        {"pid", "PID"},       {"kind", "KIND"},
        {"state", "STATE"},   {"status", "STATUS"},
        {"strays", "STRAYS"}, {"uptime_s", "UPTIME"},
        {"text", "COMMAND"},  {0},
    };
    static const struct column list_with_ports[] = {
        {"id", "ID"},
        {"session", "SESSION"},
        {"pid", "PID"},
        {"kind", "KIND"},
        {"state", "STATE"},
        {"status", "STATUS"},
        {"strays", "STRAYS"},
        {"uptime_s", "UPTIME"},
        {"listen", "LISTEN"},
        {"text", "COMMAND"},
        {0},
    };
    static const struct column tree[] = {
        {"session", "SESSION"}, {"id", "ID"}, {"pid", "PID"}, {"ppid", "PPID"}, {"state", "STATE"},
        {"name", "NAME"},       {0},
    };
    struct client_request q;
    struct answer answer;
    bool is_tree = args_has(a, "tree");
    client_request_init(&q, is_tree ? "tree" : "ps");
    request_option(&q, a, "session", "session");
    if (is_tree || a->is_json)
        return call_table(a, &q, tree, "name", "depth");
    int code = call(a, &q, &answer);
    if (code != CTL_OK)
        return code;
    print_table(has_ports(&answer) ? list_with_ports : list, &answer, NULL, NULL);
    answer_free(&answer);
    return CTL_OK;
}

int call_kill(const struct args *a, struct client_request *q)
{
    struct answer answer;
    struct field f;
    size_t at = 0;
    int code = call(a, q, &answer);
    if (code != CTL_OK)
        return code;
    if (a->is_json)
        print_record_json(&answer.result);
    while (record_next(strbuf_text(&answer.result), answer.result.len, &at, &f) > 0) {
        if (!field_is(&f, "survivors[]"))
            continue;
        CLEANUP_STRBUF struct strbuf text = {0};
        strbuf_addf(&text, "still there: %s", f.value);
        print_message(a->verb->name, strbuf_text(&text));
        code = CTL_REFUSED;
    }
    answer_free(&answer);
    return code;
}

static int add_signal(struct client_request *q, const struct args *a)
{
    const char *text = args_get(a, "signal");
    char buf[16];
    int number;
    if (!text)
        return 0;
    if (signal_parse(text, &number) < 0)
        return usage_error(a->verb, "--signal: '%s' is not a signal such as TERM, SIGINT or 9",
                           text);
    client_request_add(q, "signal", signal_name(number, buf, sizeof buf));
    return 0;
}

int ctl_kill(const struct args *a)
{
    struct client_request q;
    if ((a->word_count > 0) + args_has(a, "running") + args_has(a, "stray") != 1)
        return usage_error(a->verb, "give one of: an ID, --running NAME, --stray PID");
    client_request_init(&q, "kill");
    if (a->word_count > 0)
        client_request_add(&q, "id", a->words[0]);
    request_option(&q, a, "running", "running");
    request_option(&q, a, "stray", "stray");
    if (add_signal(&q, a) || request_duration(&q, a, "grace", "grace_ms")) {
        client_request_free(&q);
        return CTL_USAGE;
    }
    return call_kill(a, &q);
}

int ctl_kill_all(const struct args *a)
{
    struct client_request q;
    client_request_init(&q, "kill-all");
    request_option(&q, a, "session", "session");
    if (request_duration(&q, a, "grace", "grace_ms")) {
        client_request_free(&q);
        return CTL_USAGE;
    }
    return call_kill(a, &q);
}

/* ---- send -------------------------------------------------------------------------------- */

/* Forward stdin to its end. A failed send only ends it: the reason comes as init's answer. */
static int forward_stdin(struct client *c, bool with_eof, struct error *e)
{
    char bytes[32768];
    ssize_t k;
    for (;;) {
        k = read(STDIN_FILENO, bytes, sizeof bytes);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break;
        if (client_send(c, WIRE_STDIN, bytes, (size_t)k, NULL) < 0)
            return 0;
    }
    if (k < 0)
        return error_set_sys(e, errno, "stdin");
    if (with_eof)
        (void)client_send(c, WIRE_STDIN, NULL, 0, NULL);
    client_end_sending(c);
    return 0;
}

/* The answer to a request that is already sent. */
static int finish_send(const struct args *a, struct client *c)
{
    const char *bytes;
    size_t n;
    struct error e = {0};
    int channel;
    do
        channel = client_receive(c, &bytes, &n, &e);
    while (channel > 0 && channel != WIRE_RESULT && channel != WIRE_ERROR);
    if (channel == WIRE_RESULT) {
        struct strbuf result = {.data = (char *)(uintptr_t)bytes, .len = n};
        if (a->is_json)
            print_record_json(&result);
        return CTL_OK;
    }
    if (channel == WIRE_ERROR)
        return call_refused(a, bytes, n);
    if (channel == 0)
        error_set(&e, ERR_UNAVAILABLE, "sandbox-init closed the connection without an answer");
    return call_failed(a, &e);
}

int ctl_send(const struct args *a)
{
    struct client_request q;
    struct error e = {0};
    client_request_init(&q, "send");
    client_request_add(&q, "id", a->words[0]);
    struct client *c = call_begin(a, &q, &e);
    client_request_free(&q);
    int code =
        !c || forward_stdin(c, args_has(a, "eof"), &e) < 0 ? call_failed(a, &e) : finish_send(a, c);
    client_free(c);
    return code;
}
