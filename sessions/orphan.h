/*
 * Orphans: the live children of init that it has not started but adopted, when their parents ended.
 * Whose one is, its owner tells by what it shows: its session, the mark in its environment, a
 * cgroup.
 */
#ifndef SESSIONS_ORPHAN_H
#define SESSIONS_ORPHAN_H

#include "sessions/proc.h"

/* Call each() for every orphan that owns() says is the owner's, until it returns false. Both are
 * called at once and must not start or reap children. */
void orphans_each(bool (*owns)(const void *owner, const struct proc_stat *st), const void *owner,
                  bool (*each)(void *context, pid_t pid), void *context);

#endif
