#include "sessions/lock.h"
#include "base/clock.h"
#include "base/head.h"

#include <stddef.h>
#include <stdio.h>

void lock_init(struct lock *l, struct ev_loop *loop, const char *session, size_t *held_bytes)
{
    *l = (struct lock){.loop = loop, .session = session};
    l->held_bytes = held_bytes;
    list_init(&l->waiters);
}

const char *lock_text(const struct lock_request *r)
{
    return r->text ? strbuf_text(r->text) : "";
}

bool lock_is_busy(const struct lock *l)
{
    return l->holder || l->waiter_count > 0;
}

/* ---- the reason of a refusal ---- */

/* 850 -> "850ms", 12300 -> "12.3s", 245000 -> "4m05s" */
static const char *show_ms(uint64_t ms, char *buf, size_t size)
{
    unsigned long long s = ms / 1000;
    if (ms < 1000)
        snprintf(buf, size, "%llums", (unsigned long long)ms);
    else if (s < 60)
        snprintf(buf, size, "%llu.%us", s, (unsigned)(ms % 1000 / 100));
    else if (s < 3600)
        snprintf(buf, size, "%llum%02us", s / 60, (unsigned)(s % 60));
    else
        snprintf(buf, size, "%lluh%02um", s / 3600, (unsigned)(s / 60 % 60));
    return buf;
}

int lock_explain(const struct lock *l, uint64_t waited_ms, struct error *e)
{
    char head[LOCK_TEXT_SHOWN + 1], held[24], waited[24], after[48] = "";
    const struct lock_request *r = l->holder;
    if (waited_ms)
        snprintf(after, sizeof after, " after %s in its queue",
                 show_ms(waited_ms, waited, sizeof waited));
    if (!r)
        return error_set(e, ERR_BUSY, "session '%s' is busy%s: its shell is on its way and %u wait",
                         l->session, after, l->waiter_count);
    head_copy(head, sizeof head, lock_text(r));
    return error_set(e, ERR_BUSY,
                     "session '%s' is busy%s: %s %s has held it for %s (sandboxctl kill %s ends "
                     "it): %s",
                     l->session, after, event_kind_name(r->kind), r->id,
                     show_ms((clock_mono_ns() - r->since_ns) / 1000000u, held, sizeof held), r->id,
                     head);
}

/* ---- patience: a timer only for those who have a limit, and only while they wait ---- */

static void on_impatient(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct lock_request *r = w->data;
    struct error e = {0};
    lock_explain(r->lock, r->patience.ms, &e);
    lock_leave(r->lock, r);
    r->on_refused(r->owner, &e);
}

static void start_patience(struct lock_request *r)
{
    if (!r->patience.has_limit || !r->patience.ms)
        return;
    uint64_t now = clock_mono_ns();
    double left = r->until_ns > now ? (double)(r->until_ns - now) / 1e9 : 0.;
    ev_now_update(r->lock->loop); /* a timer counts from the loop's own, older time */
    ev_timer_init(&r->timer, on_impatient, left, 0.);
    r->timer.data = r;
    ev_timer_start(r->lock->loop, &r->timer);
}

static void stop_patience(struct lock_request *r)
{
    if (r->patience.has_limit && r->patience.ms)
        ev_timer_stop(r->lock->loop, &r->timer);
}

/* ---- the queue ---- */

void lock_wait(struct lock *l, struct lock_request *r)
{
    r->lock = l;
    r->since_ns = clock_mono_ns();
    r->until_ns = r->since_ns + r->patience.ms * 1000000u;
    list_append(&l->waiters, &r->link);
    l->waiter_count++;
    *l->held_bytes += r->bytes;
    start_patience(r);
}

static void leave_queue(struct lock *l, struct lock_request *r)
{
    list_remove(&r->link);
    l->waiter_count--;
    stop_patience(r);
}

void lock_extend(struct lock_request *r, const struct lock_patience *patience)
{
    uint64_t until = clock_mono_ns() + patience->ms * 1000000u;
    if (!r->patience.has_limit || !r->patience.ms || (patience->has_limit && until <= r->until_ns))
        return;
    stop_patience(r);
    r->patience.has_limit = patience->has_limit;
    r->patience.ms = (until - r->since_ns) / 1000000u;
    r->until_ns = until;
    start_patience(r);
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
    leave_queue(l, r);
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
    start_patience(r);
}

void lock_forget_bytes(struct lock_request *r)
{
    if (r->lock)
        *r->lock->held_bytes -= r->bytes;
    r->bytes = 0;
}

void lock_leave(struct lock *l, struct lock_request *r)
{
    if (l->holder == r)
        l->holder = NULL;
    else if (r->link.next && !list_is_empty(&r->link))
        leave_queue(l, r);
    else
        return;
    lock_forget_bytes(r);
}
