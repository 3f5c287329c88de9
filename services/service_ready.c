/*
 * Whether a service is ready, and whether it is healthy: what it says of itself (notify.h) and what
 * checks find out (check.h). Both only record facts; the step acts on them.
 */
#include "services/service.h"
#include "base/log.h"
#include "base/number.h"
#include "sessions/events.h"
#include "sessions/sessions.h"

#include <stdio.h>
#include <string.h>

#define FIRST_PAUSE_MS 20  /* between two checks whether it is ready; it doubles … */
#define PAUSE_MAX_MS   500 /* … up to this */
#define CHECK_MAX_MS   5000

/* ---- what it says ---- */

static void on_said_ready(void *context)
{
    struct service *s = context;
    s->said_ready = true;
    service_mark(s);
}

static void on_said_reloading(void *context)
{
    struct service *s = context;
    s->said_ready = false;
    service_mark(s);
}

static void on_said_status(void *context, const char *text)
{
    struct service *s = context;
    snprintf(s->status_text, sizeof s->status_text, "%s", text);
}

static void on_nothing(void *context)
{
    (void)context;
}

static void on_closed(void *context)
{
    struct service *s = context;
    s->has_closed = true;
    service_mark(s);
}

static bool is_own(void *context, pid_t pid)
{
    return service_has_member(context, pid);
}

static const struct notify_events notify_events = {.on_ready = on_said_ready,
                                                   .on_reloading = on_said_reloading,
                                                   .on_stopping = on_nothing,
                                                   .on_status = on_said_status,
                                                   .on_watchdog = on_nothing,
                                                   .on_closed = on_closed,
                                                   .is_own = is_own};

static bool has_voice(const struct service_config *c)
{
    return c->type == SERVICE_NOTIFY || c->ready.kind == CHECK_FD;
}

int service_voice_make(struct service *s, struct service_plan *p, struct error *e)
{
    const struct service_config *c = s->config;
    const struct runtime *r = s->all->host.sessions->runtime;
    char item[160];
    s->said_ready = s->has_closed = false;
    s->status_text[0] = '\0';
    if (!has_voice(c))
        return 0;
    s->notify = notify_new(s->all->host.loop, r->fd, r->path, s->name, p->user.uid,
                           c->ready.kind == CHECK_FD, &notify_events, s, e);
    if (!s->notify)
        return -1;
    snprintf(item, sizeof item, "NOTIFY_SOCKET=%s", notify_address(s->notify));
    p->spawn.extra_fd = notify_child_fd(s->notify);
    p->spawn.extra_at = p->spawn.extra_fd >= 0 ? c->ready.fd : -1;
    return env_put(&p->env, item, e);
}

/* ---- what checks find out ---- */

static void set_check_timer(struct service *s, uint64_t ms)
{
    ev_timer_stop(s->all->host.loop, &s->check_timer);
    ev_now_update(s->all->host.loop);
    ev_timer_set(&s->check_timer, (double)ms / 1000., 0.);
    ev_timer_start(s->all->host.loop, &s->check_timer);
}

static void on_ready_checked(struct service *s, bool is_ok)
{
    if (is_ok) {
        s->said_ready = true;
        service_mark(s);
        return;
    }
    set_check_timer(s, s->check_pause_ms);
    s->check_pause_ms = s->check_pause_ms < PAUSE_MAX_MS / 2 ? s->check_pause_ms * 2 : PAUSE_MAX_MS;
}

static void on_health_checked(struct service *s, bool is_ok)
{
    if (is_ok && s->health != 1 && s->unhealthy > 0)
        LOG_INF("service", F_STR("service", s->name), F_STR("health", "again"));
    s->health = is_ok;
    s->unhealthy = is_ok ? 0 : s->unhealthy + 1;
    if (!is_ok)
        LOG_WRN("service", F_STR("service", s->name), F_STR("health", s->check_words),
                F_INT("failures", s->unhealthy));
    if (s->unhealthy >= s->config->health_retries)
        service_mark(s);
    else
        set_check_timer(s, s->config->health_interval_ms);
}

static void on_checked(void *context, bool is_ok, const char *why)
{
    struct service *s = context;
    s->attempt = NULL;
    if (!is_ok)
        snprintf(s->check_words, sizeof s->check_words, "%s", why);
    if (s->state == SERVICE_STARTING)
        on_ready_checked(s, is_ok);
    else
        on_health_checked(s, is_ok);
}

static struct check_attempt *begin_attempt(struct service *s, const struct check *check,
                                           uint64_t timeout_ms, struct error *e)
{
    struct check_plan plan = {.loop = s->all->host.loop,
                              .check = check,
                              .timeout_ms = timeout_ms,
                              .cwd = s->config->cwd,
                              .on_done = on_checked,
                              .context = s};
    struct service_plan p;
    const char *step;
    if (check->kind != CHECK_COMMAND)
        return check_start(&plan, e);
    struct check_attempt *a = NULL;
    if (service_plan_make(s, &p, &step, e) == 0) {
        plan.user = p.spawn.user;
        plan.envp = env_vector(&p.env);
        a = check_start(&plan, e);
    }
    service_plan_free(&p);
    return a;
}

static void on_check_time(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct service *s = w->data;
    struct error e = {0};
    bool is_start = s->state == SERVICE_STARTING;
    const struct check *check = is_start ? &s->config->ready : &s->config->health;
    uint64_t most = is_start ? CHECK_MAX_MS : s->config->health_interval_ms;
    if (s->attempt)
        return;
    s->attempt = begin_attempt(s, check, most, &e);
    if (!s->attempt)
        on_checked(s, false, e.text);
}

/* ---- from the start to the end ---- */

void service_ready_init(struct service *s)
{
    ev_timer_init(&s->check_timer, on_check_time, 0., 0.);
    s->check_timer.data = s;
    s->health = -1;
}

void service_ready_begin(struct service *s)
{
    const struct service_config *c = s->config;
    bool waits = c->type != SERVICE_ONESHOT && (has_voice(c) || c->ready.kind != CHECK_NONE);
    if (s->notify)
        notify_started(s->notify);
    s->check_pause_ms = FIRST_PAUSE_MS;
    s->check_words[0] = '\0';
    if (waits && c->ready_timeout_ms)
        service_set_timer(s, c->ready_timeout_ms);
    if (waits && !has_voice(c))
        set_check_timer(s, 0);
}

static void begin_health(struct service *s)
{
    s->unhealthy = 0;
    s->health = -1;
    if (s->config->health.kind != CHECK_NONE)
        set_check_timer(s, s->config->health_interval_ms);
}

static void become_ready(struct service *s)
{
    service_stop_timer(s);
    ev_timer_stop(s->all->host.loop, &s->check_timer);
    s->is_ready = true;
    s->is_boot = false;
    service_set_state(s, SERVICE_RUNNING, NULL);
    begin_health(s);
    service_tell_up(s, NULL);
}

static void step_starting(struct service *s)
{
    const struct service_config *c = s->config;
    if (!s->has_executed || c->type == SERVICE_ONESHOT)
        return;
    if (s->said_ready || (c->type == SERVICE_SIMPLE && c->ready.kind == CHECK_NONE))
        become_ready(s);
    else if (s->has_closed && c->type != SERVICE_NOTIFY)
        service_end(s, END_NOT_READY);
}

/* RELOADING=1, and READY=1 after it. */
static void step_said(struct service *s)
{
    if (!has_voice(s->config) || s->is_ready == s->said_ready)
        return;
    s->is_ready = s->said_ready;
    EVENT(EVENT_SERVICE, s->is_ready ? "ready" : "reloading", F_STR("service", s->name),
          F_INT("pid", service_pid(s)));
    service_mark_neighbours(s);
    if (s->is_ready)
        service_tell_up(s, NULL);
}

void service_ready_step(struct service *s)
{
    if (s->state == SERVICE_STARTING)
        step_starting(s);
    else if (s->unhealthy > 0 && s->unhealthy >= s->config->health_retries)
        service_end(s, END_UNHEALTHY);
    else
        step_said(s);
}

static void stop_checks(struct service *s)
{
    ev_timer_stop(s->all->host.loop, &s->check_timer);
    if (s->attempt)
        check_cancel(s->attempt);
    s->attempt = NULL;
}

void service_ready_stop(struct service *s)
{
    stop_checks(s);
    notify_free(s->notify);
    s->notify = NULL;
    s->unhealthy = 0;
    s->health = -1;
}

/* A check that is under way has the old configuration. */
void service_settings_changed(struct service *s)
{
    struct error e = {0};
    bool was_starting = s->state == SERVICE_STARTING;
    if (service_log_configure(s->log, s->config, &e) < 0)
        LOG_ERR("service", F_STR("service", s->name), F_STR("why", e.text));
    if (was_starting && !s->attempt && !ev_is_active(&s->check_timer))
        return;
    stop_checks(s);
    if (was_starting && s->config->ready.kind != CHECK_NONE && !has_voice(s->config))
        set_check_timer(s, 0);
    else if (was_starting)
        s->said_ready = true;
    else if (s->state == SERVICE_RUNNING)
        begin_health(s);
    service_mark(s);
}

void service_ready_explain(const struct service *s, char *buf, size_t size)
{
    const struct service_config *c = s->config;
    char time[32];
    if (s->cause == END_UNHEALTHY)
        snprintf(buf, size, "not healthy, %u checks failed: %.180s", s->unhealthy, s->check_words);
    else if (s->has_closed && c->type != SERVICE_NOTIFY)
        snprintf(buf, size, "closed descriptor %d without saying that it is ready", c->ready.fd);
    else
        snprintf(buf, size, "not ready within %s%s%.180s",
                 number_format_duration(c->ready_timeout_ms, time, sizeof time),
                 s->check_words[0] ? ": " : "", s->check_words);
}

const char *service_status_text(const struct service *s)
{
    return s->status_text;
}
