/* What the command_*.c files share: the struct and the steps of its life. */
#ifndef SESSIONS_COMMAND_INTERNAL_H
#define SESSIONS_COMMAND_INTERNAL_H

#include "sessions/command.h"
#include "sessions/feed.h"

#define COMMAND_SURVIVORS_MAX 4 /* that are told of */

struct command {
    char id[24];
    struct session *session;
    enum command_state state;
    struct lock_request lock;
    const struct command_events *events; /* NULL: abandoned */
    void *owner;

    struct strbuf text;
    struct env_set env;
    char *cwd;
    uint64_t timeout_ms;
    bool has_stdin;
    bool has_call; /* it runs by the file "call" */

    struct output *output;
    struct capture capture;
    struct feed stdin_feed;
    ev_timer timeout;
    ev_timer patience; /* KILLING: until the shell must be back */
    struct teardown *teardown;
    struct teardown_report report; /* of the teardown that was */
    struct teardown_survivor survivors[COMMAND_SURVIVORS_MAX];
    struct list wishes; /* struct command_wish */
    uint64_t began_ns;
    struct outcome outcome;
    unsigned late_walks;
    pid_t shell_pid; /* of the shell that runs it */
    uint64_t began_ticks;
    bool is_decided;    /* timeout or kill: the verdict stands */
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

/* command_kill.c */
void command_on_timeout(struct ev_loop *loop, ev_timer *w, int events);
void command_on_impatient(struct ev_loop *loop, ev_timer *w, int events);
/* Tear down what the command has started. 0 or -1 with *e. */
int command_begin_teardown(struct command *c, uint64_t grace_ms, struct error *e);
/* True if something that the command has started is still alive. */
bool command_has_late_child(const struct command *c);

#endif
