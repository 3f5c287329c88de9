/*
 * The state machine: one step of one service, from the facts that were recorded. It runs from the
 * loop, whenever a fact of the service or the state of one next to it has changed.
 */
#include "services/service.h"
#include "base/log.h"

#include <stdio.h>

#define STARTS_A_TURN 16   /* forks, so that clients are served in between */
#define LAST_LOOK_S   0.01 /* for what came in time and is not seen yet */

/* The loop tells that a time is over before it tells what came meanwhile: where init itself was
 * held up, a start may well have been in time. */
void service_on_timer(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct service *s = w->data;
    bool is_start = s->state == SERVICE_PREPARING || s->state == SERVICE_STARTING;
    if (is_start && !s->is_last_look) {
        s->is_last_look = true;
        ev_timer_set(w, LAST_LOOK_S, 0.);
        ev_timer_start(loop, w);
        return;
    }
    s->time_is_up = true;
    service_mark(s);
}

/* An order has brought it to rest, and with that its first start is over, too: nobody waits for it
 * any more. */
static void rest(struct service *s, const char *words)
{
    s->is_due = s->is_ready = s->is_blocked = s->is_boot = false;
    service_set_state(s, SERVICE_STOPPED, "%s", words);
    service_settle_orders(s);
}

/* ---- waiting ---- */

/* True if it will not be up unless somebody orders it. */
static bool is_lost(const struct service *s)
{
    switch (s->state) {
    case SERVICE_STOPPED:
    case SERVICE_FATAL:
        return !(s->is_wanted && s->is_due);
    case SERVICE_EXITED:
        return !s->is_ready && !s->is_due;
    case SERVICE_WAITING:
        return s->is_blocked;
    case SERVICE_PREPARING:
    case SERVICE_STARTING:
    case SERVICE_RUNNING:
    case SERVICE_DELAYED:
    case SERVICE_STOPPING:
    case SERVICE_STATE_COUNT:
        break;
    }
    return false;
}

/* True if it is on its way up: who comes after it waits. */
static bool is_coming(const struct service *s)
{
    switch (s->state) {
    case SERVICE_WAITING:
        return !s->is_blocked;
    case SERVICE_PREPARING:
    case SERVICE_STARTING:
        return true;
    case SERVICE_STOPPED:
    case SERVICE_FATAL:
    case SERVICE_EXITED:
        return s->is_wanted && s->is_due;
    case SERVICE_STOPPING:
        return s->is_wanted;
    case SERVICE_RUNNING:
    case SERVICE_DELAYED:
    case SERVICE_STATE_COUNT:
        break;
    }
    return false;
}

/* Why not, in a few words. */
static const char *reason(const struct service *r, char *buf, size_t size)
{
    if (r->state == SERVICE_RUNNING)
        snprintf(buf, size, "not ready");
    else if (r->words[0] && r->state != SERVICE_DELAYED)
        snprintf(buf, size, "%s, %.150s", service_state_name(r->state), r->words);
    else
        snprintf(buf, size, "%s", service_state_name(r->state));
    return buf;
}

/* Whom it waits for; NULL: nobody. *is_need: it requires that one. */
static const struct service *find_awaited(const struct service *s, bool *is_need, bool *is_blocked)
{
    const struct order_links *needs = &s->node->links[ORDER_NEEDS];
    const struct order_links *follows = &s->node->links[ORDER_FOLLOWS];
    const struct service *awaited = NULL;
    *is_need = *is_blocked = false;
    for (size_t i = 0; i < needs->count; i++) {
        const struct service *r = needs->items[i];
        if (service_is_up(r))
            continue;
        if (is_lost(r))
            *is_blocked = true;
        if (!awaited || is_lost(r))
            awaited = r;
        *is_need = true;
        if (*is_blocked)
            return awaited;
    }
    for (size_t i = 0; !awaited && i < follows->count; i++)
        if (is_coming(follows->items[i]))
            awaited = follows->items[i];
    return awaited;
}

static bool comes_after_main(const struct service *s)
{
    const struct name_list *after = &s->next->after;
    for (size_t i = 0; i < after->count; i++)
        if (strcmp(after->items[i], SERVICE_MAIN) == 0)
            return true;
    return false;
}

static void set_blocked(struct service *s, bool is_blocked)
{
    struct error e;
    if (s->is_blocked == is_blocked)
        return;
    s->is_blocked = is_blocked;
    service_mark_neighbours(s);
    if (!is_blocked)
        return;
    error_set(&e, ERR_STATE, "service '%s': %s", s->name, s->words);
    LOG_WRN("service", F_STR("service", s->name), F_STR("state", "waiting"),
            F_STR("message", s->words));
    service_tell_up(s, &e);
}

static void step_waiting(struct service *s)
{
    char why[200];
    bool is_need, is_blocked;
    if (!s->is_wanted || service_is_stopping(s)) {
        rest(s, "stopped before it was started");
        return;
    }
    const struct service *r = find_awaited(s, &is_need, &is_blocked);
    if (r) {
        service_set_state(s, SERVICE_WAITING, "%s %s: %s", is_blocked ? "requires" : "waits for",
                          r->name, reason(r, why, sizeof why));
        set_blocked(s, is_blocked);
        return;
    }
    set_blocked(s, false);
    if (!s->all->has_main_begun && comes_after_main(s)) {
        service_set_state(s, SERVICE_WAITING, "waits for the main command");
        return;
    }
    if (s->all->starts >= STARTS_A_TURN) {
        s->is_dirty = s->all->is_late = true;
        return;
    }
    s->all->starts++;
    service_begin(s);
}

/* ---- running ---- */

/* What it requires is being stopped or restarted by an order: it ends first. It also ends with one
 * whose process was gone already when the order came; but a oneshot that is done has nothing to
 * stop. */
static bool loses_support(const struct service *s)
{
    const struct order_links *needs = &s->node->links[ORDER_NEEDS];
    for (size_t i = 0; i < needs->count; i++) {
        const struct service *r = needs->items[i];
        if ((r->state == SERVICE_STOPPING && r->cause == END_ORDER) ||
            (r->state == SERVICE_STOPPED && !r->is_wanted && r->config->type != SERVICE_ONESHOT))
            return true;
    }
    return false;
}

static bool must_end(const struct service *s)
{
    return service_is_stopping(s) || !s->is_wanted || s->is_due || loses_support(s);
}

static void step_preparing(struct service *s)
{
    char words[SERVICE_WORDS];
    if (must_end(s)) {
        service_end(s, END_ORDER);
    } else if (s->hook_is_over && s->hook_status == 0) {
        service_stop_timer(s);
        service_launch(s);
    } else if (s->hook_is_over) {
        snprintf(words, sizeof words, "pre_start: %s", s->hook_words);
        service_not_begun(s, "pre_start", 0, s->hook_status, words);
    } else if (s->time_is_up) {
        snprintf(words, sizeof words, "pre_start: not over within %.1f s",
                 (double)s->config->ready_timeout_ms / 1000.);
        service_not_begun(s, "pre_start", 0, STATUS_TIMEOUT, words);
    }
}

static void step_running(struct service *s)
{
    if (s->child_is_over)
        service_end(s, must_end(s) ? END_ORDER : s->has_executed ? END_ITSELF : END_NOT_BEGUN);
    else if (must_end(s))
        service_end(s, END_ORDER);
    else if (s->state == SERVICE_STARTING && s->time_is_up)
        service_end(s, END_NOT_READY);
    else
        service_ready_step(s);
}

/* ---- at rest ---- */

static void step_at_rest(struct service *s)
{
    if (s->is_leaving || service_is_stopping(s))
        s->is_wanted = false;
    if (!s->is_wanted) {
        rest(s, s->words);
    } else if (s->is_due) {
        s->is_due = s->is_ready = false;
        s->is_blocked = false;
        service_set_state(s, SERVICE_WAITING, NULL);
    }
}

static void step_delayed(struct service *s)
{
    if (!s->is_wanted || service_is_stopping(s)) {
        service_stop_timer(s);
        rest(s, s->end_words);
    } else if (s->is_due || s->time_is_up) {
        service_stop_timer(s);
        s->is_due = false;
        s->is_blocked = false;
        service_set_state(s, SERVICE_WAITING, NULL);
    }
}

void service_step(struct service *s)
{
    switch (s->state) {
    case SERVICE_STOPPED:
    case SERVICE_EXITED:
    case SERVICE_FATAL:
        step_at_rest(s);
        break;
    case SERVICE_WAITING:
        step_waiting(s);
        break;
    case SERVICE_PREPARING:
        step_preparing(s);
        break;
    case SERVICE_STARTING:
    case SERVICE_RUNNING:
        step_running(s);
        break;
    case SERVICE_DELAYED:
        step_delayed(s);
        break;
    case SERVICE_STOPPING:
        service_end_step(s);
        break;
    case SERVICE_STATE_COUNT:
        break;
    }
}
