#include "sessions/outcome.h"
#include "base/number.h"
#include "sessions/child.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static const char *const names[] = {
    [VERDICT_EXITED] = "exited",
    [VERDICT_SIGNALED] = "signaled",
    [VERDICT_TIMEOUT] = "timeout",
    [VERDICT_KILLED_BY_CLIENT] = "killed_by_client",
    [VERDICT_OOM] = "oom",
    [VERDICT_OUTPUT_LIMIT] = "output_limit",
    [VERDICT_SPAWN_FAILED] = "spawn_failed",
    [VERDICT_SHELL_ENDED] = "shell_ended",
};
_Static_assert(sizeof(names) / sizeof(names[0]) == VERDICT_COUNT, "a name per verdict");

const char *verdict_name(enum verdict v)
{
    return (size_t)v < VERDICT_COUNT ? names[v] : "exited";
}

const char *outcome_state(const struct outcome *o)
{
    if (o->was_reset)
        return "reset";
    if (o->shell_restarted)
        return o->state_lost ? "lost" : "restored";
    return o->was_interrupted ? "kept" : NULL;
}

static uint64_t microseconds(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_usec;
}

void outcome_decide(struct outcome *o)
{
    o->status = o->verdict == VERDICT_TIMEOUT ? STATUS_TIMEOUT : STATUS_KILLED;
}

void outcome_of_exit(struct outcome *o, const struct child_exit *how, bool is_decided)
{
    if (how->step) {
        char message[96];
        snprintf(message, sizeof message, "%s: %s", how->step, child_exit_why(how));
        outcome_not_run(o, how->step, how->sys, message);
        return;
    }
    o->user_us = microseconds(how->usage.ru_utime);
    o->system_us = microseconds(how->usage.ru_stime);
    o->peak_kib = (uint64_t)how->usage.ru_maxrss;
    o->has_usage = true;
    o->signal = WIFSIGNALED(how->status) ? WTERMSIG(how->status) : 0;
    if (is_decided) {
        outcome_decide(o);
    } else {
        o->verdict = o->signal ? VERDICT_SIGNALED : VERDICT_EXITED;
        o->status = o->signal ? 128 + o->signal : WEXITSTATUS(how->status);
    }
}

void outcome_tell(enum event_kind kind, const char *session, const char *id,
                  const struct outcome *o)
{
    char signal[16];
    const struct log_field fields[] = {
        F_STR("session", session),
        F_STR("id", id),
        F_STR("verdict", verdict_name(o->verdict)),
        F_INT("status", o->status),
        F_STR("signal", o->signal ? signal_name(o->signal, signal, sizeof signal) : NULL),
        F_INT("duration_ms", o->duration_ms),
        F_STR("step", o->step),
        F_STR("message", o->message),
        F_INT("strays", o->stray_count), /* the last: only where there are any */
    };
    if (o->oom_kills)
        EVENT(EVENT_OOM, "killed", F_STR("session", session), F_STR("id", id),
              F_INT("killed", o->oom_kills), F_STR("message", o->message));
    event_emit(kind, "ended", fields, sizeof fields / sizeof fields[0] - (o->stray_count == 0));
}

bool outcome_is_busy(const struct outcome *o)
{
    return o->verdict == VERDICT_SPAWN_FAILED && o->step && strcmp(o->step, STEP_QUEUE) == 0;
}

void outcome_not_run(struct outcome *o, const char *step, int sys, const char *message)
{
    o->verdict = VERDICT_SPAWN_FAILED;
    o->is_drained = true;
    o->step = step;
    o->sys = sys;
    o->status = STATUS_NOT_RUN;
    if (strcmp(step, "exec") == 0)
        o->status = sys == ENOENT || sys == ENOTDIR ? STATUS_NO_FILE : STATUS_NO_EXEC;
    if (message)
        snprintf(o->message, sizeof o->message, "%s", message);
    else
        snprintf(o->message, sizeof o->message, "%s: %s", step, strerror(sys));
}
