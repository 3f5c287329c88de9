/*
 * The face of the module: all sessions and processes of one init.
 *
 * Ownership: struct sessions owns the sessions, a session owns its shell, its folder, its lock and
 * its commands; processes are owned by struct sessions and live on when their session's lock or
 * client does not. Configuration and runtime folder are borrowed.
 */
#ifndef SESSIONS_SESSIONS_H
#define SESSIONS_SESSIONS_H

#include "base/error.h"
#include "base/list.h"
#include "config/config.h"
#include "sessions/clocks.h"
#include "sessions/env.h"
#include "sessions/late_output.h"
#include "sessions/runtime.h"
#include "sessions/user.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

struct session;
struct process;
struct command;
struct log_feed;

/* Descriptors that no new session or process may touch: for what is there already, and for the
 * clients that end some of it. */
#define SESSIONS_FD_RESERVE 24

/* So many texts of the longest kind may wait in all queues together. */
#define SESSIONS_WAITING_TEXTS 4

struct sessions {
    struct ev_loop *loop;
    const struct config *config;
    struct runtime *runtime;
    struct log_feed *log_feed;        /* where logs go; NULL in some tests */
    struct list sessions;             /* struct session */
    struct list processes;            /* struct process, oldest first */
    struct list stray_kills;          /* struct stray_kill */
    struct list runs;                 /* struct run: every exec, the newest end last */
    struct late_outputs late_outputs; /* what strays write */
    unsigned session_count, process_live, process_ended;
    unsigned process_remnants;         /* records of execs that are over and left strays */
    unsigned run_kept;                 /* runs that are over and stay */
    unsigned command_count;            /* running or waiting, all sessions */
    size_t waiting_bytes;              /* of texts and environments in all queues */
    uint64_t numbers;                  /* of sessions, commands, processes */
    struct env_set own_env;            /* init's own, without its SANDBOX_* */
    struct env_set set_env, unset_env; /* what clients changed for all ("NAME=" for an unset) */
    struct env_set base_env; /* of all sessions to come: own, [sessions] of the file, changes */
    uint64_t last_busy_ns;   /* when the last command or process was over, for idle_timeout */
    bool is_stopping;
    bool is_walking; /* processes_each() is at work: no process but the present one is freed */
};

/* environ_: of init; SANDBOX_* are not passed on. 0 or -1 with *e. */
int sessions_init(struct sessions *all, struct ev_loop *loop, const struct config *config,
                  struct runtime *runtime, char *const *environ_, struct error *e);
/* Everything that is started from now on finds the control socket by SANDBOX_SOCKET in its
 * environment. 0, or -1 with *e. */
int sessions_tell_socket(struct sessions *all, const char *path, struct error *e);
/* Nothing is started any more; waiting commands end. Processes and shells die with the teardown
 * that the caller runs. */
void sessions_stop(struct sessions *all);
/* Free everything; watchers are stopped, folders removed. */
void sessions_free(struct sessions *all);

/* Put base_env together anew: the configuration has changed. 0, or -1 with *e and nothing changed.
 */
int sessions_renew_env(struct sessions *all, struct error *e);
/* Set or (value NULL) unset a variable for all sessions to come. 0, or -1 with *e. */
int sessions_set_env(struct sessions *all, const char *name, const char *value, struct error *e);
/* Add the base environment for a user (NULL: init's own): HOME and USER are that user's, unless
 * the configuration or a client said otherwise. 0, or -1 with *e. */
int sessions_add_env(const struct sessions *all, const struct user *user, struct env_set *to,
                     struct error *e);

/* An id that nothing has: a letter and a number. */
void sessions_make_up_id(struct sessions *all, char letter, char *buf, size_t size);

/* The clocks of a command as the configuration sets them. */
struct clock_limits sessions_clock_limits(const struct session_config *c);

/* The shell that is used where none is configured: the first of /bin/bash, /bin/sh that exists. */
const char *sessions_default_shell(void);

#endif
