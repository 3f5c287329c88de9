/*
 * One check of a service, for `ready` and `health`: does a port, socket, URL, file or command
 * answer now? Each check is one bounded attempt on the loop that never blocks; who wants it again
 * starts another. CHECK_FD is no attempt: it is part of the service's start (notify.h).
 *
 * Files and sockets are looked at by a process of their own (look.h), as commands are run by one.
 * Where the kernel lets nobody end that (a file system that does not answer) no other one is
 * started for the same owner until it is gone.
 */
#ifndef SERVICES_CHECK_H
#define SERVICES_CHECK_H

#include "base/error.h"
#include "config/service_config.h"
#include "sessions/env.h"
#include "sessions/user.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct check_attempt;

/* The process of an earlier attempt that was killed and may be there yet. All zero at first. */
struct check_hold {
    pid_t pid;
    uint64_t start_ticks;
    uint64_t since_ns; /* it was killed, monotonic */
};

struct check_plan {
    struct ev_loop *loop;
    const struct check *check; /* outlives the attempt, or check_moved() */
    uint64_t timeout_ms;
    /* Of CHECK_COMMAND: as the service runs. */
    const struct user *user;
    const char *cwd;
    const char *const *envp;
    struct check_hold *hold; /* of its owner, over attempts; NULL: none. Until check_cancel() */
    /* Once, from the loop, never from inside check_start(). ok, or why not ("connect to
     * 127.0.0.1:80: Connection refused"). The attempt is freed after it. */
    void (*on_done)(void *context, bool is_ok, const char *why);
    void *context;
};

/* NULL with *e set: not even begun. */
struct check_attempt *check_start(const struct check_plan *plan, struct error *e);
/* What it looks at stands there now. */
void check_moved(struct check_attempt *a, const struct check *same);
/* True if pid is the process of it. a: may be NULL. */
bool check_has(const struct check_attempt *a, pid_t pid);
/* Forget it without on_done; what it started is torn down. */
void check_cancel(struct check_attempt *a);

#endif
