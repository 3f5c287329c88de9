/*
 * Another configuration comes into force: what is new begins, what is gone ends, what differs is
 * restarted, signalled or only told. Everything that can fail is done before anything changes.
 *
 * A run goes on with the configuration that it was started with, so that it ends by its own stop
 * settings: an old one is kept until the last such run is over.
 */
#include "services/service.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A configuration that is no longer in force and that some run still has. */
struct retired {
    struct list link;
    struct config *config;
};

/* ---- what is gone ---- */

static bool is_gone(const struct service *s)
{
    return s->is_leaving && s->state == SERVICE_STOPPED && !service_is_live(s);
}

void services_remove_left(struct services *all)
{
    struct error e = {0};
    struct list gone;
    list_init(&gone);
    list_each(s, &all->services, struct service, link)
    {
        if (!is_gone(s))
            continue;
        list_remove(&s->link);
        list_append(&gone, &s->link);
    }
    if (list_is_empty(&gone))
        return;
    struct order *order = services_make_order(&all->services, &e);
    if (order)
        services_use_order(all, order);
    list_each(s, &gone, struct service, link)
    {
        if (order) {
            service_delete(s);
            continue;
        }
        list_remove(&s->link); /* no memory: it is tried again after the next step of anybody */
        list_append(&all->services, &s->link);
    }
    services_forget_retired(all, false);
}

static bool has_user(const struct services *all, const struct config *c)
{
    const struct service_config *end = c->services + c->service_count;
    list_each(s, &all->services, struct service, link)
    {
        if ((s->config >= c->services && s->config < end) ||
            (s->next >= c->services && s->next < end))
            return true;
    }
    return false;
}

void services_forget_retired(struct services *all, bool all_of_them)
{
    list_each(r, &all->retired, struct retired, link)
    {
        if (!all_of_them && has_user(all, r->config))
            continue;
        list_remove(&r->link);
        config_free(r->config);
        free(r);
    }
}

/* ---- what a new one changes ---- */

struct telling {
    void (*told)(void *context, const char *what, const char *needs);
    void *context;
};

static void tell(const struct telling *t, const struct service *s, const char *what)
{
    char text[SERVICE_NAME_MAX + 80];
    snprintf(text, sizeof text, "[service:%s] %s", s->name, what);
    t->told(t->context, text, NULL);
}

/* Between two runs the settings of the next one count at once. */
static bool is_at_rest(const struct service *s)
{
    return !service_is_live(s) && s->state != SERVICE_STARTING && s->state != SERVICE_RUNNING;
}

static void leave(struct service *s, const struct telling *t)
{
    if (s->is_leaving)
        return;
    tell(t, s, "removed");
    s->is_leaving = true;
    s->is_wanted = s->is_due = s->is_boot = false;
    service_mark(s);
}

static bool has_name(const struct name_list *l, const char *name)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->items[i], name) == 0)
            return true;
    return false;
}

/* One that only starts when it is required starts now; one that was required before, and stopped by
 * an order, stays so. */
static void want_newly_required(const struct service *s, const struct service_config *old)
{
    const struct order_links *needs = &s->node->links[ORDER_NEEDS];
    for (size_t i = 0; i < needs->count; i++) {
        struct service *r = needs->items[i];
        if (!r->is_wanted && !has_name(&old->requires, r->name))
            service_want(r);
    }
}

/* The settings of the present run, or of the last one, are now those of the new file. A run that is
 * about to end for an earlier reload keeps what it was started with. False: this is one. */
static bool take_settings(struct service *s, const struct service_config *old,
                          const struct service_config *fresh, bool is_running)
{
    bool has_old = s->config == old;
    if (is_running && !(has_old && service_config_same_process(old, fresh)))
        return false;
    s->config = fresh;
    if (has_old && service_config_equal(old, fresh))
        service_settings_moved(s);
    else
        service_settings_changed(s);
    return true;
}

/* It is not to run: nobody has started it, or an order stopped it. */
static void change_stopped(struct service *s, const struct service_config *old,
                           const struct service_config *fresh, const struct telling *t)
{
    bool is_turned_on = fresh->autostart && !old->autostart;
    if (is_turned_on && !s->is_kept_off) {
        tell(t, s, "changed: started");
        service_want(s);
    } else if (is_turned_on) {
        tell(t, s, "changed: not started, since an order stopped it");
    } else {
        tell(t, s, "changed");
    }
}

static void change(struct service *s, const struct service_config *fresh, const struct telling *t)
{
    const struct service_config *old = s->next;
    bool is_running = !is_at_rest(s);
    s->next = fresh;
    bool is_taken = take_settings(s, old, fresh, is_running);
    if (service_config_equal(old, fresh))
        return;
    if (!s->is_wanted) {
        change_stopped(s, old, fresh, t);
        return;
    }
    want_newly_required(s, old);
    if (!service_config_same_process(old, fresh)) {
        tell(t, s, is_running ? "changed: restarted" : "changed: started anew");
        policy_reset(&s->policy);
        s->is_due = true;
    } else if (is_taken && is_running && fresh->reload_signal && s->child && s->has_executed) {
        tell(t, s, "changed: signalled");
        (void)child_signal(s->child, fresh->reload_signal);
    } else {
        tell(t, s, "changed");
    }
}

/* One that was leaving comes back with whatever the new file says. */
static void come_back(struct service *s, const struct service_config *fresh,
                      const struct telling *t)
{
    s->is_leaving = false;
    s->next = fresh;
    tell(t, s, "added");
    if (fresh->autostart)
        service_want(s);
}

/* ---- before anything changes ---- */

struct change_set {
    struct list services; /* fresh ones */
    struct order *order;  /* of all that there will be */
    struct retired *retired;
};

static void drop(struct change_set *set)
{
    list_each(s, &set->services, struct service, link) service_delete(s);
    order_free(set->order);
    free(set->retired);
}

static int make_fresh(struct services *all, const struct config *fresh, struct list *to,
                      struct error *e)
{
    for (size_t i = 0; i < fresh->service_count; i++) {
        if (services_look_up(all, fresh->services[i].name))
            continue;
        struct service *s = service_make(all, &fresh->services[i], e);
        if (!s)
            return -1;
        list_append(to, &s->link);
    }
    return 0;
}

/* The node of each service as it will be: the configuration's own, in its order, then those that
 * leave. */
static struct order *make_order(struct services *all, const struct config *fresh,
                                struct list *added, struct error *e)
{
    size_t count = fresh->service_count, n = 0;
    list_each(s, &all->services, struct service, link) count++;
    struct order_node *nodes = calloc(count + 1, sizeof *nodes);
    if (!nodes) {
        error_set(e, ERR_MEMORY, "services: no memory for their order");
        return NULL;
    }
    struct list *next_added = added->next;
    for (size_t i = 0; i < fresh->service_count; i++) {
        const struct service_config *c = &fresh->services[i];
        struct service *s = services_look_up(all, c->name);
        if (!s) { /* they were made in the same order */
            s = list_entry(next_added, struct service, link);
            next_added = next_added->next;
        }
        nodes[n++] = (struct order_node){.service = s, .config = c};
    }
    list_each(s, &all->services, struct service, link)
    {
        if (!config_service(fresh, s->name))
            nodes[n++] = (struct order_node){.service = s, .config = s->next, .is_leaving = true};
    }
    return order_new(nodes, n, e);
}

static int prepare(struct services *all, const struct config *fresh, struct change_set *set,
                   struct error *e)
{
    list_init(&set->services);
    set->order = NULL;
    set->retired = calloc(1, sizeof *set->retired);
    if (!set->retired)
        error_set(e, ERR_MEMORY, "services: no memory for the new configuration");
    else if (make_fresh(all, fresh, &set->services, e) == 0)
        set->order = make_order(all, fresh, &set->services, e);
    if (set->order)
        return 0;
    drop(set);
    return -1;
}

/* ---- all of it ---- */

/* The list stands in the order of the file. */
static void put_in_order(struct services *all)
{
    struct order *o = all->order;
    for (size_t i = 0; i < o->count; i++) {
        struct service *s = o->nodes[i].service;
        list_remove(&s->link);
        list_append(&all->services, &s->link);
    }
}

static void begin_added(struct service *s, const struct telling *t)
{
    tell(t, s, "added");
    if (s->next->autostart)
        service_want(s);
}

int services_apply(struct services *all, struct config *old, const struct config *fresh,
                   void (*told)(void *context, const char *what, const char *needs), void *context,
                   struct error *e)
{
    const struct telling t = {.told = told, .context = context};
    struct change_set set;
    if (prepare(all, fresh, &set, e) < 0)
        return -1;
    services_use_order(all, set.order);
    list_each(s, &all->services, struct service, link)
    {
        const struct service_config *c = config_service(fresh, s->name);
        if (!c)
            leave(s, &t);
        else if (s->is_leaving)
            come_back(s, c, &t);
        else
            change(s, c, &t);
    }
    list_each(s, &set.services, struct service, link) begin_added(s, &t);
    put_in_order(all);
    set.retired->config = old;
    list_append(&all->retired, &set.retired->link);
    services_mark_all(all);
    services_kick(all);
    return 0;
}
