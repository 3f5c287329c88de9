/*
 * sandboxctl terminal, terminal list, attach and kill.
 *
 * An attached client polls the connection, its stdin and the window's watch. It reads stdin though
 * the terminal takes no input (up to a bound), since the keys to detach may be in it. To detach is
 * to leave: the terminal lives on,
 * as it does when this program is killed.
 */
#include "ctl/ctl.h"

#include "base/clock.h"
#include "base/number.h"
#include "ctl/cast.h"
#include "ctl/detach_keys.h"
#include "ctl/output.h"
#include "ctl/print.h"
#include "ctl/raw_tty.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TYPED_MAX   4096                /* bytes of one read from stdin, and of a packet */
#define PENDING_MAX ((size_t)64 * 1024) /* not yet sent: beyond this stdin is not read */

struct attached {
    const struct args *args;
    struct client *client;
    char id[65]; /* once init has told it */
    struct window size;
    bool has_fixed_size; /* --rows, --cols: the own window is not looked at */
    bool is_read_only;
    bool is_opener; /* the end of stdin that is a pipe is the terminal's as well */
    bool has_tty;   /* stdin is a terminal */
    bool is_stdin_open;
    struct strbuf pending; /* what was typed and is still to be sent */
    bool owes_end;         /* then the end of stdin */
    bool owes_window;      /* the own window has another size */
    bool told_waiting;     /* that it waits for its session */
    struct detach_keys keys;
    struct cast cast;
    int window_fd;
};

/* ---- the end ----------------------------------------------------------------------------- */

/* No status is to be had. */
static int fail(struct attached *t, const struct error *e)
{
    raw_tty_leave();
    call_failed(t->args, e);
    return CTL_NOT_RUN;
}

static int finish(const struct attached *t, const char *bytes, size_t n)
{
    struct strbuf result = {.data = (char *)(uintptr_t)bytes, .len = n};
    raw_tty_leave();
    if (strcmp(field_text(&result, "verdict"), "killed_by_client") == 0 &&
        !*field_text(&result, "message"))
        output_say("sandboxctl: terminal %s was killed\n", t->id);
    return status_of(&result);
}

/* ---- what init sends --------------------------------------------------------------------- */

static void take_note(struct attached *t, const char *bytes, size_t n)
{
    const char *id = record_get(bytes, n, "id");
    const char *rows = record_get(bytes, n, "rows"), *cols = record_get(bytes, n, "cols");
    uint64_t r, c;
    if (!rows || !cols || number_parse_u64(rows, UINT16_MAX, &r) < 0 ||
        number_parse_u64(cols, UINT16_MAX, &c) < 0)
        return; /* output was lost */
    struct window size = {.rows = (unsigned)r, .cols = (unsigned)c};
    if (t->id[0] || !id) {
        cast_resize(&t->cast, size);
        return;
    }
    snprintf(t->id, sizeof t->id, "%s", id);
    cast_begin(&t->cast, t->size.rows && t->size.cols && !t->is_read_only ? t->size : size);
}

/* Receive one packet. -1: go on; otherwise the exit code. */
static int take_packet(struct attached *t)
{
    const char *bytes;
    size_t n;
    struct error e = {0};
    int code = 0;
    switch (client_receive(t->client, &bytes, &n, &e)) {
    case WIRE_STDOUT:
    case WIRE_STDERR:
        cast_output(&t->cast, bytes, n);
        code = output_write(STDOUT_FILENO, bytes, n, NULL, NULL);
        break;
    case WIRE_NOTE:
        take_note(t, bytes, n);
        break;
    case WIRE_RESULT:
        return finish(t, bytes, n);
    case WIRE_ERROR:
        raw_tty_leave();
        call_refused(t->args, bytes, n);
        return CTL_NOT_RUN;
    case 0:
        error_set(&e, ERR_UNAVAILABLE, "sandbox-init closed the connection");
        return fail(t, &e);
    case -1:
        return fail(t, &e);
    }
    return code ? code : -1;
}

/* ---- what is typed ----------------------------------------------------------------------- */

/* Send what waits, as far as the connection takes it. */
static void flush_typed(struct attached *t)
{
    while (t->pending.len > 0) {
        size_t n = t->pending.len < TYPED_MAX ? t->pending.len : TYPED_MAX;
        int rc = client_try_send(t->client, WIRE_STDIN, t->pending.data, n, NULL);
        if (rc == 0)
            return;
        if (rc < 0) { /* nobody takes it any more; the reason is about to come */
            t->is_stdin_open = t->owes_end = false;
            n = t->pending.len;
        }
        strbuf_drop(&t->pending, n);
    }
    if (t->owes_end && client_try_send(t->client, WIRE_STDIN, NULL, 0, NULL) != 0)
        t->owes_end = false;
}

static void flush_window(struct attached *t)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%u %u", t->size.rows, t->size.cols);
    if (t->owes_window && client_try_send(t->client, WIRE_RESIZE, text, (size_t)n, NULL) != 0)
        t->owes_window = false;
}

/* ---- the keys to leave ------------------------------------------------------------------- */

/* Init may be about to tell the id: a terminal that has begun lives on, one that still waits for
 * its session does not begin when nobody waits for it. */
#define ID_PATIENCE_MS 300

static int detach(struct attached *t)
{
    struct pollfd p = {client_fd(t->client), POLLIN, 0};
    flush_typed(t); /* what was typed before */
    while (!t->id[0] && poll(&p, 1, ID_PATIENCE_MS) > 0) {
        int code = take_packet(t);
        if (code >= 0)
            return code;
    }
    raw_tty_leave();
    if (t->id[0])
        fprintf(stderr, "\nsandboxctl: detached from terminal %s (sandboxctl terminal attach %s)\n",
                t->id, t->id);
    else
        fprintf(stderr, "\nsandboxctl: left before the terminal began: it does not begin\n");
    return CTL_OK;
}

/* -1: go on; otherwise the exit code. */
static int read_stdin(struct attached *t)
{
    char typed[TYPED_MAX], passed[TYPED_MAX + DETACH_KEYS_MAX];
    size_t count;
    ssize_t k = read(STDIN_FILENO, typed, sizeof typed);
    if (k < 0 && (errno == EINTR || errno == EAGAIN))
        return -1;
    if (k <= 0 && t->has_tty) /* it was hung up */
        return 128 + SIGHUP;
    if (k <= 0) {
        /* The end of a pipe is the end of what is typed, where this client opened the terminal. */
        t->is_stdin_open = false;
        t->owes_end = t->is_opener;
        flush_typed(t);
        return -1;
    }
    int is_complete = detach_keys_take(&t->keys, typed, (size_t)k, passed, &count);
    if (!t->is_read_only && strbuf_add(&t->pending, passed, count) == 0)
        flush_typed(t);
    return is_complete ? detach(t) : -1;
}

static void take_window(struct attached *t)
{
    raw_tty_window_seen(); /* first: a change from here on wakes again */
    struct window size = raw_tty_window();
    if (t->has_fixed_size || t->is_read_only || !size.rows || !size.cols)
        return;
    if (size.rows == t->size.rows && size.cols == t->size.cols)
        return;
    t->size = size;
    t->owes_window = true;
    flush_window(t);
}

/* ---- a session that is busy -------------------------------------------------------------- */

#define WAITING_MS 1000

static bool tells_waiting(const struct attached *t)
{
    return !t->id[0] && t->has_tty && t->is_opener && args_has(t->args, "session") &&
           !t->told_waiting;
}

/* A screen on which nothing happens would look like a fault. */
static void tell_waiting(struct attached *t)
{
    t->told_waiting = true;
    fprintf(stderr, "sandboxctl: waiting for session '%s', which is busy\r\n",
            args_get(t->args, "session"));
}

/* ---- the loop ---------------------------------------------------------------------------- */

static int run_loop(struct attached *t)
{
    take_window(t); /* it may have changed since the request was made */
    for (;;) {
        bool reads = t->is_stdin_open && t->pending.len < PENDING_MAX;
        bool sends = t->pending.len > 0 || t->owes_end || t->owes_window;
        struct pollfd p[3] = {
            {client_fd(t->client), (short)(POLLIN | (sends ? POLLOUT : 0)), 0},
            {t->window_fd, POLLIN, 0},
            {reads ? STDIN_FILENO : -1, POLLIN, 0},
        };
        int code = -1;
        int ready = poll(p, 3, tells_waiting(t) ? WAITING_MS : -1);
        if (ready == 0)
            tell_waiting(t);
        if (ready <= 0)
            continue; /* EINTR; anything else can't be */
        if (p[1].revents)
            take_window(t);
        if (p[2].revents)
            code = read_stdin(t);
        if (code < 0 && p[0].revents & ~POLLOUT)
            code = take_packet(t);
        if (code >= 0)
            return code;
        if (p[0].revents & POLLOUT) {
            flush_window(t);
            flush_typed(t);
        }
    }
}

/* ---- the request ------------------------------------------------------------------------- */

static int add_size(struct attached *t, struct client_request *q)
{
    static const char *const names[] = {"rows", "cols"};
    unsigned *sizes[] = {&t->size.rows, &t->size.cols};
    t->size = raw_tty_window();
    for (int i = 0; i < 2; i++) {
        const char *text = args_get(t->args, names[i]);
        uint64_t n;
        char number[16];
        if (text && (number_parse_u64(text, UINT16_MAX, &n) < 0 || n == 0))
            return usage_error(t->args->verb, "--%s: '%s' is not a number of %s", names[i], text,
                               names[i]);
        if (text) {
            *sizes[i] = (unsigned)n;
            t->has_fixed_size = true;
        }
        snprintf(number, sizeof number, "%u", *sizes[i]);
        if (*sizes[i])
            client_request_add(q, names[i], number);
    }
    return 0;
}

static int add_keys(struct attached *t)
{
    const char *text = args_get(t->args, "detach-keys");
    if (detach_keys_parse(&t->keys, text ? text : DETACH_KEYS_DEFAULT) == 0)
        return 0;
    return usage_error(t->args->verb,
                       "--detach-keys: '%s' is not a sequence such as '" DETACH_KEYS_DEFAULT
                       "' or 'ctrl-p,ctrl-q'",
                       text);
}

static int build_open(struct attached *t, struct client_request *q)
{
    const struct args *a = t->args;
    const char *term = getenv("TERM");
    static const char *const options[] = {"session", "id", "cwd"};
    client_request_init(q, "terminal.open");
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        request_option(q, a, options[i], options[i]);
    if (a->argv && a->argv_count == 0)
        return usage_error(a->verb, "nothing follows '--'");
    for (int i = 0; a->argv && i < a->argv_count; i++)
        client_request_add(q, "arg", a->argv[i]);
    if (args_has(a, "detached"))
        client_request_add(q, "detached", "1");
    client_request_add(q, "term", term && *term ? term : "dumb");
    int code = request_env(q, a) || request_patience(q, a) ? CTL_USAGE : 0;
    code = code ? code : add_size(t, q);
    return code ? code : add_keys(t);
}

static int build_attach(struct attached *t, struct client_request *q)
{
    client_request_init(q, "terminal.attach");
    client_request_add(q, "id", t->args->words[0]);
    t->is_read_only = args_has(t->args, "read-only");
    if (t->is_read_only)
        client_request_add(q, "read_only", "1");
    int code = add_size(t, q);
    return code ? code : add_keys(t);
}

/* ---- attach ------------------------------------------------------------------------------ */

/* The recording is opened before anything is asked of init, and the caller's terminal becomes raw
 * only when init has accepted the connection. */
static int begin(struct attached *t, const struct client_request *q, struct error *e)
{
    const char *record = args_get(t->args, "record");
    if (record && cast_open(&t->cast, record, e) < 0)
        return -1;
    t->window_fd = raw_tty_watch_window(e);
    t->client = t->window_fd < 0 ? NULL : call_begin(t->args, q, e);
    if (!t->client)
        return -1;
    t->has_tty = isatty(STDIN_FILENO);
    t->is_stdin_open = true;
    return t->has_tty ? raw_tty_enter(STDIN_FILENO, e) : 0;
}

static int run(struct attached *t, const struct client_request *q)
{
    struct error e = {0};
    int code = begin(t, q, &e) < 0 ? fail(t, &e) : run_loop(t);
    raw_tty_leave();
    client_free(t->client);
    strbuf_free(&t->pending);
    if (cast_close(&t->cast, &e) < 0)
        print_message(t->args->verb->name, e.text);
    return code;
}

static int attach(const struct args *a, bool is_opener)
{
    struct client_request q;
    struct attached *t = calloc(1, sizeof *t);
    if (!t)
        return usage_error(a->verb, "no memory");
    t->args = a;
    t->cast.fd = -1;
    t->is_opener = is_opener;
    signal(SIGPIPE, SIG_IGN);
    int code = is_opener ? build_open(t, &q) : build_attach(t, &q);
    if (code == 0)
        code = is_opener && args_has(a, "detached") ? call_show(a, &q, print_started) : run(t, &q);
    else
        code = CTL_NOT_RUN;
    client_request_free(&q);
    free(t);
    return code;
}

int ctl_terminal(const struct args *a)
{
    return attach(a, true);
}

int ctl_terminal_attach(const struct args *a)
{
    return attach(a, false);
}

/* ---- list and kill ----------------------------------------------------------------------- */

int ctl_terminal_list(const struct args *a)
{
    static const struct column columns[] = {
        {"id", "ID"},         {"session", "SESSION"}, {"pid", "PID"},         {"state", "STATE"},
        {"status", "STATUS"}, {"tty", "TTY"},         {"viewers", "VIEWERS"}, {"rows", "ROWS"},
        {"cols", "COLS"},     {"uptime_s", "UPTIME"}, {"text", "COMMAND"},    {0},
    };
    struct client_request q;
    client_request_init(&q, "ps");
    client_request_add(&q, "kind", "terminal");
    request_option(&q, a, "session", "session");
    return call_table(a, &q, columns, NULL, NULL);
}

int ctl_terminal_kill(const struct args *a)
{
    struct client_request q;
    client_request_init(&q, "kill");
    client_request_add(&q, "id", a->words[0]);
    client_request_add(&q, "kind", "terminal");
    if (request_duration(&q, a, "grace", "grace_ms")) {
        client_request_free(&q);
        return CTL_USAGE;
    }
    return call_kill(a, &q);
}
