/*
 * sandboxctl service list --watch: the list again whenever an event tells of a change, on a
 * terminal also each second, for the uptimes. Elsewhere a list follows the other, and only if
 * something but an uptime differs.
 */
#include "ctl/ctl.h"

#include "ctl/print.h"
#include "ctl/raw_tty.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAUSE_MS 100 /* between two lists at least: many changes at once are one */
#define TICK_MS  1000

struct watching {
    const struct args *args;
    struct client *events;
    bool is_terminal;
    struct strbuf shown; /* all rows without what changes by itself */
};

/* Ctrl-C is how to leave. */
static void on_interrupt(int sig)
{
    (void)sig;
    _exit(CTL_OK);
}

static int add_rows(struct strbuf *to, const struct answer *answer)
{
    int rc = 0;
    for (size_t i = 0; i < answer->row_count; i++) {
        struct field f;
        size_t at = 0, n = answer->rows[i].len;
        while (record_next(strbuf_text(&answer->rows[i]), n, &at, &f) > 0)
            if (!field_is(&f, "uptime_s"))
                rc |= strbuf_add(to, f.key, (size_t)(f.value - f.key) + f.value_len + 1);
    }
    return rc;
}

static bool has_changed(struct watching *w, const struct answer *answer)
{
    struct strbuf now = {0};
    bool is_same = add_rows(&now, answer) == 0 && w->shown.data && now.len == w->shown.len &&
                   memcmp(strbuf_text(&now), strbuf_text(&w->shown), now.len) == 0;
    strbuf_free(&w->shown);
    w->shown = now;
    return !is_same;
}

/* As many rows as the window has lines for. */
static void print_window(const struct args *a, struct answer *answer)
{
    size_t all = answer->row_count, lines = raw_tty_window().rows;
    size_t fit = lines > 3 && !a->is_json ? lines - 3 : all;
    printf("\033[H\033[2J");
    answer->row_count = all < fit ? all : fit;
    service_print_list(a, answer);
    if (all > fit)
        printf("(%zu more)\n", all - fit);
    answer->row_count = all;
}

/* 0, or the exit code. */
static int print_again(struct watching *w)
{
    struct answer answer;
    int code = service_ask_list(w->args, &answer);
    if (code != CTL_OK)
        return code;
    bool is_new = has_changed(w, &answer);
    if (w->is_terminal)
        print_window(w->args, &answer);
    else if (is_new)
        service_print_list(w->args, &answer);
    answer_free(&answer);
    return fflush(stdout) == 0 ? 0 : errno == EPIPE ? CTL_PIPE : CTL_REFUSED;
}

/* One packet of the events. -1: go on; otherwise the exit code. */
static int take_event(struct watching *w)
{
    const char *bytes;
    size_t n;
    struct error e = {0};
    switch (client_receive(w->events, &bytes, &n, &e)) {
    case WIRE_ERROR:
        return call_refused(w->args, bytes, n);
    case WIRE_RESULT:
    case 0:
        return CTL_OK; /* the container has stopped */
    case -1:
        return call_failed(w->args, &e);
    }
    return -1;
}

/* Wait until something has changed. -1: it has; otherwise the exit code. */
static int await_change(struct watching *w)
{
    struct pollfd fds[2] = {{.fd = client_fd(w->events), .events = POLLIN}, {.fd = STDOUT_FILENO}};
    int code = -1;
    while (poll(fds, 2, w->is_terminal ? TICK_MS : -1) < 0)
        if (errno != EINTR)
            return CTL_REFUSED;
    if (fds[1].revents & (POLLERR | POLLHUP))
        return CTL_PIPE;
    if (fds[0].revents == 0)
        return -1;
    poll(NULL, 0, PAUSE_MS);
    do
        code = take_event(w);
    while (code < 0 && poll(fds, 1, 0) > 0);
    return code;
}

int service_watch(const struct args *a)
{
    struct error e = {0};
    struct client_request q;
    struct sigaction interrupt = {.sa_handler = on_interrupt}, former;
    struct watching w = {.args = a, .is_terminal = isatty(STDOUT_FILENO)};
    client_request_init(&q, "events");
    client_request_add(&q, "follow", "1");
    client_request_add(&q, "tail", "0");
    client_request_add(&q, "kind", "service");
    w.events = call_begin(a, &q, &e);
    client_request_free(&q);
    if (!w.events)
        return call_failed(a, &e);
    if (sigaction(SIGINT, NULL, &former) == 0 && former.sa_handler != SIG_IGN)
        (void)sigaction(SIGINT, &interrupt, NULL);
    (void)setvbuf(stdout, NULL, _IOFBF, 65536); /* a list is written at once, without a flicker */
    int code;
    do
        code = print_again(&w);
    while (code == 0 && (code = await_change(&w)) < 0);
    client_free(w.events);
    strbuf_free(&w.shown);
    return code;
}
