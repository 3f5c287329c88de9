/*
 * sandbox-gateway: HTTP and WebSocket in front of sandbox-init, which starts it. This file is the
 * program context, the list of route tables, and the order of start and end.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "gateway/files.h"
#include "gateway/gateway.h"
#include "gateway/helper_worker.h"
#include "gateway/workspace.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define STOP_S 2.0 /* for what is quick, after SIGTERM */

/* One line each, so that two branches can add one. */
/* clang-format off */
static const struct route *const routes[] = {
    routes_health,
    routes_page,
    routes_sandbox,
    routes_exec,
    routes_session,
    routes_process,
    routes_events,
    routes_files,
    routes_archive,
    routes_terminal,
    routes_port,
    NULL,
};
/* clang-format on */

/* init, if there is one, tells it in its log and its status, once for each reason. */
static _Noreturn void die(const struct gateway_options *o, const struct error *e, int status)
{
    if (o->control_fd < 0 || !upstream_say(o->control_fd, WIRE_SAY_END, e->text))
        fprintf(stderr, "sandbox-gateway: %s\n", e->text);
    exit(status);
}

/* One line of printable bytes. The copy in the process is not readable by others of its user. */
static int read_line(int fd, char token[GATEWAY_TOKEN_MAX + 2], struct error *e)
{
    size_t n = 0;
    ssize_t k;
    while (n <= GATEWAY_TOKEN_MAX && (k = read(fd, token + n, GATEWAY_TOKEN_MAX + 1 - n)) != 0) {
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return error_set_sys(e, errno, "read");
        n += (size_t)k;
    }
    if (n > 0 && token[n - 1] == '\n')
        n--;
    token[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (token[i] < '!' || token[i] > '~')
            return error_set(e, ERR_INVALID, "it must be one line of printable characters");
    if (n == 0 || n > GATEWAY_TOKEN_MAX)
        return error_set(e, ERR_INVALID, "%s", n ? "longer than 4096 bytes" : "the file is empty");
    return 0;
}

static int read_token(struct gateway_options *o, char token[GATEWAY_TOKEN_MAX + 2], struct error *e)
{
    int rc = o->token_fd < 0 ? 0 : read_line(o->token_fd, token, e);
    fd_close(&o->token_fd);
    if (rc < 0 && o->token_file)
        return error_wrap(e, "token_file %s", o->token_file);
    return rc < 0 ? error_wrap(e, "token") : 0;
}

/* A connection is a descriptor. */
static void raise_descriptor_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

static void on_stopped(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)w;
    (void)events;
    ev_break(loop, EVBREAK_ALL);
}

static void on_stop_poll(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    if (http_server_is_done(((struct gateway *)w->data)->http))
        ev_break(loop, EVBREAK_ALL);
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int events)
{
    (void)events;
    static ev_timer most, poll;
    struct gateway *g = w->data;
    LOG_INF("gateway_stopping", F_INT("signal", w->signum));
    http_server_stop(g->http);
    ev_signal_stop(loop, w);
    ev_timer_init(&most, on_stopped, STOP_S, 0.);
    ev_timer_init(&poll, on_stop_poll, 0., 0.02);
    poll.data = g;
    ev_timer_start(loop, &most);
    ev_timer_start(loop, &poll);
}

static void on_init_lost(void *context)
{
    struct gateway *g = context;
    LOG_ERR("gateway_lost_init", F_STR("what", "init is gone; the gateway ends"));
    ev_break(g->loop, EVBREAK_ALL);
}

static int start(struct gateway *g, const char *token, struct error *e)
{
    const struct gateway_options *o = &g->options;
    struct http_config config = {.routes = routes,
                                 .token = token,
                                 .sandbox_id = o->sandbox_id,
                                 .cors_origin = o->cors_origin,
                                 .max_body = o->max_body,
                                 .max_connections = o->max_connections,
                                 .idle_timeout_ms = o->idle_timeout_ms,
                                 .head_timeout_ms = o->head_timeout_ms,
                                 .stall_timeout_ms = o->stall_timeout_ms,
                                 .context = g};
    if (o->control_fd >= 0) {
        g->upstream = upstream_new(g->loop, o->control_fd, on_init_lost, g, e);
        if (!g->upstream)
            return -1;
    }
    g->files = files_new(g->loop, g->upstream, e);
    if (!g->files)
        return -1;
    g->http = http_server_new(g->loop, &config, e);
    for (size_t i = 0; g->http && i < o->listen_count; i++)
        if (http_server_listen(g->http, o->listen[i], e) < 0)
            return -1;
    return g->http ? 0 : -1;
}

static void serve(struct gateway *g)
{
    ev_signal stop[2];
    const int numbers[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        ev_signal_init(&stop[i], on_signal, numbers[i]);
        stop[i].data = g;
        ev_signal_start(g->loop, &stop[i]);
    }
    for (size_t i = 0; i < g->options.listen_count; i++)
        LOG_INF("gateway_listening", F_STR("address", g->options.listen[i]),
                F_INT("pid", getpid()));
    ev_run(g->loop, 0);
}

int main(int argc, char **argv)
{
    static struct gateway g;
    static char token[GATEWAY_TOKEN_MAX + 2];
    struct error e = {0};
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_DUMPABLE, 0);
    if (argc > 1 && strcmp(argv[1], "--file-helper") == 0)
        return file_helper_main(argc, argv);
    if (gateway_options_parse(&g.options, argc, argv, &e) < 0)
        die(&g.options, &e, 2);
    log_open();
    log_configure(g.options.log_level, g.options.log_format);
    raise_descriptor_limit();
    g.began_ns = clock_mono_ns();
    if (read_token(&g.options, token, &e) < 0)
        die(&g.options, &e, 1);
    g.loop = ev_loop_new(EVFLAG_NOSIGMASK | EVFLAG_AUTO);
    if (!g.loop)
        error_set(&e, ERR_SYSTEM, "event loop: cannot be made");
    if (!g.loop || start(&g, token[0] ? token : NULL, &e) < 0)
        die(&g.options, &e, 1);
    workspace_look(g.upstream, g.options.workspace);
    serve(&g);
    http_server_free(g.http);
    files_free(g.files);
    g.files = NULL; /* the end of a call may look */
    upstream_free(g.upstream);
    explicit_bzero(token, sizeof token);
    ev_loop_destroy(g.loop);
    return 0;
}
