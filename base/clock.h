/* Time. Deadlines and durations are monotonic; only log stamps use the wall clock. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t clock_mono_ns(void);

/* CLOCK_REALTIME in nanoseconds since 1970. */
uint64_t clock_real_ns(void);

#endif
