/*
 * The order of events of one teardown. Callbacks of the loop only call step(), which works for a
 * slice of time, moves the state on, and arms one timer and at most one pidfd for its next turn.
 * walk.c finds and stops, member.c knows whom a signal goes to.
 *
 * Facts that the order rests on:
 *  - A stopped process keeps a signal that it handles until SIGCONT; a signal whose default is to
 *    end it ends it at once (signal(7)). So every member has its SIGTERM before the first one
 *    can run again, and no shell runs its next statement because its child has died.
 *  - SIGCONT goes to those that are held, not to a new walk: the root may be gone by then and its
 *    stopped children belong to another parent.
 *  - A signal to all of a frozen cgroup is taken when it is thawed, SIGKILL at once (cgroups(7)).
 */
#include "sessions/teardown.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "sessions/member.h"
#include "sessions/reminder.h"
#include "sessions/walk.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS              1000000ull /* in ns */
#define SLICE_NS        (2 * MS)   /* work in one turn of the loop */
#define FREEZE_LIMIT_NS (1000 * MS)
#define REFREEZE_NS     (500 * MS)   /* the same before SIGKILL */
#define CHASE_NS        (2000 * MS)  /* SIGKILL to all new ones, while the others stay stopped */
#define VERIFY_LIMIT_NS (2000 * MS)  /* after the last SIGKILL */
#define VERIFY_END_NS   (10000 * MS) /* after the first one, whoever still turns up */
#define REFUSED_LIMIT_NS                                                                           \
    (200 * MS) /* those we may not signal can follow the others by themselves */
#define POLL_MS         20
#define QUICK_TURNS     10 /* turns without a pause while members are about to stop */
#define SLOWEST_WAIT_MS 8
#define SURVIVORS_TOLD  16
#define SPARES          3

enum teardown_state {
    TEARDOWN_FREEZE, /* walk and stop until nobody new is found */
    TEARDOWN_TERM,   /* the first signal to all, then SIGCONT to all */
    TEARDOWN_GRACE,  /* wait until all are gone or the time is over */
    TEARDOWN_KILL,   /* walk and stop again, SIGKILL to all */
    TEARDOWN_VERIFY, /* wait until all are gone, walk once more; back to KILL for anybody new */
    TEARDOWN_DONE,   /* tell, free */
    TEARDOWN_STATE_COUNT
};
static const char *const state_names[] = {
    [TEARDOWN_FREEZE] = "freeze", [TEARDOWN_TERM] = "term",     [TEARDOWN_GRACE] = "grace",
    [TEARDOWN_KILL] = "kill",     [TEARDOWN_VERIFY] = "verify", [TEARDOWN_DONE] = "done",
};
static_assert(sizeof state_names / sizeof *state_names == TEARDOWN_STATE_COUNT, "name each state");

struct teardown {
    struct teardown_plan plan;
    enum teardown_state state;
    struct member_set set;
    struct walk walk;

    ev_timer timer; /* the next turn */
    ev_io gone;     /* the pidfd of the member that is waited for */
    unsigned waits; /* turns in a row without progress */

    uint32_t *order;       /* children before parents; NULL: reverse order of the set */
    size_t cursor;         /* of the state: place in the order, or the member that is waited for */
    bool is_continuing;    /* TERM: the second half */
    bool is_runaway;       /* some fork away faster than they can be stopped */
    bool is_walk_done;     /* KILL: nobody left to find, or no time for it */
    bool is_walking;       /* VERIFY */
    bool is_verified;      /* VERIFY: nobody left but those who refuse */
    uint64_t state_ns;     /* since when */
    uint64_t grace_end_ns; /* GRACE */
    struct reminder reminder; /* GRACE */
    uint64_t first_kill_ns;   /* 0: none yet */
    uint64_t last_kill_ns;
    uint64_t next_look_ns; /* VERIFY */

    bool is_stepping, is_collecting, is_cancelled, is_telling;

    struct teardown_survivor survivors[SURVIVORS_TOLD];
    struct teardown_report report;
};

/* What a state's function answers: NOW (go on), or the pause before the next turn in ms. */
#define NOW (-1)

static void set_state(struct teardown *t, enum teardown_state to)
{
    LOG_DBG("teardown_state", F_STR("from", state_names[t->state]), F_STR("to", state_names[to]),
            F_INT("members", t->set.count), F_INT("alive", t->set.alive));
    if (to <= t->state && !(t->state == TEARDOWN_VERIFY && to == TEARDOWN_KILL))
        LOG_ERR("teardown_bad_state", F_STR("from", state_names[t->state]),
                F_STR("to", state_names[to]));
    t->state = to;
    t->state_ns = clock_mono_ns();
    t->cursor = 0;
    t->waits = 0;
    free(t->order);
    t->order = NULL;
}

/* --- the cgroup --- */

/* The files may be missing (an older kernel) or not ours to write: the walk does without them. */
static void cgroup_write(const struct teardown *t, const char *file, const char *text)
{
    if (t->plan.cgroup_fd < 0)
        return;
    CLEANUP_FD int fd = openat(t->plan.cgroup_fd, file, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        (void)fd_write_all(fd, text, strlen(text));
}

/* --- descriptors --- */

/* Kept for reading /proc, from the start of init on, so that no other part of it can use them up;
 * closed while a step works. */
static int spares[SPARES] = {-1, -1, -1};

void teardown_reserve(void)
{
    for (int i = 0; i < SPARES; i++)
        if (spares[i] < 0)
            spares[i] = open("/", O_PATH | O_CLOEXEC);
}

void teardown_unreserve(void)
{
    for (int i = 0; i < SPARES; i++)
        fd_close(&spares[i]);
}

/* --- FREEZE --- */

/* First look again at once, since stopping takes microseconds, then more and more rarely. */
static int pause_ms(struct teardown *t)
{
    if (t->waits++ < QUICK_TURNS)
        return 0;
    int ms = 1 << (t->waits - QUICK_TURNS - 1 < 3 ? t->waits - QUICK_TURNS - 1 : 3);
    return ms < SLOWEST_WAIT_MS ? ms : SLOWEST_WAIT_MS;
}

static bool skips_grace(const struct teardown *t)
{
    return t->plan.first_signal == SIGKILL || t->plan.grace_ms == 0;
}

static int do_freeze(struct teardown *t, uint64_t until_ns)
{
    enum walk_result result = walk_step(&t->walk, until_ns);
    bool is_late = clock_mono_ns() - t->state_ns > FREEZE_LIMIT_NS;
    /* Late because somebody keeps forking faster than we stop: then no grace. Late because
     * somebody just does not stop: that is no reason to deny it to the others. */
    t->is_runaway = is_late && walk_is_growing(&t->walk);
    if (result == WALK_CLEAN || is_late || t->walk.is_full) {
        bool is_hopeless = t->is_runaway || t->walk.is_full;
        t->is_walk_done = !t->is_runaway; /* for KILL, if it is next */
        set_state(t, is_hopeless || skips_grace(t) ? TEARDOWN_KILL : TEARDOWN_TERM);
        return NOW;
    }
    return result == WALK_WAIT ? pause_ms(t) : 0;
}

/* --- TERM --- */

static struct member *member_at(struct teardown *t, size_t place)
{
    return &t->set.items[t->order ? t->order[place] : t->set.count - 1 - place];
}

/* Send a signal to every member, children before parents. True at the end. */
static bool signal_all(struct teardown *t, int sig, uint64_t until_ns)
{
    if (t->cursor == 0 && !t->order)
        t->order = member_order(&t->set);
    while (t->cursor < t->set.count) {
        struct member *m = member_at(t, t->cursor++);
        if (!m->is_gone && !(sig == SIGKILL && m->is_killed))
            (void)member_signal(&t->set, m, sig);
        if (clock_mono_ns() >= until_ns)
            return false;
    }
    return true;
}

static int do_term(struct teardown *t, uint64_t until_ns)
{
    if (!t->is_continuing) {
        if (!signal_all(t, t->plan.first_signal, until_ns))
            return 0;
        t->is_continuing = true;
        t->cursor = 0;
    }
    if (!signal_all(t, SIGCONT, until_ns))
        return 0;
    cgroup_write(t, "cgroup.freeze", "0");
    t->is_walk_done = false;
    set_state(t, TEARDOWN_GRACE);
    t->grace_end_ns = t->state_ns + t->plan.grace_ms * MS;
    reminder_start(&t->reminder);
    return NOW;
}

/* --- GRACE --- */

static void on_gone(struct ev_loop *loop, ev_io *io, int events);

/* Go to the next member that lives and is ours to signal; watch it. True if there is none. */
static bool await_all(struct teardown *t, uint64_t until_ns, int *wait_ms)
{
    *wait_ms = 0;
    while (t->cursor < t->set.count) {
        struct member *m = &t->set.items[t->cursor];
        if (!m->is_gone && !m->refused && !member_has_gone(&t->set, m)) {
            *wait_ms = POLL_MS;
            if (m->pidfd >= 0) {
                ev_io_set(&t->gone, m->pidfd, EV_READ);
                ev_io_start(t->plan.loop, &t->gone);
                *wait_ms = -1;
            }
            return false;
        }
        t->cursor++;
        if (clock_mono_ns() >= until_ns)
            return false;
    }
    return true;
}

static int ms_until(uint64_t when_ns)
{
    uint64_t now = clock_mono_ns();
    uint64_t ms = when_ns > now ? (when_ns - now + MS - 1) / MS : 0;
    return ms < 1000000 ? (int)ms : 1000000;
}

static int do_grace(struct teardown *t, uint64_t until_ns)
{
    int wait_ms;
    int left_ms = ms_until(t->grace_end_ns);
    if (left_ms == 0 || await_all(t, until_ns, &wait_ms)) {
        ev_io_stop(t->plan.loop, &t->gone);
        walk_restart(&t->walk);
        set_state(t, TEARDOWN_KILL);
        return NOW;
    }
    int remind_ms = reminder_step(&t->reminder, until_ns);
    left_ms = remind_ms >= 0 && remind_ms < left_ms ? remind_ms : left_ms;
    return wait_ms < 0 || wait_ms > left_ms ? left_ms : wait_ms;
}

/* --- KILL --- */

/* Find and stop those that have been forked since. Those that cannot be stopped are chased: each
 * new one is killed as it is found, while the members that are stopped stay so, because their end
 * would leave those that are still unknown to parents that are not ours to look at. */
static int walk_before_kill(struct teardown *t, uint64_t until_ns)
{
    t->walk.first_signal = t->is_runaway ? SIGKILL : SIGSTOP;
    enum walk_result result = walk_step(&t->walk, until_ns);
    uint64_t limit_ns = t->is_runaway ? REFREEZE_NS + CHASE_NS : REFREEZE_NS;
    bool is_late = clock_mono_ns() - t->state_ns > limit_ns;
    if (is_late && !t->is_runaway && walk_is_growing(&t->walk))
        t->is_runaway = true;
    else
        t->is_walk_done = result == WALK_CLEAN || t->walk.is_full || is_late;
    if (t->is_walk_done)
        return NOW;
    return result == WALK_WAIT ? pause_ms(t) : 0;
}

static int do_kill(struct teardown *t, uint64_t until_ns)
{
    if (!t->is_walk_done)
        return walk_before_kill(t, until_ns);
    if (t->set.alive > 0) {
        if (!signal_all(t, SIGKILL, until_ns))
            return 0;
        cgroup_write(t, "cgroup.kill", "1");
        t->last_kill_ns = clock_mono_ns();
        if (t->first_kill_ns == 0)
            t->first_kill_ns = t->last_kill_ns;
    }
    t->is_verified = t->set.alive == 0 && !t->walk.is_full; /* the walk was just now */
    set_state(t, TEARDOWN_VERIFY);
    t->is_walking = false;
    t->next_look_ns = t->state_ns + POLL_MS * MS;
    return NOW;
}

/* --- VERIFY --- */

static void begin_verify_walk(struct teardown *t)
{
    if (t->walk.is_full || t->set.count - t->set.alive > member_limit / 2)
        member_compact(&t->set);
    t->is_walking = true;
    t->cursor = 0;
    walk_restart(&t->walk);
}

/* True if only members that refuse signals are left. */
static bool is_all_ours_gone(struct teardown *t)
{
    for (size_t i = 0; i < t->set.count; i++)
        if (!t->set.items[i].is_gone && !t->set.items[i].refused)
            return false;
    return true;
}

static int verify_walk(struct teardown *t, uint64_t until_ns)
{
    enum walk_result result = walk_step(&t->walk, until_ns);
    if (t->walk.found > 0) {
        t->is_walk_done = false; /* it goes on in KILL */
        set_state(t, TEARDOWN_KILL);
        return NOW;
    }
    if (result != WALK_CLEAN)
        return result == WALK_WAIT ? pause_ms(t) : 0;
    t->is_walking = false;
    t->waits = 0;
    t->next_look_ns = clock_mono_ns() + POLL_MS * MS;
    t->is_verified = is_all_ours_gone(t) && !t->walk.is_full;
    return NOW;
}

static int do_verify(struct teardown *t, uint64_t until_ns)
{
    uint64_t now = clock_mono_ns();
    bool is_over = t->first_kill_ns && (now - t->last_kill_ns > VERIFY_LIMIT_NS ||
                                        now - t->first_kill_ns > VERIFY_END_NS);
    bool refused_too = t->set.alive > 0 && now - t->last_kill_ns < REFUSED_LIMIT_NS;
    if (is_over || (t->is_verified && !refused_too)) {
        set_state(t, TEARDOWN_DONE);
        return NOW;
    }
    if (t->is_walking)
        return verify_walk(t, until_ns);
    int wait_ms;
    bool is_gone = await_all(t, until_ns, &wait_ms);
    int left_ms = ms_until(t->next_look_ns);
    if ((is_gone && !t->is_verified) || left_ms == 0) {
        ev_io_stop(t->plan.loop, &t->gone);
        begin_verify_walk(t);
        return NOW;
    }
    return wait_ms < 0 || wait_ms > left_ms || is_gone ? left_ms : wait_ms;
}

/* --- DONE --- */

static void add_survivor(struct teardown *t, pid_t pid, const char *comm, const char *why)
{
    if (t->report.survivors_told < SURVIVORS_TOLD) {
        struct teardown_survivor *s = &t->survivors[t->report.survivors_told++];
        s->pid = pid;
        snprintf(s->comm, sizeof s->comm, "%s", comm);
        snprintf(s->why, sizeof s->why, "%s", why);
    }
    t->report.survivor_count++;
}

static void make_report(struct teardown *t)
{
    t->report.survivors = t->survivors;
    for (size_t i = 0; i < t->set.count; i++) {
        struct member *m = &t->set.items[i];
        struct proc_stat s = {.state = '?'};
        if (m->is_gone || (!member_look(&t->set, m, &s) && m->is_gone))
            continue;
        char state[] = "state ?";
        state[sizeof state - 2] = s.state;
        add_survivor(t, m->pid, s.comm, m->refused ? strerror(m->refused) : state);
    }
    if (t->walk.unread_pid > 0 && member_find(&t->set, t->walk.unread_pid) == MEMBER_NONE)
        add_survivor(t, t->walk.unread_pid, "", strerror(t->walk.unread_why));
    t->report.ended = t->set.ended;
    t->report.names = t->set.names;
    t->report.name_count = t->set.name_count;
}

void teardown_keep(struct teardown_kept *to, const struct teardown_report *from)
{
    to->report = *from;
    if (to->report.survivors_told > SURVIVORS_KEPT)
        to->report.survivors_told = SURVIVORS_KEPT;
    for (size_t i = 0; i < to->report.survivors_told; i++)
        to->survivors[i] = from->survivors[i];
    for (size_t i = 0; i < to->report.name_count; i++)
        to->names[i] = from->names[i];
    to->report.survivors = to->survivors;
    to->report.names = to->names;
}

static void stop_watchers(struct teardown *t)
{
    ev_timer_stop(t->plan.loop, &t->timer);
    ev_io_stop(t->plan.loop, &t->gone);
}

static void teardown_free(struct teardown *t)
{
    walk_free(&t->walk);
    member_set_free(&t->set);
    fd_close(&t->plan.cgroup_fd);
    free(t->order);
    free(t);
}

static void finish(struct teardown *t)
{
    stop_watchers(t);
    cgroup_write(t, "cgroup.freeze", "0");
    make_report(t);
    LOG_DBG("teardown_end", F_INT("ended", t->report.ended),
            F_INT("survivors", t->report.survivor_count));
    t->is_telling = true;
    t->plan.on_done(t->plan.context, &t->report);
    teardown_free(t);
}

/* --- steps --- */

static void arm(struct teardown *t, int ms)
{
    ev_now_update(t->plan.loop);
    ev_timer_stop(t->plan.loop, &t->timer);
    ev_timer_set(&t->timer, (double)ms / 1000., 0.);
    ev_timer_start(t->plan.loop, &t->timer);
}

static int work(struct teardown *t, uint64_t until_ns)
{
    switch (t->state) {
    case TEARDOWN_FREEZE:
        return do_freeze(t, until_ns);
    case TEARDOWN_TERM:
        return do_term(t, until_ns);
    case TEARDOWN_GRACE:
        return do_grace(t, until_ns);
    case TEARDOWN_KILL:
        return do_kill(t, until_ns);
    case TEARDOWN_VERIFY:
        return do_verify(t, until_ns);
    case TEARDOWN_DONE:
    case TEARDOWN_STATE_COUNT:
        break;
    }
    return 0;
}

/* One slice of work. Returns the pause before the next one in ms. */
static int advance(struct teardown *t)
{
    uint64_t until_ns = clock_mono_ns() + SLICE_NS;
    ev_io_stop(t->plan.loop, &t->gone); /* the pidfd may be closed below */
    teardown_unreserve();
    t->is_stepping = true;
    int pause;
    do
        pause = work(t, until_ns);
    while (pause == NOW && !t->is_cancelled && clock_mono_ns() < until_ns);
    t->is_stepping = false;
    teardown_reserve();
    return pause > 0 ? pause : 0;
}

static void step(struct teardown *t)
{
    if (t->is_cancelled)
        teardown_cancel(t);
    else if (t->state == TEARDOWN_DONE)
        finish(t);
    else
        arm(t, advance(t));
}

static void on_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    step(timer->data);
}

static void on_gone(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop;
    (void)events;
    step(io->data);
}

static void on_collect(void *context)
{
    struct teardown *t = context;
    t->is_collecting = true;
    t->plan.collect(t->plan.context, t);
    t->is_collecting = false;
}

static void on_look(void *context)
{
    struct teardown *t = context;
    t->plan.remind(t->plan.context, t);
}

/* --- the face --- */

struct teardown *teardown_start(const struct teardown_plan *plan, struct error *e)
{
    struct teardown *t = calloc(1, sizeof *t);
    if (!t || member_set_init(&t->set) < 0) {
        free(t);
        error_set(e, ERR_MEMORY, "teardown: out of memory");
        return NULL;
    }
    t->plan = *plan;
    if (plan->cgroup_fd >= 0) /* -1 where descriptors are short: then the walk has to do */
        t->plan.cgroup_fd = fcntl(plan->cgroup_fd, F_DUPFD_CLOEXEC, 0);
    t->walk.set = &t->set;
    t->walk.collect = on_collect;
    t->walk.context = t;
    t->walk.cgroup_fd = t->plan.cgroup_fd;
    t->walk.first_signal = SIGSTOP;
    t->reminder = (struct reminder){.set = &t->set,
                                    .sig = plan->first_signal,
                                    .tell = plan->remind ? on_look : NULL,
                                    .context = t};
    ev_init(&t->timer, on_timer);
    ev_init(&t->gone, on_gone);
    t->timer.data = t->gone.data = t;
    t->state_ns = clock_mono_ns();
    walk_restart(&t->walk);
    cgroup_write(t, "cgroup.freeze", "1");
    arm(t, advance(t));
    return t;
}

void teardown_add_root(struct teardown *t, pid_t pid)
{
    if (t->is_collecting)
        walk_add_root(&t->walk, pid);
}

size_t teardown_tell_children(struct teardown *t, pid_t parent)
{
    return teardown_has(t, parent) ? reminder_tell_children(&t->reminder, parent) : 0;
}

void teardown_hurry(struct teardown *t, uint64_t grace_ms)
{
    if (grace_ms < t->plan.grace_ms)
        t->plan.grace_ms = grace_ms;
    uint64_t end_ns = clock_mono_ns() + grace_ms * MS;
    if (t->state == TEARDOWN_GRACE && end_ns < t->grace_end_ns) {
        t->grace_end_ns = end_ns;
        if (!t->is_stepping)
            arm(t, 0);
    }
}

bool teardown_has(const struct teardown *t, pid_t pid)
{
    uint32_t index = member_find(&t->set, pid);
    if (index == MEMBER_NONE)
        return false;
    const struct member *m = &t->set.items[index];
    struct proc_stat s;
    return !m->is_gone || proc_stat_read(pid, &s) < 0 || s.start_ticks == m->start_ticks;
}

void teardown_cancel(struct teardown *t)
{
    if (t->is_stepping) { /* from collect(): in the next turn */
        t->is_cancelled = t->walk.is_abandoned = true;
        return;
    }
    if (t->is_telling) /* from on_done(): it is over anyway */
        return;
    stop_watchers(t);
    for (size_t i = 0; i < t->set.count; i++) {
        struct member *m = &t->set.items[i];
        if (!m->is_gone && (!m->was_stopped || t->state > TEARDOWN_FREEZE))
            (void)member_signal(&t->set, m, SIGCONT);
    }
    cgroup_write(t, "cgroup.freeze", "0");
    LOG_DBG("teardown_cancelled", F_STR("state", state_names[t->state]),
            F_INT("members", t->set.count));
    teardown_free(t);
}
