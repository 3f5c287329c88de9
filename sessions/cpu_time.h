/*
 * CPU time of processes with all below them, as /proc tells it now: what the live ones have used,
 * and what their ended children had used that they have waited for. In clock ticks (sysconf(3)).
 */
#ifndef SESSIONS_CPU_TIME_H
#define SESSIONS_CPU_TIME_H

#include <stdint.h>
#include <sys/types.h>

/* Of one process without those below it; 0 if it is gone. */
uint64_t cpu_time_of(pid_t pid);
/* Of a process and everything below it. Of a very large tree only as much as can be looked at in
 * some milliseconds. */
uint64_t cpu_time_of_tree(pid_t pid);
uint64_t cpu_time_ms(uint64_t ticks);

#endif
