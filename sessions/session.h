/*
 * A session: a named persistent shell with its own lock. Its shell may end and be replaced; the
 * session stays until it is deleted.
 *
 * States: STARTING (a shell is on its way, waiters wait), IDLE, BUSY (somebody holds the lock),
 * FAILED (no shell could be started: the next request tries again), ENDING (delete or reset).
 * session_step() alone grants the lock and starts shells.
 */
#ifndef SESSIONS_SESSION_H
#define SESSIONS_SESSION_H

#include "sessions/capture.h"
#include "sessions/cgroup.h"
#include "sessions/clocks.h"
#include "sessions/lock.h"
#include "sessions/outcome.h"
#include "sessions/sessions.h"
#include "sessions/shell.h"
#include "sessions/shell_family.h"
#include "sessions/stray.h"
#include "sessions/teardown.h"

enum session_state {
    SESSION_STARTING, /* a shell is on its way */
    SESSION_IDLE,
    SESSION_BUSY,
    SESSION_FAILED,
    SESSION_ENDING,
    SESSION_STATE_COUNT
};

struct session {
    struct list link;
    struct sessions *all;
    char name[65];
    char mark[88]; /* "SANDBOX_SESSION=NAME", in the environment of all that it starts */
    bool is_configured;
    bool is_made; /* its settings are resolved and its folder is there */
    uint64_t created_ns;

    char *shell_path, *cwd;         /* as asked for; cwd NULL: init's start folder */
    char family[SHELL_FAMILY_SIZE]; /* of its shell (shell_family.h); "": not known yet */
    struct child *look;             /* asks for it; NULL: nobody does */
    int look_fd;
    struct user user;
    bool has_user; /* another one than init's own */
    struct env_set env;
    struct clock_limits limits; /* of a command, unless its call says otherwise */
    uint64_t soft_timeout_ms, kill_grace_ms, queue_limit, output_keep, output_limit;
    uint64_t output_keep_age_ms;

    struct workdir dir;
    struct cgroup cgroup;                  /* of its shells and all that they start; perhaps none */
    int state_fd, text_fd, call_fd, go_fd; /* files of the folder, open for init */
    bool has_state_text;                   /* the state file is not empty */
    bool has_dirty_fifos;                  /* somebody still writes to the present ones */
    struct shell shell;
    bool is_ready; /* the shell waits for orders or runs one */
    bool was_ever_ready;
    bool is_renewing; /* a shell that was ready is being replaced */
    bool is_deaf;     /* the shell was killed, since it carried out no orders */
    bool is_end_told; /* the shell was killed, and the answer that came before that says so */
    bool is_stepping; /* session_step() is at work */
    uint64_t start_sequence, dump_sequence, poke_sequence; /* orders that are not a command's */
    int no_program; /* of the last dump: why it may not be run, 127 or 126; 0: it may, or none */
    ev_timer poke;  /* while an idle dash or ash has children: looks whether any died */
    struct lock lock;
    struct command *running;
    int last_status;          /* what $? is for the next text */
    bool may_have_traps;      /* a text that it ran, or its saved state, may have set some */
    bool may_have_functions;  /* a text that its dash or ash ran may have defined some */
    bool has_errexit;         /* the shell would end at a nonzero status outside a text */
    char last_cwd[4096];      /* where the shell was last seen, or "" */
    bool was_restarted;       /* a shell ended between commands; told in the next answer */
    bool was_state_lost;      /* and there was nothing to restore */
    bool were_functions_lost; /* likewise, of a state that is there */
    bool uses_fallback_cwd;
    char *setup;      /* what a fresh shell runs first, or NULL */
    bool needs_setup; /* it has not run yet */
    struct command *setting_up;
    bool has_failed_setup; /* it is being ended for that; `why` tells */
    char *state_name;      /* where the saved state comes from that its first shell begins with */
    bool is_state_bad;     /* and it cannot be restored */
    unsigned failed_starts;
    struct error why; /* no shell could be started: the reason; code ERR_NONE: none */
    uint64_t restarts;

    uint64_t shell_user_us, shell_system_us; /* CPU time of the shell and of what it has waited
                                                for, when its last command ended */

    pid_t *older; /* children the shell had when its last command ended */
    size_t older_count;

    struct teardown *teardown; /* set: the session is ending */
    bool ends_for_reset;
    bool was_reset; /* whoever asked for it waits for the fresh shell; the report is of the old one
                     */
    struct teardown_kept torn_down;
    struct list wishes; /* struct session_wish */
    void (*on_dumped)(void *context, const struct error *e);
    void *dump_context;
};

struct session_request {
    const char *name; /* NULL: generated */
    const char *cwd, *shell, *user;
    const char *setup;  /* a text that each fresh shell runs first, or NULL */
    struct env_set env; /* borrowed */
    uint64_t timeout_ms;
    bool has_timeout;
    const struct session_config *configured; /* of [session:NAME], or NULL */
    const struct session *like;              /* take all settings from this one (fork), or NULL */
    const struct strbuf *state; /* begin with this saved state (saved_state.h), or NULL */
    const char *state_name;     /* where that comes from, for messages */
};

/* Somebody who wants to hear the end of a delete, or that the shell of a create or reset is ready
 * (e: it cannot be had); report is of the teardown that was. Lives in the caller;
 * session_wish_drop() forgets it. */
struct session_wish {
    struct list link;
    void (*on_done)(void *owner, const struct session *s, const struct teardown_report *report,
                    const struct error *e);
    void *owner;
};

enum session_state session_state(const struct session *s);
const char *session_state_name(enum session_state state);

/* Create a session and begin to start its shell. wish (may be NULL) hears when the first shell is
 * ready, or why not: the session is gone then, but a configured one stays as FAILED (wish may hear
 * that from inside this call). NULL with *e set: there is none, and wish hears nothing. */
struct session *session_create(struct sessions *all, const struct session_request *request,
                               struct session_wish *wish, struct error *e);
/* By name; NULL with *e "session 'x': not found". Sessions that end are not found. */
struct session *session_find(struct sessions *all, const char *name, struct error *e);

/* End everything of the session, then free it (delete) or give it a fresh shell (reset; one that is
 * configured gets the settings that the configuration now has). 0, or -1 with *e (a configured
 * session cannot be deleted). */
int session_delete(struct session *s, struct session_wish *wish, struct error *e);
/* The configuration declares it now, or does not: one that is being deleted is reset instead, since
 * one of that name is to be there. */
void session_declare(struct session *s, bool is_configured);
int session_reset(struct session *s, struct session_wish *wish, struct error *e);
void session_wish_drop(struct session_wish *w);
/* Its shell has been told to end by SIGTERM, in this teardown: see to it that it does. */
void session_remind(const struct session *s, struct teardown *t);

/* One more that holds so many bytes may stand in its queue (nobody has to wait for a free lock). 0,
 * or -1 with *e: the queue is full, or busy and the request will not wait. */
int session_check_queue(const struct session *s, const struct lock_patience *patience, size_t bytes,
                        struct error *e);
/* Stand in the queue; the caller has checked, and calls session_step() when it is ready to hear. */
void session_enqueue(struct session *s, struct lock_request *r);

/* Empty the queue: everybody in it hears why. */
void session_refuse_waiters(struct session *s, const struct error *why);

/* Act on what changed: grant the lock, start a shell. Called by command.c and process.c. */
void session_step(struct session *s);

/* Remember where the shell is, for a shell that may have to replace it. */
void session_note_cwd(struct session *s);

/* Direct children of the shell and adopted orphans of an earlier shell. */
void session_each_root(const struct session *s, bool (*each)(void *context, pid_t pid),
                       void *context);
/* Only the adopted orphans. */
void session_each_orphan(const struct session *s, bool (*each)(void *context, pid_t pid),
                         void *context);
/* What outlived its command, with all below it: those of the running one are none yet. Describes at
 * most `room` of them; returns how many there are (at most STRAYS_MAX). */
size_t session_list_strays(const struct session *s, struct stray *to, size_t room);

/* Have the shell write its state file; on_dumped is called once (e: it could not). The caller holds
 * the lock. program, if not NULL: have it look as well whether it can run it; if not, that is why,
 * and e->sys is ENOENT or EACCES (else 0). 0, or -1 with *e. */
int session_dump(struct session *s, const char *program,
                 void (*on_dumped)(void *context, const struct error *e), void *context,
                 struct error *e);
/* Move the state file that was just written into another folder. 0, or -1 with *e. */
int session_take_state(struct session *s, const struct workdir *to, struct error *e);

/* Fill one of the session's files, making it anew if somebody deleted it. 0, or -1 with *e. */
int session_fill(struct session *s, int *fd, const char *name, const struct strbuf *bytes,
                 struct error *e);
/* Open the FIFOs "out" and "err" for reading, made anew where they are in use or gone. */
int session_open_fifos(struct session *s, int fd[STREAM_COUNT], struct error *e);
/* Remember the shell's children of now as older than the next command. */
void session_note_children(struct session *s);

/* True if the text that just ended with this status may have broken the shell itself: bash 5.2
 * writes before the start of a heap block when a sourced file ends within $( or <( (seen under
 * valgrind with 5.2.15), and aborts some texts later. It has to write its state at once, and
 * session_renew_shell() then starts another from that. */
bool session_is_poisoned(const struct session *s, int status, const struct output *output);
void session_renew_shell(struct session *s);

/* Replace the shell: it was killed, is deaf or cannot be trusted. What ran in it ends. */
void session_replace_shell(struct session *s, const char *reason);

#endif
