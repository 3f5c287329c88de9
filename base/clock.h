/* Time. Deadlines and durations are monotonic; only log stamps use the wall clock. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t clock_mono_ns(void);

/* CLOCK_REALTIME in nanoseconds since 1970. */
uint64_t clock_real_ns(void);

/* "YYYY-MM-DDTHH:MM:SS" for seconds since 1970, in UTC, into 32 bytes. gmtime_r(3) would read the
 * file of the local time zone first. */
void clock_utc(uint64_t seconds, char text[32]);

#endif
