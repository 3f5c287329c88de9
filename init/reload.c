/*
 * Reload: a second configuration is read whole, compared with the present one and put in its place.
 * A broken file changes nothing. What differs takes effect at once where that is possible; the
 * rest is told together with what it needs.
 */
#include "init/init.h"
#include "base/log.h"
#include "init/gateway.h"
#include "sessions/events.h"
#include "sessions/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct diff_walk {
    struct init *init;
    bool has_gateway_changed, has_user_changed;
    void (*told)(void *context, const char *what, const char *needs);
    void *context;
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
    w->told(w->context, what, needs);
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
    list_each(s, &in->sessions.sessions, struct session, link) s->is_configured =
        config_session(in->config, s->name) != NULL;
}

static int apply(struct init *in, struct diff_walk *w, struct error *e)
{
    if (in->stop_state != STOP_NONE)
        return error_set(e, ERR_UNAVAILABLE, "reload: init is stopping");
    struct config *fresh = config_load(in->config_path, in->environ_, e);
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

int reload(struct init *in, void (*told)(void *context, const char *what, const char *needs),
           void *context, struct error *e)
{
    struct diff_walk w = {.init = in, .told = told, .context = context};
    renew_socket(in);
    int rc = apply(in, &w, e);
    if (rc < 0)
        EVENT(EVENT_RELOAD, "failed", F_STR("why", e->text));
    else
        EVENT(EVENT_RELOAD, "done", F_INT("changed", w.changed),
              F_INT("restart_needed", w.restart_needed));
    return rc;
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
