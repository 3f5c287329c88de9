#include "sessions/log_sink.h"

#include <stdio.h>
#include <string.h>

#define LEAVING_BYTES ((size_t)2 * 1024 * 1024) /* an output keeps no more for a slow follower */

/* There is room again, or everybody is to see that there will be none: from the loop, since those
 * who are woken put lines themselves. */
static void wake_later(struct log_sink *s)
{
    if (!list_is_empty(&s->waiting) && !ev_is_active(&s->wake)) {
        ev_timer_set(&s->wake, 0., 0.);
        ev_timer_start(s->loop, &s->wake);
    }
}

static void on_wake(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)events;
    struct log_sink *s = t->data;
    struct list turn;
    list_init(&turn);
    while (!list_is_empty(&s->waiting)) {
        struct list *first = s->waiting.next;
        list_remove(first);
        list_append(&turn, first);
    }
    while (!list_is_empty(&turn)) {
        struct sink_writer *w = list_entry(turn.next, struct sink_writer, link);
        list_remove(&w->link);
        if (list_is_empty(&s->waiting))
            w->on_room(w->owner);
        else /* the one before has filled it */
            list_append(&s->waiting, &w->link);
    }
    if (list_is_empty(&s->waiting))
        ev_timer_stop(loop, &s->patience);
}

static void on_patience(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)events;
    struct log_sink *s = t->data;
    ev_timer_stop(loop, t);
    s->is_dropping = s->is_dropping || !list_is_empty(&s->waiting);
    wake_later(s);
}

void log_sink_init(struct log_sink *s, struct ev_loop *loop, struct line_queue *queue,
                   void (*flush)(struct log_sink *s))
{
    *s = (struct log_sink){.loop = loop, .queue = queue, .flush = flush};
    list_init(&s->waiting);
    ev_timer_init(&s->patience, on_patience, 0., SINK_PATIENCE_MS / 1000.);
    ev_timer_init(&s->wake, on_wake, 0., 0.);
    s->patience.data = s->wake.data = s;
}

/* Half of the queue is free again: say what is missing here, and go on. */
static void end_dropping(struct log_sink *s)
{
    char text[420];
    if (!s->is_dropping || line_queue_used(s->queue) > s->queue->limit / 2)
        return;
    int n = snprintf(text, sizeof text, "[sandbox-init: %llu lines dropped%s%s]\n",
                     (unsigned long long)s->dropped, s->dropped_why[0] ? ": " : "", s->dropped_why);
    if (s->dropped && !line_queue_put(s->queue, "", 0, text, (size_t)n, 0))
        return;
    s->dropped = 0;
    s->is_dropping = false;
}

static bool put(struct log_sink *s, const char *head, size_t head_n, const char *text, size_t n,
                size_t more)
{
    end_dropping(s);
    return !s->is_dropping && line_queue_put(s->queue, head, head_n, text, n, more);
}

enum sink_answer log_sink_put(struct log_sink *s, struct sink_writer *w, const char *head,
                              size_t head_n, const char *text, size_t n)
{
    if (put(s, head, head_n, text, n, w ? 0 : LEAVING_BYTES))
        return SINK_TAKEN;
    if (w)
        s->flush(s);
    if (put(s, head, head_n, text, n, 0))
        return SINK_TAKEN;
    if (s->is_dropping || !w) {
        if (s->dropped++ == 0)
            memcpy(s->dropped_why, s->why, sizeof s->why);
        return SINK_DROPPED;
    }
    if (list_is_empty(&w->link))
        list_append(&s->waiting, &w->link);
    if (!ev_is_active(&s->patience))
        ev_timer_again(s->loop, &s->patience);
    return SINK_WAIT;
}

void log_sink_taken(struct log_sink *s)
{
    end_dropping(s);
    if (ev_is_active(&s->patience))
        ev_timer_again(s->loop, &s->patience);
    wake_later(s);
}

bool log_sink_is_idle(const struct log_sink *s)
{
    return line_queue_used(s->queue) == 0 && list_is_empty(&s->waiting);
}

void log_sink_close(struct log_sink *s)
{
    while (!list_is_empty(&s->waiting))
        list_remove(s->waiting.next);
    ev_timer_stop(s->loop, &s->patience);
    ev_timer_stop(s->loop, &s->wake);
}
