/*
 * Whether a service is ready: what it says of itself (notify.h) and what checks find out (check.h).
 * Both only record facts; the step acts on them. Checks of its health go the same way
 * (service_health.c).
 */
#include "services/service.h"
#include "base/clock.h"
#include "base/head.h"
#include "base/log.h"
#include "base/number.h"
#include "sessions/events.h"
#include "sessions/sessions.h"

#include <stdio.h>
#include <string.h>

#define FIRST_PAUSE_MS 10  /* between two checks whether it is ready; it doubles … */
#define PAUSE_MAX_MS   500 /* … up to this */
#define CHECK_MAX_MS   5000
#define CLOSED_MS      200

void service_set_check_timer(struct service *s, uint64_t ms)
{
    ev_timer_stop(s->all->host.loop, &s->check_timer);
    ev_now_update(s->all->host.loop);
    ev_timer_set(&s->check_timer, (double)ms / 1000., 0.);
    ev_timer_start(s->all->host.loop, &s->check_timer);
}

/* ---- what it says ---- */

static void on_said_ready(void *context)
{
    struct service *s = context;
    s->said_ready = s->was_ready = true;
    service_mark(s);
}

static void said_otherwise(struct service *s, const char *doing)
{
    s->said_ready = false;
    s->doing = doing;
    service_mark(s);
}

static void on_said_reloading(void *context)
{
    said_otherwise(context, "reloading");
}

static void on_said_stopping(void *context)
{
    said_otherwise(context, "unready"); /* "stopping" is when init stops it */
}

static void on_said_status(void *context, const char *text)
{
    struct service *s = context;
    snprintf(s->status_text, sizeof s->status_text, "%s", text);
}

static void on_watchdog(void *context)
{
    (void)context; /* health checks are for that */
}

/* The descriptors of one that dies close before its end is seen, which says more. */
static void on_closed(void *context)
{
    struct service *s = context;
    s->has_closed = true;
    if (s->state == SERVICE_STARTING && s->config->type != SERVICE_NOTIFY)
        service_set_check_timer(s, CLOSED_MS);
}

static bool is_own(void *context, pid_t pid)
{
    return service_has_member(context, pid);
}

static const struct notify_events notify_events = {.on_ready = on_said_ready,
                                                   .on_reloading = on_said_reloading,
                                                   .on_stopping = on_said_stopping,
                                                   .on_status = on_said_status,
                                                   .on_watchdog = on_watchdog,
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
    s->said_ready = s->was_ready = s->has_closed = false;
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

static void check_again(struct service *s)
{
    service_set_check_timer(s, s->check_pause_ms);
    s->check_pause_ms = s->check_pause_ms < PAUSE_MAX_MS / 2 ? s->check_pause_ms * 2 : PAUSE_MAX_MS;
}

static void on_ready_checked(struct service *s, bool is_ok)
{
    if (is_ok) {
        s->said_ready = s->was_ready = true;
        service_mark(s);
        return;
    }
    service_set_state(s, SERVICE_STARTING, "not ready: %s", s->check_words);
    check_again(s);
}

static void on_checked(void *context, bool is_ok, const char *why)
{
    struct service *s = context;
    s->attempt = NULL;
    if (!is_ok)
        head_copy(s->check_words, sizeof s->check_words, why);
    if (s->state == SERVICE_STARTING)
        on_ready_checked(s, is_ok);
    else
        service_health_checked(s, is_ok);
}

static struct check_attempt *begin_attempt(struct service *s, const struct check *check,
                                           uint64_t timeout_ms, struct error *e)
{
    struct check_plan plan = {.loop = s->all->host.loop,
                              .check = check,
                              .timeout_ms = timeout_ms,
                              .cwd = s->config->cwd,
                              .hold = &s->hold,
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

bool service_check(struct service *s, const struct check *check, uint64_t timeout_ms)
{
    struct error e = {0};
    s->attempt = begin_attempt(s, check, timeout_ms, &e);
    if (s->attempt)
        return true;
    head_copy(s->check_words, sizeof s->check_words, e.text);
    LOG_WRN("service_check", F_STR("service", s->name), F_STR("why", e.text));
    return false;
}

static void on_check_time(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct service *s = w->data;
    if (s->attempt)
        return;
    if (s->state == SERVICE_RUNNING)
        service_health_look(s);
    else if (has_voice(s->config))
        service_mark(s); /* it has closed its descriptor */
    else if (!service_check(s, &s->config->ready, CHECK_MAX_MS))
        check_again(s);
}

/* ---- from the start to the end ---- */

void service_ready_init(struct service *s)
{
    ev_timer_init(&s->check_timer, on_check_time, 0., 0.);
    s->check_timer.data = s;
    s->health = -1;
}

static bool is_checked(const struct service_config *c)
{
    return c->ready.kind != CHECK_NONE && !has_voice(c);
}

/* Whether the present step of its start has a limit. */
static bool is_limited(const struct service *s)
{
    const struct service_config *c = s->config;
    if (s->state == SERVICE_PREPARING)
        return true;
    return c->type == SERVICE_ONESHOT ? c->has_ready_timeout : has_voice(c) || is_checked(c);
}

void service_limit_start(struct service *s)
{
    uint64_t most = s->config->ready_timeout_ms;
    uint64_t spent = (clock_mono_ns() - s->awaited_ns) / 1000000u;
    if (most && is_limited(s))
        service_set_timer(s, spent < most ? most - spent : 0);
    else
        service_stop_timer(s);
}

void service_ready_begin(struct service *s)
{
    if (s->notify)
        notify_started(s->notify);
    s->check_pause_ms = FIRST_PAUSE_MS;
    s->check_words[0] = '\0';
    s->awaited_ns = s->began_ns;
    service_limit_start(s);
    if (is_checked(s->config))
        service_set_check_timer(s, 0);
}

static void become_ready(struct service *s)
{
    service_stop_timer(s);
    ev_timer_stop(s->all->host.loop, &s->check_timer);
    s->is_ready = true;
    s->is_boot = false;
    service_set_state(s, SERVICE_RUNNING, NULL);
    service_health_begin(s);
    service_tell_up(s, NULL);
}

static void step_starting(struct service *s)
{
    const struct service_config *c = s->config;
    if (!s->has_executed || c->type == SERVICE_ONESHOT)
        return;
    if (s->was_ready || (c->type == SERVICE_SIMPLE && c->ready.kind == CHECK_NONE))
        become_ready(s);
    else if (s->has_closed && c->type != SERVICE_NOTIFY && !ev_is_active(&s->check_timer))
        service_end(s, END_NOT_READY);
}

/* RELOADING=1 or STOPPING=1, and READY=1 after it. */
static void step_said(struct service *s)
{
    const char *word;
    if (!has_voice(s->config) || s->is_ready == s->said_ready)
        return;
    s->is_ready = s->said_ready;
    word = s->is_ready ? "ready" : s->doing;
    service_set_state(s, SERVICE_RUNNING, "%s", s->is_ready ? "" : word);
    EVENT(EVENT_SERVICE, word, F_STR("service", s->name), F_INT("pid", service_pid(s)));
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
    s->unhealthy = 0;
    s->health = -1;
}

void service_voice_end(struct service *s)
{
    notify_free(s->notify);
    s->notify = NULL;
}

/* It may be that its program is not even reached yet. One with a voice is looked at as before. */
static void start_changed(struct service *s)
{
    service_limit_start(s);
    if (s->state == SERVICE_PREPARING || has_voice(s->config))
        return;
    stop_checks(s);
    if (is_checked(s->config))
        service_set_check_timer(s, 0);
}

/* A check that is under way has the old configuration. */
void service_settings_changed(struct service *s)
{
    struct error e = {0};
    if (service_log_configure(s->log, s->config, &e) < 0)
        LOG_ERR("service", F_STR("service", s->name), F_STR("why", e.text));
    if (s->state == SERVICE_PREPARING || s->state == SERVICE_STARTING) {
        start_changed(s);
    } else if (s->state == SERVICE_RUNNING) {
        stop_checks(s);
        service_health_begin(s);
    }
    service_mark(s);
}

void service_settings_moved(struct service *s)
{
    const struct service_config *c = s->config;
    if (s->attempt)
        check_moved(s->attempt, s->state == SERVICE_STARTING ? &c->ready : &c->health);
}

/* What it was waited for in vain. */
static void explain_silence(const struct service *s, const char *time, char *buf, size_t size)
{
    const struct service_config *c = s->config;
    bool has_fd = c->ready.kind == CHECK_FD;
    if (c->type == SERVICE_ONESHOT)
        snprintf(buf, size, "not done within %s", time);
    else if (c->type == SERVICE_NOTIFY)
        snprintf(buf, size, "not ready within %s: it sent no READY=1%s%s", time,
                 has_fd ? " and wrote no newline to its descriptor" : "",
                 s->has_closed ? ", which it closed" : "");
    else if (has_fd)
        snprintf(buf, size, "not ready within %s: it wrote no newline to its descriptor %d", time,
                 c->ready.fd);
    else
        snprintf(buf, size, "not ready within %s: %s", time,
                 s->check_words[0] ? s->check_words : "the first check is not over");
}

void service_ready_explain(const struct service *s, char *buf, size_t size)
{
    const struct service_config *c = s->config;
    char time[32];
    if (s->cause == END_UNHEALTHY)
        snprintf(buf, size, "unhealthy (%u of %llu): %s", s->unhealthy,
                 (unsigned long long)c->health_retries, s->check_words);
    else if (s->has_closed && c->type != SERVICE_NOTIFY)
        snprintf(buf, size, "closed descriptor %d without saying that it is ready", c->ready.fd);
    else
        explain_silence(s, number_format_duration(c->ready_timeout_ms, time, sizeof time), buf,
                        size);
}

const char *service_status_text(const struct service *s)
{
    return s->status_text;
}
