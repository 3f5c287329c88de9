/*
 * The watch for an idle container: no command, no process and no client for idle_timeout. One timer
 * that is set to the earliest moment at which that can be true; nothing ticks.
 */
#include "init/init.h"
#include "base/clock.h"
#include "base/log.h"

/* A main command that waits for the services has not had its turn yet. */
static bool is_busy(const struct init *in)
{
    return in->sessions.process_live > 0 || in->sessions.command_count > 0 || in->main_child ||
           in->main_state == MAIN_PENDING || server_connection_count(in->server) > 0;
}

/* When the last command, process or client was over: each counts from its end. */
static uint64_t last_busy_ns(const struct init *in)
{
    uint64_t closed = server_last_closed_ns(in->server);
    return closed > in->sessions.last_busy_ns ? closed : in->sessions.last_busy_ns;
}

static void set_timer(struct init *in, uint64_t ms);

static void on_idle(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct init *in = w->data;
    uint64_t limit = in->config->idle_timeout_ms;
    uint64_t idle = (clock_mono_ns() - last_busy_ns(in)) / 1000000u;
    if (is_busy(in)) {
        in->sessions.last_busy_ns = clock_mono_ns();
        set_timer(in, limit);
    } else if (idle < limit) {
        set_timer(in, limit - idle);
    } else if (in->config->idle_action == IDLE_STOP) {
        stop_begin(in, "idle", -1);
    } else {
        LOG_INF("idle", F_INT("idle_ms", idle));
        set_timer(in, limit);
    }
}

static void set_timer(struct init *in, uint64_t ms)
{
    ev_timer_stop(in->loop, &in->idle_timer);
    if (in->config->idle_timeout_ms == 0)
        return;
    ev_timer_init(&in->idle_timer, on_idle, (double)(ms ? ms : 1) / 1000.0, 0.);
    in->idle_timer.data = in;
    ev_timer_start(in->loop, &in->idle_timer);
}

void idle_arm(struct init *in)
{
    set_timer(in, in->config->idle_timeout_ms);
}
