#include "services/policy.h"

#include <limits.h>
#include <string.h>

#define NS_PER_MS 1000000u
#define LONG_MS   1000 /* no run is a good one before */
#define FLOOR_MS  100  /* from the second quick end on: no delay is no storm */

void policy_reset(struct policy *p)
{
    memset(p, 0, sizeof *p);
}

bool policy_is_success(const struct service_config *c, int status)
{
    if (status < 0 || status >= SERVICE_CODES)
        return false;
    return status == 0 || (c->success_codes[status / 8] >> (status % 8) & 1);
}

static bool wants_again(const struct service_config *c, bool is_success)
{
    if (c->type == SERVICE_ONESHOT && is_success)
        return false;
    switch (c->restart) {
    case RESTART_ALWAYS:
        return true;
    case RESTART_ON_FAILURE:
        return !is_success;
    case RESTART_NEVER:
        return false;
    }
    return false;
}

/* A window begins with the first restart in it. */
static bool has_too_many(struct policy *p, const struct service_config *c, uint64_t now_ns)
{
    if (c->restart_max == 0)
        return false;
    if (p->window_ns == 0 || now_ns - p->window_ns >= c->restart_window_ms * NS_PER_MS) {
        p->window_ns = now_ns;
        p->count = 0;
    }
    if (p->count >= c->restart_max)
        return true;
    p->count++;
    return false;
}

static uint64_t delay_of(const struct policy *p, const struct service_config *c)
{
    uint64_t delay = c->restart_delay_ms;
    if (p->failures > 0 && delay < FLOOR_MS)
        delay = FLOOR_MS;
    for (unsigned i = 0; i < p->failures && delay < c->restart_backoff_ms; i++)
        delay = delay > c->restart_backoff_ms / 2 ? c->restart_backoff_ms : delay * 2;
    return delay;
}

/* A run that lasts as long as the longest delay was a good one: the delays start over. */
static bool has_lasted(const struct service_config *c, uint64_t began_ns, uint64_t now_ns)
{
    uint64_t long_ms = LONG_MS;
    if (long_ms < c->restart_backoff_ms)
        long_ms = c->restart_backoff_ms;
    if (long_ms < c->restart_delay_ms)
        long_ms = c->restart_delay_ms;
    return began_ns > 0 && now_ns - began_ns >= long_ms * NS_PER_MS;
}

struct policy_answer policy_decide(struct policy *p, const struct service_config *c,
                                   bool is_success, uint64_t began_ns, uint64_t now_ns)
{
    struct policy_answer a = {.word = POLICY_DONE};
    if (!wants_again(c, is_success)) {
        if (!is_success && (began_ns == 0 || c->type == SERVICE_ONESHOT))
            a.word = POLICY_FATAL;
        return a;
    }
    if (has_lasted(c, began_ns, now_ns))
        p->failures = 0;
    if (has_too_many(p, c, now_ns)) {
        a.word = POLICY_FATAL;
        return a;
    }
    a.word = POLICY_AGAIN;
    a.delay_ms = delay_of(p, c);
    if (p->failures < UINT_MAX)
        p->failures++;
    p->restarts_all++;
    return a;
}
