/*
 * Reload: a second configuration is read whole, compared with the present one and put in its place.
 * A broken file changes nothing. What differs takes effect at once where that is possible; the
 * rest is told together with what it needs. The files are read by a process of its own, since a
 * file system may never answer; one reading serves all who asked before it began.
 */
#include "init/init.h"
#include "base/fd.h"
#include "base/log.h"
#include "init/gateway.h"
#include "sessions/events.h"
#include "sessions/look.h"
#include "sessions/session.h"
#include "sessions/spawn.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_S 10. /* so long the files may take */
#define HELD_S 1.  /* what was killed so long ago is held up */

struct diff_walk {
    struct init *init;
    bool has_gateway_changed, has_user_changed;
    unsigned changed, restart_needed;
};

/* Keys that are only looked at when init starts. */
static const char *needs_of(const char *section, const char *key)
{
    if (strcmp(section, "init") == 0 &&
        (strcmp(key, "runtime_dir") == 0 || strcmp(key, "control_socket") == 0 ||
         strcmp(key, "log_dir") == 0 || strncmp(key, "log_file", 8) == 0 ||
         strcmp(key, "log_keep") == 0))
        return "a restart of init";
    return NULL;
}

static void tell(struct diff_walk *w, const char *what, const char *needs)
{
    unsigned *count = needs ? &w->restart_needed : &w->changed;
    ++*count;
    list_each(wish, &w->init->reading.served, struct reload_wish, link)
        wish->told(wish->context, what, needs);
}

static void on_gateway(struct diff_walk *w, const char *key)
{
    char what[200];
    w->has_gateway_changed = true;
    snprintf(what, sizeof what, "[gateway] %s: %s", key,
             gateway_next(w->init->gateway, w->init->config));
    tell(w, what, NULL);
}

static void on_change(void *context, enum change_kind kind, const char *section, const char *key)
{
    struct diff_walk *w = context;
    char what[200];
    switch (kind) {
    case CHANGE_KEY:
        if (strcmp(section, "gateway") == 0) {
            on_gateway(w, key);
            break;
        }
        w->has_user_changed |= strcmp(section, "sessions") == 0 && strcmp(key, "user") == 0;
        snprintf(what, sizeof what, "[%s] %s", section, key);
        tell(w, what, needs_of(section, key));
        break;
    case CHANGE_SESSION_ADDED:
        snprintf(what, sizeof what, "[session:%s] added", key);
        tell(w, what, NULL);
        break;
    case CHANGE_SESSION_REMOVED:
        snprintf(what, sizeof what, "[session:%s] removed: it lives on and can be deleted", key);
        tell(w, what, NULL);
        break;
    case CHANGE_SESSION_CHANGED:
        snprintf(what, sizeof what, "[session:%s] changed", key);
        tell(w, what, "a reset of the session");
        break;
    case CHANGE_SERVICE_ADDED:
    case CHANGE_SERVICE_REMOVED:
    case CHANGE_SERVICE_CHANGED:
        break; /* services_apply() tells of them, and of what it does about them */
    }
}

static void on_service(void *context, const char *what, const char *needs)
{
    tell(context, what, needs);
}

/* Sessions are declared or not as the new file says. */
static void mark_sessions(struct init *in)
{
    list_each(s, &in->sessions.sessions, struct session, link)
        session_declare(s, config_session(in->config, s->name) != NULL);
}

static int apply(struct init *in, struct diff_walk *w, struct error *e)
{
    if (in->stop_state != STOP_NONE)
        return error_set(e, ERR_UNAVAILABLE, "reload: init is stopping");
    struct config *fresh = config_replay(in->config_path, in->reading.record_fd, in->environ_, e);
    if (!fresh)
        return error_wrap(e, "reload");
    struct config *old = in->config;
    in->sessions.config = fresh;
    if (sessions_renew_env(&in->sessions, e) < 0) {
        in->sessions.config = old;
        config_free(fresh);
        return -1;
    }
    if (services_apply(in->services, old, fresh, on_service, w, e) < 0) {
        struct error ignored;
        in->sessions.config = old;
        (void)sessions_renew_env(&in->sessions, &ignored);
        config_free(fresh);
        return -1;
    }
    in->config = fresh;
    config_diff(old, fresh, on_change, w);
    log_configure(fresh->log_level, fresh->log_format);
    server_set_limits(in->server, (unsigned)fresh->max_connections,
                      (unsigned)fresh->gateway.max_connections, fresh->text_limit,
                      INIT_UPLOADS * fresh->text_limit, fresh->client_stall_ms);
    if (!events_resize(fresh->events_keep))
        LOG_ERR("events", F_STR("why", "no memory for events_keep: it stays as it was"));
    mark_sessions(in);
    reload_create_sessions(in);
    if (w->has_gateway_changed)
        gateway_renew(in->gateway);
    else if (w->has_user_changed)
        gateway_renew_helpers(in->gateway);
    idle_arm(in);
    return 0;
}

/* A socket that somebody has deleted comes back whatever the file says: without it nobody learns
 * what is wrong with the file. */
static void renew_socket(struct init *in)
{
    struct error e = {0};
    if (in->socket_path[0] && server_rebind(in->server, &e) < 0)
        LOG_ERR("socket", F_STR("why", e.text));
}

/* ---- reading ---- */

static void step(struct init *in);

static void answer(struct list *wishes, const struct error *e)
{
    while (!list_is_empty(wishes)) {
        struct reload_wish *wish = list_entry(wishes->next, struct reload_wish, link);
        list_remove(&wish->link);
        wish->on_done(wish->context, e);
    }
}

static void fail(struct list *wishes, const struct error *e)
{
    EVENT(EVENT_RELOAD, "failed", F_STR("why", e->text));
    answer(wishes, e);
}

/* All is read. */
static void finish(struct init *in)
{
    struct diff_walk w = {.init = in};
    struct error e = {0};
    int rc = apply(in, &w, &e);
    fd_close(&in->reading.record_fd);
    if (rc < 0) {
        fail(&in->reading.served, &e);
        return;
    }
    EVENT(EVENT_RELOAD, "done", F_INT("changed", w.changed),
          F_INT("restart_needed", w.restart_needed));
    answer(&in->reading.served, NULL);
}

static void on_read(void *context, const struct child_exit *how)
{
    struct init *in = context;
    struct reading *r = &in->reading;
    struct error e = {0};
    bool was_given_up = r->is_given_up;
    ev_timer_stop(in->loop, &r->timer);
    r->child = NULL;
    r->is_given_up = false;
    if (!was_given_up && !how->step && WIFEXITED(how->status) && WEXITSTATUS(how->status) == 0) {
        finish(in);
    } else if (!was_given_up) {
        if (in->stop_state != STOP_NONE) /* which ends all that runs */
            error_set(&e, ERR_UNAVAILABLE, "reload: init is stopping");
        else if (how->step)
            error_set_sys(&e, how->sys, "reload: the process that reads the files: %s", how->step);
        else
            error_set(&e, ERR_SYSTEM, "reload: the process that reads the files was ended");
        fail(&r->served, &e);
    }
    fd_close(&r->record_fd);
    step(in);
}

/* The process has taken too long, or it was killed and is still there. */
static void on_time(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop, (void)events;
    struct init *in = w->data;
    struct reading *r = &in->reading;
    struct error e;
    char path[PATH_MAX];
    if (!config_record_waits(r->record_fd, path, sizeof path))
        snprintf(path, sizeof path, "%s", in->config_path);
    if (r->is_given_up)
        error_set(&e, ERR_STATE,
                  "reload: %s: the file system has not answered (process %d waits for it)", path,
                  (int)r->child->pid);
    else
        error_set(&e, ERR_STATE, "reload: %s: the file system has not answered within %.0f s", path,
                  READ_S);
    fail(r->is_given_up ? &r->waiting : &r->served, &e);
    if (!r->is_given_up)
        (void)child_signal(r->child, SIGKILL);
    r->is_given_up = true;
    step(in);
}

static int begin_reading(struct init *in, struct error *e)
{
    struct reading *r = &in->reading;
    const char *argv[] = {"sandbox-init", LOOK_OPTION, LOOK_CONFIG, in->config_path, NULL};
    r->record_fd = memfd_create("sandbox-config", MFD_CLOEXEC);
    if (r->record_fd < 0)
        return error_set_sys(e, errno, "reload: memory for the files");
    struct spawn_plan plan = spawn_plan_self(argv);
    plan.stdio[1] = r->record_fd;
    plan.on_exit = on_read;
    plan.context = in;
    r->child = spawn(&plan, e);
    if (!r->child) {
        fd_close(&r->record_fd);
        return error_wrap(e, "reload");
    }
    return 0;
}

static void start_timer(struct init *in, double seconds)
{
    ev_timer_init(&in->reading.timer, on_time, seconds, 0.);
    in->reading.timer.data = in;
    ev_timer_start(in->loop, &in->reading.timer);
}

/* The only place where a reading begins: for all who wait. */
static void step(struct init *in)
{
    struct reading *r = &in->reading;
    struct error e = {0};
    if (list_is_empty(&r->waiting))
        return;
    if (r->child) {
        if (r->is_given_up && !ev_is_active(&r->timer))
            start_timer(in, HELD_S);
        return;
    }
    renew_socket(in);
    while (!list_is_empty(&r->waiting)) {
        struct list *first = r->waiting.next;
        list_remove(first);
        list_append(&r->served, first);
    }
    if (!in->config_path)
        finish(in);
    else if (begin_reading(in, &e) < 0)
        fail(&r->served, &e);
    else
        start_timer(in, READ_S);
}

void reload(struct init *in, struct reload_wish *wish)
{
    list_append(&in->reading.waiting, &wish->link);
    if (in->stop_state == STOP_NONE) {
        step(in);
        return;
    }
    struct error e;
    error_set(&e, ERR_UNAVAILABLE, "reload: init is stopping");
    fail(&in->reading.waiting, &e);
}

void reload_init(struct init *in)
{
    in->reading = (struct reading){.record_fd = -1};
    list_init(&in->reading.waiting);
    list_init(&in->reading.served);
}

void reload_exit(struct init *in)
{
    struct reading *r = &in->reading;
    struct error e;
    ev_timer_stop(in->loop, &r->timer);
    if (r->child)
        child_forget(r->child);
    fd_close(&r->record_fd);
    error_set(&e, ERR_UNAVAILABLE, "reload: init is stopping");
    answer(&r->served, &e);
    answer(&r->waiting, &e);
}

static void on_created(void *owner, const struct session *s, const struct teardown_report *report,
                       const struct error *e)
{
    struct session_wish *wish = owner;
    (void)report;
    if (e)
        LOG_ERR("session_create", F_STR("session", s->name), F_STR("why", e->text));
    else
        LOG_INF("session_ready", F_STR("session", s->name));
    free(wish);
}

void reload_create_sessions(struct init *in)
{
    for (size_t i = 0; i < in->config->session_count; i++) {
        const struct session_config *c = &in->config->sessions[i];
        struct session_request q = {.name = c->name, .configured = c};
        struct error e = {0};
        if (session_find(&in->sessions, c->name, NULL))
            continue;
        struct session_wish *wish = calloc(1, sizeof *wish);
        if (!wish) {
            LOG_ERR("session_create", F_STR("session", c->name), F_STR("why", "no memory"));
            return;
        }
        list_init(&wish->link);
        wish->on_done = on_created;
        wish->owner = wish;
        if (!session_create(&in->sessions, &q, wish, &e)) {
            LOG_ERR("session_create", F_STR("session", c->name), F_STR("why", e.text));
            free(wish);
        }
    }
}
