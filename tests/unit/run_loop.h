/* Run a loop for a time, or until something breaks it. */
#ifndef TESTS_UNIT_RUN_LOOP_H
#define TESTS_UNIT_RUN_LOOP_H

#include <ev.h>

static inline void on_loop_time(struct ev_loop *l, ev_timer *w, int events)
{
    (void)events;
    (void)w;
    ev_break(l, EVBREAK_ONE);
}

static inline void run_loop(struct ev_loop *loop, double seconds)
{
    ev_timer timer;
    ev_timer_init(&timer, on_loop_time, seconds, 0.);
    ev_now_update(loop);
    ev_timer_start(loop, &timer);
    ev_run(loop, 0);
    ev_timer_stop(loop, &timer);
}

#endif
