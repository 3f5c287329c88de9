/*
 * PID 1: the one program context and what its parts offer each other. main.c makes it; nothing
 * outside this folder knows it.
 */
#ifndef INIT_INIT_H
#define INIT_INIT_H

#include "base/error.h"
#include "base/list.h"
#include "config/config.h"
#include "control/server.h"
#include "init/options.h"
#include "services/services.h"
#include "sessions/child.h"
#include "sessions/runtime.h"
#include "sessions/sessions.h"
#include "sessions/teardown.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#define OFF_MAX      8
#define INIT_UPLOADS 4 /* so many texts of the longest kind may be under way at the same time */

/* MAIN_PENDING: it starts when the services have. */
enum main_state { MAIN_NONE, MAIN_PENDING, MAIN_RUNNING, MAIN_ENDED };

/* NONE -> MAIN (main was asked to end) -> ALL (everything is torn down, the services one after the
 * other) -> REST (what belongs to nobody; only where there were services) -> LOGS (the log writer
 * writes what is left) -> DONE. Without a main command the second state is skipped. */
enum stop_state { STOP_NONE, STOP_MAIN, STOP_ALL, STOP_REST, STOP_LOGS, STOP_DONE };

/* What a stop tears down at once: [0] sessions and processes while main has its own time, [1] all
 * that is left when main has ended. */
#define STOP_TEARDOWNS 2
struct gateway;
struct init;
struct stop_part {
    struct init *init;
};

/* The files of the configuration are read by a process of its own (sessions/look.h). */
struct reading {
    struct list waiting, served; /* struct reload_wish; served: by the present reading */
    struct child *child;         /* NULL: none */
    int record_fd;
    bool is_given_up; /* it was killed, and is still there */
    ev_timer timer;   /* then, or while it reads */
};

struct init {
    struct ev_loop *loop;
    struct config *config;
    const char *config_path; /* as given with -c, or NULL */
    char *const *environ_;
    const struct options *options; /* of main() */
    bool is_pid1;
    uint64_t began_ns;

    /* signals.c */
    int signal_fd, child_fd;
    ev_io signal_io, child_io;
    ev_timer child_pause;
    bool is_swept; /* the last sweep went to the end */

    struct runtime runtime;
    struct sessions sessions;
    struct services *services;
    struct server *server;
    struct gateway *gateway;
    char socket_path[108];  /* "" : none */
    char off[OFF_MAX][200]; /* what is off, and why */
    unsigned off_count;

    /* main_command.c */
    char **main_argv; /* NULL: none */
    struct child *main_child;
    uint64_t main_began_ns; /* monotonic */
    enum main_state main_state;
    bool has_terminal; /* main owns init's terminal */
    int exit_code;
    bool is_fatal; /* exit_code is that of a service, whatever main ends with */

    /* stop.c */
    enum stop_state stop_state;
    enum { SERVICES_UP, SERVICES_STOPPING, SERVICES_DOWN } services_stop;
    bool had_services;
    ev_timer services_timer; /* main takes long: the services do not wait for it any more */
    bool is_main_due;        /* main is to be told, when those after it have ended */
    ev_timer main_timer;     /* they take long: it does not wait for them any more */
    uint64_t stop_deadline_ns;
    ev_timer stop_timer;
    struct teardown *stop_teardowns[STOP_TEARDOWNS];
    struct stop_part stop_parts[STOP_TEARDOWNS];

    /* idle.c */
    ev_timer idle_timer;

    /* reload.c */
    struct reading reading;
};

/* Remember and log that something is off. */
void init_tell_off(struct init *in, const char *what, const char *why);

/* privileges.c: say once what init's capabilities do not allow. */
void privileges_tell(struct init *in);

/* signals.c: block everything (first of all), then serve signals on the loop. */
void signals_block(void);
int signals_start(struct init *in, struct error *e);

/* main_command.c: start what in->main_argv says. 0, or -1 with *e: there is no process for it, and
 * the stop has begun. A program that cannot be run is told as its end. */
int main_command_start(struct init *in, struct error *e);
/* Pass a signal on to the main command's group, rewritten if so configured. */
void main_command_signal(struct init *in, int sig);
/* Let one that is stopped go on: it could not act on what it was sent. */
void main_command_wake(const struct init *in);
/* What is passed on in the place of a signal; 0: nothing. */
int main_command_rewritten(const struct init *in, int sig);

/* stop.c: begin the orderly stop, or shorten one that is under way. grace_ms < 0: the configured
 * one. */
void stop_begin(struct init *in, const char *why, int64_t grace_ms);
/* A signal asks for it. While the container still starts, that is what it ends with. */
void stop_by_signal(struct init *in, int sig);
/* A service asks for it: init is to end with its code. */
void stop_by_service(struct init *in, const char *why, int code);
/* The main command ended. */
void stop_on_main_end(struct init *in);

/* reload.c: who wants the configuration to be read again, and what differs applied. told() is
 * called for every difference: what took effect (needs is NULL), or what it needs. Then on_done(),
 * with e if nothing was changed; the wish is its owner's again. To take a wish back,
 * list_remove(&link).
 */
struct reload_wish {
    struct list link;
    void (*told)(void *context, const char *what, const char *needs);
    void (*on_done)(void *context, const struct error *e);
    void *context;
};
/* The files are read from now on, or when a reading that is under way is over; on_done() may be
 * called at once. */
void reload(struct init *in, struct reload_wish *wish);
/* Once, before the first reload(). */
void reload_init(struct init *in);
/* Whoever waits is told that init is stopping. */
void reload_exit(struct init *in);
/* Make the sessions that the configuration declares and that do not exist. */
void reload_create_sessions(struct init *in);

/* idle.c: (re)arm the watch for an idle container. */
void idle_arm(struct init *in);

/* verbs.c: what the control server calls for every complete request. */
void verbs_on_request(struct conn *c, struct request *r, void *context);

#endif
