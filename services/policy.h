/*
 * When a service that ended is started again: after a delay that doubles from one quick end to the
 * next up to a cap, and no more than a number of times within a window. No clock of its own: who
 * calls says what time it is.
 */
#ifndef SERVICES_POLICY_H
#define SERVICES_POLICY_H

#include "config/service_config.h"

#include <stdbool.h>
#include <stdint.h>

struct policy {
    unsigned failures;     /* ends in a row, each soon after its start: the exponent of the delay */
    unsigned count;        /* restarts in the present window */
    uint64_t window_ns;    /* when that began; 0: none has */
    unsigned restarts_all; /* since the last order */
};

enum policy_word {
    POLICY_AGAIN, /* after delay_ms */
    POLICY_DONE,  /* not again, and that is as it should be, or as the configuration wants it */
    POLICY_FATAL, /* not again: too often, or it cannot be started */
};

struct policy_answer {
    enum policy_word word;
    uint64_t delay_ms;
};

/* An order was given: what was before does not count. */
void policy_reset(struct policy *p);

/* True if such an end is a success: a success code. status: as of struct outcome (128+n for a
 * signal). */
bool policy_is_success(const struct service_config *c, int status);

/* A run is over that began at began_ns (0: it could not be started, or was not ready in time, or
 * its check failed: is_success is false then). Times are CLOCK_MONOTONIC. */
struct policy_answer policy_decide(struct policy *p, const struct service_config *c,
                                   bool is_success, uint64_t began_ns, uint64_t now_ns);

#endif
