#include "sessions/reminder.h"
#include "base/clock.h"

#define MS       1000000ull /* in ns */
#define FIRST_MS 20         /* between the first signal and the first look */
#define LAST_MS  160        /* each pause is twice the one before, up to this */

static int ms_until(uint64_t when_ns)
{
    uint64_t now = clock_mono_ns();
    return when_ns > now ? (int)((when_ns - now + MS - 1) / MS) : 0;
}

static int plan_look(struct reminder *r, int pause_ms)
{
    r->pause_ms = pause_ms;
    r->next_ns = clock_mono_ns() + (unsigned)pause_ms * MS;
    r->cursor = 0;
    r->is_needed = r->tell != NULL;
    return pause_ms;
}

void reminder_start(struct reminder *r)
{
    r->is_over = false;
    plan_look(r, FIRST_MS);
}

struct late_walk {
    struct reminder *reminder;
    pid_t parent;
    size_t found;
};

static bool take_late(void *context, pid_t pid)
{
    struct late_walk *w = context;
    struct member_set *set = w->reminder->set;
    struct hold_claim claim = {.ppid = w->parent};
    uint32_t parent = member_find(set, w->parent);
    if (member_hold(set, pid, parent, &claim, w->reminder->sig) == HOLD_NEW)
        w->found++;
    return w->found < REMINDER_LATE;
}

size_t reminder_tell_children(struct reminder *r, pid_t parent)
{
    struct late_walk w = {.reminder = r, .parent = parent};
    size_t next = r->set->count;
    (void)proc_children(parent, take_late, &w);
    for (; next < r->set->count && w.found < REMINDER_LATE; next++) {
        w.parent = r->set->items[next].pid;
        (void)proc_children(w.parent, take_late, &w);
    }
    return w.found;
}

int reminder_step(struct reminder *r, uint64_t until_ns)
{
    if (r->is_over)
        return -1;
    int left_ms = ms_until(r->next_ns);
    if (left_ms > 0)
        return left_ms;
    while (r->cursor < r->set->count) {
        struct member *m = &r->set->items[r->cursor++];
        if (member_has_executed(r->set, m))
            (void)member_signal(r->set, m, r->sig);
        r->is_needed = r->is_needed || (m->may_execute && !m->is_gone);
        if (clock_mono_ns() >= until_ns)
            return 0;
    }
    if (r->tell)
        r->tell(r->context);
    r->is_over = !r->is_needed;
    return r->is_over ? -1 : plan_look(r, 2 * r->pause_ms < LAST_MS ? 2 * r->pause_ms : LAST_MS);
}
