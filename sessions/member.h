/*
 * The processes that a teardown holds. A member is one process for ever: pid and start time, and a
 * pidfd while descriptors last. The set is an array in the order of discovery, so that an index
 * names a member, with a hash by pid. Private to teardown.
 */
#ifndef SESSIONS_MEMBER_H
#define SESSIONS_MEMBER_H

#include "sessions/proc.h"
#include "sessions/teardown.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MEMBER_NONE  UINT32_MAX
#define MEMBER_LIMIT 65536u /* members of one set; a walk that finds more says so (HOLD_FULL) */

struct member {
    uint64_t start_ticks;
    pid_t pid;
    int pidfd;       /* -1: the start time is read again before each signal */
    int refused;     /* errno of the last signal if the kernel refused it, or 0 */
    uint32_t parent; /* index of the member that it was found under, or MEMBER_NONE */
    uint32_t depth;  /* filled in by member_order() */
    unsigned threads;
    bool may_execute;   /* it seemed to be on its way from fork to exec when it was found */
    bool is_gone;       /* dead, perhaps not reaped yet; the pidfd is closed */
    bool is_stopped;    /* every thread was seen stopped, and it was not continued since */
    bool was_stopped;   /* before this program stopped it */
    bool is_killed;     /* SIGKILL was sent */
    bool is_fresh;      /* found in this pass; its state need not be read again */
    uint32_t seen_pass; /* the pass of a scan that saw it last */
};

struct member_set {
    struct member *items;
    size_t count;
    size_t room;
    uint32_t *slots; /* open addressing; index + 1, 0 is empty */
    size_t slot_count;
    size_t alive;                           /* members not gone */
    size_t ended;                           /* members that were seen alive and are gone */
    struct member_name names[MEMBER_NAMES]; /* of the first ones */
    size_t name_count;
    pid_t self;       /* never a member */
    int pidfd_limit;  /* descriptors from this number on are left to the rest of the program */
    bool is_inverted; /* some parent was found after its child */
};

enum hold_result {
    HOLD_NEW,
    HOLD_KNOWN,
    HOLD_ZOMBIE,
    HOLD_VANISHED,   /* no such process any more */
    HOLD_UNSURE,     /* perhaps not the one that was meant: read its pid anew */
    HOLD_FULL,       /* no room or no memory */
    HOLD_UNREADABLE, /* /proc cannot be read now (no descriptor, no memory) */
};

/* How to be sure that a pid which was read some time ago still names the same process. */
struct hold_claim {
    pid_t ppid;            /* it is the one if this is its parent; 0: no parent is known */
    uint64_t before_ticks; /* it is the one if it has started before this tick since boot */
};

/* MEMBER_LIMIT; a test makes it smaller. */
extern size_t member_limit;

/* 0, or -1 without memory. */
int member_set_init(struct member_set *set);
void member_set_free(struct member_set *set);

/* Index of the newest member with this pid, gone or not, or MEMBER_NONE. */
uint32_t member_find(const struct member_set *set, pid_t pid);

/* Take a process into the set and send it first_signal (SIGSTOP or SIGKILL). pid 0, 1 and our own
 * are never taken. A refused signal is kept in the member: the process is held all the same. */
enum hold_result member_hold(struct member_set *set, pid_t pid, uint32_t parent,
                             const struct hold_claim *claim, int first_signal);

/* Send a signal to exactly this process. 0, or -1 with errno; ESRCH: it is gone now. */
int member_signal(struct member_set *set, struct member *m, int sig);

/* Read the state: false if it is gone, or if /proc could not be read (then it is not marked). */
bool member_look(struct member_set *set, struct member *m, struct proc_stat *s);

/* True, once, if one that was about to execute a program has done so since it was found. */
bool member_has_executed(struct member_set *set, struct member *m);

/* True if it is known to be gone, by the pidfd if there is one, else by /proc. */
bool member_has_gone(struct member_set *set, struct member *m);

void member_mark_gone(struct member_set *set, struct member *m);

/* Forget those that are gone; indices change. */
void member_compact(struct member_set *set);

/* Give up some pidfds, the newest first, and take no more: something needs the descriptors. */
void member_release_pidfds(struct member_set *set, unsigned how_many);

/* An array of set->count indices, children before their parents, that the caller frees; NULL if
 * plain reverse order is such an order (or nearly, where memory is short). */
uint32_t *member_order(struct member_set *set);

#endif
