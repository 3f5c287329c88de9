#include "sessions/lock.h"
#include "base/clock.h"

#include <stddef.h>

void lock_init(struct lock *l)
{
    l->holder = NULL;
    list_init(&l->waiters);
    l->waiter_count = 0;
}

void lock_wait(struct lock *l, struct lock_request *r)
{
    r->since_ns = clock_mono_ns();
    list_append(&l->waiters, &r->link);
    l->waiter_count++;
}

void lock_hurry(struct lock *l, struct lock_request *r)
{
    list_remove(&r->link);
    list_append(l->waiters.next, &r->link);
}

struct lock_request *lock_grant(struct lock *l)
{
    if (l->holder || list_is_empty(&l->waiters))
        return NULL;
    struct lock_request *r = list_entry(l->waiters.next, struct lock_request, link);
    list_remove(&r->link);
    l->waiter_count--;
    r->since_ns = clock_mono_ns();
    l->holder = r;
    return r;
}

void lock_return(struct lock *l)
{
    struct lock_request *r = l->holder;
    if (!r)
        return;
    l->holder = NULL;
    /* In a ring, before the first is the first place. */
    list_append(l->waiters.next, &r->link);
    l->waiter_count++;
}

void lock_leave(struct lock *l, struct lock_request *r)
{
    if (l->holder == r) {
        l->holder = NULL;
    } else if (r->link.next && !list_is_empty(&r->link)) {
        list_remove(&r->link);
        l->waiter_count--;
    }
}
