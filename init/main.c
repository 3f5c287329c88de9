/*
 * sandbox-init: boot, step by step, then the loop. Before the mark "ready" any error prints one
 * line and ends with status 1 (2 for usage); after it nothing may exit, abort or block.
 */
#include "init/init.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "control/paths.h"
#include "import/import.h"
#include "init/gateway.h"
#include "init/scheduling.h"
#include "logger/logger.h"
#include "sessions/look.h"
#include "sessions/cgroup.h"
#include "sessions/events.h"
#include "sessions/log_feed.h"
#include "sessions/oom.h"
#include "sessions/process.h"
#include "sessions/session.h"
#include "sessions/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTLED_S    0.05  /* a main command that lives longer may want sessions */
#define LOOP_RESERVE 65536 /* bytes that libev may have when nothing else is left */

static _Noreturn void die(const struct error *e)
{
    fprintf(stderr, "sandbox-init: %s\n", e->text);
    exit(1);
}

void init_tell_off(struct init *in, const char *what, const char *why)
{
    LOG_WRN("off", F_STR("what", what), F_STR("why", why));
    if (in->off_count < OFF_MAX)
        snprintf(in->off[in->off_count++], sizeof in->off[0], "%s: %s", what, why);
}

/* Descriptors 0, 1, 2 must exist, or the next open would become one of them. */
static void ensure_stdio(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= 2 && fcntl(fd, F_SETFD, 0) == 0);
    if (fd > 2)
        close(fd);
}

/* init may need many descriptors; its children get the limit back that it was started with. */
static struct rlimit raise_descriptor_limit(void)
{
    struct rlimit r = {0}, most;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        most = r;
        most.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &most);
    }
    return r;
}

/* What the caller left open beyond 0, 1, 2 is neither init's nor its children's. */
static void close_inherited_descriptors(void)
{
    if (close_range(3, ~0u, 0) == 0)
        return;
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
}

/* A reload reads the same file again, and init has left its start folder by then. */
static void resolve_config_path(struct options *o)
{
    static char path[PATH_MAX];
    struct error e = {0};
    if (!o->config_path || o->config_path[0] == '/' || !o->config_path[0])
        return;
    if (!getcwd(path, sizeof path))
        error_set_sys(&e, errno, "-c %.200s: the folder it is relative to", o->config_path);
    size_t used = strlen(path);
    int n = snprintf(path + used, sizeof path - used, "%s%s", used == 1 ? "" : "/", o->config_path);
    if (n < 0 || (size_t)n >= sizeof path - used)
        error_set(&e, ERR_INVALID, "-c %.200s…: too long a path", o->config_path);
    if (e.text[0])
        die(&e);
    o->config_path = path;
}

/* Children begin in the folder init was started in; init itself holds no folder busy. */
static void leave_start_folder(const struct rlimit *files)
{
    int fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    spawn_init(fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, SPAWN_FD_MIN), files);
    fd_close(&fd);
    if (chdir("/") < 0)
        LOG_WRN("chdir", F_STR("why", strerror(errno)));
}

static void become_reaper(struct init *in)
{
    in->is_pid1 = getpid() == 1;
    if (in->is_pid1)
        return;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        init_tell_off(in, "reaping of orphans", strerror(errno));
    else
        LOG_INF("subreaper", F_STR("why", "not PID 1"), F_INT("pid", getpid()));
}

static void open_runtime(struct init *in)
{
    struct error e = {0};
    char path[PATHS_MAX];
    const char *dir = in->config->runtime_dir;
    if (dir && runtime_open(&in->runtime, dir, &e) < 0)
        die(&e);
    for (unsigned i = 0; !dir && (dir = paths_runtime_dir(i, geteuid(), path, sizeof path)); i++)
        if (!*dir || runtime_open(&in->runtime, dir, &e) < 0)
            dir = NULL;
    if (in->runtime.fd < 0)
        init_tell_off(in, "sessions, texts and the default control socket", e.text);
}

/* Where a client below init would look for another socket than ours, it is told. */
static int tell_socket(struct init *in, struct error *e)
{
    char found[PATHS_MAX];
    const char *path = in->socket_path;
    if (!path[0] || (paths_find_socket(geteuid(), found, sizeof found) && strcmp(found, path) == 0))
        return 0;
    return sessions_tell_socket(&in->sessions, path, e);
}

static void open_socket(struct init *in)
{
    struct error e = {0};
    if (in->config->control_socket)
        snprintf(in->socket_path, sizeof in->socket_path, "%s", in->config->control_socket);
    else if (in->runtime.fd >= 0)
        snprintf(in->socket_path, sizeof in->socket_path, "%.90s/control.sock", in->runtime.path);
    struct server_config sc = {.path = in->socket_path[0] ? in->socket_path : NULL,
                               .allowed_uid = geteuid(),
                               .max_connections = (unsigned)in->config->max_connections,
                               .max_adopted = (unsigned)in->config->gateway.max_connections,
                               .text_limit = in->config->text_limit,
                               .upload_limit = INIT_UPLOADS * in->config->text_limit,
                               .request_timeout_ms = 10000,
                               .client_stall_ms = in->config->client_stall_ms,
                               .on_request = verbs_on_request,
                               .context = in};
    in->server = server_new(in->loop, &sc, &e);
    if (!in->server || tell_socket(in, &e) < 0)
        die(&e);
}

/* libev aborts when it gets no memory (ev.pod, ev_set_allocator). PID 1 may not: the reserve is
 * given back, and then tried again for as long as it takes; other allocations fail as errors and
 * free what they hold meanwhile. */
static void *reserve;
static void *never_fail(void *old, long size)
{
    if (size == 0) {
        free(old);
        return NULL;
    }
    for (;;) {
        void *p = realloc(old, (size_t)size);
        if (p)
            return p;
        free(reserve);
        reserve = NULL;
        poll(NULL, 0, 10);
    }
}

static void on_services_fatal(void *context, const char *why, int code)
{
    stop_by_service(context, why, code);
}

static void start_main(struct init *in)
{
    struct error e = {0};
    if (main_command_start(in, &e) < 0)
        LOG_ERR("main", F_STR("why", e.text));
}

static void on_services_settled(void *context)
{
    struct init *in = context;
    if (in->main_state != MAIN_PENDING)
        return;
    start_main(in);
    services_main_began(in->services);
}

static void make_services(struct init *in)
{
    struct error e = {0};
    const struct services_host host = {.loop = in->loop,
                                       .sessions = &in->sessions,
                                       .on_fatal = on_services_fatal,
                                       .on_settled = on_services_settled,
                                       .context = in};
    in->services = services_new(&host, in->config, &e);
    if (!in->services)
        die(&e);
}

static void boot(struct init *in, const struct options *o, char **environ_)
{
    struct error e = {0};
    ensure_stdio();
    close_inherited_descriptors();
    struct rlimit files = raise_descriptor_limit();
    in->began_ns = clock_mono_ns();
    in->environ_ = environ_;
    in->config_path = o->config_path;
    in->main_argv = o->main_argv;
    in->options = o;
    log_configure(in->config->log_level, in->config->log_format);
    log_open();
    become_reaper(in);
    privileges_tell(in);
    leave_start_folder(&files);
    umask(022);
    reserve = malloc(LOOP_RESERVE);
    ev_set_allocator(never_fail);
    reload_init(in);
    in->loop = ev_loop_new(EVFLAG_NOENV | EVFLAG_AUTO);
    if (!in->loop) {
        error_set(&e, ERR_SYSTEM, "no event loop can be had (epoll, poll and select refused)");
        die(&e);
    }
    children_init(in->loop);
    events_init(in->loop, in->config->events_keep);
    open_runtime(in);
    if (signals_start(in, &e) < 0 ||
        sessions_init(&in->sessions, in->loop, in->config, &in->runtime, environ_, &e) < 0)
        die(&e);
    open_socket(in);
    in->sessions.log_feed = log_feed_new(in->loop, in->config, &e);
    if (!in->sessions.log_feed)
        die(&e);
    make_services(in);
    in->gateway = gateway_new(in, &e);
    if (!in->gateway)
        die(&e);
}

static void look_at_cgroups(void *context)
{
    struct init *in = context;
    struct error e = {0};
    if (cgroups_init(&e) < 0)
        init_tell_off(in, "own cgroups of sessions and processes", e.text);
    oom_init();
}

/* What only the start has needed is given back: of the code each page that is used from now on
 * comes by itself, and not with its neighbours. */
static void forget_start(void)
{
    extern const char __executable_start, etext;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)&__executable_start + page - 1) / page * page;
    uintptr_t to = (uintptr_t)&etext / page * page;
    if (from < to && madvise((void *)from, to - from, MADV_RANDOM) == 0)
        (void)madvise((void *)from, to - from, MADV_DONTNEED);
}

static void on_settled(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)w;
    (void)events;
    cgroups_needed();
    forget_start();
}

/* A container of one command does not wait for anything. The gateway comes first, so that a long
 * start can be watched through it. */
static void start_all(struct init *in)
{
    bool has_services = in->config->service_count > 0;
    gateway_begin(in->gateway);
    if (in->main_argv && !has_services)
        start_main(in);
    cgroups_when_needed(look_at_cgroups, in);
    if (in->main_argv && has_services)
        in->main_state = MAIN_PENDING;
    services_begin(in->services, in->main_state == MAIN_PENDING);
}

static void shut_down(struct init *in)
{
    struct error why;
    error_set(&why, ERR_UNAVAILABLE, "init is stopping");
    gateway_free(in->gateway);
    events_end();
    services_end_outputs(in->services);
    reload_exit(in);
    server_hang_up(in->server, &why); /* first, since owners reach into sessions and outputs */
    services_free(in->services);
    sessions_free(&in->sessions);
    cgroups_exit();
    oom_exit();
    log_feed_free(in->sessions.log_feed);
    events_free();
    server_free(in->server);
    runtime_close(&in->runtime);
    config_free(in->config);
    ev_loop_destroy(in->loop);
    spawn_exit();
    free(reserve);
}

/* It may well come with the deployment: no fault of the configuration, but told. The text is that
 * of the start. */
static void check_token_file(const struct config *c)
{
    const char *file = c->gateway.token_file;
    if (!file || c->gateway.listen.count == 0)
        return;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        fprintf(stderr, "sandbox-init: warning: token_file %.100s: %s\n", file, strerror(errno));
    else
        close(fd);
}

/* What a shell would take for its own, or supervisord for a comment, are arguments. A ';' at the
 * very end is what find(1) wants. Returns what is wrong with the word, or NULL. */
static const char *explain_word(const char *word, bool is_last)
{
    static const char *const signs[] = {"&&", "||", "|", "&", ">", ">>", "<", "2>&1", "2>", "&>"};
    if (!is_last && (strcmp(word, ";") == 0 || strcmp(word, "#") == 0))
        return "and what follows are arguments; a comment stands on a line of its own, and a text "
               "for a shell under 'script'";
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (strcmp(word, signs[i]) == 0)
            return "is an argument, since no shell reads it; a text for a shell stands under "
                   "'script'";
    if (word[0] == '$' && word[1 + strspn(word + 1, "{")] != '\0' &&
        strspn(word + 1, "{}_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") ==
            strlen(word + 1))
        return "is an argument, since no shell expands it; a text for a shell stands under "
               "'script'";
    return NULL;
}

static void check_command(const struct service_config *s)
{
    for (char **word = s->argv; word && word[0]; word++) {
        const char *why = word > s->argv ? explain_word(*word, !word[1]) : NULL;
        if (!why)
            continue;
        fprintf(stderr, "sandbox-init: warning: %s:%u: [service:%.*s]: command: '%s' %s\n", s->file,
                s->line, (int)strcspn(s->name, "@"), s->name, *word, why);
        return;
    }
}

static void check_commands(const struct config *c)
{
    for (size_t i = 0; i < c->service_count; i++)
        if (c->services[i].instance <= 1)
            check_command(&c->services[i]);
}

int main(int argc, char **argv)
{
    struct init in = {.signal_fd = -1, .child_fd = -1, .runtime = {.fd = -1}};
    struct error e = {0};
    if (argc > 1 && strcmp(argv[1], LOGGER_OPTION) == 0)
        return logger_main(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], LOOK_OPTION) == 0)
        return look_main(argc - 2, argv + 2);
    signals_block(); /* first of all: until here a TERM to PID 1 is dropped by the kernel */
    struct options o;
    options_parse(&o, argc, argv);
    if (o.supervisord_path)
        return import_supervisord(o.supervisord_path, environ);
    if (!o.is_check)
        resolve_config_path(&o);
    in.config = config_load(o.config_path, environ, &e);
    if (!in.config)
        die(&e);
    if (o.is_check) {
        check_token_file(in.config);
        check_commands(in.config);
        config_free(in.config);
        puts("configuration is valid");
        return 0;
    }
    boot(&in, &o, environ);

    /* ---- ready: from here on nothing exits but the stop ---- */
    EVENT(EVENT_INIT, "started", F_STR("version", SANDBOX_VERSION), F_INT("pid", getpid()));
    start_all(&in);
    scheduling_ask_for_short_slice();
    ev_timer settled;
    ev_timer_init(&settled, on_settled, SETTLED_S, 0.);
    ev_timer_start(in.loop, &settled);
    if (!in.main_argv)
        cgroups_needed();
    reload_create_sessions(&in);
    LOG_INF("ready", F_STR("version", SANDBOX_VERSION), F_INT("pid", getpid()),
            F_STR("runtime_dir", in.runtime.fd >= 0 ? in.runtime.path : NULL),
            F_STR("socket", in.socket_path[0] ? in.socket_path : NULL));
    idle_arm(&in);
    children_sweep();
    while (in.stop_state != STOP_DONE)
        ev_run(in.loop, EVRUN_ONCE);
    int code = in.exit_code;
    shut_down(&in);
    return code;
}
