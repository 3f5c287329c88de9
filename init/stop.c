/*
 * The stop: each process gets TERM once, then has until one common deadline, then KILL. Services
 * that come after the main command end before it, which waits for a quarter of the time at most. It
 * is asked by its own signal, sessions and processes at once; what it leaves behind follows when it
 * has ended, and so do the services, in their order: at the latest when half of the time is over,
 * so that they can still end well. The end of the main command is a stop as well.
 */
#include "init/init.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "init/gateway.h"
#include "sessions/events.h"
#include "sessions/log_feed.h"
#include "sessions/proc.h"
#include "sessions/stray_watch.h"
#include "sessions/session.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define LOGS_MS 1000 /* for the log writer to write what is left */

static uint64_t left_ms(const struct init *in)
{
    uint64_t now = clock_mono_ns();
    return now >= in->stop_deadline_ns ? 0 : (in->stop_deadline_ns - now) / 1000000u;
}

struct collect_walk {
    struct init *init;
    struct teardown *teardown;
};

static bool collect_child(void *context, pid_t pid)
{
    struct collect_walk *w = context;
    struct init *in = w->init;
    /* Log writers end last, when they have written what the others had to say. */
    if (log_feed_is_writer(in->sessions.log_feed, pid))
        return true;
    /* While main still has its own time it is left alone. */
    if (in->stop_state == STOP_MAIN && in->main_child && in->main_child->pid == pid)
        return true;
    /* Services are told in their turn. */
    if (in->services_stop != SERVICES_DOWN && services_own(in->services, pid))
        return true;
    /* What the other teardown already told to end is not told again (case W4). */
    for (size_t i = 0; i < STOP_TEARDOWNS; i++)
        if (in->stop_teardowns[i] && in->stop_teardowns[i] != w->teardown &&
            teardown_has(in->stop_teardowns[i], pid))
            return true;
    teardown_add_root(w->teardown, pid);
    return true;
}

static void collect(void *context, struct teardown *t)
{
    struct collect_walk w = {.init = context, .teardown = t};
    proc_children(getpid(), collect_child, &w);
}

static bool is_torn_down(const struct init *in)
{
    for (size_t i = 0; i < STOP_TEARDOWNS; i++)
        if (in->stop_teardowns[i])
            return false;
    return true;
}

static void on_logs_written(void *context)
{
    struct init *in = context;
    ev_timer_stop(in->loop, &in->stop_timer);
    in->stop_state = STOP_DONE;
    /* What entered the namespace from outside and is nobody's child dies with PID 1
     * (pid_namespaces(7)). */
    LOG_INF("stopped", F_INT("code", in->exit_code));
    stray_watch_end(in->loop); /* nothing is told behind this */
    EVENT(EVENT_STOP, "done", F_INT("code", in->exit_code));
    ev_break(in->loop, EVBREAK_ALL);
}

/* Nobody is left to say anything: the last words go to the disk. */
static void be_done(struct init *in)
{
    ev_timer_stop(in->loop, &in->stop_timer);
    if (in->stop_state == STOP_LOGS)
        return;
    if (in->main_child) /* not even that has ended it: never a made-up 0 */
        in->exit_code = in->options->exit_codes[128 + SIGKILL];
    in->stop_state = STOP_LOGS;
    log_feed_end(in->sessions.log_feed, LOGS_MS, on_logs_written, in);
}

static void begin_teardown(struct init *in, size_t which);

/* All that was told to end has ended. Where there were services something may have come from them
 * that was nobody's, or nobody's yet. */
static void go_on(struct init *in)
{
    if (!is_torn_down(in) || in->services_stop != SERVICES_DOWN)
        return;
    if (in->stop_state == STOP_ALL && in->had_services && children_exist()) {
        in->stop_state = STOP_REST;
        begin_teardown(in, 1);
    } else if (in->stop_state == STOP_ALL || in->stop_state == STOP_REST) {
        be_done(in);
    }
}

static void on_torn_down(void *context, const struct teardown_report *report)
{
    struct stop_part *part = context;
    struct init *in = part->init;
    in->stop_teardowns[part - in->stop_parts] = NULL;
    children_sweep();
    for (size_t i = 0; i < report->survivors_told; i++)
        LOG_ERR("survivor", F_INT("pid", report->survivors[i].pid),
                F_STR("name", report->survivors[i].comm), F_STR("why", report->survivors[i].why));
    go_on(in);
}

static void collect_part(void *context, struct teardown *t)
{
    struct stop_part *part = context;
    collect(part->init, t);
}

static void remind(void *context, struct teardown *t)
{
    const struct stop_part *part = context;
    list_each(s, &part->init->sessions.sessions, struct session, link) session_remind(s, t);
}

static void begin_teardown(struct init *in, size_t which)
{
    struct error e = {0};
    uint64_t grace = left_ms(in);
    in->stop_parts[which].init = in;
    struct teardown_plan plan = {.loop = in->loop,
                                 .first_signal = grace ? SIGTERM : SIGKILL,
                                 .grace_ms = grace,
                                 .collect = collect_part,
                                 .remind = remind,
                                 .on_done = on_torn_down,
                                 .context = &in->stop_parts[which],
                                 .cgroup_fd = -1};
    in->stop_teardowns[which] = teardown_start(&plan, &e);
    if (!in->stop_teardowns[which]) {
        LOG_ERR("stop", F_STR("why", e.text));
        be_done(in);
    }
}

/* ---- services ---- */

static void on_services_stopped(void *context)
{
    struct init *in = context;
    in->services_stop = SERVICES_DOWN;
    go_on(in);
}

static void stop_services(struct init *in)
{
    if (in->services_stop != SERVICES_UP)
        return;
    in->services_stop = SERVICES_STOPPING;
    services_stop(in->services, in->stop_deadline_ns, on_services_stopped, in);
}

static void on_services_turn(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    ev_timer_stop(loop, w);
    stop_services(w->data);
}

/* ---- main ---- */

static void tell_main(struct init *in)
{
    if (!in->is_main_due)
        return;
    in->is_main_due = false;
    ev_timer_stop(in->loop, &in->main_timer);
    main_command_signal(in, SIGTERM);
    main_command_wake(in);
}

static void on_main_turn(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    tell_main(w->data);
}

static void on_followers_stopped(void *context)
{
    tell_main(context);
}

static void set_main_timer(struct init *in, uint64_t grace_ms)
{
    ev_timer_stop(in->loop, &in->main_timer);
    ev_timer_init(&in->main_timer, on_main_turn, (double)grace_ms / 4000.0, 0.);
    in->main_timer.data = in;
    ev_timer_start(in->loop, &in->main_timer);
}

static void set_services_timer(struct init *in, uint64_t grace_ms)
{
    ev_timer_stop(in->loop, &in->services_timer);
    ev_timer_init(&in->services_timer, on_services_turn, (double)grace_ms / 2000.0, 0.);
    in->services_timer.data = in;
    if (in->services_stop == SERVICES_UP)
        ev_timer_start(in->loop, &in->services_timer);
}

/* Main has ended or its time is up: now all that is left. */
static void stop_all(struct init *in)
{
    in->stop_state = STOP_ALL;
    ev_timer_stop(in->loop, &in->services_timer);
    ev_timer_stop(in->loop, &in->main_timer);
    in->is_main_due = false;
    stop_services(in);
    if (in->services_stop == SERVICES_DOWN && is_torn_down(in) && !children_exist())
        be_done(in); /* a container of one command: nobody is left */
    else
        begin_teardown(in, 1);
}

static void hurry_all(struct init *in, uint64_t grace_ms)
{
    if (in->services_stop == SERVICES_STOPPING)
        services_stop(in->services, in->stop_deadline_ns, on_services_stopped, in);
    for (size_t i = 0; i < STOP_TEARDOWNS; i++)
        if (in->stop_teardowns[i])
            teardown_hurry(in->stop_teardowns[i], grace_ms);
}

static void on_deadline(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct init *in = w->data;
    ev_timer_stop(loop, w);
    if (in->stop_state == STOP_MAIN)
        stop_all(in);
    else
        hurry_all(in, 0);
}

static void set_deadline(struct init *in, uint64_t grace_ms)
{
    in->stop_deadline_ns = clock_mono_ns() + grace_ms * 1000000u;
    ev_timer_stop(in->loop, &in->stop_timer);
    ev_timer_init(&in->stop_timer, on_deadline, (double)grace_ms / 1000.0, 0.);
    in->stop_timer.data = in;
    ev_timer_start(in->loop, &in->stop_timer);
    set_services_timer(in, grace_ms);
}

/* What a container ends with that was stopped before its main command had begun. */
static void set_early_code(struct init *in, int sig)
{
    bool is_early = in->main_state == MAIN_PENDING || services_have_set_up(in->services);
    int code = 128 + (sig == SIGINT || sig == SIGQUIT ? sig : SIGTERM);
    if (!is_early || in->is_fatal || in->stop_state != STOP_NONE)
        return;
    in->exit_code = in->main_state == MAIN_PENDING ? in->options->exit_codes[code] : code;
}

void stop_by_signal(struct init *in, int sig)
{
    char name[16];
    set_early_code(in, sig);
    stop_begin(in, signal_name(sig, name, sizeof name), -1);
}

void stop_by_service(struct init *in, const char *why, int code)
{
    if (in->stop_state != STOP_NONE)
        return;
    LOG_ERR("fatal", F_STR("why", why), F_INT("code", code));
    in->is_fatal = true;
    in->exit_code = code;
    stop_begin(in, why, -1);
}

void stop_begin(struct init *in, const char *why, int64_t grace_ms)
{
    uint64_t grace = grace_ms < 0 ? in->config->stop_grace_ms : (uint64_t)grace_ms;
    if (in->stop_state != STOP_NONE) {
        /* Not a second stop: at most a shorter grace. */
        if (grace_ms >= 0 && grace < left_ms(in)) {
            EVENT(EVENT_STOP, "hurried", F_STR("why", why), F_INT("grace_ms", grace));
            set_deadline(in, grace);
            if (in->is_main_due)
                set_main_timer(in, grace);
            hurry_all(in, grace);
        }
        return;
    }
    if (in->exit_code == 0)
        set_early_code(in, SIGTERM);
    in->services_stop = services_count(in->services) ? SERVICES_UP : SERVICES_DOWN;
    in->had_services = in->services_stop == SERVICES_UP;
    LOG_INF("stop", F_STR("why", why), F_INT("grace_ms", grace));
    EVENT(EVENT_STOP, "begun", F_STR("why", why), F_INT("grace_ms", grace));
    sessions_stop(&in->sessions);
    gateway_stop(in->gateway);
    set_deadline(in, grace);
    if (!in->main_child) {
        stop_all(in);
        return;
    }
    in->stop_state = STOP_MAIN;
    in->is_main_due = true;
    set_main_timer(in, grace);
    if (!services_stop_followers(in->services, in->stop_deadline_ns, on_followers_stopped, in))
        tell_main(in);
    begin_teardown(in, 0);
}

void stop_on_main_end(struct init *in)
{
    if (in->stop_state >= STOP_ALL)
        return; /* it was killed at the deadline, by the teardown of all */
    if (in->stop_state == STOP_NONE) {
        in->had_services = services_count(in->services) > 0;
        in->services_stop = in->had_services ? SERVICES_UP : SERVICES_DOWN;
        EVENT(EVENT_STOP, "begun", F_STR("why", "main ended"),
              F_INT("grace_ms", in->config->stop_grace_ms));
        sessions_stop(&in->sessions);
        gateway_stop(in->gateway);
        set_deadline(in, in->config->stop_grace_ms);
    }
    stop_all(in);
}
