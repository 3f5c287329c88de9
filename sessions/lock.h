/*
 * The lock of a session: held by one command (or by a start until its PID is known), waited for in
 * order of arrival. Nothing here grants by itself: the session's step asks for the next waiter when
 * the lock is free and its shell is ready. A waiter may have a limit to its patience; then it
 * leaves the queue by itself and hears on_refused.
 */
#ifndef SESSIONS_LOCK_H
#define SESSIONS_LOCK_H

#include "base/error.h"
#include "base/list.h"
#include "base/strbuf.h"
#include "sessions/events.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#define LOCK_TEXT_SHOWN 64 /* bytes of the holder's text in the reason of a refusal */

/* How long a request is ready to wait. */
struct lock_patience {
    bool has_limit;
    uint64_t ms; /* 0: not at all; whoever queues it looks at that */
};

struct lock_request {
    struct list link;
    const char *id;            /* of the command or process, for the lists of holders and waiters */
    enum event_kind kind;      /* EVENT_COMMAND, …, EVENT_SESSION (fork, save), likewise */
    const struct strbuf *text; /* what is to run, likewise; borrowed */
    struct lock_patience patience;
    size_t bytes;      /* of memory held while it waits; counted in *lock.held_bytes */
    uint64_t since_ns; /* monotonic: of waiting, then of holding */
    void (*on_granted)(void *owner);
    /* Taken out of the queue: it will never be granted. */
    void (*on_refused)(void *owner, const struct error *why);
    void *owner;
    /* The lock's own. */
    struct lock *lock;
    ev_timer timer;
    uint64_t until_ns;
};

struct lock {
    struct ev_loop *loop;
    const char *session;         /* its name, for reasons */
    size_t *held_bytes;          /* of all locks together */
    struct lock_request *holder; /* NULL: free */
    struct list waiters;
    unsigned waiter_count;
};

void lock_init(struct lock *l, struct ev_loop *loop, const char *session, size_t *held_bytes);
/* Somebody holds it or waits for it. */
bool lock_is_busy(const struct lock *l);
/* Fill *e with ERR_BUSY: who holds the lock, for how long, and what to do. waited_ms: how long the
 * refused one has waited; 0: it would not. Returns -1. */
int lock_explain(const struct lock *l, uint64_t waited_ms, struct error *e);
/* What a request is to run, to be shown. */
const char *lock_text(const struct lock_request *r);
/* Stand in the queue. */
void lock_wait(struct lock *l, struct lock_request *r);
/* A waiter waits as long as this patience, from now on, would if that is longer. */
void lock_extend(struct lock_request *r, const struct lock_patience *patience);
/* A waiter goes to the first place of the queue. */
void lock_hurry(struct lock *l, struct lock_request *r);
/* The first waiter becomes the holder, if the lock is free and anybody waits; returns it. */
struct lock_request *lock_grant(struct lock *l);
/* The holder stands first in the queue again (it cannot begin yet). */
void lock_return(struct lock *l);
/* Its memory is given back: it counts no more. */
void lock_forget_bytes(struct lock_request *r);
/* Leave the queue or give the lock back; fine for a request that does neither. */
void lock_leave(struct lock *l, struct lock_request *r);

#endif
