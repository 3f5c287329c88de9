/*
 * The clocks of one command or process: total time, time without output, CPU time of its tree. The
 * first that runs out tells its owner and all stop. A clock that is not set costs nothing; the one
 * for CPU time looks at /proc no more often than the rest of its time can be used up.
 */
#ifndef SESSIONS_CLOCKS_H
#define SESSIONS_CLOCKS_H

#include "sessions/output.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

enum clock_kind { CLOCK_TOTAL, CLOCK_OUTPUT, CLOCK_CPU };

/* In milliseconds; 0: none. */
struct clock_limits {
    uint64_t total_ms, output_ms, cpu_ms;
};

struct clocks_events {
    void (*on_expired)(void *owner, enum clock_kind kind);
    /* What is written and not yet read is output as well (a client that lags holds it up). */
    bool (*has_unread)(void *owner);
    uint64_t (*cpu_ms)(void *owner); /* used so far */
};

struct clocks {
    struct ev_loop *loop;
    struct clock_limits limits;
    const struct clocks_events *events;
    void *owner;
    const struct output *output;
    ev_timer total, quiet, cpu;
    uint64_t seen_ns;  /* output was seen at this time */
    bool is_last_look; /* the total time is up, but nothing is done about it yet */
};

/* "total", "output", "cpu" */
const char *clock_kind_name(enum clock_kind kind);

void clocks_init(struct clocks *c, struct ev_loop *loop, const struct clock_limits *limits,
                 const struct clocks_events *events, void *owner);
void clocks_start(struct clocks *c, const struct output *output);
void clocks_stop(struct clocks *c);

#endif
