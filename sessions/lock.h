/*
 * The lock of a session: held by one command (or by a start until its PID is known), waited for in
 * order of arrival. Nothing here calls anybody: the session's step asks for the next waiter when
 * the lock is free and its shell is ready.
 */
#ifndef SESSIONS_LOCK_H
#define SESSIONS_LOCK_H

#include "base/error.h"
#include "base/list.h"

#include <stdint.h>

struct lock_request {
    struct list link;
    const char *id;    /* of the command or process, for the lists of holders and waiters */
    uint64_t since_ns; /* monotonic: of waiting, then of holding */
    void (*on_granted)(void *owner);
    /* Taken out of the queue: it will never be granted. */
    void (*on_refused)(void *owner, const struct error *why);
    void *owner;
};

struct lock {
    struct lock_request *holder; /* NULL: free */
    struct list waiters;
    unsigned waiter_count;
};

void lock_init(struct lock *l);
/* Stand in the queue. */
void lock_wait(struct lock *l, struct lock_request *r);
/* A waiter goes to the first place of the queue. */
void lock_hurry(struct lock *l, struct lock_request *r);
/* The first waiter becomes the holder, if the lock is free and anybody waits; returns it. */
struct lock_request *lock_grant(struct lock *l);
/* The holder stands first in the queue again (it cannot begin yet). */
void lock_return(struct lock *l);
/* Leave the queue or give the lock back; fine for a request that does neither. */
void lock_leave(struct lock *l, struct lock_request *r);

#endif
