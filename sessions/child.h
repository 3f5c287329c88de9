/*
 * Child records and the one reaper: the only caller of wait in the program. Everything that spawn
 * starts has a record here until its status was collected; any other pid that turns up is an
 * adopted orphan and only counted.
 *
 * Own children are noticed by their pidfd and waited for by pid (3 µs); strangers are collected by
 * children_sweep(), called when SIGCHLD was seen, to the end: signals merge, so one of them may
 * stand for any number of dead children.
 */
#ifndef SESSIONS_CHILD_H
#define SESSIONS_CHILD_H

#include "base/list.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* How a child ended. step is NULL unless it never reached its program: then step and sys tell
 * what failed (spawn.h) and status is meaningless. */
struct child_exit {
    int status; /* as of waitpid(2) */
    struct rusage usage;
    const char *step;
    int sys;
    int detail; /* spawn.h */
};

/* Why the step failed, in words. */
const char *child_exit_why(const struct child_exit *how);

struct child {
    struct list link; /* in its hash chain */
    pid_t pid;
    int pidfd;       /* -1 where the kernel gives none */
    bool is_started; /* the program was reached (exec succeeded) */
    int exec_pipe;
    ev_io exec_io;
    ev_io pidfd_io;
    void (*on_exec)(void *context);
    void (*on_exit)(void *context, const struct child_exit *how);
    void *context;
};

struct children_stats {
    uint64_t orphans_reaped;
    unsigned live;
};

/* Set up the table for a loop. Called once, before the first spawn. */
void children_init(struct ev_loop *loop);

/* Register a child that spawn() forked. Takes pidfd and exec_pipe. Used by spawn.c only. */
struct child *child_add(pid_t pid, int pidfd, int exec_pipe);

/* Call on_exec when the program is reached. Without it a failure is told with the child's end, and
 * a success wakes nobody. Used by spawn.c only. */
void child_on_exec(struct child *c, void (*on_exec)(void *context));
/* Look now whether the program is reached, and tell: for who has seen what only it can do. */
void child_look_for_exec(struct child *c);

/* Its program is known to run, as it has answered: what would tell of a failure is closed. */
void child_has_executed(struct child *c);

/* Nobody wants to hear of this child any more; it is still reaped. */
void child_forget(struct child *c);

/* The record of a live child of init, or NULL. */
struct child *child_find(pid_t pid);

/* Send a signal. A child that was not reaped yet cannot have lost its pid to another process, so
 * this is safe for every record. Returns 0 or -1 with errno. */
int child_signal(const struct child *c, int sig);

/* Collect every dead child there is. */
void children_sweep(void);

/* The same, until a time (CLOCK_MONOTONIC) has come: *is_done tells whether none was left then; the
 * caller goes on otherwise. Returns the number of strangers among them. */
unsigned children_sweep_until(uint64_t until_ns, bool *is_done);

/* Somebody who wants to look at init's children without the dead among them, as the owner of a
 * child that has just ended: its orphans may be thousands of zombies by now. */
struct sweep_wish {
    struct list link;
    void (*on_swept)(void *context);
    void *context;
    uint64_t until_ns;
};
/* Call on_swept when the strangers that are dead now are collected: at once, from here, where they
 * are few; else from the loop, which turns meanwhile, two seconds later at most. */
void children_await_sweep(struct sweep_wish *w, void (*on_swept)(void *context), void *context);
/* Not any more. Also for a wish that was never made (zeroed) or is fulfilled. */
void sweep_wish_drop(struct sweep_wish *w);

/* True while init has any child, its own or a stranger, dead or alive. */
bool children_exist(void);

const struct children_stats *children_stats(void);

#endif
