/*
 * Whether a service that is ready stays well: its `health` check, every health_interval. So many
 * failures in a row and it is restarted. A check that init could not even begin says nothing of the
 * service, and while it says itself that it is not ready it is not looked at.
 */
#include "services/service.h"
#include "base/log.h"
#include "sessions/events.h"

#define CHECK_MAX_MS 30000 /* that one may take, however long the interval */

void service_health_begin(struct service *s)
{
    if (s->is_ready && s->health == 0) /* what an earlier check said is over */
        service_set_state(s, SERVICE_RUNNING, NULL);
    s->unhealthy = 0;
    s->health = -1;
    if (s->config->health.kind != CHECK_NONE)
        service_set_check_timer(s, s->config->health_interval_ms);
}

void service_health_look(struct service *s)
{
    const struct service_config *c = s->config;
    uint64_t most = c->health_interval_ms < CHECK_MAX_MS ? c->health_interval_ms : CHECK_MAX_MS;
    if (!s->is_ready || !service_check(s, &c->health, most))
        service_set_check_timer(s, c->health_interval_ms);
}

/* Told when it changes, not each time. */
static void tell(struct service *s, bool is_change)
{
    const char *word = s->health ? "healthy" : "unhealthy";
    if (s->health)
        service_set_state(s, SERVICE_RUNNING, NULL);
    else
        service_set_state(s, SERVICE_RUNNING, "unhealthy (%u of %llu): %s", s->unhealthy,
                          (unsigned long long)s->config->health_retries, s->check_words);
    if (!is_change)
        return;
    EVENT(EVENT_SERVICE, word, F_STR("service", s->name), F_INT("pid", service_pid(s)),
          F_STR("message", s->health ? NULL : s->words));
    LOG_EVENT(s->health ? LOG_INFO : LOG_WARN, "service", F_STR("service", s->name),
              F_STR("state", word), F_STR("message", s->health ? NULL : s->words));
}

void service_health_checked(struct service *s, bool is_ok)
{
    int before = s->health;
    if (s->is_ready) {
        s->health = is_ok;
        s->unhealthy = is_ok ? 0 : s->unhealthy + 1;
        tell(s, before != s->health);
    }
    if (s->unhealthy >= s->config->health_retries)
        service_mark(s);
    else
        service_set_check_timer(s, s->config->health_interval_ms);
}
