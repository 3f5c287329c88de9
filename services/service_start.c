/*
 * The start of a run: pre_start, then the program itself.
 */
#include "services/service.h"
#include "base/clock.h"

#include <string.h>

void service_take_next(struct service *s)
{
    if (s->config == s->next)
        return;
    s->config = s->next;
    service_settings_changed(s);
}

static void forget_last_run(struct service *s)
{
    service_take_next(s);
    s->cause = END_NONE;
    s->child_is_over = s->hook_is_over = s->tree_is_over = false;
    s->has_executed = s->is_ready = s->is_blocked = s->is_due = false;
    s->has_begun = true;
    s->end_words[0] = '\0';
}

void service_begin(struct service *s)
{
    struct error e = {0};
    forget_last_run(s);
    if (!s->config->pre_start) {
        service_launch(s);
        return;
    }
    service_set_state(s, SERVICE_PREPARING, "pre_start runs");
    s->awaited_ns = clock_mono_ns();
    if (service_hook_start(s, HOOK_PRE_START, &e) < 0)
        service_not_begun(s, "pre_start", e.sys, 0, e.text);
    else
        service_limit_start(s);
}

static void on_exec(void *context)
{
    struct service *s = context;
    s->has_executed = true;
    service_mark(s);
}

static int spawn_program(struct service *s, const char **step, struct error *e)
{
    const struct service_config *c = s->config;
    const char *const script[] = {"/bin/sh", "-c", c->script, s->name, NULL};
    struct service_plan p;
    int rc = service_plan_make(s, &p, step, e);
    if (rc == 0) {
        *step = "notify";
        rc = service_voice_make(s, &p, e);
    }
    if (rc == 0) {
        *step = "spawn";
        p.spawn.argv = c->argv ? (const char *const *)(const void *)c->argv : script;
        p.spawn.on_exec = on_exec;
        p.spawn.on_exit = service_on_exit;
        s->child = service_plan_spawn(s, &p, e);
        rc = s->child ? 0 : -1;
    }
    service_plan_free(&p);
    return rc;
}

void service_launch(struct service *s)
{
    struct error e = {0};
    const char *step = "spawn";
    s->hook_is_over = false;
    if (spawn_program(s, &step, &e) < 0) {
        service_not_begun(s, step, e.sys, 0, e.text);
        return;
    }
    s->root_pid = s->child->pid;
    s->began_ns = clock_mono_ns();
    service_set_state(s, SERVICE_STARTING, NULL);
    service_ready_begin(s);
}
