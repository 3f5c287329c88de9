/*
 * Whether a service is ready, and whether it is healthy.
 */
#include "services/services_internal.h"

#include <stdio.h>

static bool waits_for_word(const struct service *s)
{
    (void)s;
    return false;
}

void service_ready_begin(struct service *s)
{
    if (waits_for_word(s) && s->config->ready_timeout_ms)
        service_set_timer(s, s->config->ready_timeout_ms);
}

void service_become_ready(struct service *s)
{
    service_stop_timer(s);
    s->is_ready = true;
    s->is_boot = false;
    service_set_state(s, SERVICE_RUNNING, NULL);
    service_mark_neighbours(s);
    service_tell_up(s, NULL);
}

void service_ready_step(struct service *s)
{
    if (s->state == SERVICE_STARTING && s->has_executed && s->config->type == SERVICE_SIMPLE)
        service_become_ready(s);
}

void service_ready_stop(struct service *s)
{
    (void)s;
}

void service_settings_changed(struct service *s)
{
    (void)s;
}

void service_ready_explain(const struct service *s, char *buf, size_t size)
{
    snprintf(buf, size, "not ready within %.1f s", (double)s->config->ready_timeout_ms / 1000.);
}

const char *service_status_text(const struct service *s)
{
    (void)s;
    return "";
}
