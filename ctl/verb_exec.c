/*
 * sandboxctl exec and wait: the two verbs that end with a command's status.
 *
 * exec polls three things: the connection, stdin (with --stdin, and only while nothing read from it
 * waits to be sent, so that memory is bounded and neither direction can block the other), and a
 * pipe that the signal handler writes to. The first SIGINT or SIGTERM asks init to kill the
 * command and goes on reading what it still says; the second leaves at once.
 */
#include "ctl/ctl.h"

#include "base/number.h"
#include "control/record_json.h"
#include "ctl/output.h"
#include "ctl/print.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAPTURE_MAX ((size_t)1 << 30) /* bytes of each stream with --json: init's limit is less */
#define JSON_LIMIT  "67108864"        /* with --json, where nobody has set a limit: 64M */

struct run {
    const struct args *args;
    struct client *client;
    bool has_started;
    char id[65]; /* of the command, once init has told it */
    bool is_stdin_open;
    bool has_pending; /* a packet of stdin that waits to be sent */
    size_t pending_len;
    struct strbuf out, err; /* with --json */
    bool is_cut;            /* more output than CAPTURE_MAX */
    char pending[WIRE_PAYLOAD_MAX];
};

/* ---- signals ----------------------------------------------------------------------------- */

static volatile sig_atomic_t caught; /* the first signal */
static int wake[2] = {-1, -1};
static bool was_kill_sent;

static void on_signal(int number)
{
    int saved = errno;
    if (caught)
        _exit(128 + number);
    caught = number;
    if (write(wake[1], "", 1) < 0)
        caught = number; /* nothing to do about a full pipe: it wakes already */
    errno = saved;
}

/* A signal that was ignored when we started stays so (nohup, a shell's background job). */
static void catch_signal(int number)
{
    struct sigaction old, new = {.sa_handler = on_signal}; /* no SA_RESTART: write() must end */
    sigemptyset(&new.sa_mask);
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, &new, NULL);
}

static int catch_signals(struct error *e)
{
    if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_set_sys(e, errno, "pipe");
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    return 0;
}

/* Kill by id over a connection of its own: on this one the request would wait behind stdin that
 * the command does not read. The answer is not waited for. */
static int kill_beside(const struct run *r)
{
    struct client_request q;
    if (!r->id[0])
        return -1;
    client_request_init(&q, "kill");
    client_request_add(&q, "id", r->id);
    struct client *c = call_begin(r->args, &q, NULL);
    client_request_free(&q);
    client_free(c);
    return c ? 0 : -1;
}

/* Ask init to kill the command, once. If that cannot be sent, leaving does the same. */
static void check_signal(void *context)
{
    struct run *r = context;
    if (!caught || was_kill_sent)
        return;
    was_kill_sent = true;
    int rc = args_has(r->args, "stdin")
                 ? kill_beside(r)
                 : client_try_send(r->client, WIRE_SIGNAL, NULL, 0, NULL) - 1;
    if (rc < 0)
        _exit(128 + caught);
}

/* Where output is left out, it is said in its place, with true numbers. */
static void tell_gap(const struct run *r, const char *bytes, size_t n)
{
    const char *stream = record_get(bytes, n, "stream"), *all = record_get(bytes, n, "bytes");
    const char *from = record_get(bytes, n, "from"), *to = record_get(bytes, n, "to");
    const char *lost_from = record_get(bytes, n, "lost_from");
    const char *lost_to = record_get(bytes, n, "lost_to");
    uint64_t first, last, total;
    if (r->args->is_json)
        return;
    if (lost_from && lost_to)
        output_say("sandboxctl exec: lost bytes %s..%s\n", lost_from, lost_to);
    if (!stream || !all || !from || !to || number_parse_u64(all, INT64_MAX, &total) < 0 ||
        number_parse_u64(from, INT64_MAX, &first) < 0 || number_parse_u64(to, INT64_MAX, &last) < 0)
        return;
    output_say("sandboxctl exec: %s: %llu bytes seen, %llu kept: left out %llu..%llu\n", stream,
               (unsigned long long)total, (unsigned long long)(total - (last - first)),
               (unsigned long long)first, (unsigned long long)last);
}

static void take_note(struct run *r, const char *bytes, size_t n)
{
    const char *id = record_get(bytes, n, "id");
    if (!id) {
        tell_gap(r, bytes, n);
        return;
    }
    r->has_started = true;
    snprintf(r->id, sizeof r->id, "%s", id);
}

/* ---- the result -------------------------------------------------------------------------- */

/* What the caller has to know of the session: an interrupt that its shell did not survive, or a
 * state that is gone. A shell that the text itself ended (exit, set -e) is no news. */
static void tell_state(const struct strbuf *result)
{
    const char *state = field_text(result, "state"), *verdict = field_text(result, "verdict");
    bool was_interrupted =
        strcmp(verdict, "timeout") == 0 || strcmp(verdict, "killed_by_client") == 0;
    if (strcmp(state, "lost") == 0)
        output_say("sandboxctl: the session has a new shell; its variables and functions are "
                   "lost, the folder is %s\n",
                   *field_text(result, "folder_lost") ? "its first one" : "kept");
    else if (strcmp(state, "reset") == 0)
        output_say("sandboxctl: the session begins anew; its variables, functions and current "
                   "folder are lost\n");
    else if (*field_text(result, "functions_lost"))
        output_say("sandboxctl: the session has a new shell; its state was restored, but no "
                   "functions (only bash can pass them on)\n");
    else if (strcmp(state, "restored") == 0 && was_interrupted)
        output_say("sandboxctl: the session has a new shell; its state was restored\n");
}

/* Its soft clock ran out: where to find it. */
static int tell_running(const struct strbuf *result)
{
    const char *id = field_text(result, "id");
    output_say("sandboxctl: command %s still runs (see: sandboxctl wait %s, logs -f --from %s %s, "
               "kill %s)\n",
               id, id, field_text(result, "offset"), id, id);
    return CTL_RUNNING;
}

/* Why a command did not come to its own end, where init had no message of its own. */
static const char *why_ended(const struct strbuf *result)
{
    const char *verdict = field_text(result, "verdict"), *clock = field_text(result, "clock");
    if (strcmp(verdict, "killed_by_client") == 0)
        return "killed by a client";
    if (strcmp(verdict, "output_limit") == 0)
        return "killed: it wrote more than its output limit";
    if (strcmp(verdict, "timeout") != 0)
        return NULL;
    if (strcmp(clock, "output") == 0)
        return "timed out: its time without output is over";
    return strcmp(clock, "cpu") == 0 ? "timed out: its CPU time is over"
                                     : "timed out: its time is over";
}

/* Not with --json, which tells it; nor to who has killed it himself, by Ctrl-C. */
static void tell_end(const struct args *a, const struct strbuf *result)
{
    const char *why = why_ended(result);
    if (why && !a->is_json && !was_kill_sent && !*field_text(result, "message"))
        output_say("sandboxctl: %s\n", why);
}

int status_of(const struct strbuf *result)
{
    if (strcmp(field_text(result, "verdict"), "running") == 0)
        return tell_running(result);
    tell_state(result);
    const char *status = field_text(result, "status");
    uint64_t n;
    const char *message = field_text(result, "message");
    if (*message)
        print_message("", message);
    else if (strcmp(field_text(result, "verdict"), "spawn_failed") == 0)
        output_say("sandboxctl: the command could not be started: %s\n",
                   field_text(result, "step"));
    if (number_parse_u64(status, 255, &n) < 0) {
        output_say("sandboxctl: sandbox-init gave no status ('%s')\n", status);
        return CTL_NOT_RUN;
    }
    return (int)n;
}

static int print_captured(const struct run *r, const struct strbuf *result)
{
    CLEANUP_STRBUF struct strbuf json = {.limit = 8 * CAPTURE_MAX};
    int rc = record_to_json(&json, strbuf_text(result), result->len) |
             strbuf_adds(&json, result->len ? "," : "") |
             json_add_output(&json, "stdout", strbuf_text(&r->out), r->out.len) |
             strbuf_adds(&json, ",") |
             json_add_output(&json, "stderr", strbuf_text(&r->err), r->err.len) |
             strbuf_adds(&json, r->is_cut ? ",\"output_cut\":true" : "");
    if (rc != 0) {
        fprintf(stderr, "sandboxctl: no memory for the output\n");
        return CTL_REFUSED;
    }
    printf("{%s}\n", strbuf_text(&json));
    return 0;
}

static int finish_run(const struct run *r, const char *bytes, size_t n)
{
    struct strbuf result = {.data = (char *)(uintptr_t)bytes, .len = n};
    int code = r->args->is_json ? print_captured(r, &result) : 0;
    if (code != 0)
        return code;
    tell_end(r->args, &result);
    code = status_of(&result);
    return was_kill_sent ? 128 + caught : code;
}

/* No result will come: the command never ran, or nobody can tell how it ended. None of the small
 * numbers that a command may have used itself. */
static int no_status(void)
{
    return was_kill_sent ? 128 + caught : CTL_NOT_RUN;
}

/* ---- packets ----------------------------------------------------------------------------- */

static int take_output(struct run *r, int fd, const char *bytes, size_t n)
{
    struct strbuf *captured = fd == STDOUT_FILENO ? &r->out : &r->err;
    r->has_started = true;
    if (!r->args->is_json)
        return output_write(fd, bytes, n, check_signal, r);
    if (strbuf_add(captured, bytes, n) < 0)
        r->is_cut = true;
    return 0;
}

/* Receive one packet. -1: go on; otherwise the exit code. */
static int take_packet(struct run *r)
{
    const char *bytes;
    size_t n;
    struct error e = {0};
    int code = 0;
    switch (client_receive(r->client, &bytes, &n, &e)) {
    case WIRE_STDOUT:
        code = take_output(r, STDOUT_FILENO, bytes, n);
        break;
    case WIRE_STDERR:
        code = take_output(r, STDERR_FILENO, bytes, n);
        break;
    case WIRE_NOTE:
        take_note(r, bytes, n);
        break;
    case WIRE_RESULT:
        return finish_run(r, bytes, n);
    case WIRE_ERROR:
        call_refused(r->args, bytes, n);
        return no_status();
    case 0:
        error_set(&e, ERR_UNAVAILABLE, "sandbox-init closed the connection before the result");
        call_failed(r->args, &e);
        return no_status();
    case -1:
        call_failed(r->args, &e);
        return no_status();
    }
    return code ? code : -1;
}

/* ---- stdin ------------------------------------------------------------------------------- */

static void send_pending(struct run *r)
{
    int rc = client_try_send(r->client, WIRE_STDIN, r->pending, r->pending_len, NULL);
    if (rc == 0)
        return;
    r->has_pending = false;
    if (r->pending_len == 0 || rc < 0) /* its end, or nobody takes it any more */
        r->is_stdin_open = false;
}

static void read_stdin(struct run *r)
{
    ssize_t k = read(STDIN_FILENO, r->pending, sizeof r->pending);
    if (k < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (k < 0)
        fprintf(stderr, "sandboxctl: stdin: %s\n", strerror(errno));
    r->pending_len = k > 0 ? (size_t)k : 0;
    r->has_pending = true;
    send_pending(r);
}

/* ---- the loop ---------------------------------------------------------------------------- */

static int run_loop(struct run *r)
{
    for (;;) {
        check_signal(r);
        bool reads = r->is_stdin_open && !r->has_pending;
        struct pollfd p[3] = {
            {client_fd(r->client), (short)(POLLIN | (r->has_pending ? POLLOUT : 0)), 0},
            {caught ? -1 : wake[0], POLLIN, 0},
            {reads ? STDIN_FILENO : -1, POLLIN, 0},
        };
        if (poll(p, 3, -1) < 0)
            continue; /* EINTR; anything else can't be */
        if (p[0].revents & ~POLLOUT) {
            int code = take_packet(r);
            if (code >= 0)
                return code;
        }
        if (r->has_pending && p[0].revents & POLLOUT)
            send_pending(r);
        if (p[2].revents)
            read_stdin(r);
    }
}

static int build_request(const struct args *a, struct client_request *q, struct strbuf *text)
{
    client_request_init(q, "exec");
    request_option(q, a, "session", "session");
    request_option(q, a, "cwd", "cwd");
    request_option(q, a, "id", "id");
    request_option(q, a, "output-limit-action", "output_limit_action");
    request_flag(q, a, "stdin");
    request_flag(q, a, "detach");
    if (a->is_json)
        client_request_add(q, "output_limit_default", JSON_LIMIT);
    int code = request_env(q, a) || request_duration(q, a, "timeout", "timeout_ms") ||
                       request_duration(q, a, "idle-timeout", "idle_timeout_ms") ||
                       request_duration(q, a, "cpu-timeout", "cpu_timeout_ms") ||
                       request_duration(q, a, "soft-timeout", "soft_timeout_ms") ||
                       request_patience(q, a) || request_number(q, a, "from", "from") ||
                       request_size(q, a, "output-limit", "output_limit")
                   ? CTL_USAGE
                   : 0;
    return code ? code : request_program(q, a, text);
}

/* Connect, run, and free what the run has captured. */
static int start_run(struct run *r, const struct args *a, const struct client_request *q)
{
    struct error e = {0};
    r->args = a;
    r->is_stdin_open = args_has(a, "stdin");
    r->out.limit = r->err.limit = CAPTURE_MAX;
    r->client = catch_signals(&e) == 0 ? call_begin(a, q, &e) : NULL;
    if (!r->client)
        call_failed(a, &e);
    int code = r->client ? run_loop(r) : no_status();
    client_free(r->client);
    strbuf_free(&r->out);
    strbuf_free(&r->err);
    return code;
}

int ctl_exec(const struct args *a)
{
    struct client_request q;
    CLEANUP_STRBUF struct strbuf text = {0};
    struct run *r = calloc(1, sizeof *r);
    if (!r)
        return usage_error(a->verb, "no memory");
    int code = build_request(a, &q, &text) == 0 ? start_run(r, a, &q) : CTL_NOT_RUN;
    client_request_free(&q);
    free(r);
    return code;
}

/* The time of `wait --timeout` is over. */
static int tell_still(const struct args *a)
{
    CLEANUP_STRBUF struct strbuf record = {0}, text = {0};
    strbuf_addf(&record, "id=%s%cverdict=running%c", a->words[0], 0, 0);
    strbuf_addf(&text, "%s still runs", a->words[0]);
    if (a->is_json)
        print_record_json(&record);
    print_message("", strbuf_text(&text));
    return CTL_RUNNING;
}

int ctl_wait(const struct args *a)
{
    struct client_request q;
    struct answer answer;
    uint64_t ms = CALL_NO_END;
    const char *timeout = args_get(a, "timeout");
    if (timeout && number_parse_duration_ms(timeout, &ms) < 0)
        return usage_error(a->verb, "--timeout: '%s' is not a duration such as 500ms, 5s, 10m",
                           timeout);
    client_request_init(&q, "wait");
    client_request_add(&q, "id", a->words[0]);
    int code = call_within(a, &q, ms, &answer);
    if (code == CTL_RUNNING)
        return tell_still(a);
    if (code != CTL_OK)
        return code == CTL_REFUSED ? CTL_NOT_RUN : code;
    if (a->is_json)
        print_record_json(&answer.result);
    tell_end(a, &answer.result);
    code = status_of(&answer.result);
    answer_free(&answer);
    return code;
}
