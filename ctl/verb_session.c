/* sandboxctl session …: create, list, show, delete, reset, env. */
#include "ctl/ctl.h"

#include "base/number.h"
#include "ctl/print.h"

#include <stdio.h>
#include <string.h>

static void print_name(const struct strbuf *result)
{
    printf("%s\n", field_text(result, "name"));
}

int ctl_session_create(const struct args *a)
{
    struct client_request q;
    client_request_init(&q, "session.create");
    if (a->word_count > 0)
        client_request_add(&q, "name", a->words[0]);
    request_option(&q, a, "cwd", "cwd");
    request_option(&q, a, "shell", "shell");
    request_option(&q, a, "user", "user");
    request_option(&q, a, "setup", "setup");
    request_option(&q, a, "from", "from");
    CLEANUP_STRBUF struct strbuf state = {0};
    const char *from = args_get(a, "from");
    if (request_env(&q, a) || request_duration(&q, a, "timeout", "timeout_ms") ||
        (from && read_file(a, from, &state))) {
        client_request_free(&q);
        return CTL_USAGE;
    }
    if (from) {
        q.text = strbuf_text(&state);
        q.text_len = state.len;
    }
    return call_show(a, &q, print_name);
}

int ctl_session_list(const struct args *a)
{
    static const struct column columns[] = {
        {"name", "NAME"},
        {"state", "STATE"},
        {"pid", "PID"},
        {"running", "RUNNING"},
        {"running_s", "FOR"},
        {"queue", "WAITING"},
        {"strays", "STRAYS"},
        {"uptime_s", "UPTIME"},
        {"shell", "SHELL"},
        {"cwd", "DIRECTORY"},
        {0},
    };
    struct client_request q;
    client_request_init(&q, "session.list");
    return call_table(a, &q, columns, NULL, NULL);
}

/* The request of a verb that takes the session's name. */
static struct client_request *name_request(struct client_request *q, const struct args *a,
                                           const char *wire)
{
    client_request_init(q, wire);
    client_request_add(q, "name", a->words[0]);
    return q;
}

/* The record with its rows as the list "waiting". */
static int print_show_json(const struct answer *answer)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    if (json_add_with_rows(&json, answer, "waiting") < 0) {
        fprintf(stderr, "sandboxctl: no memory for the answer\n");
        return CTL_REFUSED;
    }
    printf("%s\n", strbuf_text(&json));
    return CTL_OK;
}

int ctl_session_show(const struct args *a)
{
    static const struct column columns[] = {{"id", "WAITING"},      {"kind", "KIND"},
                                            {"waiting_s", "SINCE"}, {"wait_for_s", "AT MOST"},
                                            {"text", "TEXT"},       {0}};
    struct client_request q;
    struct answer answer;
    int code = call(a, name_request(&q, a, "session.show"), &answer);
    if (code != CTL_OK)
        return code;
    if (a->is_json) {
        code = print_show_json(&answer);
    } else {
        print_lines(&answer.result);
        if (answer.row_count > 0)
            print_table(columns, &answer, NULL, NULL);
    }
    answer_free(&answer);
    return code;
}

/* Several: each in turn, also behind one that fails; the highest code counts. */
int ctl_session_delete(const struct args *a)
{
    bool is_list = a->is_json && a->word_count > 1;
    int worst = CTL_OK;
    for (int i = 0; i < a->word_count && worst != CTL_UNREACHABLE; i++) {
        struct client_request q;
        client_request_init(&q, "session.delete");
        client_request_add(&q, "name", a->words[i]);
        if (is_list)
            fputs(i ? "," : "[", stdout);
        int code = call_kill(a, &q);
        worst = code > worst ? code : worst;
    }
    if (is_list)
        printf("]\n");
    return worst;
}

int ctl_session_reset(const struct args *a)
{
    struct client_request q;
    return call_kill(a, name_request(&q, a, "session.reset"));
}

/* Receive the environment, "K=V\0" …: 0, or an exit code; what is wrong is printed. */
static int receive_env(const struct args *a, struct client *c, struct strbuf *env)
{
    const char *bytes;
    size_t n;
    int channel;
    struct error e = {0};
    while ((channel = client_receive(c, &bytes, &n, &e)) > 0) {
        if (channel == WIRE_ERROR)
            return call_refused(a, bytes, n);
        if (channel == WIRE_STDOUT && strbuf_add(env, bytes, n) < 0) {
            error_set(&e, ERR_MEMORY, "no memory for the answer");
            break;
        }
        if (channel == WIRE_RESULT)
            return 0;
    }
    if (channel == 0)
        error_set(&e, ERR_UNAVAILABLE, "sandbox-init closed the connection without an answer");
    return call_failed(a, &e);
}

static int print_env(const struct args *a, const struct strbuf *env)
{
    CLEANUP_STRBUF struct strbuf record = {0};
    const char *end = strbuf_text(env) + env->len;
    int rc = strbuf_addf(&record, "name=%s", a->words[0]) | strbuf_add(&record, "", 1);
    for (const char *item = strbuf_text(env); item < end; item += strlen(item) + 1) {
        if (!a->is_json)
            printf("%s\n", item);
        else
            rc |= strbuf_adds(&record, "env[]=") | strbuf_add(&record, item, strlen(item) + 1);
    }
    if (a->is_json && rc == 0)
        print_record_json(&record);
    return rc == 0 ? CTL_OK : CTL_REFUSED;
}

/* `session env NAME` without changes shows what is set. */
static int show_env(const struct args *a)
{
    struct client_request q;
    struct error e = {0};
    CLEANUP_STRBUF struct strbuf env = {0};
    struct client *c = call_begin(a, name_request(&q, a, "session.env"), &e);
    client_request_free(&q);
    if (!c)
        return call_failed(a, &e);
    int code = receive_env(a, c, &env);
    client_free(c);
    return code ? code : print_env(a, &env);
}

/* K=V sets, -K unsets. */
static int add_change(struct client_request *q, const struct args *a, const char *word)
{
    const char *sign = strchr(word, '=');
    const char *name = word[0] == '-' ? word + 1 : word;
    size_t n = word[0] != '-' && sign ? (size_t)(sign - word) : strlen(name);
    if (word[0] != '-' && !sign)
        return usage_error(a->verb, "'%s' is neither K=V nor -K", word);
    if (env_name_check(name, n) < 0)
        return usage_error(a->verb, "'%.*s' is not the name of a variable", (int)n, name);
    client_request_add(q, word[0] == '-' ? "unset" : "env", name);
    return 0;
}

static void print_nothing(const struct strbuf *result)
{
    (void)result;
}

int ctl_session_env(const struct args *a)
{
    struct client_request q;
    bool has_name = a->word_count > 0 && a->words[0][0] != '-' && !strchr(a->words[0], '=');
    if (a->word_count == 0)
        return usage_error(a->verb, "too few arguments; usage: sandboxctl %s %s", a->verb->name,
                           a->verb->synopsis);
    if (has_name && a->word_count == 1)
        return show_env(a);
    client_request_init(&q, "session.env");
    if (has_name)
        client_request_add(&q, "name", a->words[0]);
    for (int i = has_name; i < a->word_count; i++) {
        if (add_change(&q, a, a->words[i])) {
            client_request_free(&q);
            return CTL_USAGE;
        }
    }
    int code = request_patience(&q, a);
    if (code) {
        client_request_free(&q);
        return code;
    }
    return call_show(a, &q, print_nothing);
}
