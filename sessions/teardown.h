/*
 * The one way to end a set of process trees (design: teardown): freeze top-down until a walk finds
 * nothing new, SIGTERM depth-first to the set that was held, SIGCONT, wait for the grace (ends
 * early), re-walk and SIGKILL, verify, report. It runs on the event loop in small steps, never
 * blocks, forks or recurses, and works at the pids limit.
 *
 * Identity: every member is held by pid + start time and, while descriptors last, by a pidfd from
 * the walk on; a member without a pidfd is checked by start time right before each signal. Zombies
 * count as gone (their parent may be alive and not ours).
 */
#ifndef SESSIONS_TEARDOWN_H
#define SESSIONS_TEARDOWN_H

#include "base/error.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct teardown;

/* What a member was called when it was found. */
struct member_name {
    pid_t pid;
    char comm[32];
};
#define MEMBER_NAMES 32 /* that are told of */

struct teardown_survivor {
    pid_t pid;
    char comm[32];
    char why[64]; /* "state D", "Operation not permitted" */
};

struct teardown_report {
    size_t ended;                    /* members seen alive at some time and gone now */
    const struct member_name *names; /* of the first members, survivors included */
    size_t name_count;
    size_t survivor_count;                     /* all of them */
    const struct teardown_survivor *survivors; /* the first few (at most 16) */
    size_t survivors_told;
};

/* A report is valid in the call that gives it; this is one for later, with fewer survivors. */
#define SURVIVORS_KEPT 4
struct teardown_kept {
    struct teardown_report report;
    struct teardown_survivor survivors[SURVIVORS_KEPT];
    struct member_name names[MEMBER_NAMES];
};
void teardown_keep(struct teardown_kept *to, const struct teardown_report *from);

struct teardown_plan {
    struct ev_loop *loop;
    int first_signal;  /* SIGTERM unless the caller names another; SIGKILL skips the grace */
    uint64_t grace_ms; /* between the first signal and SIGKILL */
    /* Called at every walk: name the roots of the trees that are to die by calling
     * teardown_add_root() for each (the roots die too). A session's shell that is to live is not
     * named; its children are. Orphans that init has adopted meanwhile must be named as well:
     * one that ignores the first signal and forks goes on when the subreaper above it dies. */
    void (*collect)(void *context, struct teardown *t);
    /* May be NULL. Called again and again during the grace: a chance to help those of whom the
     * caller knows that they lose a signal. */
    void (*remind)(void *context, struct teardown *t);
    /* Called once from the loop, never from inside teardown_start(); t is freed after it. */
    void (*on_done)(void *context, const struct teardown_report *report);
    void *context;
    /* A cgroup v2 folder that holds this set and nobody else (cgroup.freeze, cgroup.kill), or -1;
     * duplicated. */
    int cgroup_fd;
};

/* Keep (give back) the few descriptors that a teardown needs where all others are in use. Each step
 * of a teardown takes them anew. */
void teardown_reserve(void);
void teardown_unreserve(void);

/* Begin. Members are stopped before this returns (small sets) or in the next turns of the loop.
 * NULL with *e set only for want of memory; then nothing was signalled. */
struct teardown *teardown_start(const struct teardown_plan *plan, struct error *e);
/* From collect() only. Unknown and dead pids are ignored. */
void teardown_add_root(struct teardown *t, pid_t pid);
/* From remind() only. A member has forked since it got the first signal: send that to its new
 * children, with all below them. Returns how many there were. */
size_t teardown_tell_children(struct teardown *t, pid_t parent);
/* Go to SIGKILL now, whatever is left of the grace (a second kill, a shorter grace). */
void teardown_hurry(struct teardown *t, uint64_t grace_ms);
/* True if pid belongs to the set that is being ended, or did until it died. */
bool teardown_has(const struct teardown *t, pid_t pid);
/* Forget it without on_done: members that are still stopped are continued. */
void teardown_cancel(struct teardown *t);

#endif
