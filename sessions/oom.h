/*
 * The kernel's own word on who was killed for want of memory: the counter oom_kill of the memory
 * cgroup that init is in (memory.events of cgroup v2, memory.oom_control of v1), which counts
 * before the victim gets its SIGKILL. It counts for all of the container, so a verdict needs both:
 * the counter rose while the command or process ran, and SIGKILL is what ended it.
 */
#ifndef SESSIONS_OOM_H
#define SESSIONS_OOM_H

#include "sessions/outcome.h"

#include <stdint.h>

void oom_init(void);
void oom_exit(void);

/* Victims so far; 0 where the kernel does not tell. */
uint64_t oom_kills(void);
/* Put into an outcome what happened since the counter was `before`: how many, and the verdict where
 * SIGKILL ended it and nothing was decided. owner names it in the log. */
void oom_judge(struct outcome *o, uint64_t before, bool is_decided, const char *owner);

#endif
