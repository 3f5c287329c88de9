/* ps and tree: the main command, sessions, commands, processes, strays, services and the gateway.
 */
#include "init/verb.h"
#include "base/clock.h"
#include "base/number.h"
#include "init/gateway.h"
#include "init/listing.h"
#include "sessions/command.h"
#include "sessions/proc.h"
#include "sessions/process.h"
#include "sessions/run.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The rows wanted: of one session and one kind, or (NULL) of all. */
struct selection {
    struct listing *listing;
    const char *session, *kind;
};

static int select_rows(struct selection *w, struct init *in, struct conn *c,
                       const struct request *r, struct error *e)
{
    w->session = request_get(r, "session");
    w->kind = request_get(r, "kind");
    if (w->session && !session_find(&in->sessions, w->session, e))
        return -1;
    w->listing = listing_new(c, e);
    return w->listing ? 0 : -1;
}

static bool is_wanted(const struct selection *w, const char *session)
{
    return !w->session || strcmp(w->session, session) == 0;
}

static bool is_wanted_kind(const struct selection *w, const char *kind)
{
    return !w->kind || strcmp(w->kind, kind) == 0;
}

/* ---- ps ---- */

static const char *kind_of(const struct process *p)
{
    return process_terminal(p) ? "terminal" : process_is_attached(p) ? "exec" : "process";
}

static void add_terminal(struct record *row, const struct terminal *t)
{
    struct pty_size size = terminal_size(t);
    record_int(row, "viewers", terminal_viewers(t));
    record_int(row, "rows", size.rows);
    record_int(row, "cols", size.cols);
    record_str(row, "tty", terminal_name(t));
}

/* A command or exec that is over and can still be joined. */
static void ps_kept(void *context, const struct run *r)
{
    const struct selection *w = context;
    const struct outcome *o = run_outcome(r);
    struct record row = {0};
    const char *kind = *run_session(r) ? "command" : "exec";
    if (!is_wanted(w, run_session(r)) || !is_wanted_kind(w, kind))
        return;
    record_str(&row, "id", run_id(r));
    record_str(&row, "session", run_session(r));
    record_int(&row, "pid", 0);
    record_str(&row, "kind", kind);
    record_str(&row, "state", "exited");
    answer_end(&row, o);
    record_seconds(&row, "uptime_s", o->duration_ms);
    record_int(&row, "strays", 0);
    record_str(&row, "text", run_text(r));
    listing_add(w->listing, &row);
}

static void ps_process(void *context, struct process *p)
{
    const struct selection *w = context;
    const struct outcome *o = process_outcome(p);
    if (process_is_remnant(p)) /* its strays have rows of their own */
        return;
    if (!is_wanted(w, process_session(p)) || !is_wanted_kind(w, kind_of(p)))
        return;
    struct record row = {0};
    record_str(&row, "id", process_id(p));
    record_str(&row, "session", process_session(p));
    record_int(&row, "pid", process_pid(p));
    record_str(&row, "kind", kind_of(p));
    record_str(&row, "state", process_state_name(process_state(p)));
    if (o)
        answer_end(&row, o);
    uint64_t began = process_began_ns(p);
    record_seconds(&row, "uptime_s",
                   o       ? o->duration_ms
                   : began ? (clock_mono_ns() - began) / 1000000u
                           : 0);
    record_int(&row, "strays", (int64_t)process_list_strays(p, NULL, 0));
    record_str(&row, "text", process_text(p));
    if (process_terminal(p))
        add_terminal(&row, process_terminal(p));
    listing_add(w->listing, &row);
}

static void ps_command(const struct selection *w, const struct session *s)
{
    struct command *k = s->running;
    struct record row = {0};
    if (!k || !is_wanted(w, s->name) || !is_wanted_kind(w, "command"))
        return;
    record_str(&row, "id", command_id(k));
    record_str(&row, "session", s->name);
    record_int(&row, "pid", s->shell.pid);
    record_str(&row, "kind", "command");
    record_str(&row, "state", command_state(k) == COMMAND_KILLING ? "stopping" : "running");
    record_seconds(&row, "uptime_s", (clock_mono_ns() - command_since_ns(k)) / 1000000u);
    record_int(&row, "strays", 0);
    record_str(&row, "text", command_text(k));
    listing_add(w->listing, &row);
}

/* process: the id of the ended one that left it, or "". */
static void ps_strays(const struct selection *w, const char *session, const char *process,
                      const struct stray *strays, size_t count)
{
    if (!is_wanted_kind(w, "stray"))
        return;
    for (size_t i = 0; i < count && i < STRAYS_TOLD; i++) {
        char text[256];
        struct record row = {0};
        proc_command(strays[i].pid, text, sizeof text);
        record_str(&row, "id", "");
        record_str(&row, "session", session);
        record_int(&row, "pid", strays[i].pid);
        record_str(&row, "kind", "stray");
        record_str(&row, "state", "running");
        record_seconds(&row, "uptime_s", strays[i].age_ms);
        record_int(&row, "strays", 0);
        record_str(&row, "of", process);
        record_str(&row, "name", strays[i].comm);
        if (strays[i].ports[0])
            record_str(&row, "listen", strays[i].ports);
        record_str(&row, "text", text);
        listing_add(w->listing, &row);
    }
    if (count > STRAYS_TOLD)
        w->listing->is_truncated = true;
}

static void ps_session_strays(const struct selection *w, const struct session *s)
{
    struct stray strays[STRAYS_TOLD];
    if (is_wanted(w, s->name))
        ps_strays(w, s->name, "", strays, session_list_strays(s, strays, STRAYS_TOLD));
}

static void ps_process_strays(void *context, struct process *p)
{
    const struct selection *w = context;
    struct stray strays[STRAYS_TOLD];
    if (is_wanted(w, process_session(p)))
        ps_strays(w, process_session(p), process_id(p), strays,
                  process_list_strays(p, strays, STRAYS_TOLD));
}

static bool ps_service(void *context, struct service *s)
{
    const struct selection *w = context;
    const struct service_config *k = service_configuration(s);
    struct record row = {0};
    if (!service_pid(s))
        return true;
    record_str(&row, "id", service_name(s));
    record_str(&row, "session", "");
    record_int(&row, "pid", service_pid(s));
    record_str(&row, "kind", "service");
    record_str(&row, "state", service_state_name(service_state(s)));
    record_seconds(&row, "uptime_s", (clock_mono_ns() - service_began_ns(s)) / 1000000u);
    record_int(&row, "strays", 0);
    answer_program(&row, "text", k);
    listing_add(w->listing, &row);
    return true;
}

/* One of the container's own programs. */
struct own_program {
    const char *id, *kind, *state;
    pid_t pid;
    uint64_t began_ns;
};

static void ps_own(const struct selection *w, const struct own_program *p,
                   const struct name_list *listen)
{
    char text[256];
    CLEANUP_STRBUF struct strbuf addresses = {0};
    struct record row = {0};
    proc_command(p->pid, text, sizeof text);
    record_str(&row, "id", p->id);
    record_str(&row, "session", "");
    record_int(&row, "pid", p->pid);
    record_str(&row, "kind", p->kind);
    record_str(&row, "state", p->state);
    record_seconds(&row, "uptime_s", (clock_mono_ns() - p->began_ns) / 1000000u);
    record_int(&row, "strays", 0);
    for (size_t i = 0; listen && i < listen->count; i++)
        (void)strbuf_addf(
            &addresses, "%s%s%s", i ? "," : "",
            strncmp(listen->items[i], "unix:", 5) == 0 ? "" : "tcp:", listen->items[i]);
    if (addresses.len)
        record_str(&row, "listen", strbuf_text(&addresses));
    record_str(&row, "text", text);
    listing_add(w->listing, &row);
}

static void ps_gateway(const struct selection *w, const struct gateway *g)
{
    if (g->child)
        ps_own(w,
               &(struct own_program){"gateway", "gateway", gateway_state_name(g->state),
                                     g->child->pid, g->began_ns},
               &g->init->config->gateway.listen);
    for (size_t i = 0; i < GATEWAY_HELPERS; i++)
        if (g->helpers[i].child)
            ps_own(w,
                   &(struct own_program){"file-helper", "gateway", "running",
                                         g->helpers[i].child->pid, g->helpers[i].began_ns},
                   NULL);
}

static void ps_main(const struct selection *w, const struct init *in)
{
    if (in->main_child)
        ps_own(w,
               &(struct own_program){"main", "main",
                                     in->stop_state == STOP_NONE ? "running" : "stopping",
                                     in->main_child->pid, in->main_began_ns},
               NULL);
}

int verb_ps(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct selection w;
    if (select_rows(&w, in, c, r, e) < 0)
        return -1;
    if (!w.session && is_wanted_kind(&w, "main"))
        ps_main(&w, in);
    if (!w.session && is_wanted_kind(&w, "gateway"))
        ps_gateway(&w, in->gateway);
    if (!w.session && is_wanted_kind(&w, "service"))
        services_each(in->services, ps_service, &w);
    list_each(s, &in->sessions.sessions, struct session, link) ps_command(&w, s);
    processes_each(&in->sessions, ps_process, &w);
    list_each(s, &in->sessions.sessions, struct session, link) ps_session_strays(&w, s);
    processes_each(&in->sessions, ps_process_strays, &w);
    runs_each_kept(&in->sessions, ps_kept, &w);
    record_int(&w.listing->result, "rows", w.listing->count);
    listing_send(w.listing);
    return 0;
}

/* ---- tree ---- */

/* A walk without recursion: a stack of pids with their depth. */
#define TREE_STACK 4096
struct tree_listing {
    struct init *init;
    struct selection wanted;
    const char *id, *session;
    struct {
        pid_t pid;
        unsigned depth;
    } stack[TREE_STACK];
    size_t count;
    unsigned depth;
};

static bool tree_push(void *context, pid_t pid)
{
    struct tree_listing *t = context;
    if (t->count == TREE_STACK) {
        t->wanted.listing->is_truncated = true;
        return false;
    }
    t->stack[t->count].pid = pid;
    t->stack[t->count++].depth = t->depth;
    return true;
}

static void tree_row(struct tree_listing *t, pid_t pid, const struct proc_stat *st, unsigned depth)
{
    char command[256], state[2] = {st->state, '\0'};
    struct record row = {0};
    proc_command(pid, command, sizeof command);
    record_str(&row, "id", t->id);
    record_str(&row, "session", t->session);
    record_int(&row, "pid", pid);
    record_int(&row, "ppid", st->ppid);
    record_int(&row, "depth", depth);
    record_str(&row, "name", st->comm);
    record_str(&row, "state", state);
    record_str(&row, "text", command);
    listing_add(t->wanted.listing, &row);
}

/* A root with all below it. */
static bool tree_rows(void *context, pid_t root)
{
    struct tree_listing *t = context;
    t->count = 0;
    t->depth = 0;
    tree_push(t, root);
    while (t->count > 0) {
        struct proc_stat st;
        pid_t pid = t->stack[--t->count].pid;
        unsigned depth = t->stack[t->count].depth;
        if (proc_stat_read(pid, &st) < 0)
            continue;
        tree_row(t, pid, &st, depth);
        t->depth = depth + 1;
        proc_children(pid, tree_push, t);
    }
    return true;
}

/* What init has adopted of a session is a root of its own. */
static bool tree_adopted(void *context, pid_t pid)
{
    struct proc_stat st;
    struct tree_listing *t = context;
    if (proc_stat_read(pid, &st) < 0 || st.ppid != getpid() ||
        processes_own(&t->init->sessions, pid))
        return true;
    return tree_rows(t, pid);
}

static void tree_session(struct tree_listing *t, const struct session *s)
{
    if (!is_wanted(&t->wanted, s->name))
        return;
    t->id = s->running ? command_id(s->running) : "";
    t->session = s->name;
    if (s->shell.pid)
        tree_rows(t, s->shell.pid);
    t->id = "";
    session_each_root(s, tree_adopted, t);
}

static void tree_process(void *context, struct process *p)
{
    struct tree_listing *t = context;
    if (!is_wanted(&t->wanted, process_session(p)))
        return;
    t->id = process_id(p);
    t->session = process_session(p);
    process_each_root(p, tree_rows, t);
}

static bool tree_service(void *context, struct service *s)
{
    struct tree_listing *t = context;
    t->id = service_name(s);
    t->session = "";
    service_each_root(s, tree_rows, t);
    return true;
}

void list_tree_of_service(struct init *in, struct listing *to, const struct service *s)
{
    struct tree_listing *t = calloc(1, sizeof *t);
    if (!t) {
        to->is_truncated = true;
        return;
    }
    t->init = in;
    t->wanted.listing = to;
    t->id = service_name(s);
    t->session = "";
    service_each_root(s, tree_rows, t);
    free(t);
}

int verb_tree(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct tree_listing *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(e, ERR_MEMORY, "tree: no memory");
    if (select_rows(&t->wanted, in, c, r, e) < 0) {
        free(t);
        return -1;
    }
    t->init = in;
    t->session = "";
    if (!t->wanted.session && in->main_child) {
        t->id = "main";
        tree_rows(t, in->main_child->pid);
    }
    if (!t->wanted.session)
        services_each(in->services, tree_service, t);
    list_each(s, &in->sessions.sessions, struct session, link) tree_session(t, s);
    processes_each(&in->sessions, tree_process, t);
    record_int(&t->wanted.listing->result, "rows", t->wanted.listing->count);
    listing_send(t->wanted.listing);
    free(t);
    return 0;
}
