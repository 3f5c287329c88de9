/*
 * A copy of a session's state, taken when the lock is free: its turn in the queue, the dump of the
 * shell, then the state file is handed over.
 */
#ifndef SESSIONS_SNAPSHOT_H
#define SESSIONS_SNAPSHOT_H

#include "sessions/session.h"

struct snapshot;

/* Stand in the session's queue; session_step() is the caller's. verb: what it is for, shown to
 * those who look at the queue. on_done is called once, later: fd is the state file, the callee's to
 * close; or e is set. NULL with *e: it cannot be. */
struct snapshot *
snapshot_take(struct session *s, const char *verb, const struct lock_patience *patience,
              void (*on_done)(void *owner, struct session *s, int fd, const struct error *e),
              void *owner, struct error *e);
/* Nobody wants it any more: on_done will not be called. */
void snapshot_drop(struct snapshot *sn);

#endif
