/*
 * A command: one text run in a session's shell in the foreground. It waits for the session's lock,
 * holds it from start to end, and its end is the status on the shell's status FIFO (or the end of
 * the shell). States: WAITING, RUNNING, KILLING (interrupt and teardown under way), DONE.
 */
#ifndef SESSIONS_COMMAND_H
#define SESSIONS_COMMAND_H

#include "sessions/clocks.h"
#include "sessions/outcome.h"
#include "sessions/output.h"
#include "sessions/session.h"

enum command_state { COMMAND_WAITING, COMMAND_RUNNING, COMMAND_KILLING, COMMAND_DONE };

struct command_events {
    void (*on_started)(void *owner, pid_t shell_pid);
    void (*on_stdin_ready)(void *owner); /* after command_write() took less than all */
    /* The last call; the owner takes what it needs from the command and then calls command_free().
     */
    void (*on_done)(void *owner, const struct outcome *outcome);
};

struct command;

struct command_request {
    const char *id;     /* NULL: generated */
    struct strbuf text; /* taken over */
    const char *title;  /* what is shown in the place of a text that nobody may see, or NULL */
    const struct env_set *env; /* of this call; copied; may be NULL */
    const char *cwd;           /* of this call, or NULL */
    struct clock_limits limits;
    bool has_stdin;
    struct lock_patience patience;
    bool is_first; /* init's own: it stands before all others, and no limit keeps it out */
};

/* Queue a command. NULL with *e set (queue full, name of an env, NUL in the text, stopping). */
struct command *command_submit(struct session *s, struct command_request *request,
                               const struct command_events *events, void *owner, struct error *e);
const char *command_id(const struct command *c);
struct session *command_session(const struct command *c);
const char *command_text(const struct command *c); /* to be shown */
enum command_state command_state(const struct command *c);
uint64_t command_since_ns(const struct command *c);
struct output *command_output(const struct command *c);

/* Bytes for its stdin: returns how many were taken (0 … n). Without has_stdin, or after the end,
 * -1 with *e. */
long command_write(struct command *c, const char *bytes, size_t n, struct error *e);
void command_close_stdin(struct command *c);

/* The command of this id that runs or waits in some session, or NULL. */
struct command *command_find(const struct sessions *all, const char *id);

/* Somebody who waits for the end of a command; report: what was torn down for it (nothing unless
 * it was killed). Lives in the caller; command_wish_drop() forgets it. */
struct command_wish {
    struct list link;
    void (*on_done)(void *owner, const struct command *c, const struct teardown_report *report);
    void *owner;
};
void command_await(struct command *c, struct command_wish *wish);
void command_wish_drop(struct command_wish *w);

/* Another client wants it, with a patience of its own: while it waits, it waits as long as the most
 * patient one would. -1 with *e: it waits, and this one would not. Nothing if it has begun. */
int command_wait_with(struct command *c, const struct lock_patience *patience, struct error *e);
/* Kill it: verdict KILLED_BY_CLIENT, TIMEOUT or OUTPUT_LIMIT. Again during the grace: hurries. */
void command_kill(struct command *c, enum verdict verdict, uint64_t grace_ms);
/* Send one signal to every process that the command has started and that is still below its shell.
 * Returns how many got it, or -1 with *e (there is none). */
int command_signal(struct command *c, int sig, struct error *e);

/* Nobody wants its answer: kill it if it is not over and free it when it is. */
void command_abandon(struct command *c);
/* After on_done: the output and the text (to show it) become the caller's. */
struct output *command_take_output(struct command *c, struct strbuf *text);
/* After on_done. */
void command_free(struct command *c);

#define COMMAND_TEXT_SHOWN 16384 /* bytes that are kept of a text to show it */

/* Called by session.c. */
void command_cwd_refused(struct command *c);
void command_env_refused(struct command *c, const char *name);
/* Its session is being deleted or reset: that is what ended it, and why says so to its client. */
void command_session_ends(struct command *c, const char *why);
/* Its session's tree was torn down: it ends now, whatever it waits for. */
void command_session_gone(struct command *c);
/* Free it as it is, at the end of init; nobody listens any more. */
void command_discard(struct command *c);
void command_status_came(struct command *c, int status);
void command_shell_ended(struct command *c, const struct child_exit *how, bool has_state);

#endif
