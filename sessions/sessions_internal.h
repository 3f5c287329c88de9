/*
 * What the files of one noun offer each other and nobody else: session_*.c, command_*.c and
 * process_*.c share their structs and the steps of their life here.
 */
#ifndef SESSIONS_SESSIONS_INTERNAL_H
#define SESSIONS_SESSIONS_INTERNAL_H

#include "sessions/command.h"
#include "sessions/feed.h"
#include "sessions/log_feed.h"
#include "sessions/proc.h"
#include "sessions/process.h"
#include "sessions/session.h"

/* ---- sessions ---- */

/* How often an idle dash or ash that has children is looked at, in seconds. */
#define POKE_S 0.5

/* session.c */
void session_free(struct session *s);
/* Resolve the settings of a configured session anew, as the configuration now has them, and make
 * its folder; its shell must be gone. 0, or -1 with *e: it has no folder then. */
int session_remake(struct session *s, struct error *e);
/* Tell everybody who waits for the session and forget them. */
void session_tell_wishes(struct session *s, const struct teardown_report *report,
                         const struct error *e);
void session_add_wish(struct session *s, struct session_wish *w); /* w may be NULL */
/* The user that the session's files belong to; NULL: init's own. */
const struct user *session_owner(const struct session *s);

/* session_files.c */
int session_make_folder(struct session *s, struct error *e);
/* Close it with all of its files; the shell is gone or is let go. */
void session_close_folder(struct session *s);
/* The state file of a shell that starts with nothing but its environment. */
int session_write_first_state(struct session *s, struct error *e);
/* Likewise of one that begins with a saved state (q->state); s->state_name is set. */
int session_write_saved_state(struct session *s, const struct session_request *q, struct error *e);
/* The state file that was just written, the caller's to close; another takes its place. -1 with *e.
 */
int session_detach_state(struct session *s, struct error *e);
/* True if the state file is whole: the driver closes it with a mark. */
bool session_has_full_state(const struct session *s);
/* Before a text: an old state must not be taken for one that this text left. */
void session_forget_old_state(struct session *s);

/* session_shell.c */
extern const struct shell_events session_shell_events;
int session_start_shell(struct session *s, struct error *e);
/* Another shell in place of one that ended, or FAILED. */
void session_restart_shell(struct session *s);
/* No shell can be had: whoever waits hears why. Frees a session that never was ready. */
void session_give_up(struct session *s, const struct error *why);

/* session_family.c */
/* 1 if the family of its shell is known now; 0: it is asked for, and the shell will be started when
 * that is told; -1 with *e: nobody can be asked. */
int session_know_family(struct session *s, struct error *e);
void session_drop_look(struct session *s);

/* Tell whoever waits for a dump that it will not come. */
void session_fail_dump(struct session *s, const struct error *why);

/* session_setup.c */
/* The shell is ready: have it run the session's set-up, if that is to be. */
void session_begin_setup(struct session *s);

/* session_end.c */
/* Its set-up failed: end all of it, tell why, and keep it only if it is configured. */
void session_end_failed(struct session *s, const struct error *why);

/* session_stray.c */
/* True if that process, a child of the shell or an orphan of the session, was there before the
 * command that runs now, or comes from one that was. */
bool session_is_older(const struct session *s, const struct proc_stat *st);
/* True if init has adopted it from this session (or from one of its processes). */
bool session_owns_orphan(const struct session *s, const struct proc_stat *st);
/* What the running command, which is over, leaves behind. False: its shell has no child at all. */
bool session_tell_new_strays(const struct session *s, struct outcome *o);

/* session_usage.c: CPU time of the session's last command, to o (may be NULL), and where the next
 * one begins. Leaves alone what is known already. */
void session_take_usage(struct session *s, struct outcome *o);
/* o has the usage of the whole life of the shell that has ended: leave that of its last command. */
void session_leave_usage(const struct session *s, struct outcome *o);

/* session_poke.c */
void session_watch_idle_shell(struct session *s);
void session_on_poke(struct ev_loop *loop, ev_timer *w, int events);
void session_on_poked(struct session *s);

/* ---- commands ---- */

struct command {
    char id[65];
    struct session *session;
    enum command_state state;
    struct lock_request lock;
    const struct command_events *events; /* NULL: abandoned */
    void *owner;

    struct strbuf text;
    struct strbuf title; /* shown instead, if not empty */
    struct env_set env;
    char *cwd;
    bool has_stdin;
    bool has_call; /* it runs by the file "call" */

    struct output *output;
    struct capture capture;
    struct feed stdin_feed;
    struct clocks clocks;
    ev_timer patience;  /* KILLING: until the shell must be back */
    ev_timer again;     /* KILLING: until the interrupt is sent once more */
    struct child *look; /* why its folder cannot be entered; NULL: nobody asks */
    ev_timer look_timer;
    struct teardown *teardown;
    struct teardown_kept torn_down; /* the teardown that was */
    struct list wishes;             /* struct command_wish */
    uint64_t began_ns;
    struct outcome outcome;
    unsigned late_walks, walks_again;
    unsigned waits_more;  /* times that its shell was still waited for, since it had no CPU */
    uint64_t patience_us; /* CPU time that its shell had used when the patience began */
    uint64_t cpu_before;  /* ticks of the shell */
    uint64_t *cpu_older;  /* ticks of each of session.older, as last seen; NULL: nobody looks */
    size_t older_counted; /* of them */
    pid_t shell_pid;      /* of the shell that runs it */
    uint64_t began_ticks;
    uint64_t oom_before; /* oom_kills() when it began */
    bool is_decided;     /* timeout or kill: the verdict stands */
    bool was_asked_to_end;
    bool has_returned;  /* the status came, or the shell ended */
    bool poisons_shell; /* its shell must not run another text */
};

/* command.c: its end. */
void command_finish_if_complete(struct command *c);
/* Hand the answer to the owner; nothing of the command may be touched afterwards. */
void command_tell_done(struct command *c);
/* It never ran though it holds the lock: give it back and say why. */
void command_refuse(struct command *c, const char *step, const struct error *why);

/* command_begin.c */
void command_on_granted(void *owner);

/* command_cwd.c: nobody asks any more why its folder cannot be entered. True if somebody did: the
 * command is over, and never ran. */
bool command_drop_look(struct command *c);

/* command_kill.c */
void command_on_impatient(struct ev_loop *loop, ev_timer *w, int events);
void command_on_again(struct ev_loop *loop, ev_timer *w, int events);
/* command_clocks.c */
extern const struct clocks_events command_clocks_events;
/* It begins: what CPU time was used before does not count. */
void command_start_clocks(struct command *c);

/* Tear down what the command has started. 0 or -1 with *e. */
int command_begin_teardown(struct command *c, uint64_t grace_ms, struct error *e);
/* True if something that the command has started is still alive. */
bool command_has_late_child(const struct command *c);

/* ---- processes ---- */

struct process {
    struct list link;
    struct sessions *all;
    char id[65];
    char mark[88];           /* "SANDBOX_PROCESS=ID" */
    char session_name[65];   /* "" for a stateless one */
    struct session *session; /* while it waits for the session's lock or dump */
    struct lock_request lock;
    enum process_state state;
    bool is_attached;
    bool is_shared; /* the terminal of its session */
    bool waits_for_output;
    bool is_lingering; /* its child has ended, others hold its output: it waits for them */
    bool is_remnant;   /* only a record of what its strays come from */
    const struct process_events *events; /* NULL: nobody */
    void *owner;

    struct strbuf text; /* what to show: the text, or the argv joined */
    char **argv;        /* owned, NULL-terminated; NULL: run the text */
    struct env_set env; /* of the call; stateless: complete */
    char *cwd, *shell_path;
    struct user user;
    bool has_user;
    uint64_t kill_grace_ms;
    bool has_stdin;
    struct terminal *terminal; /* NULL: its stdio are pipes */

    struct workdir dir;
    struct cgroup cgroup; /* perhaps none */
    struct child *child;
    struct sweep_wish swept; /* its child has ended */
    pid_t root_pid;          /* of its root, also when that is gone */
    struct log_stream *log;  /* on disk, while it is not complete there; or NULL */
    struct output *output;
    struct capture capture;
    struct feed stdin_feed;
    struct clocks clocks;
    ev_timer hang_up; /* again, while the program on the terminal lives */
    struct teardown *teardown;
    struct list starts, waits, kills; /* struct process_wish */
    uint64_t call;                    /* number of the call that asked for it */
    uint64_t began_ns;
    uint64_t ended_ticks; /* when its child was reaped */
    uint64_t oom_before;  /* oom_kills() when it began */
    struct outcome outcome;
    bool is_decided;
    bool is_forgotten; /* it left the queue: no record of it is kept */
    bool has_executed; /* its program was begun */
    bool cwd_is_gone;  /* the session's folder was deleted: it starts in "/" and says so */
};

/* process.c */
/* True if init has adopted it from this process. */
bool process_owns_orphan(const struct process *p, const struct proc_stat *st);
void process_free(struct process *p);
/* What outlived its child, with all below; as session_list_strays(). */
size_t process_list_leftovers(const struct process *p, struct stray *to, size_t room);
void process_tell_wishes(struct list *wishes, struct process *p,
                         const struct teardown_report *report);
/* An attached process that is over and that nobody holds any more is forgotten. */
void process_free_if_unwanted(struct process *p);
/* Its status is known (or it never ran). The log is complete before anybody hears of it. */
void process_over(struct process *p);
/* It never ran. */
void process_fail(struct process *p, const char *step, const struct error *why);
void process_on_child_exit(void *context, const struct child_exit *how);
void process_on_exec(void *context);
void process_on_capture_eof(void *context);
void process_on_stdin_ready(void *context);

/* A shell that somebody types at ignores SIGTERM; a hang-up is what ends it. No effect on others.
 */
void process_hang_up(struct process *p);

/* process_remnant.c */
/* An attached process is over and not held: true if it stays as a remnant. */
bool process_become_remnant(struct process *p);

/* process_kill.c */
/* It was killed before it had begun. */
void process_end_unbegun(struct process *p);
extern const struct clocks_events process_clocks_events;
/* End what has outlived its child; it is over when that is done. False if there is nobody. */
bool process_kill_leftovers(struct process *p);

#endif
