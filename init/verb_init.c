#include "init/verb.h"
#include "base/clock.h"
#include "init/gateway.h"
#include "sessions/log_feed.h"
#include "sessions/proc.h"
#include "sessions/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Zombies anywhere below init, also those of a parent that does not reap (case T5). A walk without
 * recursion, bounded in number and time: this answers on the loop. */
#define WALK_MAX 4096
#define WALK_NS  (5 * 1000000u)
struct walk {
    pid_t pids[WALK_MAX];
    size_t count;
};

static bool add_pid(void *context, pid_t pid)
{
    struct walk *w = context;
    if (w->count < WALK_MAX)
        w->pids[w->count++] = pid;
    return w->count < WALK_MAX;
}

/* *is_partial: not all of them were looked at. */
static unsigned count_zombies(bool *is_partial)
{
    unsigned zombies = 0;
    uint64_t until_ns = clock_mono_ns() + WALK_NS;
    *is_partial = false;
    struct walk *w = calloc(1, sizeof *w);
    if (!w)
        return 0;
    proc_children(getpid(), add_pid, w);
    for (size_t i = 0; i < w->count; i++) {
        struct proc_stat st;
        if (clock_mono_ns() > until_ns) {
            *is_partial = true;
            break;
        }
        if (proc_stat_read(w->pids[i], &st) < 0)
            continue;
        if (st.state == 'Z')
            zombies++;
        else
            proc_children(w->pids[i], add_pid, w);
    }
    *is_partial = *is_partial || w->count == WALK_MAX;
    free(w);
    return zombies;
}

/* How many services there are, are ready, and will not start again by themselves. */
struct service_count {
    unsigned all, ready, fatal;
};

static bool count_service(void *context, struct service *s)
{
    struct service_count *n = context;
    n->all++;
    n->ready += service_is_ready(s);
    n->fatal += service_state(s) == SERVICE_FATAL;
    return true;
}

static void add_services(struct record *to, struct services *all)
{
    struct service_count n = {0};
    services_each(all, count_service, &n);
    record_int(to, "services", n.all);
    record_int(to, "services_ready", n.ready);
    record_int(to, "services_fatal", n.fatal);
}

/* What the main command does; it is no service, and `service list` does not show it. */
static const char *const main_states[] = {
    [MAIN_NONE] = "none",
    [MAIN_PENDING] = "waiting",
    [MAIN_RUNNING] = "running",
    [MAIN_ENDED] = "ended",
};

int verb_status(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct record s = {0};
    (void)r;
    (void)e;
    record_str(&s, "version", SANDBOX_VERSION);
    record_str(&s, "state", in->stop_state == STOP_NONE ? "running" : "stopping");
    record_int(&s, "pid", getpid());
    record_bool(&s, "is_pid1", in->is_pid1);
    record_seconds(&s, "uptime_s", (clock_mono_ns() - in->began_ns) / 1000000u);
    record_int(&s, "sessions", in->sessions.session_count);
    record_int(&s, "processes", in->sessions.process_live);
    record_int(&s, "terminals", processes_count_terminals(&in->sessions));
    record_int(&s, "commands", in->sessions.command_count);
    add_services(&s, in->services);
    record_int(&s, "connections", server_connection_count(in->server));
    record_int(&s, "orphans_reaped", (int64_t)children_stats()->orphans_reaped);
    bool is_partial;
    record_int(&s, "zombies", count_zombies(&is_partial));
    if (is_partial)
        record_bool(&s, "zombies_partial", true);
    record_str(&s, "runtime_dir", in->runtime.path);
    record_str(&s, "socket", in->socket_path);
    record_str(&s, "config", in->config->path ? in->config->path : "");
    if (in->main_argv) {
        record_str(&s, "main", in->main_argv[0]);
        record_str(&s, "main_state", main_states[in->main_state]);
        if (in->main_child)
            record_int(&s, "main_pid", in->main_child->pid);
    }
    gateway_status(in->gateway, &s);
    if (log_feed_trouble(in->sessions.log_feed))
        record_str(&s, "log_trouble", log_feed_trouble(in->sessions.log_feed));
    if (log_feed_lost_bytes(in->sessions.log_feed))
        record_int(&s, "log_lost_bytes", (int64_t)log_feed_lost_bytes(in->sessions.log_feed));
    for (unsigned i = 0; i < in->off_count; i++)
        record_str(&s, "off[]", in->off[i]);
    conn_result(c, &s);
    record_free(&s);
    return 0;
}

/* A client that waits for a reload. One that leaves takes it back only if it has not begun. */
struct reload_call {
    struct reload_wish wish;
    struct init *init;
    struct conn *conn;
    struct record done;
};

static void tell_change(void *context, const char *what, const char *needs)
{
    struct record *to = &((struct reload_call *)context)->done;
    char text[256];
    if (!needs) {
        record_str(to, "changed[]", what);
        return;
    }
    snprintf(text, sizeof text, "%s (%s)", what, needs);
    record_str(to, "restart_needed[]", text);
}

static void reload_free(struct reload_call *call)
{
    list_remove(&call->wish.link);
    record_free(&call->done);
    free(call);
}

static void on_reload_closed(void *owner)
{
    reload_free(owner);
}

static void on_reloaded(void *context, const struct error *e)
{
    struct reload_call *call = context;
    const char *path = call->init->config->path;
    if (e) {
        conn_fail(call->conn, e);
    } else {
        record_str(&call->done, "config", path ? path : "");
        conn_result(call->conn, &call->done);
    }
    reload_free(call);
}

int verb_reload(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    static const struct conn_events events = {.on_closed = on_reload_closed};
    struct reload_call *call = calloc(1, sizeof *call);
    (void)r;
    if (!call)
        return error_set(e, ERR_MEMORY, "reload: no memory");
    *call = (struct reload_call){.init = in, .conn = c};
    call->wish = (struct reload_wish){.told = tell_change, .on_done = on_reloaded, .context = call};
    conn_set_owner(c, &events, call);
    reload(in, &call->wish);
    return 0;
}

int verb_shutdown(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    uint64_t grace = 0;
    bool has_grace;
    struct record done = {0};
    if (verb_get_ms(r, "grace_ms", &grace, &has_grace, e) < 0)
        return -1;
    record_int(&done, "grace_ms", (int64_t)(has_grace ? grace : in->config->stop_grace_ms));
    conn_result(c, &done);
    record_free(&done);
    stop_begin(in, "shutdown", has_grace ? (int64_t)grace : -1);
    return 0;
}
