/*
 * Services: programs that the ini declares. This is the face of the module: the set of all
 * services of one init, their order, and what clients may ask of one.
 *
 * A service is spawned like everything else, has its own tree (subreaper or cgroup) and is torn
 * down whole; its next start waits until the whole old tree is verified gone. Its state is only
 * ever known from wait, never from a file. Starts run in parallel as soon as what they require is
 * ready; stops run in reverse. The last order given wins: a start during a stop starts again
 * afterwards, a stop during a start or a delay ends that at once.
 *
 *     STOPPED   was never started, or was stopped by request
 *     WAITING   ordered to start; something it requires or comes after is not ready yet
 *     PREPARING pre_start runs
 *     STARTING  runs and is not ready yet (a oneshot: until it ends)
 *     RUNNING   runs and is ready
 *     DELAYED   ended, and will be started again after a delay
 *     STOPPING  its tree is being torn down, then post_stop runs
 *     EXITED    ended, and its policy says not again (a oneshot: it is done, and ready)
 *     FATAL     too many starts, or it could not be started: only an order starts it again
 *
 * Memory is owned by struct services; a struct service lives until a reload has removed it.
 */
#ifndef SERVICES_SERVICES_H
#define SERVICES_SERVICES_H

#include "base/error.h"
#include "base/list.h"
#include "config/config.h"
#include "config/service_config.h"
#include "sessions/output.h"
#include "sessions/sessions.h"
#include "sessions/teardown.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct services;
struct service;

enum service_state {
    SERVICE_STOPPED,
    SERVICE_WAITING,
    SERVICE_PREPARING,
    SERVICE_STARTING,
    SERVICE_RUNNING,
    SERVICE_DELAYED,
    SERVICE_STOPPING,
    SERVICE_EXITED,
    SERVICE_FATAL,
    SERVICE_STATE_COUNT
};

/* What the services need of init. */
struct services_host {
    struct ev_loop *loop;
    struct sessions *sessions; /* environment, log writer; borrowed */
    /* A service with on_fatal = stop is fatal, or a oneshot that others need failed: the container
     * is to end with this code. why names the service and what happened. */
    void (*on_fatal)(void *context, const char *why, int code);
    /* Everything that starts by itself is ready, done or given up: the main command's turn. Called
     * once, from the loop. */
    void (*on_settled)(void *context);
    void *context;
};

/* Make the services of a configuration; nothing is started. NULL with *e set. */
struct services *services_new(const struct services_host *host, const struct config *config,
                              struct error *e);
/* Order those with autostart to start. has_main: on_settled() will start a main command, and
 * services_main_began() follows. */
void services_begin(struct services *all, bool has_main);
/* The main command has begun: what comes after it may start. */
void services_main_began(struct services *all);
/* The container ends: stop those that come after the main command, and nothing of them starts any
 * more. on_done is called once, from the loop; services_stop() may come before that. False: there
 * are none, and on_done is not called. */
bool services_stop_followers(struct services *all, uint64_t deadline_ns,
                             void (*on_done)(void *context), void *context);
/* Stop all, in reverse order, within a deadline for all (CLOCK_MONOTONIC); nothing starts any more.
 * on_done is called once, from the loop. Again: at most an earlier deadline. */
void services_stop(struct services *all, uint64_t deadline_ns, void (*on_done)(void *context),
                   void *context);
size_t services_count(const struct services *all);
/* The stop is over and nothing more will be written: who follows the output of a service hears the
 * end of it. */
void services_end_outputs(struct services *all);
/* True if any service has a live process. */
bool services_any(const struct services *all);
/* True while a set-up step of the first start is not over. */
bool services_have_set_up(const struct services *all);
/* True if pid, a child of init, belongs to a service that has not ended. */
bool services_own(const struct services *all, pid_t pid);
void services_free(struct services *all);

/* A new configuration is in force. Starts what is new, stops what is gone, restarts (or signals)
 * what differs. told() hears each difference, needs NULL: took effect. old is taken over: it lives
 * until the loop turns, and until no run has it any more. 0, or -1 with *e for want of memory and
 * nothing changed. */
int services_apply(struct services *all, struct config *old, const struct config *fresh,
                   void (*told)(void *context, const char *what, const char *needs), void *context,
                   struct error *e);

/* ---- one of them ---- */

/* NULL with *e ERR_NOT_FOUND, naming the nearest. */
struct service *service_find(struct services *all, const char *name, struct error *e);
/* In the order of the file. Stops when each() returns false. */
void services_each(struct services *all, bool (*each)(void *context, struct service *s),
                   void *context);

/* Somebody who waits for what was ordered. */
struct service_wish {
    struct list link;
    /* e NULL: as ordered (started: ready; stopped: verified gone). */
    void (*on_done)(void *owner, struct service *s, const struct error *e);
    void *owner;
};
/* wish may be NULL; it may be called from inside. 0, or -1 with *e and no wish taken. */
int service_start(struct service *s, struct service_wish *wish, struct error *e);
int service_stop(struct service *s, struct service_wish *wish, struct error *e);
int service_restart(struct service *s, struct service_wish *wish, struct error *e);
/* Send reload_signal; without one it is restarted. */
int service_reload(struct service *s, struct service_wish *wish, struct error *e);
/* Send one signal to its process (its whole tree if all). How many got it, or -1 with *e. */
int service_signal(struct service *s, int sig, bool all, struct error *e);
void service_wish_drop(struct service_wish *wish);

const char *service_name(const struct service *s);
const struct service_config *service_configuration(const struct service *s);
enum service_state service_state(const struct service *s);
const char *service_state_name(enum service_state s);
/* In words, what happened or what it waits for: "exited with 1, again in 4 s (3 of 5 starts)",
 * "waits for db: starting". Looks at its process, which may be stopped. Never NULL. */
const char *service_explain(const struct service *s);
pid_t service_pid(const struct service *s);         /* 0: none */
uint64_t service_began_ns(const struct service *s); /* of the present or last run, monotonic; 0 */
uint64_t service_ended_ns(const struct service *s); /* of the last run; 0 */
unsigned service_restarts(const struct service *s); /* by its policy, since the last order */
bool service_is_ready(const struct service *s);
/* -1: not checked, 0: not healthy, 1: healthy. */
int service_is_healthy(const struct service *s);
/* What the service said of itself: STATUS= of sd_notify(3); "": nothing. */
const char *service_status_text(const struct service *s);
/* How the last run ended; NULL: none has yet. */
const struct outcome *service_outcome(const struct service *s);
/* Its last output, over restarts; for followers (`service logs`). */
struct output *service_output(struct service *s);
/* Lines of it that could not be written anywhere, and why ("": none). */
uint64_t service_lines_dropped(const struct service *s, const char **why);
/* PIDs of its live tree's roots. */
void service_each_root(const struct service *s, bool (*each)(void *context, pid_t pid),
                       void *context);

#endif
