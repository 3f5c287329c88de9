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

struct arrivals {
    struct ev_loop *loop;
    struct list waiting;
    void (*handle)(struct list *node); /* may add, and may remove others with list_remove() */
    ev_check turn;                     /* never started: it is fed */
};

static inline void arrivals_on_turn(struct ev_loop *loop, ev_check *w, int events)
{
    struct arrivals *a = w->data;
    (void)loop;
    (void)events;
    while (!list_is_empty(&a->waiting)) {
        struct list *node = a->waiting.next;
        list_remove(node);
        a->handle(node);
    }
}

static inline void arrivals_init(struct arrivals *a, struct ev_loop *loop,
                                 void (*handle)(struct list *node))
{
    a->loop = loop;
    a->handle = handle;
    list_init(&a->waiting);
    ev_check_init(&a->turn, arrivals_on_turn);
    ev_set_priority(&a->turn, EV_MINPRI); /* behind all that is handed out in this turn */
    a->turn.data = a;
}

/* From the callback of an event: the node's owner is handled in this turn. Once per node until
 * then; the node is the caller's, and list_remove() takes it back. */
static inline void arrivals_add(struct arrivals *a, struct list *node)
{
    list_remove(node);
    list_prepend(&a->waiting, node);
    ev_feed_event(a->loop, &a->turn, EV_CUSTOM);
}

/* Before the memory of it goes. */
static inline void arrivals_end(struct arrivals *a)
{
    ev_clear_pending(a->loop, &a->turn);
}

#endif
