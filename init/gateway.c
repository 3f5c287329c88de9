/*
 * The gateway's life. Callbacks set what is so; start() and end_now() act. It is started again
 * whenever it ends: at once-ish after a crash, ever later while it cannot run at all (the port is
 * taken, the token's file is missing), and what is wrong stands in the log once for each reason.
 */
#include "init/gateway.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/number.h"
#include "control/wire.h"
#include "sessions/events.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESTART_MIN_MS 100
#define RESTART_MAX_MS 5000
#define START_S        10.  /* for the token's file to open; then it is killed */
#define RAN_MS         1000 /* it has lived so long: what came before does not delay the next */
#define SETTLED_S      10.  /* and so long: it works */
#define LEAVE_S        5.   /* after TERM, for a reload */

static const char *const state_names[] = {
    [GATEWAY_OFF] = "off",          [GATEWAY_STARTING] = "starting", [GATEWAY_RUNNING] = "running",
    [GATEWAY_LEAVING] = "stopping", [GATEWAY_WAITING] = "waiting",
};
_Static_assert(sizeof state_names / sizeof state_names[0] == GATEWAY_WAITING + 1, "all named");

const char *gateway_state_name(enum gateway_state state)
{
    return state_names[state];
}

static const struct gateway_config *settings(const struct gateway *g)
{
    return &g->init->config->gateway;
}

static void set_state(struct gateway *g, enum gateway_state to)
{
    LOG_DBG("gateway_state", F_STR("from", state_names[g->state]), F_STR("to", state_names[to]));
    g->state = to;
}

static void set_timer(struct gateway *g, ev_timer *t, double seconds)
{
    ev_timer_stop(g->init->loop, t);
    ev_timer_set(t, seconds, 0.);
    ev_timer_start(g->init->loop, t);
}

/* ---- trouble ---- */

/* It did not start, or ended. What was said of the last one already is not said again. */
static void tell_trouble(struct gateway *g, const char *why)
{
    g->is_quiet = strcmp(g->trouble, why) == 0;
    snprintf(g->trouble, sizeof g->trouble, "%s", why);
    if (g->is_quiet)
        return;
    LOG_ERR("gateway_ended", F_STR("why", why), F_INT("restart_ms", g->restart_ms));
    EVENT(EVENT_GATEWAY, "ended", F_STR("why", why), F_INT("restart_ms", g->restart_ms));
}

static void wait_for_next(struct gateway *g)
{
    set_state(g, GATEWAY_WAITING);
    set_timer(g, &g->restart, (double)g->restart_ms / 1000.);
    g->restart_ms = 2 * g->restart_ms < RESTART_MAX_MS ? 2 * g->restart_ms : RESTART_MAX_MS;
}

/* Bytes from the gateway as text that may stand in any log: it is not to be trusted. */
static void copy_clean(char *to, size_t size, const char *text, size_t n)
{
    n = n < size - 1 ? n : size - 1;
    bool is_utf8 = utf8_is_valid(text, n);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        to[i] = c < ' ' || c == 0x7f || (c > 0x7f && !is_utf8) ? '?' : (char)c;
    }
    to[n] = '\0';
}

/* The same words are taken as one trouble, also from the next gateway. */
void gateway_take_words(struct gateway *g, char what, const char *text, size_t n)
{
    char words[sizeof g->complaint];
    copy_clean(words, sizeof words, text, n);
    if (what == WIRE_SAY_END) {
        memcpy(g->last_words, words, sizeof words);
        return;
    }
    if (strcmp(g->complaint, words) == 0)
        return;
    memcpy(g->complaint, words, sizeof words);
    if (words[0]) {
        LOG_WRN("gateway_trouble", F_STR("why", words));
        EVENT(EVENT_GATEWAY, "trouble", F_STR("why", words));
    } else {
        LOG_INF("gateway", F_INT("pid", g->child ? g->child->pid : 0),
                F_STR("why", "it works again"));
        EVENT(EVENT_GATEWAY, "recovered", F_INT("pid", g->child ? g->child->pid : 0));
    }
}

/* init has the capabilities to switch users, and may not all the same (a user namespace that maps
 * one user only): true if it is tried again as init's own. */
static bool must_be_as_init(struct gateway *g, const struct child_exit *how)
{
    bool is_of_user = how->step && (strcmp(how->step, spawn_step_name(SPAWN_GROUPS)) == 0 ||
                                    strcmp(how->step, spawn_step_name(SPAWN_UID)) == 0);
    if (!is_of_user || settings(g)->user || g->is_as_init)
        return false;
    g->is_as_init = true;
    init_tell_off(g->init, "the gateway as a user of its own", strerror(how->sys));
    return true;
}

/* Killed since it did not begin in time. What it does before is to open files: they hang. */
static const char *late_reason(const struct gateway *g, char to[160])
{
    const char *file = settings(g)->token_file;
    snprintf(to, 160, "%s%.50s%sits workspace %.50s did not open within 10 s",
             file ? "its token_file " : "", file ? file : "", file ? " or " : "",
             settings(g)->workspace);
    return to;
}

static void describe(const struct gateway *g, const struct child_exit *how, char *to, size_t size)
{
    char name[16];
    const char *file = settings(g)->token_file;
    if (!how->step && g->last_words[0])
        snprintf(to, size, "%s", g->last_words);
    else if (how->step && strcmp(how->step, spawn_step_name(SPAWN_OPEN)) == 0)
        snprintf(to, size, "token_file %.100s: %s", file ? file : "", strerror(how->sys));
    else if (how->step)
        snprintf(
            to, size, "%s: %s%s", how->step, strerror(how->sys),
            strcmp(how->step, spawn_step_name(SPAWN_EXEC)) == 0
                ? " (sandbox-gateway must be beside sandbox-init or in PATH, and its user must "
                  "be able to run it)"
                : "");
    else if (WIFSIGNALED(how->status))
        snprintf(to, size, "killed by %s", signal_name(WTERMSIG(how->status), name, sizeof name));
    else
        snprintf(to, size, "exited with status %d", WEXITSTATUS(how->status));
}

/* ---- one life ---- */

static void start(struct gateway *g);

static void on_end(void *context, const struct child_exit *how)
{
    struct gateway *g = context;
    char why[sizeof g->trouble], late[160];
    bool is_late = g->state == GATEWAY_STARTING && !how->step && g->is_late;
    bool is_asked = g->state == GATEWAY_LEAVING;
    gateway_hear_rest(g);
    describe(g, how, why, sizeof why);
    g->child = NULL;
    gateway_deaf(g);
    ev_timer_stop(g->init->loop, &g->watch);
    if (g->init->stop_state != STOP_NONE || settings(g)->listen.count == 0) {
        set_state(g, GATEWAY_OFF);
        LOG_INF("gateway_ended", F_STR("why", why));
        EVENT(EVENT_GATEWAY, "ended", F_STR("why", why));
        return;
    }
    g->restarts++;
    if (!how->step && clock_mono_ns() - g->began_ns >= RAN_MS * (uint64_t)1000000)
        g->restart_ms = RESTART_MIN_MS;
    if (is_asked || must_be_as_init(g, how)) {
        start(g);
        return;
    }
    tell_trouble(g, is_late ? late_reason(g, late) : why);
    wait_for_next(g);
}

static void on_begun(void *context)
{
    struct gateway *g = context;
    if (g->state != GATEWAY_STARTING)
        return;
    set_state(g, GATEWAY_RUNNING);
    set_timer(g, &g->watch, SETTLED_S);
    if (g->is_quiet)
        return;
    const struct name_list *listen = &settings(g)->listen;
    LOG_INF("gateway", F_INT("pid", g->child->pid), F_STR("listen", listen->items[0]),
            F_INT("addresses", listen->count), F_INT("uid", g->uid));
    EVENT(EVENT_GATEWAY, "started", F_INT("pid", g->child->pid), F_STR("listen", listen->items[0]));
}

/* Also for one that is still on its way. */
static void on_watch(struct ev_loop *loop, ev_timer *w, int events)
{
    struct gateway *g = w->data;
    (void)loop;
    (void)events;
    switch (g->state) {
    case GATEWAY_STARTING:
        g->is_late = true;
        (void)child_signal(g->child, SIGKILL);
        break;
    case GATEWAY_LEAVING:
        (void)child_signal(g->child, SIGKILL);
        break;
    case GATEWAY_RUNNING:
        if (g->is_quiet)
            LOG_INF("gateway", F_INT("pid", g->child->pid), F_STR("why", "it works again"));
        g->is_quiet = false;
        g->trouble[0] = '\0';
        break;
    case GATEWAY_OFF:
    case GATEWAY_WAITING:
        break;
    }
}

static void start(struct gateway *g)
{
    struct error e = {0};
    struct gateway_plan p = {0};
    int ends[2];
    ev_timer_stop(g->init->loop, &g->restart);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        error_set_sys(&e, errno, "socketpair");
    } else {
        if (gateway_plan_make(g, &p, ends[1], &e) == 0) {
            p.spawn.on_exec = on_begun;
            p.spawn.on_exit = on_end;
            p.spawn.context = g;
            g->child = spawn(&p.spawn, &e);
        }
        close(ends[1]);
        if (!g->child)
            close(ends[0]);
    }
    g->uid = p.user.uid;
    gateway_plan_free(&p);
    if (!g->child) {
        tell_trouble(g, e.text);
        wait_for_next(g);
        return;
    }
    g->fd = ends[0];
    g->has_erred = g->has_told_helpers = g->is_late = false;
    g->last_words[0] = '\0';
    g->began_ns = clock_mono_ns();
    set_state(g, GATEWAY_STARTING);
    set_timer(g, &g->watch, START_S);
    gateway_listen(g);
}

static void on_restart(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    start(w->data);
}

/* ---- what init asks for ---- */

struct gateway *gateway_new(struct init *in, struct error *e)
{
    struct gateway *g = calloc(1, sizeof *g);
    if (!g) {
        error_set(e, ERR_MEMORY, "gateway: no memory");
        return NULL;
    }
    g->init = in;
    g->fd = -1;
    g->restart_ms = RESTART_MIN_MS;
    ev_timer_init(&g->restart, on_restart, 0., 0.);
    ev_timer_init(&g->watch, on_watch, 0., 0.);
    g->restart.data = g->watch.data = g;
    return g;
}

void gateway_free(struct gateway *g)
{
    if (!g)
        return;
    if (g->child)
        child_forget(g->child);
    for (size_t i = 0; i < GATEWAY_HELPERS; i++)
        if (g->helpers[i].child)
            child_forget(g->helpers[i].child);
    ev_timer_stop(g->init->loop, &g->restart);
    ev_timer_stop(g->init->loop, &g->watch);
    if (g->fd >= 0)
        gateway_deaf(g);
    free(g);
}

void gateway_begin(struct gateway *g)
{
    if (settings(g)->listen.count > 0)
        start(g);
}

const char *gateway_next(const struct gateway *g, const struct config *fresh)
{
    if (fresh->gateway.listen.count == 0)
        return "the gateway ends";
    return g->child ? "the gateway restarts" : "the gateway starts";
}

void gateway_renew(struct gateway *g)
{
    g->restart_ms = RESTART_MIN_MS;
    g->trouble[0] = g->complaint[0] = '\0';
    g->is_quiet = false;
    if (g->child) {
        if (g->state != GATEWAY_LEAVING) {
            (void)child_signal(g->child, SIGTERM);
            set_state(g, GATEWAY_LEAVING);
            set_timer(g, &g->watch, LEAVE_S);
        }
        return;
    }
    ev_timer_stop(g->init->loop, &g->restart);
    set_state(g, GATEWAY_OFF);
    gateway_begin(g);
}

void gateway_stop(struct gateway *g)
{
    ev_timer_stop(g->init->loop, &g->restart);
    if (!g->child)
        set_state(g, GATEWAY_OFF);
}

void gateway_status(const struct gateway *g, struct record *to)
{
    const struct gateway_config *k = settings(g);
    if (g->state == GATEWAY_OFF && k->listen.count == 0)
        return;
    record_str(to, "gateway", state_names[g->state]);
    if (g->child)
        record_int(to, "gateway_pid", g->child->pid);
    record_int(to, "gateway_restarts", g->restarts);
    for (size_t i = 0; i < k->listen.count; i++)
        record_str(to, "gateway_listen[]", k->listen.items[i]);
    if (g->trouble[0] || g->complaint[0])
        record_str(to, "gateway_trouble", g->trouble[0] ? g->trouble : g->complaint);
}
