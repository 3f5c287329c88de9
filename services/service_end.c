/*
 * The end of a run: why, what its policy says, and the phases of STOPPING: those that need it end
 * first, then stop_command or stop_signal, its whole tree within its grace, post_stop.
 */
#include "services/service.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define RETRY_MS 500 /* for what the kernel did not let go */

/* ---- the facts ---- */

/* Strays are not told here: their part is large, and no memory of it is touched. */
static void forget_outcome(struct outcome *o)
{
    memset(o, 0, offsetof(struct outcome, strays));
    o->stray_count = 0;
}

/* What failed before its program was reached, in words. */
static void describe_failure(struct service *s, const struct child_exit *how)
{
    const char *program = s->config->argv ? s->config->argv[0] : "/bin/sh";
    char words[sizeof s->outcome.message];
    service_plan_words(s, how, program, words, sizeof words);
    outcome_not_run(&s->outcome, how->step, how->sys, words);
}

void service_on_exit(void *context, const struct child_exit *how)
{
    struct service *s = context;
    s->root_ticks = proc_ticks_now();
    s->ended_ns = clock_mono_ns();
    forget_outcome(&s->outcome);
    if (how->step)
        describe_failure(s, how);
    else
        outcome_of_exit(&s->outcome, how, false);
    s->outcome.duration_ms = (s->ended_ns - s->began_ns) / 1000000u;
    s->has_outcome = true;
    s->child = NULL;
    s->child_is_over = true;
    service_log_run_ended(s->log);
    service_mark(s);
}

void service_not_begun(struct service *s, const char *step, int sys, int status,
                       const char *message)
{
    forget_outcome(&s->outcome);
    outcome_not_run(&s->outcome, step, sys, message);
    if (status)
        s->outcome.status = status;
    s->has_outcome = true;
    s->ended_ns = clock_mono_ns();
    service_end(s, END_NOT_BEGUN);
}

/* ---- what follows ---- */

/* The code that init would end with, and the words, of an end that was not ordered. */
static void judge(struct service *s, bool *is_success)
{
    *is_success = false;
    switch (s->cause) {
    case END_ITSELF:
        *is_success = policy_is_success(s->config, s->outcome.status);
        /* fallthrough */
    case END_NOT_BEGUN:
        s->code = s->outcome.status;
        outcome_words(&s->outcome, s->end_words, sizeof s->end_words);
        break;
    case END_NOT_READY:
        s->code = STATUS_TIMEOUT;
        service_ready_explain(s, s->end_words, sizeof s->end_words);
        break;
    case END_UNHEALTHY:
        s->code = 1;
        service_ready_explain(s, s->end_words, sizeof s->end_words);
        break;
    case END_ORDER:
    case END_NONE:
        s->code = 0;
        s->end_words[0] = '\0';
        break;
    }
}

static void decide(struct service *s)
{
    bool is_success;
    judge(s, &is_success);
    s->is_success = is_success;
    if (s->cause == END_ORDER)
        return;
    bool has_run = s->cause == END_ITSELF || s->cause == END_UNHEALTHY;
    s->answer = policy_decide(&s->policy, s->config, is_success, has_run ? s->began_ns : 0,
                              clock_mono_ns());
}

/* It has gone to the background, as daemons do: nobody would see its end there. */
static void explain_daemon(struct service *s)
{
    size_t n = strlen(s->end_words);
    if (s->cause == END_ITSELF && s->is_success && s->config->type != SERVICE_ONESHOT)
        snprintf(s->end_words + n, sizeof s->end_words - n,
                 " and left processes behind: it has to stay in the foreground");
}

void service_end(struct service *s, enum end_cause cause)
{
    bool has_tree = service_has_tree(s);
    service_stop_timer(s);
    s->cause = cause;
    decide(s);
    service_ready_stop(s);
    s->is_ready = false;
    s->is_post_done = false;
    s->stop_by_ns = 0;
    if (has_tree)
        explain_daemon(s);
    if (cause == END_ORDER || has_tree || s->config->post_stop) {
        s->phase = STOP_DEPENDENTS;
        service_set_state(s, SERVICE_STOPPING, "%s", s->end_words);
        service_mark(s);
    } else {
        service_ended(s);
    }
}

/* ---- phases ---- */

static uint64_t left_ms(const struct service *s)
{
    uint64_t now = clock_mono_ns();
    uint64_t left = s->stop_by_ns > now ? (s->stop_by_ns - now) / 1000000u : 0;
    return services_grace_ms(s->all, left);
}

/* Somebody that needs it, or only came after it and ends as well, is still there. */
static const struct service *find_dependent(const struct service *s)
{
    const struct order_links *needed = &s->node->links[ORDER_NEEDED_BY];
    const struct order_links *followed = &s->node->links[ORDER_FOLLOWED_BY];
    if (s->cause != END_ORDER || s->all->is_order_off)
        return NULL;
    for (size_t i = 0; i < needed->count; i++)
        if (service_is_live(needed->items[i]))
            return needed->items[i];
    for (size_t i = 0; i < followed->count; i++) {
        const struct service *f = followed->items[i];
        if (service_is_live(f) &&
            (service_is_stopping(s) || (f->state == SERVICE_STOPPING && f->cause == END_ORDER)))
            return f;
    }
    return NULL;
}

static void enter_post(struct service *s)
{
    struct error e = {0};
    if (s->is_post_done || !s->config->post_stop || !s->has_begun || s->all->is_hurried) {
        service_ended(s);
        return;
    }
    s->is_post_done = true;
    if (service_hook_start(s, HOOK_POST_STOP, &e) < 0) {
        LOG_ERR("service", F_STR("service", s->name), F_STR("hook", "post_stop"),
                F_STR("why", e.text));
        service_ended(s);
        return;
    }
    s->phase = STOP_POST;
    service_set_state(s, SERVICE_STOPPING, "%s%spost_stop runs", s->end_words,
                      s->end_words[0] ? "; " : "");
    service_set_timer(s, services_grace_ms(s->all, s->config->stop_grace_ms));
}

/* End whatever is there: with the signal, or (0) at once. */
static void enter_tree(struct service *s, int sig)
{
    struct error e = {0};
    uint64_t grace = sig ? left_ms(s) : 0;
    service_stop_timer(s);
    if (!service_has_tree(s)) {
        enter_post(s);
        return;
    }
    s->tree_is_over = false;
    s->phase = STOP_TREE;
    if (service_tear_down(s, grace ? sig : SIGKILL, grace, &e) == 0)
        return;
    LOG_ERR("service", F_STR("service", s->name), F_STR("why", e.text));
    s->phase = STOP_SURVIVORS;
    service_set_timer(s, RETRY_MS);
}

static void enter_command(struct service *s)
{
    struct error e = {0};
    bool is_asked =
        s->config->stop_command && s->child && !s->child_is_over && !s->hook && left_ms(s) > 0;
    if (!is_asked) {
        enter_tree(s, s->config->stop_signal);
        return;
    }
    if (service_hook_start(s, HOOK_STOP_COMMAND, &e) < 0) {
        LOG_ERR("service", F_STR("service", s->name), F_STR("hook", "stop_command"),
                F_STR("why", e.text));
        enter_tree(s, s->config->stop_signal);
        return;
    }
    s->phase = STOP_COMMAND_RUNS;
    service_set_state(s, SERVICE_STOPPING, "stop_command runs");
    service_set_timer(s, left_ms(s) / 2);
}

static void step_dependents(struct service *s)
{
    const struct service *d = find_dependent(s);
    if (d) {
        service_set_state(s, SERVICE_STOPPING, "waits for %s to stop", d->name);
        return;
    }
    uint64_t grace = services_grace_ms(s->all, s->config->stop_grace_ms);
    s->stop_by_ns = clock_mono_ns() + grace * 1000000u;
    service_set_state(s, SERVICE_STOPPING, "%s", s->end_words);
    enter_command(s);
}

/* Half of the grace is the command's, the rest is for what the signal then asks for. */
static void step_command(struct service *s)
{
    if (!s->hook_is_over && !s->time_is_up)
        return;
    if (!s->hook_is_over)
        snprintf(s->hook_words, sizeof s->hook_words, "not over within half of stop_grace");
    if (!s->hook_is_over || s->hook_status != 0)
        LOG_WRN("service", F_STR("service", s->name), F_STR("hook", "stop_command"),
                F_STR("why", s->hook_words));
    enter_tree(s, s->config->stop_signal);
}

/* Who waits hears it now: it may take for ever. What was ordered still holds. */
static void tell_survivors(struct service *s)
{
    struct error e;
    error_set(&e, ERR_STATE, "service '%s' cannot be ended: %s", s->name, s->survivor_words);
    service_tell_down(s, &e);
    service_tell_up(s, &e);
}

/* The stop of the container does not wait for what nothing ends. */
static void give_up(struct service *s)
{
    s->is_given_up = true;
    service_ended(s);
}

static void step_tree(struct service *s)
{
    if (!s->tree_is_over)
        return;
    s->tree_is_over = false;
    if (s->survivors == 0) {
        enter_post(s);
        return;
    }
    s->phase = STOP_SURVIVORS;
    service_set_state(s, SERVICE_STOPPING, "cannot be ended: %s", s->survivor_words);
    LOG_ERR("service", F_STR("service", s->name), F_STR("state", "stopping"),
            F_STR("message", s->words));
    tell_survivors(s);
    if (s->all->is_hurried)
        give_up(s);
    else
        service_set_timer(s, RETRY_MS);
}

static void step_survivors(struct service *s)
{
    if (s->all->is_hurried)
        give_up(s);
    else if (s->time_is_up)
        enter_tree(s, 0);
}

static void step_post(struct service *s)
{
    if (!s->hook_is_over && !s->time_is_up)
        return;
    if (!s->hook_is_over)
        snprintf(s->hook_words, sizeof s->hook_words, "not over within its grace");
    if (!s->hook_is_over || s->hook_status != 0)
        LOG_WRN("service", F_STR("service", s->name), F_STR("hook", "post_stop"),
                F_STR("why", s->hook_words));
    enter_tree(s, 0);
}

void service_end_step(struct service *s)
{
    switch (s->phase) {
    case STOP_DEPENDENTS:
        step_dependents(s);
        break;
    case STOP_COMMAND_RUNS:
        step_command(s);
        break;
    case STOP_TREE:
        step_tree(s);
        break;
    case STOP_SURVIVORS:
        step_survivors(s);
        break;
    case STOP_POST:
        step_post(s);
        break;
    }
}

/* ---- after it ---- */

/* A set-up step that failed for good, and that somebody waits for in the first start of all. */
static bool is_needed_set_up(const struct service *s)
{
    const struct order_links *needed = &s->node->links[ORDER_NEEDED_BY];
    if (s->config->type != SERVICE_ONESHOT || !s->is_boot)
        return false;
    if (s->all->has_main && !s->all->has_main_begun && !s->node->is_after_main)
        return true;
    for (size_t i = 0; i < needed->count; i++)
        if (needed->items[i]->is_boot)
            return true;
    return false;
}

/* It will not be started again by itself, and that is no success. */
static void fail_for_good(struct service *s)
{
    char why[sizeof s->name + SERVICE_WORDS + 16];
    bool is_fatal = is_needed_set_up(s) || s->config->on_fatal == FATAL_STOP;
    struct error e;
    error_set(&e, ERR_STATE, "service '%s': %s", s->name, s->words);
    service_tell_up(s, &e);
    snprintf(why, sizeof why, "service '%s': %s", s->name, s->words);
    if (is_fatal && !service_is_stopping(s))
        s->all->host.on_fatal(s->all->host.context, why, s->code ? s->code : 1);
}

/* Who waits for it hears at once that it failed, and when it is tried again. */
static void be_delayed(struct service *s)
{
    struct error e;
    s->wake_ns = clock_mono_ns() + s->answer.delay_ms * 1000000u;
    service_set_timer(s, s->answer.delay_ms);
    service_set_state(s, SERVICE_DELAYED, "%s", service_explain_delay(s));
    error_set(&e, ERR_STATE, "service '%s': %s", s->name, s->words);
    service_tell_up(s, &e);
}

static void be_fatal(struct service *s)
{
    char window[32];
    bool is_again = s->config->restart != RESTART_NEVER &&
                    !(s->config->restart == RESTART_ON_FAILURE && s->is_success);
    if (is_again && s->config->restart_max)
        service_set_state(
            s, SERVICE_FATAL, "%s, given up after %u restart%s within %s", s->end_words,
            s->policy.count, s->policy.count == 1 ? "" : "s",
            number_format_duration(s->config->restart_window_ms, window, sizeof window));
    else
        service_set_state(s, SERVICE_FATAL, "%s", s->end_words);
    fail_for_good(s);
}

static void be_done(struct service *s)
{
    s->is_ready = s->config->type == SERVICE_ONESHOT && s->is_success;
    service_set_state(s, SERVICE_EXITED, "%s", s->end_words);
    if (s->is_ready)
        service_tell_up(s, NULL);
    else if (!s->is_success)
        fail_for_good(s);
    else
        service_settle_orders(s);
}

static void follow_policy(struct service *s)
{
    switch (s->answer.word) {
    case POLICY_AGAIN:
        be_delayed(s);
        return;
    case POLICY_DONE:
        be_done(s);
        break;
    case POLICY_FATAL:
        be_fatal(s);
        break;
    }
    s->is_boot = false;
}

/* All of it is verified gone. */
void service_ended(struct service *s)
{
    service_stop_timer(s);
    service_voice_end(s);
    if (s->cause == END_UNHEALTHY ||
        s->cause == END_NOT_READY) /* the status tells of the kill only */
        snprintf(s->outcome.message, sizeof s->outcome.message, "%.*s",
                 (int)sizeof s->outcome.message - 1, s->end_words);
    s->child_is_over = s->hook_is_over = false;
    s->has_begun = false;
    if (!s->is_wanted || service_is_stopping(s) || s->is_leaving) {
        s->is_due = s->is_boot = false;
        if (!s->end_words[0] && s->has_outcome)
            outcome_words(&s->outcome, s->end_words, sizeof s->end_words);
        service_set_state(s, SERVICE_STOPPED, "%s", s->end_words);
        service_settle_orders(s);
    } else if (s->is_due || s->cause == END_ORDER) {
        s->is_due = s->is_blocked = false;
        service_set_state(s, SERVICE_WAITING, NULL);
    } else {
        follow_policy(s);
    }
    service_take_next(s);
    service_mark(s);
    service_mark_neighbours(s);
}
