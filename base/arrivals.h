/*
 * First come, first served. libev hands out the events that one wait has brought last first
 * (ev_invoke_pending() pops them), so of two clients that have written meanwhile the later one
 * would be heard first. Here what has come in is put back in the order in which the kernel told of
 * it, which is that of its coming, and is handled once the other events of this turn are.
 */
#ifndef BASE_ARRIVALS_H
#define BASE_ARRIVALS_H

#include "base/list.h"

#include <ev.h>

/* Something that may come in: a connection with bytes, a socket with new connections. */
struct arrival {
    struct list link;
    void (*handle)(struct arrival *arrival); /* may add some, and remove any */
};

struct arrivals {
    struct ev_loop *loop;
    struct list waiting;
    ev_check turn; /* never started: it is fed */
};

static inline void arrivals_on_turn(struct ev_loop *loop, ev_check *w, int events)
{
    struct arrivals *a = w->data;
    (void)loop;
    (void)events;
    while (!list_is_empty(&a->waiting)) {
        struct arrival *arrival = list_entry(a->waiting.next, struct arrival, link);
        list_remove(&arrival->link);
        arrival->handle(arrival);
    }
}

static inline void arrivals_init(struct arrivals *a, struct ev_loop *loop)
{
    a->loop = loop;
    list_init(&a->waiting);
    ev_check_init(&a->turn, arrivals_on_turn);
    ev_set_priority(&a->turn, EV_MINPRI); /* behind all that is handed out in this turn */
    a->turn.data = a;
}

static inline void arrival_init(struct arrival *arrival, void (*handle)(struct arrival *arrival))
{
    list_init(&arrival->link);
    arrival->handle = handle;
}

/* From the callback of an event: it is handled in this turn. It is the caller's. */
static inline void arrivals_add(struct arrivals *a, struct arrival *arrival)
{
    list_remove(&arrival->link);
    list_prepend(&a->waiting, &arrival->link);
    ev_feed_event(a->loop, &a->turn, EV_CUSTOM);
}

/* It is not handled any more. */
static inline void arrival_drop(struct arrival *arrival)
{
    list_remove(&arrival->link);
}

/* Before the memory of it goes. */
static inline void arrivals_end(struct arrivals *a)
{
    ev_clear_pending(a->loop, &a->turn);
}

#endif
