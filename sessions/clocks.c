#include "sessions/clocks.h"
#include "base/clock.h"

#include <unistd.h>

#define CPU_LOOK_MIN_S   0.02 /* between two looks at CPU time */
#define CPU_LOOK_MAX_S   60.0 /* so that a clock that was wrong once is not so for ever */
#define CPU_LOOK_SHARE   50   /* a look may cost this part of the time until the next */
#define LAST_LOOK_S      0.01 /* for an end that came in time and is not seen yet */
#define NS_OF_MS(ms)     ((ms)*1000000u)
#define SECONDS_OF_NS(n) ((double)(n) / 1e9)

const char *clock_kind_name(enum clock_kind kind)
{
    static const char *const names[] = {
        [CLOCK_TOTAL] = "total", [CLOCK_OUTPUT] = "output", [CLOCK_CPU] = "cpu"};
    return names[kind];
}

static void expire(struct clocks *c, enum clock_kind kind)
{
    clocks_stop(c);
    c->events->on_expired(c->owner, kind);
}

static void set(struct clocks *c, ev_timer *w, double seconds)
{
    ev_now_update(c->loop);
    ev_timer_set(w, seconds, 0.);
    ev_timer_start(c->loop, w);
}

/* The loop tells of timers first: where init itself was held up, all may have ended in time. */
static void on_total(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct clocks *c = w->data;
    if (c->is_last_look) {
        expire(c, CLOCK_TOTAL);
        return;
    }
    c->is_last_look = true;
    set(c, w, LAST_LOOK_S);
}

/* Not set anew at each piece of output: it looks when it may have run out, and sleeps for the rest.
 */
static void on_quiet(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct clocks *c = w->data;
    uint64_t now = clock_mono_ns(), limit = NS_OF_MS(c->limits.output_ms);
    uint64_t last = output_last_ns(c->output);
    if (c->events->has_unread(c->owner))
        c->seen_ns = now;
    else if (last > c->seen_ns)
        c->seen_ns = last;
    if (now - c->seen_ns >= limit)
        expire(c, CLOCK_OUTPUT);
    else
        set(c, w, SECONDS_OF_NS(limit - (now - c->seen_ns)));
}

static void on_cpu(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct clocks *c = w->data;
    uint64_t began = clock_mono_ns();
    uint64_t used = c->events->cpu_ms(c->owner);
    uint64_t cost_ns = clock_mono_ns() - began;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (used >= c->limits.cpu_ms) {
        expire(c, CLOCK_CPU);
        return;
    }
    double rest = (double)(c->limits.cpu_ms - used) / 1000.0 / (cpus > 0 ? (double)cpus : 1.);
    double least = SECONDS_OF_NS(cost_ns * CPU_LOOK_SHARE);
    if (least < CPU_LOOK_MIN_S)
        least = CPU_LOOK_MIN_S;
    rest = rest > CPU_LOOK_MAX_S ? CPU_LOOK_MAX_S : rest;
    set(c, w, rest < least ? least : rest);
}

void clocks_init(struct clocks *c, struct ev_loop *loop, const struct clock_limits *limits,
                 const struct clocks_events *events, void *owner)
{
    *c = (struct clocks){.loop = loop, .limits = *limits, .events = events, .owner = owner};
    ev_timer_init(&c->total, on_total, 0., 0.);
    ev_timer_init(&c->quiet, on_quiet, 0., 0.);
    ev_timer_init(&c->cpu, on_cpu, 0., 0.);
    c->total.data = c->quiet.data = c->cpu.data = c;
}

void clocks_start(struct clocks *c, const struct output *output)
{
    c->output = output;
    c->seen_ns = clock_mono_ns();
    c->is_last_look = false;
    if (c->limits.total_ms)
        set(c, &c->total, (double)c->limits.total_ms / 1000.0);
    if (c->limits.output_ms)
        set(c, &c->quiet, (double)c->limits.output_ms / 1000.0);
    if (c->limits.cpu_ms)
        set(c, &c->cpu, CPU_LOOK_MIN_S);
}

void clocks_stop(struct clocks *c)
{
    if (!c->loop)
        return;
    ev_timer_stop(c->loop, &c->total);
    ev_timer_stop(c->loop, &c->quiet);
    ev_timer_stop(c->loop, &c->cpu);
}
