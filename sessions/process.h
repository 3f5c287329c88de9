/*
 * A process: something started in the background, as init's own child, that lives on without its
 * starter. It holds its session's lock only until its PID is known. A stateless exec is the same
 * thing with a client attached (is_attached): it is removed when it is over, or becomes a remnant
 * while something that outlived it is there (process_remnant.c). A terminal
 * (sessions/terminal.h) is a process on a pseudo-terminal; one with a client attached hangs up with
 * it.
 *
 * States: WAITING (for the lock and the state of the session), RUNNING, STOPPING (teardown under
 * way), EXITED (its status is known and its output is complete).
 */
#ifndef SESSIONS_PROCESS_H
#define SESSIONS_PROCESS_H

#include "sessions/clocks.h"
#include "sessions/outcome.h"
#include "sessions/output.h"
#include "sessions/session.h"
#include "sessions/terminal.h"

enum process_state {
    PROCESS_WAITING,
    PROCESS_RUNNING,
    PROCESS_STOPPING,
    PROCESS_EXITED,
    PROCESS_STATE_COUNT
};

struct process_events {
    void (*on_started)(void *owner, pid_t pid); /* its program runs (or it already ended) */
    void (*on_stdin_ready)(void *owner);
    /* Over, or never ran. The last call; the owner may call process_leave() from inside. */
    void (*on_done)(void *owner, const struct outcome *outcome);
};

struct process_request {
    const char *id;            /* NULL: generated */
    uint64_t call;             /* number of the call (base/hash.h), to know it again */
    struct strbuf text;        /* taken over; or argv */
    const char *const *argv;   /* NULL: run the text */
    const struct env_set *env; /* of this call, may be NULL */
    const char *cwd;
    struct clock_limits limits;
    bool has_stdin;
    bool is_attached;
    bool waits_for_output; /* it is over when nobody holds its output any more, not before */
    struct lock_patience patience;
    bool is_terminal; /* on a pseudo-terminal of this size; without text and argv: a shell to type
                         at */
    bool is_shared;   /* the terminal that its session's viewers share: process_find_shared() */
    struct pty_size size;
};

/* Start a process in a session (its state) or, with s NULL, from a fresh environment.
 * NULL with *e set. */
struct process *process_start(struct sessions *all, struct session *s,
                              struct process_request *request, const struct process_events *events,
                              void *owner, struct error *e);
/* No remnants. */
struct process *process_find(struct sessions *all, const char *id, struct error *e);
/* The shared terminal of a session that lives or is about to. NULL: it has none. */
struct process *process_find_shared(struct sessions *all, const struct session *s);
/* The record of an exec that is over and has left strays: it has no output and no text. NULL, and
 * the id is free, if they are gone. */
struct process *process_find_remnant(struct sessions *all, const char *id);
bool process_is_remnant(const struct process *p);

const char *process_id(const struct process *p);
const char *process_session(const struct process *p); /* its name, or "" */
const char *process_text(const struct process *p);
enum process_state process_state(const struct process *p);
const char *process_state_name(enum process_state s);
bool process_is_attached(const struct process *p);
pid_t process_pid(const struct process *p);       /* 0 before and after */
pid_t process_first_pid(const struct process *p); /* also after its end; 0: it never began */
uint64_t process_call(const struct process *p);
uint64_t process_began_ns(const struct process *p);
uint64_t process_kill_grace_ms(const struct process *p); /* its session's, or that of all */
struct output *process_output(const struct process *p);
const struct outcome *process_outcome(const struct process *p); /* NULL until EXITED */
/* What outlived it, with all below; nothing until EXITED. As session_list_strays(). */
size_t process_list_strays(const struct process *p, struct stray *to, size_t room);
struct terminal *process_terminal(const struct process *p); /* NULL: it is none */

/* After on_done: the output and the text (to show it) become the caller's. */
struct output *process_take_output(struct process *p, struct strbuf *text);

long process_write(struct process *p, const char *bytes, size_t n, struct error *e);
/* False: it has not begun, and is to be told again. */
bool process_close_stdin(struct process *p);

/* Somebody who waits for the end of a process, or of its teardown. */
struct process_wish {
    struct list link;
    void (*on_done)(void *owner, struct process *p, const struct teardown_report *report);
    void *owner;
};
/* It has written something: have its start told before that. */
void process_tell_start(struct process *p);
/* Hear when its program runs, or never will (at once, from here, if that is known). */
void process_await_start(struct process *p, struct process_wish *wish);
/* As of command_wait_with(). */
int process_wait_with(struct process *p, const struct lock_patience *patience, struct error *e);
/* False if it waits for its session no more; else the reason for who will wait no longer. */
bool process_explain_wait(const struct process *p, uint64_t waited_ms, struct error *e);
/* Somebody who waited for its start has left: if it was the last and it still stands in the queue,
 * it leaves that and is forgotten, as if it had never been asked for. True if it did. */
bool process_leave_queue(struct process *p);
/* Hear when it is EXITED (at once, from here, if it already is). */
void process_wait(struct process *p, struct process_wish *wish);
void process_wish_drop(struct process_wish *w);

/* Tear it down with everything it started, also what outlived it. wish hears when that is
 * verified. Again during the grace: hurries. 0 or -1 with *e. */
int process_kill(struct process *p, enum verdict verdict, uint64_t grace_ms,
                 struct process_wish *wish, struct error *e);
/* Send one signal to every process of its tree. Returns how many got it, or -1 with *e. */
int process_signal(struct process *p, int sig, struct error *e);

/* The owner of the events goes: an attached process is killed if need be and forgotten, any other
 * lives on. An owner of an attached process must call this, also after on_done. */
void process_leave(struct process *p);

/* Its root and the orphans of it that init adopted: they carry its mark in their environment. */
void process_each_root(const struct process *p, bool (*each)(void *context, pid_t pid),
                       void *context);
/* PIDs of all live processes of a session (NULL: of all), and of what outlived them. */
void processes_each_of(struct sessions *all, const struct session *s,
                       bool (*each)(void *context, pid_t pid), void *context);
/* A session is being deleted or reset: that is what ends its processes, and why says so. */
void processes_session_ends(struct sessions *all, const struct session *s, const char *why);
/* True if pid is an orphan of a process. */
bool processes_own(const struct sessions *all, pid_t pid);
/* Live ones. */
unsigned processes_count_terminals(const struct sessions *all);
/* Walk the records. */
void processes_each(struct sessions *all, void (*each)(void *context, struct process *p),
                    void *context);
/* No record is kept of any that there is: those that are over go now, unless something outlived
 * them, the others at their end. */
void processes_forget(struct sessions *all);
/* Init stops: terminals hear it as a hang-up. */
void processes_stop(struct sessions *all);
void processes_free(struct sessions *all);

#endif
