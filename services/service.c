/*
 * What can be asked of a service; its states, and what it says of itself in words.
 */
#include "services/service.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "sessions/events.h"
#include "sessions/proc.h"
#include "sessions/tree.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const state_names[] = {
    [SERVICE_STOPPED] = "stopped",     [SERVICE_WAITING] = "waiting",
    [SERVICE_PREPARING] = "preparing", [SERVICE_STARTING] = "starting",
    [SERVICE_RUNNING] = "running",     [SERVICE_DELAYED] = "delayed",
    [SERVICE_STOPPING] = "stopping",   [SERVICE_EXITED] = "exited",
    [SERVICE_FATAL] = "fatal",
};
_Static_assert(sizeof(state_names) / sizeof(state_names[0]) == SERVICE_STATE_COUNT, "all named");

const char *service_state_name(enum service_state s)
{
    return state_names[s];
}

/* What happens all the time is for the one who looks for it. */
static enum log_level level_of(enum service_state s)
{
    switch (s) {
    case SERVICE_FATAL:
        return LOG_ERROR;
    case SERVICE_DELAYED:
        return LOG_WARN;
    case SERVICE_STOPPED:
    case SERVICE_RUNNING:
    case SERVICE_EXITED:
        return LOG_INFO;
    case SERVICE_WAITING:
    case SERVICE_PREPARING:
    case SERVICE_STARTING:
    case SERVICE_STOPPING:
    case SERVICE_STATE_COUNT:
        break;
    }
    return LOG_DEBUG;
}

static void tell_state(const struct service *s)
{
    char signal[16];
    bool has_ended = s->has_outcome && !s->child && s->state != SERVICE_WAITING &&
                     s->state != SERVICE_PREPARING && s->state != SERVICE_STARTING;
    const struct log_field fields[] = {
        F_STR("service", s->name),
        F_STR("state", state_names[s->state]),
        F_STR("message", s->words[0] ? s->words : NULL),
        F_INT("pid", s->child ? s->child->pid : 0),
        F_INT("status", s->outcome.status),
        F_STR("signal", has_ended && s->outcome.signal
                            ? signal_name(s->outcome.signal, signal, sizeof signal)
                            : NULL),
    };
    unsigned n = has_ended ? 6 : s->child ? 4 : 3;
    struct log_field told[6];
    unsigned k = 0;
    for (unsigned i = 0; i < n; i++)
        if (i != 1 && !(i == 3 && !s->child)) /* an event has its state as its word */
            told[k++] = fields[i];
    event_emit(EVENT_SERVICE, state_names[s->state], told, k);
    log_write(level_of(s->state), "service", fields, n);
}

void service_set_state(struct service *s, enum service_state state, const char *words, ...)
{
    bool is_new = s->state != state;
    char text[SERVICE_WORDS] = "";
    if (words) {
        va_list args;
        va_start(args, words);
        vsnprintf(text, sizeof text, words, args);
        va_end(args);
    }
    memcpy(s->words, text, sizeof text);
    if (!is_new)
        return;
    s->state = state;
    tell_state(s);
    service_mark(s);
    service_mark_neighbours(s);
}

void service_set_timer(struct service *s, uint64_t ms)
{
    service_stop_timer(s);
    if (ms == UINT64_MAX)
        return;
    ev_now_update(s->all->host.loop); /* a delay begins now, not when this turn of the loop did */
    ev_timer_set(&s->timer, (double)ms / 1000., 0.);
    ev_timer_start(s->all->host.loop, &s->timer);
}

void service_stop_timer(struct service *s)
{
    ev_timer_stop(s->all->host.loop, &s->timer);
    s->time_is_up = s->is_last_look = false;
}

bool service_is_live(const struct service *s)
{
    return s->child || s->hook || s->teardown || s->state == SERVICE_STOPPING;
}

bool service_is_up(const struct service *s)
{
    return s->is_ready && (s->state == SERVICE_RUNNING || s->state == SERVICE_EXITED);
}

const char *outcome_words(const struct outcome *o, char *buf, size_t size)
{
    char name[16];
    if (o->verdict == VERDICT_SPAWN_FAILED)
        snprintf(buf, size, "%s", o->message);
    else if (o->signal)
        snprintf(buf, size, "killed by %s", signal_name(o->signal, name, sizeof name));
    else
        snprintf(buf, size, "exited with %d", o->status);
    return buf;
}

/* ---- what others ask ---- */

const char *service_name(const struct service *s)
{
    return s->name;
}

const struct service_config *service_configuration(const struct service *s)
{
    return s->config;
}

enum service_state service_state(const struct service *s)
{
    return s->state;
}

/* The time that is left is told as it is now. */
const char *service_explain_delay(const struct service *s)
{
    uint64_t now = clock_mono_ns();
    double left = s->wake_ns > now ? (double)(s->wake_ns - now) / 1e9 : 0.;
    char count[48] = "";
    if (s->config->restart_max)
        snprintf(count, sizeof count, " (restart %u of %llu)", s->policy.count,
                 (unsigned long long)s->config->restart_max);
    snprintf(s->all->words, sizeof s->all->words, "%.200s, again in %.1f s%s", s->end_words, left,
             count);
    return s->all->words;
}

/* It runs on though what it requires has failed since. */
static const char *explain_need(const struct service *s)
{
    const struct order_links *needs = &s->node->links[ORDER_NEEDS];
    for (size_t i = 0; i < needs->count; i++) {
        const struct service *r = needs->items[i];
        if (service_is_up(r))
            continue;
        snprintf(s->all->words, sizeof s->all->words, "%s, which it requires, is %s%s%.150s",
                 r->name, state_names[r->state], r->words[0] ? ": " : "", r->words);
        return s->all->words;
    }
    return s->words;
}

/* One that has stopped itself, or was stopped, does nothing and tells nobody. */
static bool is_stopped(const struct service *s)
{
    struct proc_stat stat;
    return s->child && proc_stat_read(s->child->pid, &stat) == 0 && proc_is_stopped(&stat);
}

const char *service_explain(const struct service *s)
{
    if (is_stopped(s) && (s->state == SERVICE_RUNNING || s->state == SERVICE_STARTING)) {
        snprintf(s->all->words, sizeof s->all->words,
                 "stopped by a signal: `sandboxctl service signal CONT %s` lets it go on", s->name);
        return s->all->words;
    }
    if (s->state == SERVICE_RUNNING && !s->words[0])
        return explain_need(s);
    return s->state == SERVICE_DELAYED ? service_explain_delay(s) : s->words;
}

pid_t service_pid(const struct service *s)
{
    return s->child ? s->child->pid : 0;
}

uint64_t service_began_ns(const struct service *s)
{
    return s->began_ns;
}

uint64_t service_ended_ns(const struct service *s)
{
    return s->ended_ns;
}

unsigned service_restarts(const struct service *s)
{
    return s->policy.restarts_all;
}

bool service_is_ready(const struct service *s)
{
    return service_is_up(s);
}

int service_is_healthy(const struct service *s)
{
    return s->health;
}

const struct outcome *service_outcome(const struct service *s)
{
    return s->has_outcome ? &s->outcome : NULL;
}

struct output *service_output(struct service *s)
{
    return service_log_output(s->log);
}

uint64_t service_lines_dropped(const struct service *s, const char **why)
{
    return service_log_dropped(s->log, why);
}
