/*
 * A run: what one exec asked for (a command of a session, or a process without one) from its
 * request until nobody can ask for it any more. Any number of viewers share it: all get the whole
 * output and the same answer, whenever they come.
 *
 * An id that the caller chose makes the call at-most-once: the same call under that id joins the
 * run there is, another call is refused. Such a run, and one that was detached, stays when it is
 * over: the newest command_keep of them, each with output_keep of its output. After that its id is
 * free again.
 *
 * A run without a holder (an exec that is attached; who only waits or reads its log is none) is
 * killed, unless it was detached.
 */
#ifndef SESSIONS_RUN_H
#define SESSIONS_RUN_H

#include "sessions/command.h"
#include "sessions/process.h"

struct run;

/* Any may be NULL. */
struct run_events {
    void (*on_started)(void *owner, pid_t pid);
    void (*on_stdin_ready)(void *owner); /* to the feeder only */
    /* It is over: run_outcome() is there and the output has ended. The viewer may leave. */
    void (*on_done)(void *owner);
};

/* Lives in its owner. */
struct run_viewer {
    struct list link;
    struct run *run; /* NULL: not a viewer (any more) */
    const struct run_events *events;
    void *owner;
    bool is_holder;
};

struct run_call {
    const char *id;   /* chosen by the caller; NULL: one is made up */
    uint64_t number;  /* of what is asked for (base/hash.h); the same call has the same */
    bool is_detached; /* it goes on without a holder */
    bool is_by_id;    /* it joins the run of that id, whatever that was asked for */
};

/* The run that a call with this id joins: *run, NULL if there is none. 0, or -1 with *e: the id is
 * no name, or belongs to another call or process. */
int run_of_call(struct sessions *all, const struct run_call *call, struct run **run,
                struct error *e);
/* Begin one. Nothing happens before the viewer has joined and, for a command, session_step().
 * NULL with *e. */
struct run *run_command(struct session *s, struct command_request *request,
                        const struct run_call *call, struct error *e);
struct run *run_process(struct sessions *all, struct process_request *request,
                        const struct run_call *call, struct error *e);
/* By id, or NULL. */
struct run *run_find(const struct sessions *all, const char *id);

/* Hear of it from now on; what has happened before is not told again. The first one that joins is
 * the feeder: it alone writes to stdin, which ends when it leaves. */
void run_join(struct run *r, struct run_viewer *v);
/* As of command_wait_with(): before it joins. */
int run_wait_with(const struct run *r, const struct lock_patience *patience, struct error *e);
/* The reason for a viewer that has waited so long for it to begin, and will no longer. */
void run_explain_wait(const struct run *r, uint64_t waited_ms, struct error *e);
/* May free the run. A viewer that has joined none is fine. */
void run_leave(struct run_viewer *v);
/* From now on it goes on without a holder, and stays when it is over. */
void run_detach(struct run *r);

const char *run_id(const struct run *r);
const char *run_session(const struct run *r); /* the name, or "" */
const char *run_text(const struct run *r);
bool run_has_started(const struct run *r);
/* It has written something: viewers hear of its start first, if they have not yet. */
void run_tell_start(struct run *r);
bool run_is_waiting(const struct run *r); /* in the queue of its session */
pid_t run_pid(const struct run *r);       /* of the shell or process that ran it; 0 before */
struct output *run_output(const struct run *r);
const struct outcome *run_outcome(const struct run *r); /* NULL until it is over */

/* As of command_write(): the feeder's bytes. */
long run_write(struct run *r, const char *bytes, size_t n, struct error *e);
void run_close_stdin(struct run *r);
/* Kill it if it is not over, with the grace of its session. */
void run_kill(struct run *r, enum verdict verdict);

/* Walk those that are over and kept, oldest end first. */
void runs_each_kept(const struct sessions *all, void (*each)(void *context, const struct run *r),
                    void *context);
/* None that there is stays when it is over, and when nobody looks at it any more. */
void runs_forget(struct sessions *all);
/* At the end of init, after the sessions and processes. */
void runs_free(struct sessions *all);

#endif
