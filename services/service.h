/*
 * Private to services/: struct service, and the steps of its life that its files share.
 *
 * Callbacks (an end, a timer, an order) record facts and mark the service; services_kick() has the
 * step function run from the loop, and only that moves a service from state to state:
 *
 *     services.c          the set: made, begun, stepped, settled
 *     services_stop.c     the end of all
 *     services_apply.c    another configuration
 *     service.c           what can be asked of one; its states and words
 *     service_order.c     what clients order
 *     service_step.c      the state machine
 *     service_start.c     from its configuration to a program that runs
 *     service_hook.c      pre_start, stop_command, post_stop
 *     service_ready.c     whether it is ready
 *     service_health.c    whether it is healthy
 *     service_end.c       the end of a run, and what its policy says then
 *     service_tree.c      what belongs to it, and the end of all that
 *     policy.c, order.c   when again; who before whom
 */
#ifndef SERVICES_SERVICE_H
#define SERVICES_SERVICE_H

#include "services/check.h"
#include "services/notify.h"
#include "services/order.h"
#include "services/policy.h"
#include "services/service_log.h"
#include "services/services.h"
#include "sessions/cgroup.h"
#include "sessions/child.h"
#include "sessions/env.h"
#include "sessions/outcome.h"
#include "sessions/proc.h"
#include "sessions/spawn.h"
#include "sessions/user.h"

#define SERVICE_WORDS     320
#define SERVICE_MARK_NAME "SANDBOX_SERVICE="
#define SERVICE_MARK_MAX  (sizeof SERVICE_MARK_NAME + SERVICE_NAME_MAX + 1)

/* Where in STOPPING it is. */
enum stop_phase {
    STOP_DEPENDENTS, /* what needs it ends first */
    STOP_COMMAND_RUNS,
    STOP_TREE,      /* the teardown */
    STOP_SURVIVORS, /* somebody is left that the kernel does not let go; it is tried again */
    STOP_POST,      /* post_stop runs */
};

/* Why the present run ends. */
enum end_cause {
    END_NONE,
    END_ITSELF,    /* its process ended */
    END_ORDER,     /* an order, a reload, or one of those for what it requires */
    END_NOT_BEGUN, /* pre_start failed, or it could not be spawned */
    END_NOT_READY, /* in time */
    END_UNHEALTHY,
};

enum hook_kind { HOOK_PRE_START, HOOK_STOP_COMMAND, HOOK_POST_STOP };

struct service {
    struct list link;
    struct services *all;
    char name[SERVICE_NAME_MAX + 1];
    char mark[SERVICE_MARK_MAX];
    const struct service_config *config; /* of the present or last run */
    const struct service_config *next;   /* of the next one; the file has it so */
    struct order_node *node;

    enum service_state state;
    enum stop_phase phase;
    enum end_cause cause;
    bool is_wanted;   /* the last order: up */
    bool is_kept_off; /* somebody ordered it to stop, and nothing has started it since */
    bool is_due;      /* and to be started anew, whatever it is now */
    bool is_leaving;  /* a reload has removed it */
    bool is_dirty;    /* a fact has changed since its last step */
    bool is_blocked;  /* WAITING for what will not come by itself */
    bool is_boot;     /* its first start after services_begin() is not over */
    bool is_ready;
    bool is_pulled; /* while an order spreads */

    /* What it says of itself, and what checks find out. */
    struct notify *notify;         /* NULL: it has no voice */
    struct check_attempt *attempt; /* whether it is ready, or healthy; under way */
    struct check_hold hold;        /* what the last one has left */
    ev_timer check_timer;          /* until the next one */
    uint64_t check_pause_ms;
    bool said_ready, was_ready; /* its last word was ready; it has been, since it began */
    bool has_closed;            /* its descriptor, without a newline */
    const char *doing;          /* what it said instead: "reloading", "unready" */
    int health;                 /* as service_is_healthy() */
    unsigned unhealthy;         /* failed checks in a row */
    char check_words[200], status_text[NOTIFY_STATUS_MAX];

    char words[SERVICE_WORDS];

    struct child *child;
    /* Facts that its next step acts on. */
    bool child_is_over, hook_is_over, tree_is_over, time_is_up;
    bool is_last_look; /* the time is up, but nothing is done about it yet */

    pid_t root_pid;      /* of its last process, also when that is gone */
    uint64_t root_ticks; /* when that was reaped, in the unit of proc_stat.start_ticks */
    uint64_t began_ns, ended_ns;
    uint64_t awaited_ns;          /* PREPARING, STARTING: since when it has not been over yet */
    uint64_t wake_ns;             /* DELAYED: until when */
    bool has_executed, has_begun; /* its program, its run */
    struct outcome outcome;
    bool has_outcome;
    int code; /* that init ends with if this end is fatal for all */
    char end_words[256];
    bool is_success;
    struct policy policy;
    struct policy_answer answer; /* what follows the end of this run */

    struct child *hook;
    pid_t hook_pid;
    int hook_status;
    char hook_program[128]; /* a reload may have changed it since */
    char hook_words[200];

    struct service_log *log;
    struct cgroup cgroup;
    struct teardown *teardown;
    size_t survivors;
    char survivor_words[160];
    uint64_t stop_by_ns; /* STOPPING: when its grace is over */
    bool is_post_done;
    bool is_given_up; /* the container stops, and nothing ends it (state D) */
    ev_timer timer;   /* what the present state waits for */
    struct list up_wishes, down_wishes;
};

struct services {
    struct services_host host;
    struct list services; /* struct service, as in the file; those that leave at the end */
    struct order *order;
    struct list retired; /* configurations that some service still needs */
    uint64_t cgroups;    /* numbers of them */
    ev_timer kick;       /* never started: its event is fed */
    unsigned starts;     /* in this turn of the loop */
    bool is_late;        /* some are left for the next one */
    char words[SERVICE_WORDS];

    bool has_begun, has_settled;
    bool has_main_begun;
    bool has_main;

    bool is_stopping;              /* all of them end */
    bool is_main_ending;           /* those that come after the main command do */
    bool is_order_off, is_hurried; /* the order is given up; the time is over */
    uint64_t stop_by_ns;
    ev_timer stop_timer;
    void (*on_stopped)(void *context);
    void (*on_followers_stopped)(void *context);
    void *stop_context;
};

/* ---- services.c ---- */

/* Have its step run; have the steps of all run that look at it. */
void service_mark(struct service *s);
void service_mark_neighbours(struct service *s);
void services_mark_all(struct services *all);
void services_kick(struct services *all);
/* NULL with *e. */
struct service *service_make(struct services *all, const struct service_config *c, struct error *e);
void service_delete(struct service *s);
struct service *services_look_up(const struct services *all, const char *name);
/* The order of all in a list. NULL with *e. */
struct order *services_make_order(struct list *services, struct error *e);
void services_use_order(struct services *all, struct order *order);

/* ---- services_stop.c ---- */

void services_init_stop(struct services *all);
/* It ends with the container, now. */
bool service_is_stopping(const struct service *s);
/* After each round of steps. */
void services_check_stopped(struct services *all);
/* Milliseconds that a service may take for its end: its grace, and no more than is left for all. */
uint64_t services_grace_ms(const struct services *all, uint64_t grace_ms);

/* ---- services_apply.c ---- */

/* Forget services that a reload has removed and that are gone. */
void services_remove_left(struct services *all);
/* Free configurations that nobody needs any more. */
void services_forget_retired(struct services *all, bool all_of_them);

/* ---- service.c ---- */

/* words: format, in the words of service_explain(); NULL: none. */
void service_set_state(struct service *s, enum service_state state, const char *words, ...)
    __attribute__((format(printf, 3, 4)));
/* True if it has, or may have, a process. */
bool service_is_live(const struct service *s);
/* True if who requires it may start. */
bool service_is_up(const struct service *s);
/* "exited with 1", "killed by SIGKILL", "cwd /nope: No such file or directory". */
const char *outcome_words(const struct outcome *o, char *buf, size_t size);
/* Of DELAYED, in a buffer that the next call uses again. */
const char *service_explain_delay(const struct service *s);
void service_set_timer(struct service *s, uint64_t ms);
void service_stop_timer(struct service *s);

/* ---- service_order.c ---- */

/* Tell all who wait for a start (a stop) and forget them; e NULL: it came true. */
void service_tell_up(struct service *s, const struct error *e);
void service_tell_down(struct service *s, const struct error *e);
/* It has come to rest by an order: both hear it. */
void service_settle_orders(struct service *s);
/* Order it to start, without a wish; with what it requires. */
void service_want(struct service *s);

/* ---- service_step.c ---- */

void service_step(struct service *s);
void service_on_timer(struct ev_loop *loop, ev_timer *w, int events);

/* ---- service_start.c ---- */

/* A run is over or about to begin: from here on the newest configuration counts. */
void service_take_next(struct service *s);
/* Begin: pre_start, then the program. */
void service_begin(struct service *s);
void service_launch(struct service *s);

/* ---- service_health.c ---- */

/* It has become ready: look at it from now on, if that is configured. */
void service_health_begin(struct service *s);
/* It is time to; a check is over. */
void service_health_look(struct service *s);
void service_health_checked(struct service *s, bool is_ok);

/* ---- service_hook.c ---- */

/* argv: of the present configuration. 0, or -1 with *e. on its end the step runs. */
int service_hook_start(struct service *s, enum hook_kind kind, struct error *e);

/* ---- service_plan.c ---- */

/* What the programs of a service are spawned with: everything but argv and the callbacks. */
struct service_plan {
    struct spawn_plan spawn;
    struct user user;
    struct env_set env;
    struct spawn_limit limits[SERVICE_RLIMIT_MAX];
    int cgroup_fd;
    int output[STREAM_COUNT]; /* our ends of its pipes */
};
/* 0, or -1 with *e and what failed in *step ("user", "env"). Free it in any case. */
int service_plan_make(struct service *s, struct service_plan *p, const char **step,
                      struct error *e);
/* Spawn it and read what it writes. NULL with *e. */
struct child *service_plan_spawn(struct service *s, struct service_plan *p, struct error *e);
void service_plan_free(struct service_plan *p);
/* What a child_exit with a step says, in words. */
void service_plan_words(const struct service *s, const struct child_exit *how, const char *program,
                        char *buf, size_t size);

/* ---- service_ready.c ---- */

void service_ready_init(struct service *s);
/* Begin a check, of `ready` or `health`. False: init cannot, for want of something; it was said. */
bool service_check(struct service *s, const struct check *check, uint64_t timeout_ms);
void service_set_check_timer(struct service *s, uint64_t ms);
/* What the program of a plan can tell that it is ready with. 0, or -1 with *e. */
int service_voice_make(struct service *s, struct service_plan *p, struct error *e);
/* PREPARING, STARTING: set the timer to what is left of ready_timeout. */
void service_limit_start(struct service *s);
/* Its program was forked: from now on it may become ready. */
void service_ready_begin(struct service *s);
void service_ready_step(struct service *s);
/* The run ends: no more checks. Its voice stays until all of it is gone, for its last words. */
void service_ready_stop(struct service *s);
void service_voice_end(struct service *s);
/* Why it is not ready or not healthy. */
void service_ready_explain(const struct service *s, char *buf, size_t size);

/* Its configuration is another one that the present run can have as well. */
void service_settings_changed(struct service *s);
/* Its configuration is another one that says the same: what stands in the old one may go. */
void service_settings_moved(struct service *s);

/* ---- service_end.c ---- */

void service_on_exit(void *context, const struct child_exit *how);
/* It never ran. */
void service_not_begun(struct service *s, const char *step, int sys, int status,
                       const char *message);
/* Begin the end of the run that is there; the end of that. */
void service_end(struct service *s, enum end_cause cause);
void service_ended(struct service *s);
/* Go on with the end: the phases of STOPPING. */
void service_end_step(struct service *s);

/* ---- service_tree.c ---- */

/* True if it is, or descends from, a process of the service. */
bool service_has_member(const struct service *s, pid_t pid);
/* True if anybody of its tree is there. */
bool service_has_tree(const struct service *s);
/* Begin the teardown. 0, or -1 with *e. */
int service_tear_down(struct service *s, int sig, uint64_t grace_ms, struct error *e);

#endif
