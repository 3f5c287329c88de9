/*
 * A [service:NAME] when all files are read: what its keys say together, what follows from other
 * sections, and its instances. A complaint names the line of the key that it is about.
 */
#include "config/config_internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- complaints ---- */

static unsigned line_of(const struct service_section *s, const char *key)
{
    return s->lines[service_row_index(key)];
}

/* Put the place of a key in front; of the section if key is NULL. */
static int fail_at(const struct service_section *s, const char *key, struct error *e)
{
    if (key)
        return error_wrap(e, "%s:%u: %s", s->file, line_of(s, key), key);
    return error_wrap(e, "%s:%u", s->file, s->config.line);
}

/* ---- what the keys say together ---- */

static int check_program(const struct service_section *s, struct error *e)
{
    unsigned command = line_of(s, "command"), script = line_of(s, "script");
    if (!command && !script) {
        error_set(e, ERR_INVALID, "[%s] has neither 'command' nor 'script'", s->title);
        return fail_at(s, NULL, e);
    }
    if (command && script) {
        error_set(e, ERR_INVALID, "only one of the two: [%s] has a '%s' at line %u", s->title,
                  command < script ? "command" : "script", command < script ? command : script);
        return fail_at(s, command < script ? "script" : "command", e);
    }
    return 0;
}

static int check_type(const struct service_section *s, struct error *e)
{
    const struct service_config *c = &s->config;
    const char *key = NULL;
    if (c->type == SERVICE_ONESHOT && c->restart == RESTART_ALWAYS) {
        key = "restart";
        error_set(e, ERR_INVALID, "a oneshot ends, so it can't be started again always");
    } else if (c->type == SERVICE_ONESHOT && (c->ready.text || c->health.text)) {
        key = c->ready.text ? "ready" : "health";
        error_set(e, ERR_INVALID,
                  "a oneshot is ready when it has ended with success, and then has "
                  "no health");
    } else if (c->type == SERVICE_NOTIFY && c->ready.text && c->ready.kind != CHECK_FD) {
        key = "ready";
        error_set(e, ERR_INVALID, "type = notify is ready when it says so; only fd:N goes with it");
    } else if (c->health.kind == CHECK_FD) {
        key = "health";
        error_set(e, ERR_INVALID,
                  "fd:N tells once that a service is ready, not that it is healthy");
    }
    return key ? fail_at(s, key, e) : 0;
}

static int check_numbers(const struct service_section *s, struct error *e)
{
    const struct service_config *c = &s->config;
    if (line_of(s, "restart_backoff") && c->restart_backoff_ms < c->restart_delay_ms) {
        error_set(e, ERR_INVALID,
                  "it is the most that restart_delay grows to, and can't be less "
                  "than that");
        return fail_at(s, "restart_backoff", e);
    }
    if (c->reload_signal == SIGKILL || c->reload_signal == SIGSTOP) {
        error_set(e, ERR_INVALID, "no program can do anything with this signal");
        return fail_at(s, "reload_signal", e);
    }
    if (c->stop_signal == SIGSTOP) {
        error_set(e, ERR_INVALID, "it would stop the service but not end it");
        return fail_at(s, "stop_signal", e);
    }
    if (c->group && strchr(c->group, ':')) {
        error_set(e, ERR_INVALID, "one group, by name or number");
        return fail_at(s, "group", e);
    }
    if (c->group && c->user && strchr(c->user, ':')) {
        error_set(e, ERR_INVALID, "'user' names a group already");
        return fail_at(s, "group", e);
    }
    return 0;
}

static void fill_in(struct service_section *s, const struct config *c)
{
    struct service_config *config = &s->config;
    config->has_nice = line_of(s, "nice") > 0;
    config->has_ready_timeout = line_of(s, "ready_timeout") > 0;
    config->has_oom_score_adj = line_of(s, "oom_score_adj") > 0;
    if (!line_of(s, "stop_grace"))
        config->stop_grace_ms = c->stop_grace_ms;
    if (config->type == SERVICE_ONESHOT && !line_of(s, "restart"))
        config->restart = RESTART_NEVER;
    if (!line_of(s, "restart_backoff") && config->restart_backoff_ms < config->restart_delay_ms)
        config->restart_backoff_ms = config->restart_delay_ms;
}

int service_complete(struct service_section *s, const struct config *c, struct error *e)
{
    fill_in(s, c);
    if (check_program(s, e) < 0 || check_type(s, e) < 0 || check_numbers(s, e) < 0)
        return -1;
    return 0;
}

/* ---- instances ---- */

static int add_service(struct service_section *s, struct config *c, unsigned instance,
                       struct error *e)
{
    char name[SERVICE_NAME_MAX + 1];
    const char *section = strchr(s->title, ':') + 1;
    struct service_config *to = &c->services[c->service_count];
    if (s->config.instances == 1)
        snprintf(name, sizeof name, "%s", section);
    else
        snprintf(name, sizeof name, "%s@%u", section, instance);
    *to = (struct service_config){0};
    if (service_copy(to, &s->config, e) < 0)
        return -1;
    to->instance = s->config.instances == 1 ? 0 : instance;
    to->name = strdup(name);
    if (!to->name) {
        service_free(to);
        return error_set(e, ERR_MEMORY, "out of memory");
    }
    c->service_count++;
    return 0;
}

int service_expand(struct service_section *s, struct config *c, struct error *e)
{
    uint64_t count = s->config.instances;
    if (count > SERVICES_MAX - c->service_count) {
        error_set(e, ERR_INVALID, "more than %d services, instances counted", SERVICES_MAX);
        return fail_at(s, NULL, e);
    }
    struct service_config *services =
        realloc(c->services, (c->service_count + count) * sizeof *services);
    if (!services)
        return error_set(e, ERR_MEMORY, "out of memory");
    c->services = services;
    for (unsigned i = 1; i <= count; i++)
        if (add_service(s, c, i, e) < 0)
            return -1;
    return 0;
}
