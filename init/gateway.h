/*
 * The gateway as init sees it: a child without privileges, started at once, started again when it
 * ends, spoken to over one socket. What it writes there is one byte and one descriptor: a
 * connection that the control server serves, or the socket of a file helper; or words on what is
 * wrong with it (control/wire.h).
 * HTTP is none of init's business: whatever the gateway does, init and the sessions go on.
 *
 *     gateway.c            its life
 *     gateway_plan.c       what is run, as whom, with which options
 *     gateway_hand_over.c  what comes over the socket; the file helpers
 */
#ifndef INIT_GATEWAY_H
#define INIT_GATEWAY_H

#include "control/record.h"
#include "init/init.h"
#include "sessions/spawn.h"

#define GATEWAY_HELPERS 4 /* file helpers at the same time */

/* OFF -> STARTING -> RUNNING -> (it ended) WAITING -> STARTING …; OFF without [gateway], and from
 * the stop on. LEAVING: asked to end, so that it starts anew or not at all. */
enum gateway_state {
    GATEWAY_OFF,
    GATEWAY_STARTING, /* between fork and exec */
    GATEWAY_RUNNING,
    GATEWAY_LEAVING,
    GATEWAY_WAITING /* for the next try */
};

struct gateway_helper {
    struct gateway *gateway;
    struct child *child; /* NULL: free */
    uint64_t began_ns;
};

struct gateway {
    struct init *init;
    enum gateway_state state;
    struct child *child;
    uid_t uid; /* whose it is */
    int fd;    /* the socket to it; -1: none */
    ev_io io;
    struct arrival packets; /* on fd */
    ev_timer pause;         /* fd is not looked at meanwhile: there is no memory */
    ev_timer restart;       /* runs in WAITING */
    ev_timer watch; /* how long it may take to start or to leave; when it counts as settled */
    uint64_t restart_ms;
    uint64_t began_ns;
    unsigned restarts;
    bool is_late;         /* it was killed since it did not start in time */
    bool is_as_init;      /* init cannot switch users here: it runs as init's own */
    bool is_quiet;        /* it ends again and again for the same reason: that was said */
    bool has_erred;       /* this one sent what nobody understands: that was said */
    char trouble[320];    /* why the last one ended; "" once the next has settled */
    char complaint[320];  /* what the one that runs says is wrong; "": nothing */
    char last_words[320]; /* why this one is going to end, in its own words; "": it has none */
    struct gateway_helper helpers[GATEWAY_HELPERS];
    bool has_told_helpers;
};

/* NULL with *e set. Nothing is started. */
struct gateway *gateway_new(struct init *in, struct error *e);
void gateway_free(struct gateway *g);

/* Start it, if there is a [gateway]. */
void gateway_begin(struct gateway *g);
/* in->config is a new one and its [gateway] differs: start it anew, start it, or end it. */
void gateway_renew(struct gateway *g);
/* Whose files the helpers may open has changed: end them, the gateway asks for new ones. */
void gateway_renew_helpers(struct gateway *g);
/* What the sessions' user has stopped of them goes on. */
void gateway_wake_helpers(const struct gateway *g);
/* What gateway_renew() is going to do, for who asked for a reload: "the gateway restarts". */
const char *gateway_next(const struct gateway *g, const struct config *fresh);
/* The container stops: it is not started again. Its end is the teardown's business. */
void gateway_stop(struct gateway *g);

/* Its fields of `status`. */
void gateway_status(const struct gateway *g, struct record *to);
const char *gateway_state_name(enum gateway_state state);

/* gateway_plan.c: fill the plan of a gateway or helper. fd becomes 3. The plan points into *p until
 * gateway_plan_free(). 0, or -1 with *e. */
#define GATEWAY_ARGS 40
struct gateway_plan {
    struct spawn_plan spawn;
    struct user user;
    struct user sessions; /* whose the workspace is */
    char program[4096];
    struct strbuf text; /* the words of argv, each with its NUL */
    const char *argv[GATEWAY_ARGS];
    const char *envp[2];
};
int gateway_plan_make(const struct gateway *g, struct gateway_plan *p, int fd, struct error *e);
int gateway_plan_helper(const struct gateway *g, struct gateway_plan *p, int fd, struct error *e);
void gateway_plan_free(struct gateway_plan *p);

/* gateway_hand_over.c: listen to the socket, or no more. */
void gateway_listen(struct gateway *g);
void gateway_deaf(struct gateway *g);
/* It has ended: take the words that are still in the socket. */
void gateway_hear_rest(struct gateway *g);

/* gateway.c: what it said (WIRE_SAY_…): n bytes that need not be a text. */
void gateway_take_words(struct gateway *g, char what, const char *text, size_t n);

#endif
