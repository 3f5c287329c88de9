/*
 * One shell process of a session and the conversation with it. The shell reads its script from a
 * control pipe; init writes orders (a few fixed lines, never user bytes) and hears "SEQUENCE STATUS
 * FLAGS" on the status FIFO of the session's folder. Its end is known from init's own wait.
 */
#ifndef SESSIONS_SHELL_H
#define SESSIONS_SHELL_H

#include "base/error.h"
#include "sessions/child.h"
#include "sessions/runtime.h"
#include "sessions/user.h"

#include <ev.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#define SHELL_SIGNAL     40        /* what the driver's interrupt trap is set on */
#define SHELL_END_SIGNAL SIGVTALRM /* one of those that bash ends at in order, and nobody traps */

#define SHELL_PAST 8 /* shells of before whose orphans are known by their session id */

enum shell_kind { SHELL_BASH, SHELL_POSIX };

struct shell_events {
    /* The shell came back from an order. flags: its $-; or, if the text did not run, "!" when
     * the call's cwd cannot be entered, "=NAME" when its variable NAME is readonly. */
    void (*on_status)(void *owner, uint64_t sequence, int status, const char *flags);
    /* A shell that starts: its state file did not run to its end. Its status is still to come. */
    void (*on_state_broken)(void *owner);
    /* The program that a dump was to look for is not there (127) or can't be run (126). Its status
     * is still to come: until then it reads the file that told it to look. */
    void (*on_no_program)(void *owner, int status);
    /* It reads for orders though it owes a status: its text broke the driver (set -n). Or it has
     * not carried out an order of init's own for very long: it is no shell, or was stopped. */
    void (*on_deaf)(void *owner);
    void (*on_end)(void *owner, const struct child_exit *how);
};

struct shell {
    struct ev_loop *loop;
    const struct workdir *dir;
    const struct shell_events *events;
    void *owner;
    enum shell_kind kind;
    bool is_ash;         /* of busybox */
    struct child *child; /* NULL: none */
    pid_t pid;
    int control; /* write end of its script */
    uint64_t control_inode;
    int script_fd; /* number of the script's descriptor in the shell; -1: not known yet */
    int status_fd;
    ev_io status_io;
    char line[64];
    size_t line_len;
    uint64_t sequence; /* of the last order */
    bool owes_status;
    bool is_own_order; /* the status owed is that of a start or a dump, not of a text */
    unsigned silences; /* turns of the timer since the order */
    ev_timer silence;
    ev_timer last;   /* after SIGKILL: so long it may take to end */
    pid_t stuck_pid; /* of the one before that did not; 0: none */
    struct {
        pid_t pid;
        uint64_t ended_ticks; /* proc.h */
    } past[SHELL_PAST];       /* shells that were */
    unsigned past_count;
};

struct shell_plan {
    const char *path;
    const char *family; /* shell_family.h */
    const char *cwd;
    const struct user *user; /* NULL: init's own */
    const char *mark;        /* "SANDBOX_SESSION=NAME" */
    int cgroup_fd;           /* of its own cgroup, or -1 */
    bool cgroup_is_new;      /* as in spawn_plan */
};

/* Prepare for a session whose folder is dir: status FIFO and timers. 0 or -1 with *e. */
int shell_init(struct shell *s, struct ev_loop *loop, const struct workdir *dir,
               const struct user *user, const struct shell_events *events, void *owner,
               struct error *e);
/* Let go of everything; a live process is forgotten (its teardown is the caller's). */
void shell_release(struct shell *s);
/* Let go of the process, if it still lives: on_end does not come, and another one can be started.
 */
void shell_forget(struct shell *s);

/* Start the process and give it its first orders: driver, then the state file; the status of that
 * comes with the sequence that is returned. 0 with *e set on failure. */
uint64_t shell_start(struct shell *s, const struct shell_plan *plan, struct error *e);

/* True if the shell lives and still reads from our control pipe. */
bool shell_is_sound(const struct shell *s);

/* True if a process of this session id that has started then comes from one of the shells that
 * were. */
bool shell_led(const struct shell *s, pid_t sid, uint64_t start_ticks);

/* How a text is to be run. */
struct shell_text {
    const char *file;       /* of the session's folder */
    const char *stdin_path; /* what its stdin is */
    bool opens_err;         /* stderr is the FIFO "err"; the file sees to it otherwise */
    bool restores_cwd;
    bool touches_signals; /* it may set a trap, or send its shell a signal */
    int last_status;      /* what $? shall be */
};
/* Order: run a text. Returns its sequence, or 0 with *e set (the pipe is full or gone: the shell is
 * broken). */
uint64_t shell_run(struct shell *s, const struct shell_text *how, struct error *e);
/* Order: reap. An idle dash or ash waits for no child; to run `(:)` makes it collect the dead. */
uint64_t shell_poke(struct shell *s, struct error *e);
/* Order: write the state file, then run a file of the session's folder (NULL: none), whose status
 * does not count. */
uint64_t shell_dump(struct shell *s, const char *file, struct error *e);

/* Send the driver's interrupt. False: the shell does not listen (its text took the trap away). */
bool shell_interrupt(const struct shell *s);
/* Have a shell that does not listen end by itself, with its state written: bash runs its EXIT trap
 * at this signal even in the middle of a builtin. False: it cannot (dash and ash never do). */
bool shell_ask_to_end(const struct shell *s);
/* on_end comes, also of one that nothing ends: that one has stuck_pid. */
void shell_kill(struct shell *s);

#endif
