/*
 * pre_start, stop_command and post_stop: programs of the service's tree, run as it runs. At most
 * one of them at a time; each is told how the last run ended.
 */
#include "services/service.h"
#include "base/head.h"
#include "base/number.h"

#include <stdio.h>
#include <string.h>

static const char *const hook_names[] = {[HOOK_PRE_START] = "pre_start",
                                         [HOOK_STOP_COMMAND] = "stop_command",
                                         [HOOK_POST_STOP] = "post_stop"};

static char *const *argv_of(const struct service *s, enum hook_kind kind)
{
    const struct service_config *c = s->config;
    return kind == HOOK_PRE_START      ? c->pre_start
           : kind == HOOK_STOP_COMMAND ? c->stop_command
                                       : c->post_stop;
}

static void on_hook_exit(void *context, const struct child_exit *how)
{
    struct service *s = context;
    struct outcome o = {0};
    outcome_of_exit(&o, how, false);
    if (how->step)
        service_plan_words(s, how, s->hook_program, o.message, sizeof o.message);
    outcome_words(&o, s->hook_words, sizeof s->hook_words);
    s->hook_status = o.status;
    s->hook = NULL;
    s->hook_is_over = true;
    if (!s->child)
        service_log_run_ended(s->log);
    service_mark(s);
}

/* What will become of it, for post_stop. */
static const char *next_state(const struct service *s)
{
    if (!s->is_wanted || service_is_stopping(s) || s->is_leaving)
        return "stopped";
    if (s->is_due || s->cause == END_ORDER)
        return "waiting";
    switch (s->answer.word) {
    case POLICY_AGAIN:
        return "delayed";
    case POLICY_DONE:
        return "exited";
    case POLICY_FATAL:
        return "fatal";
    }
    return "";
}

static int add_env(const struct service *s, enum hook_kind kind, struct env_set *env,
                   struct error *e)
{
    char item[64], name[16];
    snprintf(item, sizeof item, "SERVICE_PID=%d", (int)(s->child ? s->child->pid : 0));
    int rc = s->child ? env_put(env, item, e) : 0;
    if (kind != HOOK_POST_STOP || rc < 0)
        return rc;
    snprintf(item, sizeof item, "SERVICE_NEXT=%s", next_state(s));
    if (env_put(env, item, e) < 0)
        return -1;
    if (!s->has_outcome)
        return 0;
    snprintf(item, sizeof item, "SERVICE_STATUS=%d", s->outcome.status);
    rc = env_put(env, item, e);
    if (rc < 0 || !s->outcome.signal)
        return rc;
    snprintf(item, sizeof item, "SERVICE_SIGNAL=%s",
             signal_name(s->outcome.signal, name, sizeof name));
    return env_put(env, item, e);
}

int service_hook_start(struct service *s, enum hook_kind kind, struct error *e)
{
    struct service_plan p;
    const char *step;
    int rc = service_plan_make(s, &p, &step, e);
    if (rc == 0)
        rc = add_env(s, kind, &p.env, e);
    if (rc == 0) {
        p.spawn.argv = (const char *const *)(const void *)argv_of(s, kind);
        p.spawn.stdio[0] = -1;
        p.spawn.on_exit = on_hook_exit;
        s->hook = service_plan_spawn(s, &p, e);
        rc = s->hook ? 0 : -1;
    }
    service_plan_free(&p);
    if (rc < 0)
        return error_wrap(e, "%s", hook_names[kind]);
    head_copy(s->hook_program, sizeof s->hook_program, argv_of(s, kind)[0]);
    s->hook_pid = s->hook->pid;
    s->hook_is_over = false;
    return 0;
}
