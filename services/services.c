/*
 * The set of all services: made, begun, stepped from the loop, settled.
 */
#include "services/service.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/nearest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 64 /* of steps in one turn of the loop */

/* ---- steps ---- */

void services_kick(struct services *all)
{
    ev_feed_event(all->host.loop, &all->kick, EV_TIMER);
}

void service_mark(struct service *s)
{
    if (!s->is_dirty)
        services_kick(s->all);
    s->is_dirty = true;
}

void service_mark_neighbours(struct service *s)
{
    if (!s->node)
        return;
    for (size_t k = 0; k < ORDER_KIND_COUNT; k++)
        for (size_t i = 0; i < s->node->links[k].count; i++)
            service_mark(s->node->links[k].items[i]);
}

void services_mark_all(struct services *all)
{
    list_each(s, &all->services, struct service, link) service_mark(s);
}

/* What is to start is stepped in order, what is to stop against it. */
static bool step_round(struct services *all)
{
    bool any = false;
    size_t n = all->order->count;
    for (size_t i = 0; i < n; i++) {
        struct service *s =
            all->order->sequence[all->is_stopping || all->is_main_ending ? n - 1 - i : i];
        if (!s->is_dirty)
            continue;
        s->is_dirty = false;
        service_step(s);
        any = true;
    }
    return any;
}

/* True if its first start is not over, and nothing but an order keeps it from coming about. */
static bool is_beginning(const struct service *s)
{
    return s->is_boot && !(s->state == SERVICE_WAITING && s->is_blocked);
}

/* True while main has to wait for it. */
static bool is_pending(const struct service *s)
{
    return is_beginning(s) && !s->node->is_after_main;
}

static void check_settled(struct services *all)
{
    if (!all->has_begun || all->has_settled || all->is_stopping)
        return;
    list_each(s, &all->services, struct service, link) if (is_pending(s)) return;
    all->has_settled = true;
    all->host.on_settled(all->host.context);
}

static void on_kick(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct services *all = w->data;
    unsigned rounds = 0;
    all->starts = 0;
    all->is_late = false;
    while (rounds < ROUNDS_MAX && step_round(all))
        rounds++;
    services_remove_left(all);
    services_forget_retired(all, false);
    check_settled(all);
    services_check_stopped(all);
    if (all->is_late || rounds == ROUNDS_MAX)
        ev_timer_start(loop, w);
}

/* ---- one of them ---- */

struct service *service_make(struct services *all, const struct service_config *c, struct error *e)
{
    struct service *s = calloc(1, sizeof *s);
    if (!s) {
        error_set(e, ERR_MEMORY, "services: no memory");
        return NULL;
    }
    s->log = service_log_new(all->host.loop, all->host.sessions->log_feed, c, e);
    if (!s->log) {
        free(s);
        return NULL;
    }
    s->all = all;
    s->config = s->next = c;
    snprintf(s->name, sizeof s->name, "%s", c->name);
    snprintf(s->mark, sizeof s->mark, SERVICE_MARK_NAME "%s", c->name);
    list_init(&s->link);
    list_init(&s->up_wishes);
    list_init(&s->down_wishes);
    ev_timer_init(&s->timer, service_on_timer, 0., 0.);
    s->timer.data = s;
    service_ready_init(s);
    return s;
}

/* Nobody hears of it any more; its processes are somebody else's to end. */
void service_delete(struct service *s)
{
    service_stop_timer(s);
    service_ready_stop(s);
    service_voice_end(s);
    if (s->teardown)
        teardown_cancel(s->teardown);
    if (s->child)
        child_forget(s->child);
    if (s->hook)
        child_forget(s->hook);
    while (!list_is_empty(&s->up_wishes))
        list_remove(s->up_wishes.next);
    while (!list_is_empty(&s->down_wishes))
        list_remove(s->down_wishes.next);
    service_log_free(s->log);
    cgroup_remove(&s->cgroup);
    list_remove(&s->link);
    free(s);
}

/* ---- all of them ---- */

/* The order of all that are in the list. NULL with *e. */
struct order *services_make_order(struct list *services, struct error *e)
{
    size_t count = 0;
    list_each(s, services, struct service, link) count++;
    struct order_node *nodes = calloc(count + 1, sizeof *nodes);
    if (!nodes) {
        error_set(e, ERR_MEMORY, "services: no memory for their order");
        return NULL;
    }
    count = 0;
    list_each(s, services, struct service, link) nodes[count++] =
        (struct order_node){.service = s, .config = s->next, .is_leaving = s->is_leaving};
    return order_new(nodes, count, e);
}

void services_use_order(struct services *all, struct order *order)
{
    order_free(all->order);
    all->order = order;
    for (size_t i = 0; i < order->count; i++)
        order->nodes[i].service->node = &order->nodes[i];
}

struct services *services_new(const struct services_host *host, const struct config *config,
                              struct error *e)
{
    struct services *all = calloc(1, sizeof *all);
    if (!all) {
        error_set(e, ERR_MEMORY, "services: no memory");
        return NULL;
    }
    all->host = *host;
    list_init(&all->services);
    list_init(&all->retired);
    ev_timer_init(&all->kick, on_kick, 0., 0.);
    all->kick.data = all;
    services_init_stop(all);
    for (size_t i = 0; i < config->service_count; i++) {
        struct service *s = service_make(all, &config->services[i], e);
        if (!s) {
            services_free(all);
            return NULL;
        }
        list_append(&all->services, &s->link);
    }
    struct order *order = services_make_order(&all->services, e);
    if (!order) {
        services_free(all);
        return NULL;
    }
    services_use_order(all, order);
    return all;
}

void services_begin(struct services *all, bool has_main)
{
    all->has_begun = true;
    all->has_main = has_main;
    all->has_main_begun = !has_main;
    all->has_settled = all->order->count == 0;
    if (all->has_settled)
        return;
    list_each(s, &all->services, struct service, link)
    {
        if (!s->next->autostart)
            continue;
        service_want(s);
    }
    list_each(s, &all->services, struct service, link) s->is_boot = s->is_wanted;
    services_kick(all);
}

void services_main_began(struct services *all)
{
    all->has_main_begun = true;
    services_mark_all(all);
}

size_t services_count(const struct services *all)
{
    return all->order->count;
}

bool services_any(const struct services *all)
{
    list_each(s, &all->services, struct service,
              link) if (service_is_live(s) && !s->is_given_up) return true;
    return false;
}

bool services_have_set_up(const struct services *all)
{
    list_each(s, &all->services, struct service,
              link) if (is_beginning(s) && s->next->type == SERVICE_ONESHOT) return true;
    return false;
}

void services_free(struct services *all)
{
    if (!all)
        return;
    ev_clear_pending(all->host.loop, &all->kick);
    ev_timer_stop(all->host.loop, &all->kick);
    ev_timer_stop(all->host.loop, &all->stop_timer);
    list_each(s, &all->services, struct service, link) service_delete(s);
    order_free(all->order);
    services_forget_retired(all, true);
    free(all);
}

/* ---- finding ---- */

struct service *services_look_up(const struct services *all, const char *name)
{
    list_each(s, &all->services, struct service, link) if (strcmp(s->name, name) == 0) return s;
    return NULL;
}

/* For nearest_word(). */
static const char *name_of(const void *context, size_t i)
{
    const struct services *all = context;
    list_each(s, &all->services, struct service, link) if (i-- == 0) return s->name;
    return NULL;
}

struct service *service_find(struct services *all, const char *name, struct error *e)
{
    struct service *s = services_look_up(all, name);
    if (s)
        return s;
    const char *nearest = nearest_word(name, name_of, all);
    if (nearest)
        error_set(e, ERR_NOT_FOUND, "service '%.80s': not found; did you mean '%s'?", name,
                  nearest);
    else
        error_set(e, ERR_NOT_FOUND, "service '%.80s': not found (see: sandboxctl service list)",
                  name);
    return NULL;
}

void services_each(struct services *all, bool (*each)(void *context, struct service *s),
                   void *context)
{
    list_each(s, &all->services, struct service, link) if (!each(context, s)) return;
}
