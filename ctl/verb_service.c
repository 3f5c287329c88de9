/*
 * sandboxctl service …: list, show, start, stop, restart, reload, signal. Exit codes are those that
 * scripts know of init scripts (LSB): show ends with 0 if the service runs, 3 if not, 4 if that
 * cannot be known; orders with 0 or 1.
 */
#include "ctl/ctl.h"

#include "base/number.h"
#include "ctl/output.h"
#include "ctl/print.h"

#include <stdio.h>
#include <string.h>

static void request_names(struct client_request *q, const struct args *a, int first)
{
    for (int i = first; i < a->word_count; i++)
        client_request_add(q, "name", a->words[i]);
}

/* ---- list -------------------------------------------------------------------------------- */

void service_print_list(const struct args *a, const struct answer *answer)
{
    static const struct column columns[] = {
        {"name", "NAME"},       {"state", "STATE"},       {"pid", "PID"},
        {"uptime_s", "UPTIME"}, {"restarts", "RESTARTS"}, {"ready", "READY"},
        {"healthy", "HEALTHY"}, {"detail", "DETAIL"},     {0},
    };
    if (a->is_json)
        print_rows_json(answer);
    else
        print_table(columns, answer, NULL, NULL);
}

int service_ask_list(const struct args *a, struct answer *answer)
{
    struct client_request q;
    client_request_init(&q, "service.list");
    request_names(&q, a, 0);
    return call(a, &q, answer);
}

int ctl_service_list(const struct args *a)
{
    struct answer answer;
    if (args_has(a, "watch"))
        return service_watch(a);
    int code = service_ask_list(a, &answer);
    if (code != CTL_OK)
        return code;
    service_print_list(a, &answer);
    answer_free(&answer);
    return CTL_OK;
}

/* ---- show -------------------------------------------------------------------------------- */

/* What `show` has found so far. */
struct shown {
    const struct args *args;
    struct strbuf json; /* objects with commas between them */
    unsigned count;
    int code;
};

/* The code of the worst one counts: 4 before 3 before 0. */
static void note_code(struct shown *x, int code)
{
    x->code = code > x->code ? code : x->code;
}

/* It runs, or it is a oneshot that has done its work. */
static bool is_running(const struct strbuf *service)
{
    const char *state = field_text(service, "state");
    return strcmp(state, "running") == 0 || strcmp(state, "starting") == 0 ||
           strcmp(field_text(service, "ready"), "true") == 0;
}

static void print_service(struct shown *x, const struct answer *answer)
{
    static const struct column columns[] = {
        {"pid", "PID"}, {"ppid", "PPID"}, {"state", "STATE"}, {"text", "PROCESS"}, {0}};
    if (x->args->is_json) {
        if (strbuf_adds(&x->json, x->count ? ",\n " : "") |
            json_add_with_rows(&x->json, answer, "tree"))
            note_code(x, CTL_UNKNOWN);
        return;
    }
    if (x->count > 0)
        printf("\n");
    print_lines(&answer->result);
    if (answer->row_count > 0)
        print_table(columns, answer, "text", "depth");
}

static void show_one(struct shown *x, const char *name)
{
    struct client_request q;
    struct answer answer;
    client_request_init(&q, "service.show");
    client_request_add(&q, "name", name);
    if (call(x->args, &q, &answer) != CTL_OK) {
        note_code(x, CTL_UNKNOWN);
        return;
    }
    print_service(x, &answer);
    x->count++;
    note_code(x, is_running(&answer.result) ? CTL_OK : CTL_NOT_RUNNING);
    answer_free(&answer);
}

/* A word is a service, or stands for all instances of one. False: init is not there. */
static bool show_word(struct shown *x, const char *word)
{
    struct args one = *x->args;
    struct answer answer;
    one.words = &word;
    one.word_count = 1;
    /* One object that is an error, or errors beside a list of what was found. */
    one.is_json = x->args->is_json && x->args->word_count == 1;
    int code = service_ask_list(&one, &answer);
    if (code != CTL_OK) {
        note_code(x, CTL_UNKNOWN);
        return code != CTL_UNREACHABLE;
    }
    for (size_t i = 0; i < answer.row_count; i++)
        show_one(x, field_text(&answer.rows[i], "name"));
    answer_free(&answer);
    return true;
}

int ctl_service_show(const struct args *a)
{
    struct shown x = {.args = a};
    int i = 0;
    while (i < a->word_count && show_word(&x, a->words[i]))
        i++;
    if (a->is_json && x.count == 1 && a->word_count == 1)
        printf("%s\n", strbuf_text(&x.json));
    else if (a->is_json && (x.count > 0 || a->word_count > 1))
        printf("[%s]\n", strbuf_text(&x.json));
    strbuf_free(&x.json);
    return x.code;
}

/* ---- orders ------------------------------------------------------------------------------ */

/* What became of each: nothing to say, or why not. */
static int print_orders(const struct args *a, struct client_request *q)
{
    struct answer answer;
    int code = call(a, q, &answer);
    if (code != CTL_OK)
        return code;
    if (a->is_json)
        print_rows_json(&answer);
    fflush(stdout);
    for (size_t i = 0; i < answer.row_count; i++) {
        const char *error = field_text(&answer.rows[i], "error");
        if (*error)
            print_message(a->verb->name, error);
    }
    if (strcmp(field_text(&answer.result, "failed"), "0") != 0)
        code = CTL_REFUSED;
    answer_free(&answer);
    return code;
}

static int order(const struct args *a, const char *wire)
{
    struct client_request q;
    if (args_has(a, "no-wait") && args_has(a, "timeout"))
        return usage_error(a->verb, "--no-wait and --timeout exclude each other");
    client_request_init(&q, wire);
    request_names(&q, a, 0);
    if (args_has(a, "no-wait"))
        client_request_add(&q, "no_wait", "1");
    if (request_duration(&q, a, "timeout", "timeout_ms")) {
        client_request_free(&q);
        return CTL_USAGE;
    }
    return print_orders(a, &q);
}

int ctl_service_start(const struct args *a)
{
    return order(a, "service.start");
}

int ctl_service_stop(const struct args *a)
{
    return order(a, "service.stop");
}

int ctl_service_restart(const struct args *a)
{
    return order(a, "service.restart");
}

int ctl_service_reload(const struct args *a)
{
    return order(a, "service.reload");
}

int ctl_service_signal(const struct args *a)
{
    struct client_request q;
    char name[16];
    int sig;
    if (signal_parse(a->words[0], &sig) < 0)
        return usage_error(a->verb, "'%s' is not a signal such as TERM, SIGINT or 9", a->words[0]);
    client_request_init(&q, "service.signal");
    client_request_add(&q, "signal", signal_name(sig, name, sizeof name));
    request_flag(&q, a, "tree");
    request_names(&q, a, 1);
    return print_orders(a, &q);
}
