/*
 * Identity. A pid alone may name another process at any time, unless the process is our own
 * unreaped child. What makes a member certain:
 *  - The pidfd is opened before stat is read, and the first signal goes through it after that: a
 *    signal that is taken proves that the process had not been reaped in between, so the start
 *    time belongs to the pidfd (pidfd_open(2), pidfd_send_signal(2)).
 *  - That it is the process that the caller meant: its parent is the one it was found under, or
 *    it has been running since before its pid was read (hold_claim; cases G1, G2).
 *  - Without a pidfd the start time is compared right before each signal; what is left is the
 *    time between two system calls.
 */
#include "sessions/member.h"
#include "base/fd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST_ROOM      16
#define FIRST_SLOTS     64 /* a power of two; at most half of them are used */
#define MAX_DEPTH_TURNS 64
#define YOUNG_TICKS     50 /* clock ticks between fork and exec, unless it waits for a CPU: 0.5 s */

/* --- the set --- */

size_t member_limit = MEMBER_LIMIT;

int member_set_init(struct member_set *set)
{
    *set = (struct member_set){.self = getpid(), .pidfd_limit = 64};
    set->items = malloc(FIRST_ROOM * sizeof *set->items);
    set->slots = calloc(FIRST_SLOTS, sizeof *set->slots);
    if (!set->items || !set->slots) {
        member_set_free(set);
        return -1;
    }
    set->room = FIRST_ROOM;
    set->slot_count = FIRST_SLOTS;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 4u * MEMBER_LIMIT)
        set->pidfd_limit = (int)(files.rlim_cur - files.rlim_cur / 4);
    else
        set->pidfd_limit = 2 * MEMBER_LIMIT;
    return 0;
}

void member_set_free(struct member_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        fd_close(&set->items[i].pidfd);
    free(set->items);
    free(set->slots);
    set->items = NULL;
    set->slots = NULL;
    set->count = set->room = set->slot_count = 0;
}

/* The slot that holds this pid, or the empty one where it belongs. */
static size_t slot_of(const struct member_set *set, pid_t pid)
{
    size_t mask = set->slot_count - 1;
    size_t slot = ((uint32_t)pid * 2654435769u >> 7) & mask;
    while (set->slots[slot] && set->items[set->slots[slot] - 1].pid != pid)
        slot = (slot + 1) & mask;
    return slot;
}

uint32_t member_find(const struct member_set *set, pid_t pid)
{
    return set->slots[slot_of(set, pid)] - 1; /* an empty slot gives MEMBER_NONE */
}

static void fill_slots(struct member_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        set->slots[slot_of(set, set->items[i].pid)] = i + 1; /* the newest of a pid wins */
}

/* Room for one more, in both tables. */
static int grow(struct member_set *set)
{
    if (set->count >= member_limit)
        return -1;
    if (set->count == set->room) {
        struct member *items = realloc(set->items, 2 * set->room * sizeof *items);
        if (!items)
            return -1;
        set->items = items;
        set->room *= 2;
    }
    if (2 * (set->count + 1) > set->slot_count) {
        uint32_t *slots = calloc(2 * set->slot_count, sizeof *slots);
        if (!slots)
            return -1;
        free(set->slots);
        set->slots = slots;
        set->slot_count *= 2;
        fill_slots(set);
    }
    return 0;
}

void member_compact(struct member_set *set)
{
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++)
        if (!set->items[i].is_gone) {
            set->items[kept] = set->items[i];
            set->items[kept].parent = MEMBER_NONE;
            kept++;
        }
    set->count = kept;
    memset(set->slots, 0, set->slot_count * sizeof *set->slots);
    fill_slots(set);
}

void member_mark_gone(struct member_set *set, struct member *m)
{
    if (m->is_gone)
        return;
    m->is_gone = true;
    fd_close(&m->pidfd);
    set->alive--;
    set->ended++;
}

/* --- signals --- */

/* A pidfd within our share of the descriptors, or -1: whoever runs out here does without. */
static int open_pidfd(const struct member_set *set, pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd >= set->pidfd_limit)
        fd_close(&fd);
    return fd;
}

static int deliver(const struct member *m, int sig)
{
    if (m->pidfd >= 0)
        return (int)syscall(SYS_pidfd_send_signal, m->pidfd, sig, NULL, 0);
    return kill(m->pid, sig);
}

int member_signal(struct member_set *set, struct member *m, int sig)
{
    struct proc_stat s;
    if (m->pidfd < 0 && !member_look(set, m, &s)) {
        errno = m->is_gone ? ESRCH : EAGAIN;
        return -1;
    }
    if (deliver(m, sig) < 0) {
        int why = errno;
        if (why == ESRCH)
            member_mark_gone(set, m);
        else if (sig)
            m->refused = why;
        errno = why;
        return -1;
    }
    if (sig && sig != SIGCONT) /* anybody may continue a process of his session: kill(2) */
        m->refused = 0;
    if (sig == SIGCONT)
        m->is_stopped = false;
    if (sig == SIGKILL)
        m->is_killed = true;
    return 0;
}

/* --- holding --- */

static bool is_meant(const struct proc_stat *s, const struct hold_claim *claim)
{
    return (claim->ppid > 0 && s->ppid == claim->ppid) || s->start_ticks < claim->before_ticks;
}

static void relink(struct member_set *set, uint32_t child, uint32_t parent)
{
    if (parent == MEMBER_NONE || parent == child || set->items[child].parent == parent)
        return;
    set->items[child].parent = parent;
    if (parent > child)
        set->is_inverted = true;
}

/* True for a process that seems to be on its way from fork to exec. One that has not come there for
 * long, and waits for neither CPU nor disk, is a subshell that does not mean to. */
static bool is_before_exec(const struct proc_stat *s)
{
    bool is_young = s->start_ticks + YOUNG_TICKS >= proc_ticks_now();
    return !s->has_executed && (is_young || s->state == 'R' || s->state == 'D');
}

/* Read, check and describe the process behind pid; m->pidfd is open or -1. */
static enum hold_result identify(struct member *m, const struct hold_claim *claim,
                                 const struct member *earlier, struct proc_stat *s)
{
    if (proc_stat_read(m->pid, s) < 0)
        return errno == ENOENT || errno == ESRCH ? HOLD_VANISHED : HOLD_UNREADABLE;
    if (proc_stat_is_dead(s) || (earlier && earlier->start_ticks == s->start_ticks))
        return HOLD_ZOMBIE;
    if (!is_meant(s, claim))
        return HOLD_UNSURE;
    m->start_ticks = s->start_ticks;
    m->threads = s->threads;
    m->was_stopped = s->state == 'T';
    m->may_execute = is_before_exec(s);
    return HOLD_NEW;
}

static void note_name(struct member_set *set, const struct member *m, const struct proc_stat *s)
{
    if (set->name_count == MEMBER_NAMES)
        return;
    struct member_name *name = &set->names[set->name_count++];
    name->pid = m->pid;
    memcpy(name->comm, s->comm, sizeof name->comm);
}

enum hold_result member_hold(struct member_set *set, pid_t pid, uint32_t parent,
                             const struct hold_claim *claim, int first_signal)
{
    if (pid <= 1 || pid == set->self)
        return HOLD_ZOMBIE;
    uint32_t known = member_find(set, pid);
    if (known != MEMBER_NONE && !set->items[known].is_gone) {
        relink(set, known, parent);
        return HOLD_KNOWN;
    }
    if (grow(set) < 0)
        return HOLD_FULL;
    struct member m = {
        .pid = pid, .parent = parent, .is_fresh = true, .is_killed = first_signal == SIGKILL};
    m.pidfd = open_pidfd(set, pid);
    const struct member *earlier = known == MEMBER_NONE ? NULL : &set->items[known];
    struct proc_stat s;
    enum hold_result result = identify(&m, claim, earlier, &s);
    if (result == HOLD_UNREADABLE && m.pidfd >= 0) {
        fd_close(&m.pidfd); /* perhaps it took the last descriptor */
        result = identify(&m, claim, earlier, &s);
    }
    if (result == HOLD_NEW && deliver(&m, first_signal) < 0) {
        if (errno == ESRCH)
            result = HOLD_VANISHED;
        else
            m.refused = errno;
    }
    if (result != HOLD_NEW) {
        fd_close(&m.pidfd);
        return result;
    }
    set->slots[slot_of(set, pid)] = (uint32_t)set->count + 1;
    set->items[set->count++] = m;
    set->alive++;
    note_name(set, &m, &s);
    return HOLD_NEW;
}

void member_release_pidfds(struct member_set *set, unsigned how_many)
{
    set->pidfd_limit = 0;
    for (size_t i = set->count; i > 0 && how_many > 0; i--)
        if (set->items[i - 1].pidfd >= 0) {
            fd_close(&set->items[i - 1].pidfd);
            how_many--;
        }
}

/* --- looking --- */

bool member_look(struct member_set *set, struct member *m, struct proc_stat *s)
{
    if (m->is_gone)
        return false;
    if (proc_stat_read(m->pid, s) < 0) {
        if (errno == ENOENT || errno == ESRCH)
            member_mark_gone(set, m);
        return false;
    }
    if (s->start_ticks != m->start_ticks || proc_stat_is_dead(s)) {
        member_mark_gone(set, m);
        return false;
    }
    m->threads = s->threads;
    return true;
}

bool member_has_executed(struct member_set *set, struct member *m)
{
    struct proc_stat s;
    if (!m->may_execute || m->refused || !member_look(set, m, &s) || !s.has_executed)
        return false;
    m->may_execute = false;
    return true;
}

bool member_has_gone(struct member_set *set, struct member *m)
{
    if (m->is_gone)
        return true;
    if (m->pidfd < 0) {
        struct proc_stat s;
        (void)member_look(set, m, &s);
        return m->is_gone;
    }
    /* Readable once the last thread has ended, reaped or not: pidfd_open(2). */
    struct pollfd p = {.fd = m->pidfd, .events = POLLIN};
    if (poll(&p, 1, 0) == 1)
        member_mark_gone(set, m);
    return m->is_gone;
}

/* --- order --- */

/* A child stands behind its parent in the set, except where the parent was found later. Going
 * through the set in both directions in turn settles any mixture soon; the bound is there because
 * the links were seen at different times. */
static uint32_t fill_depths(struct member_set *set)
{
    uint32_t deepest = 0;
    bool changed = true;
    for (size_t i = 0; i < set->count; i++)
        set->items[i].depth = 0;
    for (int turn = 0; changed && turn < MAX_DEPTH_TURNS; turn++) {
        changed = false;
        for (size_t k = 0; k < set->count; k++) {
            struct member *m = &set->items[turn % 2 ? set->count - 1 - k : k];
            if (m->parent == MEMBER_NONE || m->depth > set->items[m->parent].depth)
                continue;
            if (set->items[m->parent].depth >= set->count)
                continue;
            m->depth = set->items[m->parent].depth + 1;
            deepest = m->depth > deepest ? m->depth : deepest;
            changed = true;
        }
    }
    return deepest;
}

/* Counting sort by depth, deepest first. */
static int sort_by_depth(const struct member_set *set, uint32_t deepest, uint32_t *order)
{
    size_t *starts = calloc((size_t)deepest + 2, sizeof *starts);
    if (!starts)
        return -1;
    for (size_t i = 0; i < set->count; i++)
        starts[deepest - set->items[i].depth + 1]++;
    for (size_t d = 1; d <= deepest; d++)
        starts[d] += starts[d - 1];
    for (size_t i = 0; i < set->count; i++)
        order[starts[deepest - set->items[i].depth]++] = (uint32_t)i;
    free(starts);
    return 0;
}

uint32_t *member_order(struct member_set *set)
{
    if (!set->is_inverted)
        return NULL;
    uint32_t *order = malloc((set->count + 1) * sizeof *order);
    if (order && sort_by_depth(set, fill_depths(set), order) < 0) {
        free(order);
        order = NULL;
    }
    return order;
}
