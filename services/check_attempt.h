/*
 * What the files of a check share: check.c is one attempt from its start to its verdict,
 * check_net.c and check_run.c are the two ways to come to one, check_http.c reads an answer.
 */
#ifndef SERVICES_CHECK_ATTEMPT_H
#define SERVICES_CHECK_ATTEMPT_H

#include "services/check.h"

#include "base/strbuf.h"
#include "services/check_http.h"
#include "sessions/capture.h"
#include "sessions/child.h"
#include "sessions/output.h"
#include "sessions/teardown.h"

#include <netinet/in.h>
#include <sys/socket.h>

enum net_stage {
    NET_CONNECTING,
    NET_SENDING,   /* the request */
    NET_READING,   /* until the status is known */
    NET_LINGERING, /* it is; the rest is taken for a moment, so that the server sees no reset */
};

union net_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct check_net {
    enum net_stage stage;
    int fd;
    ev_io io;
    union net_address address[2]; /* "localhost" is two */
    socklen_t address_size[2];
    unsigned address_count, tried;
    char where[160]; /* "127.0.0.1:80", for messages */
    struct strbuf request;
    size_t sent;
    struct http_answer answer;
    size_t drained;
};

struct check_run {
    pid_t pid;
    struct child *child; /* NULL once it was waited for */
    struct child_exit how;
    struct teardown *teardown;
    struct output *output;
    struct capture capture;
    char mark[48]; /* in the environment of all that it starts */
    uint64_t ended_ticks;
    bool is_expired;
};

struct check_attempt {
    struct check_plan plan;
    enum check_kind kind; /* the configuration may be gone once it is cancelled */
    char text[96];
    ev_timer timer;    /* its timeout; from the verdict on: 0, to tell it */
    bool is_last_look; /* the time is up, but nothing is done about it yet */
    bool is_over;
    bool is_ok;
    bool is_telling;   /* on_done runs */
    bool is_cancelled; /* nobody waits; it goes when what it started is gone */
    struct error why;
    struct check_net net;
    struct check_run run;
};

/* The verdict: is_ok, or a->why was filled. It is told from the loop. */
void check_conclude(struct check_attempt *a, bool is_ok);
/* Set the timer anew. */
void check_set_timer(struct check_attempt *a, uint64_t ms);
/* Nothing of it is left and nobody waits. */
void check_attempt_free(struct check_attempt *a);

/* Begin. 0, or -1 with *e where init lacks something. end: stop and close. */
int check_net_begin(struct check_attempt *a, struct error *e);
void check_net_expire(struct check_attempt *a);
void check_net_end(struct check_attempt *a);

/* A command, or a look at a path (look.h). */
int check_run_begin(struct check_attempt *a, struct error *e);
/* Kill it whole; the verdict or, for a cancelled one, check_attempt_free() comes when that is done.
 */
void check_run_expire(struct check_attempt *a);
void check_run_end(struct check_attempt *a);
/* True while a process of it may be there. */
bool check_run_is_live(const struct check_attempt *a);

#endif
