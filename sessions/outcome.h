/* What an answer says about a command or process that is over (design: what an answer says). */
#ifndef SESSIONS_OUTCOME_H
#define SESSIONS_OUTCOME_H

#include "sessions/events.h"
#include "sessions/stray.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct child_exit;

enum verdict {
    VERDICT_EXITED,
    VERDICT_SIGNALED,
    VERDICT_TIMEOUT,
    VERDICT_KILLED_BY_CLIENT,
    VERDICT_OOM,
    VERDICT_OUTPUT_LIMIT,
    VERDICT_SPAWN_FAILED,
    VERDICT_SHELL_ENDED,
    VERDICT_COUNT
};

#define STATUS_TIMEOUT 124
#define STATUS_NOT_RUN 125
#define STATUS_NO_EXEC 126 /* a program that cannot be run */
#define STATUS_NO_FILE 127 /* one that is not there */
#define STATUS_KILLED  137

struct outcome {
    enum verdict verdict;
    int status; /* the number a shell would give, 0 … 255 */
    int signal; /* that ended it, or 0 */
    uint64_t duration_ms;
    uint64_t user_us, system_us; /* CPU time; only where has_usage */
    bool has_usage;
    uint64_t peak_kib;  /* 0: not known */
    uint64_t oom_kills; /* processes of the container that the kernel killed meanwhile (oom.h) */
    bool is_drained;    /* nobody held the output any more */
    bool shell_restarted, state_lost;
    bool functions_lost;  /* restored but for these, if there were any: dash and ash cannot print
                             them */
    bool folder_lost;     /* as the state: where the shell was could never be seen */
    bool was_reset;       /* the session was: nothing of before is kept, not even the folder */
    bool was_interrupted; /* its text was aborted in a shell: what became of its state is told */
    const char *clock;    /* timeout: which one ran out ("total", "output", "cpu") */
    const char *step;     /* spawn_failed: what failed */
    int sys;              /* and its errno */
    char message[256];
    struct stray strays[STRAYS_TOLD];
    size_t stray_count; /* all; at most STRAYS_TOLD are listed */
};

/* The step of what ran out of patience in the queue. */
#define STEP_QUEUE "queue"

const char *verdict_name(enum verdict v);
/* What became of the session's state: "kept", "restored", "lost" or "reset"; NULL: nothing happened
 * to it.
 */
const char *outcome_state(const struct outcome *o);

/* Fill verdict, status, signal, usage, step from the end of a process. A verdict that was decided
 * before (timeout, killed) stays, with its fixed status. */
void outcome_of_exit(struct outcome *o, const struct child_exit *how, bool is_decided);

/* Give a verdict that was decided its fixed status. */
void outcome_decide(struct outcome *o);

/* Emit the event that a command or process has ended so. session: "" for none. */
void outcome_tell(enum event_kind kind, const char *session, const char *id,
                  const struct outcome *o);

/* It left the queue of a busy session (STEP_QUEUE). */
bool outcome_is_busy(const struct outcome *o);

/* The command or process never ran: step, errno and message. */
void outcome_not_run(struct outcome *o, const char *step, int sys, const char *message);

#endif
