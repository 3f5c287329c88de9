/*
 * The end of all services, in reverse order and within one deadline; those that come after the main
 * command go before it. Each has its own grace; when
 * three quarters of the time are gone the order is given up and whoever is left is told at once, so
 * that one that never ends does not take the time of those behind it.
 */
#include "services/service.h"
#include "base/clock.h"
#include "base/log.h"

static void on_stop_timer(struct ev_loop *loop, ev_timer *w, int events);

void services_init_stop(struct services *all)
{
    ev_timer_init(&all->stop_timer, on_stop_timer, 0., 0.);
    all->stop_timer.data = all;
}

static uint64_t left_ms(const struct services *all)
{
    uint64_t now = clock_mono_ns();
    return all->stop_by_ns > now ? (all->stop_by_ns - now) / 1000000u : 0;
}

uint64_t services_grace_ms(const struct services *all, uint64_t grace_ms)
{
    uint64_t left = all->is_stopping || all->is_main_ending ? left_ms(all) : UINT64_MAX;
    return all->is_hurried ? 0 : grace_ms < left ? grace_ms : left;
}

static void set_timer(struct services *all, uint64_t ms)
{
    ev_timer_stop(all->host.loop, &all->stop_timer);
    ev_now_update(all->host.loop);
    ev_timer_set(&all->stop_timer, (double)ms / 1000., 0.);
    ev_timer_start(all->host.loop, &all->stop_timer);
}

/* No more time than there is. */
static void hurry(struct services *all)
{
    uint64_t left = all->is_hurried ? 0 : left_ms(all);
    list_each(s, &all->services, struct service, link)
    {
        /* What follows a stop_command needs its half. */
        bool is_asked = s->state == SERVICE_STOPPING && s->phase == STOP_COMMAND_RUNS;
        uint64_t most = is_asked ? left / 2 : left;
        if (s->teardown)
            teardown_hurry(s->teardown, left);
        if (ev_is_active(&s->timer) &&
            (double)most / 1000. < ev_timer_remaining(all->host.loop, &s->timer))
            service_set_timer(s, most);
        service_mark(s);
    }
}

bool service_is_stopping(const struct service *s)
{
    return s->all->is_stopping || (s->all->is_main_ending && s->node->is_after_main);
}

/* True if one that comes after the main command is there. */
static bool any_follower(const struct services *all)
{
    list_each(s, &all->services, struct service,
              link) if (s->node->is_after_main && service_is_live(s)) return true;
    return false;
}

static void on_stop_timer(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct services *all = w->data;
    ev_timer_stop(loop, w);
    if (all->is_order_off) {
        all->is_hurried = true;
        hurry(all);
        return;
    }
    all->is_order_off = true;
    LOG_WRN("services", F_STR("why", "the stop takes long: the rest is told at once"));
    services_mark_all(all);
    set_timer(all, left_ms(all));
}

void services_stop(struct services *all, uint64_t deadline_ns, void (*on_done)(void *context),
                   void *context)
{
    if (all->is_stopping && deadline_ns >= all->stop_by_ns)
        return;
    all->on_followers_stopped = NULL;
    all->stop_by_ns = deadline_ns;
    if (!all->is_stopping) {
        all->is_stopping = true;
        all->on_stopped = on_done;
        all->stop_context = context;
    }
    uint64_t left = left_ms(all);
    all->is_hurried = left == 0;
    all->is_order_off |= all->is_hurried;
    hurry(all);
    if (!all->is_hurried)
        set_timer(all, all->is_order_off ? left : left - left / 4);
    services_kick(all);
}

bool services_stop_followers(struct services *all, uint64_t deadline_ns,
                             void (*on_done)(void *context), void *context)
{
    bool is_any = any_follower(all);
    all->is_main_ending = true; /* in any case: one may be about to start */
    all->stop_by_ns = deadline_ns;
    all->on_followers_stopped = is_any ? on_done : NULL;
    all->stop_context = context;
    services_mark_all(all);
    return is_any;
}

static void check_followers(struct services *all)
{
    void (*on_done)(void *context) = all->on_followers_stopped;
    if (!on_done || any_follower(all))
        return;
    all->on_followers_stopped = NULL;
    on_done(all->stop_context);
}

void services_check_stopped(struct services *all)
{
    check_followers(all);
    if (!all->is_stopping || !all->on_stopped || services_any(all))
        return;
    void (*on_done)(void *context) = all->on_stopped;
    all->on_stopped = NULL;
    ev_timer_stop(all->host.loop, &all->stop_timer);
    on_done(all->stop_context);
}

void services_end_outputs(struct services *all)
{
    list_each(s, &all->services, struct service, link) output_end(service_output(s));
}
