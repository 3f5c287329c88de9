#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t now_ns(clockid_t id)
{
    struct timespec ts = {0};
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
    return now_ns(CLOCK_MONOTONIC);
}

uint64_t clock_real_ns(void)
{
    return now_ns(CLOCK_REALTIME);
}

/* Years are counted from March, so that the leap day is the last of its year: the days before month
 * m are then (153 m + 2) / 5 (Fliegel and Van Flandern, CACM 11(10), 1968). */
void clock_utc(uint64_t seconds, char text[32])
{
    unsigned second = (unsigned)(seconds % 86400);
    uint64_t day = seconds / 86400 % 4000000 + 719468; /* since 0000-03-01 */
    uint64_t era = day / 146097;
    unsigned of_era = (unsigned)(day % 146097);
    unsigned year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    unsigned of_year = of_era - (365 * year + year / 4 - year / 100);
    unsigned month = (5 * of_year + 2) / 153;
    unsigned of_month = of_year - (153 * month + 2) / 5 + 1;
    month = month < 10 ? month + 3 : month - 9;
    snprintf(text, 32, "%04u-%02u-%02uT%02u:%02u:%02u", (unsigned)(era * 400) + year + (month <= 2),
             month, of_month, second / 3600, second / 60 % 60, second % 60);
}
