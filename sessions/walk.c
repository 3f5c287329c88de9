/*
 * Why more than one pass. A parent that was still running when its children were listed can have
 * forked once more before it stopped: fork(2) goes on to its end when a signal comes while it
 * works. So each member's list counts only if it was read after the member was seen stopped. And
 * a process that ends leaves its children to the nearest subreaper above, perhaps one whose list
 * was read a moment ago: so the last pass must cover all members, find nobody, and see nobody go
 * (no zombie that was none in the pass before); where processes come and go during the walk, two
 * such passes in a row.
 *
 * A process that forks its successor and ends, over and over, is caught where it must come by: it
 * is always the child of a subreaper, so a list that had somebody new is read again at once, as
 * often as that goes on. Where SIGSTOP keeps coming too late (a fork goes on to its end, see
 * above), SIGKILL does not: it makes a fork fail up to its last moment.
 *
 * Excused from being stopped: those that refuse signals (EPERM), those that sleep in the kernel
 * (state D: a vfork(2) parent sleeps so until its child, which is stopped here, has called exec),
 * those that have been sent SIGKILL, and all of a frozen cgroup.
 */
#include "sessions/walk.h"
#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXCUSE_SLEEPERS_NS (20 * 1000000ull)
#define TRUST_ROOTS_NS     (30 * 1000000ull)
#define FIRST_BATCH        64
#define MAX_REPEATS        100
#define PIDFDS_TO_RELEASE  4

void walk_restart(struct walk *w)
{
    proc_scan_free(&w->scan);
    w->since_ns = clock_mono_ns();
    w->stage = PASS_BEGIN;
    w->clean_passes = 0;
    w->is_restless = w->is_full = w->is_growing = false;
    w->found = w->pass_found = 0;
    w->batch.count = w->batch.next = 0;
}

void walk_free(struct walk *w)
{
    proc_scan_free(&w->scan);
    free(w->batch.pids);
    w->batch = (struct walk_batch){0};
}

bool walk_is_growing(const struct walk *w)
{
    return w->is_growing || w->pass_found > 0; /* a pass may be too long ever to end */
}

/* --- batches --- */

static void batch_begin(struct walk *w, uint32_t parent)
{
    w->batch.count = w->batch.next = w->batch.found = w->batch.vanished = 0;
    w->batch.parent = parent;
    w->batch.turn = w->turn;
    w->batch.before_ticks = proc_ticks_now();
}

static bool batch_add(void *context, pid_t pid)
{
    struct walk *w = context;
    struct walk_batch *b = &w->batch;
    if (b->count == b->room) {
        size_t room = b->room ? 2 * b->room : FIRST_BATCH;
        pid_t *pids = b->count < MEMBER_LIMIT ? realloc(b->pids, room * sizeof *pids) : NULL;
        if (!pids) {
            w->is_disturbed = true; /* the rest comes with the next pass */
            return false;
        }
        b->pids = pids;
        b->room = room;
    }
    b->pids[b->count++] = pid;
    return true;
}

void walk_add_root(struct walk *w, pid_t pid)
{
    (void)batch_add(w, pid);
}

static void note_unread(struct walk *w, pid_t pid, int why)
{
    w->is_unsettled = true;
    w->pass_unread = pid;
    w->unread_why = why;
    member_release_pidfds(w->set, PIDFDS_TO_RELEASE);
}

static struct hold_claim claim_of(const struct walk *w)
{
    const struct walk_batch *b = &w->batch;
    struct hold_claim claim = {.before_ticks = b->before_ticks};
    if (b->parent != MEMBER_NONE && !w->set->items[b->parent].is_gone)
        claim.ppid = w->set->items[b->parent].pid;
    if (b->parent == MEMBER_NONE && b->turn == w->turn) {
        /* Our own children are reaped by the loop that called us, so not since the naming. Of
         * others those younger than a tick must wait, but not for ever where the two clocks
         * do not agree (a /proc of another time namespace). */
        claim.ppid = w->set->self;
        if (clock_mono_ns() - w->since_ns > TRUST_ROOTS_NS)
            claim.before_ticks = UINT64_MAX;
    }
    return claim;
}

static void hold_one(struct walk *w, pid_t pid)
{
    struct hold_claim claim = claim_of(w);
    switch (member_hold(w->set, pid, w->batch.parent, &claim, w->first_signal)) {
    case HOLD_NEW:
        w->set->items[w->set->count - 1].seen_pass = w->pass;
        w->batch.found++;
        w->pass_found++;
        w->found++;
        break;
    case HOLD_KNOWN:
        break;
    case HOLD_ZOMBIE: /* it may have ended a moment ago, and its children be with another now */
        w->zombies += (uint64_t)pid * 2654435761u;
        w->is_restless = true;
        break;
    case HOLD_VANISHED:
        w->batch.vanished++;
        w->is_restless = true;
        w->is_disturbed = w->is_disturbed || w->batch.parent != MEMBER_NONE;
        break;
    case HOLD_UNSURE:
        w->is_unsettled = true;
        break;
    case HOLD_FULL:
        w->is_full = true;
        break;
    case HOLD_UNREADABLE:
        note_unread(w, pid, errno);
        break;
    }
}

/* --- members --- */

static bool is_excused(const struct walk *w, const struct member *m, char state)
{
    if (m->refused || m->is_killed)
        return true;
    if (w->is_frozen && (state == 'S' || state == 'D'))
        return true;
    return state == 'D' && clock_mono_ns() - w->since_ns > EXCUSE_SLEEPERS_NS;
}

static void judge(struct walk *w, struct member *m, const struct proc_stat *s)
{
    m->is_stopped = proc_is_stopped(s);
    if (m->is_stopped || is_excused(w, m, s->state))
        return;
    w->is_unsettled = true;
    (void)member_signal(w->set, m, SIGSTOP); /* continued since, by us or by somebody */
}

/* Put the member's children into the batch. */
static void list_children(struct walk *w, uint32_t index)
{
    struct member *m = &w->set->items[index];
    batch_begin(w, index);
    int rc = m->threads == 1 ? proc_children_of_only_thread(m->pid, batch_add, w)
                             : proc_children(m->pid, batch_add, w);
    if (rc < 0 && errno != ENOENT && errno != ESRCH)
        note_unread(w, m->pid, errno);
    else if (rc < 0)
        w->is_disturbed = true;
    /* If it is there still, its pid was its own all the time, and so is the list. */
    if (w->batch.count > 0 && member_signal(w->set, m, 0) < 0 && errno != EPERM) {
        w->batch.count = 0;
        w->is_disturbed = w->is_restless = true;
    }
}

static void visit(struct walk *w, uint32_t index)
{
    struct member *m = &w->set->items[index];
    struct proc_stat s;
    if (m->is_gone)
        return;
    if (m->is_fresh) { /* its state was read right before it was sent SIGSTOP */
        m->is_fresh = false;
        w->is_unsettled = true;
    } else if (member_look(w->set, m, &s)) {
        judge(w, m, &s);
    } else {
        if (m->is_gone)
            w->is_disturbed = w->is_restless = true;
        else
            note_unread(w, m->pid, errno);
        return;
    }
    list_children(w, index);
}

/* --- without children files: all processes, one by one --- */

static void visit_scanned(struct walk *w, const struct proc_stat *s)
{
    uint32_t index = member_find(w->set, s->pid);
    struct member *m = index == MEMBER_NONE ? NULL : &w->set->items[index];
    if (m && !m->is_gone && (m->start_ticks != s->start_ticks || proc_stat_is_dead(s))) {
        member_mark_gone(w->set, m);
        w->is_disturbed = w->is_restless = true;
    }
    if (m && !m->is_gone) {
        m->seen_pass = w->pass;
        m->threads = s->threads;
        judge(w, m, s);
    }
    uint32_t parent = s->ppid > 0 ? member_find(w->set, s->ppid) : MEMBER_NONE;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): an index stands for an item. */
    if (parent == MEMBER_NONE || w->set->items[parent].is_gone || proc_stat_is_dead(s))
        return;
    batch_begin(w, parent);
    (void)batch_add(w, s->pid);
}

static void look_for_unseen(struct walk *w)
{
    for (size_t i = 0; i < w->set->count; i++) {
        struct member *m = &w->set->items[i];
        struct proc_stat s;
        if (m->is_gone || m->seen_pass == w->pass)
            continue;
        w->is_disturbed = w->is_restless = true;
        (void)member_look(w->set, m, &s);
    }
}

/* True at the end of the scan. */
static bool scan_on(struct walk *w)
{
    struct proc_stat s;
    if (!w->scan)
        w->scan = proc_scan_new();
    int rc = w->scan ? proc_scan_next(w->scan, &s) : -1;
    if (rc > 0) {
        visit_scanned(w, &s);
        return false;
    }
    if (rc < 0)
        note_unread(w, 0, errno);
    proc_scan_free(&w->scan);
    if (rc == 0)
        look_for_unseen(w);
    return true;
}

/* --- passes --- */

static void begin_pass(struct walk *w)
{
    w->pass++;
    w->cursor = 0;
    w->pass_found = 0;
    w->zombies = 0;
    w->is_unsettled = w->is_disturbed = false;
    w->pass_unread = 0;
    batch_begin(w, MEMBER_NONE);
    w->collect(w->context);
    if (w->cgroup_fd >= 0) {
        char events[256];
        w->is_frozen = fd_read_file(w->cgroup_fd, "cgroup.events", events, sizeof events) > 0 &&
                       strstr(events, "frozen 1");
        (void)proc_list_pids(w->cgroup_fd, "cgroup.procs", batch_add, w);
    }
    w->stage = proc_has_children_files() ? PASS_MEMBERS : PASS_SCAN;
}

static enum walk_result end_pass(struct walk *w)
{
    w->stage = PASS_BEGIN;
    w->unread_pid = w->pass_unread;
    /* Somebody who turns up after the first pass was forked during the walk. */
    if (w->pass_found > 0 && w->found > w->pass_found)
        w->is_restless = true;
    if (w->zombies != w->last_zombies)
        w->is_disturbed = true;
    w->last_zombies = w->zombies;
    w->is_growing = w->pass_found > 0;
    if (w->is_growing || w->is_unsettled || w->is_disturbed)
        w->clean_passes = 0;
    else
        w->clean_passes++;
    if (w->clean_passes >= (w->is_restless ? 2 : 1))
        return WALK_CLEAN;
    return w->is_unsettled && !w->is_growing && !w->is_disturbed ? WALK_WAIT : WALK_MORE;
}

static bool is_to_repeat(struct walk *w)
{
    bool has_more = w->stage == PASS_MEMBERS && w->batch.parent != MEMBER_NONE &&
                    w->batch.count > 0 && (w->batch.found > 0 || w->batch.vanished > 0);
    return has_more && w->is_restless && !w->set->items[w->batch.parent].is_gone &&
           w->repeats++ < MAX_REPEATS;
}

/* One small piece of work; true at the end of a pass. */
static bool work(struct walk *w)
{
    if (w->batch.next < w->batch.count) {
        hold_one(w, w->batch.pids[w->batch.next++]);
        return false;
    }
    if (is_to_repeat(w)) {
        list_children(w, w->batch.parent);
        return false;
    }
    switch (w->stage) {
    case PASS_BEGIN:
        begin_pass(w);
        return false;
    case PASS_MEMBERS:
        if (w->cursor == w->set->count)
            return true;
        w->repeats = 0;
        visit(w, (uint32_t)w->cursor++);
        return false;
    case PASS_SCAN:
        return scan_on(w) && w->batch.next == w->batch.count;
    }
    return true;
}

enum walk_result walk_step(struct walk *w, uint64_t until_ns)
{
    w->turn++;
    do
        if (work(w)) {
            enum walk_result result = end_pass(w);
            if (result != WALK_MORE)
                return result;
        }
    while (!w->is_abandoned && clock_mono_ns() < until_ns);
    return WALK_MORE;
}
