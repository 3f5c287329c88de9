/* Asking init: which socket, one exchange, and the arguments that several verbs share. */
#include "ctl/ctl.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/number.h"
#include "control/paths.h"
#include "ctl/print.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX ((size_t)1 << 30) /* init's own limit is smaller and tells its number */

const char *call_socket(const struct args *a, char *buf, size_t size, struct error *e)
{
    const char *env = getenv("SANDBOX_SOCKET");
    if (a->socket)
        return a->socket;
    if (env && *env)
        return env;
    if (paths_find_socket(getuid(), buf, size))
        return buf;
    error_set(e, ERR_UNAVAILABLE, "cannot reach sandbox-init: no socket at");
    char dir[PATHS_MAX];
    for (unsigned i = 0; paths_runtime_dir(i, getuid(), dir, sizeof dir); i++) {
        size_t used = strlen(e->text);
        if (dir[0])
            snprintf(e->text + used, sizeof e->text - used, " %s/" PATHS_SOCKET_NAME, dir);
    }
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used,
             "; is it running? give its socket with -S SOCKET or SANDBOX_SOCKET");
    return NULL;
}

struct client *call_begin(const struct args *a, const struct client_request *q, struct error *e)
{
    char buf[PATHS_MAX];
    const char *path = call_socket(a, buf, sizeof buf, e);
    return path ? client_open(path, q, e) : NULL;
}

/* The exit code tells "not reachable" from an error that init sent: both can be `unavailable`. */
static int report(const struct args *a, const struct error *e, bool is_from_init)
{
    fflush(stdout);
    print_message("", e->text);
    if (a->is_json)
        print_error_json(e);
    if (is_from_init)
        return e->code == ERR_BUSY ? CTL_NOT_RUN : CTL_REFUSED;
    return e->code == ERR_UNAVAILABLE ? CTL_UNREACHABLE : CTL_REFUSED;
}

int call_failed(const struct args *a, const struct error *e)
{
    return report(a, e, false);
}

int call_refused(const struct args *a, const char *payload, size_t n)
{
    struct error e;
    client_error(payload, n, &e);
    return report(a, &e, true);
}

static int keep_row(struct answer *to, const char *bytes, size_t n)
{
    if ((to->row_count & (to->row_count + 1)) == 0) { /* 0, 1, 3, 7 …: grow */
        size_t slots = 2 * (to->row_count + 1);
        struct strbuf *rows = realloc(to->rows, slots * sizeof *rows);
        if (!rows)
            return -1;
        to->rows = rows;
    }
    struct strbuf *row = &to->rows[to->row_count];
    memset(row, 0, sizeof *row);
    if (strbuf_add(row, bytes, n) < 0)
        return -1;
    to->row_count++;
    return 0;
}

/* Receive up to the last packet. 1: the result is there, 0: init sent an error, -1: lost. */
static int receive_answer(struct client *c, struct answer *to, struct error *e)
{
    const char *bytes;
    size_t n;
    int channel;
    while ((channel = client_receive(c, &bytes, &n, e)) > 0) {
        if (channel == WIRE_ERROR) {
            client_error(bytes, n, e);
            return 0;
        }
        if (channel == WIRE_ROW && keep_row(to, bytes, n) < 0)
            return error_set(e, ERR_MEMORY, "no memory for the answer");
        if (channel == WIRE_RESULT) {
            if (strbuf_add(&to->result, bytes, n) < 0)
                return error_set(e, ERR_MEMORY, "no memory for the answer");
            return 1;
        }
    }
    if (channel == 0)
        error_set(e, ERR_UNAVAILABLE, "sandbox-init closed the connection without an answer");
    return -1;
}

/* Until there is something to receive, or the time is over: false. */
static bool await_answer(const struct client *c, uint64_t ms)
{
    struct pollfd p = {client_fd(c), POLLIN, 0};
    uint64_t now = clock_mono_ns() / 1000000u, until = now + ms;
    int rc = 0;
    if (ms == CALL_NO_END)
        return true;
    do {
        rc = poll(&p, 1, until - now < INT_MAX ? (int)(until - now) : INT_MAX);
        now = clock_mono_ns() / 1000000u;
    } while (rc <= 0 && now < until);
    return rc > 0;
}

int call_within(const struct args *a, struct client_request *q, uint64_t ms, struct answer *to)
{
    struct error e = {0};
    memset(to, 0, sizeof *to);
    struct client *c = call_begin(a, q, &e);
    bool is_late = c && !await_answer(c, ms);
    int rc = c && !is_late ? receive_answer(c, to, &e) : -1;
    client_free(c);
    client_request_free(q);
    if (rc == 1)
        return CTL_OK;
    answer_free(to);
    return is_late ? CTL_RUNNING : report(a, &e, rc == 0);
}

int call(const struct args *a, struct client_request *q, struct answer *to)
{
    return call_within(a, q, CALL_NO_END, to);
}

int call_follow(const struct args *a, const struct client_request *q,
                int (*take)(const struct args *a, struct client *c, void *context), void *context)
{
    struct error e = {0};
    struct client *c = call_begin(a, q, &e);
    int code = c ? -1 : call_failed(a, &e);
    while (code < 0)
        code = take(a, c, context);
    client_free(c);
    return code;
}

int call_show(const struct args *a, struct client_request *q,
              void (*show)(const struct strbuf *result))
{
    struct answer answer;
    int code = call(a, q, &answer);
    if (code != CTL_OK)
        return code;
    if (a->is_json)
        print_record_json(&answer.result);
    else
        show(&answer.result);
    answer_free(&answer);
    return CTL_OK;
}

int call_table(const struct args *a, struct client_request *q, const struct column *columns,
               const char *indent_key, const char *indent_by)
{
    struct answer answer;
    int code = call(a, q, &answer);
    if (code != CTL_OK)
        return code;
    if (a->is_json)
        print_rows_json(&answer);
    else
        print_table(columns, &answer, indent_key, indent_by);
    answer_free(&answer);
    return CTL_OK;
}

void answer_free(struct answer *to)
{
    for (size_t i = 0; i < to->row_count; i++)
        strbuf_free(&to->rows[i]);
    free(to->rows);
    strbuf_free(&to->result);
    memset(to, 0, sizeof *to);
}

/* ---- arguments --------------------------------------------------------------------------- */

void request_option(struct client_request *q, const struct args *a, const char *option,
                    const char *key)
{
    const char *value = args_get(a, option);
    if (value)
        client_request_add(q, key, value);
}

void request_flag(struct client_request *q, const struct args *a, const char *option)
{
    if (args_has(a, option))
        client_request_add(q, option, "1");
}

/* Add an option that parse() makes a number of. kind: what it should be. */
static int request_parsed(struct client_request *q, const struct args *a, const char *option,
                          const char *key, int (*parse)(const char *text, uint64_t *out),
                          const char *kind)
{
    const char *value = args_get(a, option);
    uint64_t n;
    char text[24];
    if (!value)
        return 0;
    if (parse(value, &n) < 0)
        return usage_error(a->verb, "--%s: '%s' is not a %s", option, value, kind);
    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    client_request_add(q, key, text);
    return 0;
}

int request_patience(struct client_request *q, const struct args *a)
{
    if (!args_has(a, "no-wait"))
        return request_duration(q, a, "wait-for", "wait_ms");
    if (args_has(a, "wait-for"))
        return usage_error(a->verb, "--no-wait and --wait-for exclude each other");
    client_request_add(q, "wait_ms", "0");
    return 0;
}

int request_duration(struct client_request *q, const struct args *a, const char *option,
                     const char *key)
{
    return request_parsed(q, a, option, key, number_parse_duration_ms,
                          "duration such as 500ms, 5s, 10m");
}

int request_size(struct client_request *q, const struct args *a, const char *option,
                 const char *key)
{
    return request_parsed(q, a, option, key, number_parse_size, "size such as 65536, 64K, 10M");
}

static int parse_number(const char *text, uint64_t *out)
{
    return number_parse_u64(text, INT64_MAX, out);
}

int request_number(struct client_request *q, const struct args *a, const char *option,
                   const char *key)
{
    return request_parsed(q, a, option, key, parse_number, "number");
}

int request_env(struct client_request *q, const struct args *a)
{
    for (int i = 0; i < a->given_count; i++) {
        const char *value = a->given[i].value;
        if (strcmp(a->given[i].option->name, "env") != 0)
            continue;
        const char *sign = strchr(value, '=');
        if (!sign || env_name_check(value, (size_t)(sign - value)) < 0)
            return usage_error(a->verb, "--env: '%s' is not NAME=VALUE", value);
        client_request_add(q, "env", value);
    }
    return 0;
}

int read_all(int fd, struct strbuf *to)
{
    for (;;) {
        char *room = strbuf_reserve(to, 65536);
        if (!room) {
            errno = ENOMEM;
            return -1;
        }
        ssize_t k = read(fd, room, 65536);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return (int)k;
        to->len += (size_t)k;
    }
}

int read_file(const struct args *a, const char *path, struct strbuf *text)
{
    bool is_stdin = strcmp(path, "-") == 0;
    CLEANUP_FD int file = is_stdin ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    text->limit = TEXT_MAX;
    if ((is_stdin || file >= 0) && read_all(is_stdin ? STDIN_FILENO : file, text) == 0)
        return 0;
    fprintf(stderr, "sandboxctl %s: %s: %s\n", a->verb->name, is_stdin ? "stdin" : path,
            strerror(errno));
    return CTL_USAGE;
}

int request_program(struct client_request *q, const struct args *a, struct strbuf *text)
{
    const char *file = args_get(a, "file");
    const char *word = a->word_count > 0 ? a->words[0] : NULL;
    int sources = (file != NULL) + (word != NULL) + (a->argv != NULL);
    if (sources != 1)
        return usage_error(a->verb, "%s: give a TEXT, -, -f FILE or -- ARGV",
                           sources ? "more than one command" : "no command");
    if (a->argv && a->argv_count == 0)
        return usage_error(a->verb, "nothing follows '--'");
    if (a->argv) {
        for (int i = 0; i < a->argv_count; i++)
            client_request_add(q, "arg", a->argv[i]);
        return 0;
    }
    if (word && strcmp(word, "-") == 0)
        file = "-";
    if (file && strcmp(file, "-") == 0 && args_has(a, "stdin") &&
        strcmp(a->verb->name, "exec") == 0)
        return usage_error(a->verb, "stdin can't be both the text and the command's stdin");
    if (file) {
        int rc = read_file(a, file, text);
        q->text = strbuf_text(text);
        q->text_len = text->len;
        return rc;
    }
    q->text = word;
    q->text_len = strlen(word);
    return 0;
}
