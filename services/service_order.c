/*
 * What clients order, and who waits for it. An order only says what is wanted; the state machine
 * brings it about, whoever gave the order may be gone by then.
 */
#include "services/service.h"

#include <signal.h>

/* ---- wishes ---- */

static void take_all(struct list *from, struct list *to)
{
    list_init(to);
    while (!list_is_empty(from)) {
        struct list *w = from->next;
        list_remove(w);
        list_append(to, w);
    }
}

static void tell(struct service *s, struct list *wishes, const struct error *e)
{
    struct list now;
    take_all(wishes, &now);
    while (!list_is_empty(&now)) {
        struct service_wish *w = list_entry(now.next, struct service_wish, link);
        list_remove(&w->link);
        w->on_done(w->owner, s, e);
    }
}

void service_tell_up(struct service *s, const struct error *e)
{
    tell(s, &s->up_wishes, e);
}

void service_tell_down(struct service *s, const struct error *e)
{
    tell(s, &s->down_wishes, e);
}

void service_settle_orders(struct service *s)
{
    struct error e;
    error_set(&e, ERR_STATE, "service '%s' was stopped before it was ready", s->name);
    service_tell_up(s, &e);
    service_tell_down(s, NULL);
}

void service_wish_drop(struct service_wish *wish)
{
    if (wish->link.next)
        list_remove(&wish->link);
}

static void add_wish(struct list *to, struct service_wish *wish)
{
    if (wish)
        list_append(to, &wish->link);
}

static int check_open(const struct service *s, struct error *e)
{
    if (service_is_stopping(s))
        return error_set(e, ERR_UNAVAILABLE, "service '%s': init is stopping", s->name);
    if (s->is_leaving)
        return error_set(e, ERR_STATE, "service '%s' is no longer in the configuration", s->name);
    return 0;
}

/* ---- orders ---- */

static void refuse_down(struct service *s)
{
    struct error e;
    error_set(&e, ERR_STATE, "service '%s' was ordered to start again", s->name);
    service_tell_down(s, &e);
}

/* It has ended by itself, and what is left of it is being cleared away: then it will not be up. */
static bool is_coming_to_rest(const struct service *s)
{
    bool is_done = s->config->type == SERVICE_ONESHOT && s->is_success;
    return s->state == SERVICE_STOPPING && s->cause != END_ORDER &&
           s->answer.word != POLICY_AGAIN && !is_done;
}

static void want_one(struct service *s)
{
    refuse_down(s);
    bool is_at_rest = s->state == SERVICE_STOPPED || s->state == SERVICE_FATAL ||
                      (s->state == SERVICE_EXITED && !s->is_ready) || is_coming_to_rest(s);
    /* A stop in the same turn has not been seen yet: it is carried out all the same. */
    bool is_ending = !s->is_wanted && (s->state == SERVICE_PREPARING ||
                                       s->state == SERVICE_STARTING || s->state == SERVICE_RUNNING);
    if (is_at_rest || is_ending)
        s->is_due = true;
    if (is_at_rest || !s->is_wanted)
        policy_reset(&s->policy);
    s->is_wanted = true;
    s->is_kept_off = false;
    service_mark(s);
}

/* What it requires is wanted as well, and what that requires: the sequence has each in front of all
 * that require it. */
void service_want(struct service *s)
{
    struct order *o = s->all->order;
    s->is_pulled = true;
    for (size_t i = s->node->rank + 1; i-- > 0;) {
        struct service *each = o->sequence[i];
        if (!each->is_pulled)
            continue;
        each->is_pulled = false;
        want_one(each);
        const struct order_links *needs = &each->node->links[ORDER_NEEDS];
        for (size_t k = 0; k < needs->count; k++)
            needs->items[k]->is_pulled = true;
    }
}

int service_start(struct service *s, struct service_wish *wish, struct error *e)
{
    if (check_open(s, e) < 0)
        return -1;
    add_wish(&s->up_wishes, wish);
    /* One that is up, or on its way there, stays so; what is done, or ends, or waits, begins anew.
     */
    bool is_done =
        s->state == SERVICE_EXITED || s->state == SERVICE_STOPPING || s->state == SERVICE_DELAYED;
    service_want(s);
    if (is_done) {
        policy_reset(&s->policy);
        s->is_due = true;
    }
    if (s->state == SERVICE_RUNNING && s->is_ready && !s->is_due)
        service_tell_up(s, NULL);
    return 0;
}

int service_stop(struct service *s, struct service_wish *wish, struct error *e)
{
    (void)e;
    add_wish(&s->down_wishes, wish);
    s->is_wanted = s->is_due = false;
    s->is_kept_off = true;
    service_mark(s);
    return 0;
}

int service_restart(struct service *s, struct service_wish *wish, struct error *e)
{
    if (check_open(s, e) < 0)
        return -1;
    add_wish(&s->up_wishes, wish);
    service_want(s);
    policy_reset(&s->policy);
    s->is_due = true;
    return 0;
}

int service_reload(struct service *s, struct service_wish *wish, struct error *e)
{
    if (check_open(s, e) < 0)
        return -1;
    if (!s->config->reload_signal)
        return service_restart(s, wish, e);
    /* Before its program is reached the signal would end it, and there is nothing to read anew. */
    bool is_reached = !s->child || s->has_executed;
    if (is_reached && service_signal(s, s->config->reload_signal, false, e) < 0)
        return -1;
    add_wish(&s->up_wishes, wish);
    if (wish && service_is_up(s)) {
        list_remove(&wish->link);
        wish->on_done(wish->owner, s, NULL);
    }
    return 0;
}
