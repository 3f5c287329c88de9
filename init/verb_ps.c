/*
 * ps and tree. All rows are put together at once, so that they tell of one moment, and sent as fast
 * as the client reads.
 */
#include "init/verb.h"
#include "base/clock.h"
#include "base/number.h"
#include "control/wire.h"
#include "sessions/command.h"
#include "sessions/proc.h"
#include "sessions/process.h"
#include "sessions/run.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct listing {
    struct conn *conn;
    const char *session, *kind; /* NULL: all; while the request is at hand */
    struct strbuf rows;         /* each behind its length */
    size_t at;                  /* what is sent */
    unsigned count;
    bool is_truncated; /* there are more than can be told */
};

static void listing_free(struct listing *l)
{
    strbuf_free(&l->rows);
    free(l);
}

/* Takes the row. */
static void add_row(struct listing *l, struct record *row)
{
    size_t n = row->bytes.len;
    char *to =
        row->is_broken || n > WIRE_PAYLOAD_MAX ? NULL : strbuf_reserve(&l->rows, sizeof n + n);
    if (to) {
        memcpy(to, &n, sizeof n);
        memcpy(to + sizeof n, row->bytes.data, n);
        l->rows.len += sizeof n + n;
        l->count++;
    } else {
        l->is_truncated = true;
    }
    record_free(row);
}

static void send_rows(void *owner)
{
    struct listing *l = owner;
    while (l->at < l->rows.len) {
        size_t n;
        memcpy(&n, l->rows.data + l->at, sizeof n);
        if (conn_send(l->conn, WIRE_ROW, l->rows.data + l->at + sizeof n, n) != CONN_SENT)
            return; /* on_writable or on_closed comes */
        l->at += sizeof n + n;
    }
    struct record done = {0};
    record_int(&done, "rows", l->count);
    if (l->is_truncated)
        record_bool(&done, "truncated", true);
    conn_result(l->conn, &done);
    record_free(&done);
    listing_free(l);
}

static void on_closed(void *owner)
{
    listing_free(owner);
}

static const struct conn_events listing_events = {.on_writable = send_rows, .on_closed = on_closed};

static struct listing *listing_new(struct init *in, struct conn *c, const struct request *r,
                                   struct error *e)
{
    const char *session = request_get(r, "session");
    if (session && !session_find(&in->sessions, session, e))
        return NULL;
    struct listing *l = calloc(1, sizeof *l);
    if (!l) {
        error_set(e, ERR_MEMORY, "%s: no memory", r->verb);
        return NULL;
    }
    l->conn = c;
    l->session = session;
    l->kind = request_get(r, "kind");
    return l;
}

static void listing_send(struct listing *l)
{
    l->session = l->kind = NULL;
    conn_set_owner(l->conn, &listing_events, l);
    send_rows(l);
}

static bool is_wanted(const struct listing *l, const char *session)
{
    return !l->session || strcmp(l->session, session) == 0;
}

static bool is_wanted_kind(const struct listing *l, const char *kind)
{
    return !l->kind || strcmp(l->kind, kind) == 0;
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
    struct listing *l = context;
    const struct outcome *o = run_outcome(r);
    struct record row = {0};
    const char *kind = *run_session(r) ? "command" : "exec";
    if (!is_wanted(l, run_session(r)) || !is_wanted_kind(l, kind))
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
    add_row(l, &row);
}

static void ps_process(void *context, struct process *p)
{
    struct listing *l = context;
    const struct outcome *o = process_outcome(p);
    if (!is_wanted(l, process_session(p)) || !is_wanted_kind(l, kind_of(p)))
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
    add_row(l, &row);
}

static void ps_command(struct listing *l, const struct session *s)
{
    struct command *k = s->running;
    struct record row = {0};
    if (!k || !is_wanted(l, s->name) || !is_wanted_kind(l, "command"))
        return;
    record_str(&row, "id", command_id(k));
    record_str(&row, "session", s->name);
    record_int(&row, "pid", s->shell.pid);
    record_str(&row, "kind", "command");
    record_str(&row, "state", command_state(k) == COMMAND_KILLING ? "stopping" : "running");
    record_seconds(&row, "uptime_s", (clock_mono_ns() - command_since_ns(k)) / 1000000u);
    record_int(&row, "strays", 0);
    record_str(&row, "text", command_text(k));
    add_row(l, &row);
}

/* process: the id of the ended one that left it, or "". */
static void ps_strays(struct listing *l, const char *session, const char *process,
                      const struct stray *strays, size_t count)
{
    if (!is_wanted_kind(l, "stray"))
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
        add_row(l, &row);
    }
    if (count > STRAYS_TOLD)
        l->is_truncated = true;
}

static void ps_session_strays(struct listing *l, const struct session *s)
{
    struct stray strays[STRAYS_TOLD];
    if (is_wanted(l, s->name))
        ps_strays(l, s->name, "", strays, session_list_strays(s, strays, STRAYS_TOLD));
}

static void ps_process_strays(void *context, struct process *p)
{
    struct listing *l = context;
    struct stray strays[STRAYS_TOLD];
    if (is_wanted(l, process_session(p)))
        ps_strays(l, process_session(p), process_id(p), strays,
                  process_list_strays(p, strays, STRAYS_TOLD));
}

int verb_ps(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct listing *l = listing_new(in, c, r, e);
    if (!l)
        return -1;
    list_each(s, &in->sessions.sessions, struct session, link) ps_command(l, s);
    processes_each(&in->sessions, ps_process, l);
    list_each(s, &in->sessions.sessions, struct session, link) ps_session_strays(l, s);
    processes_each(&in->sessions, ps_process_strays, l);
    runs_each_kept(&in->sessions, ps_kept, l);
    listing_send(l);
    return 0;
}

/* ---- tree ---- */

/* A walk without recursion: a stack of pids with their depth. */
#define TREE_STACK 4096
struct tree_listing {
    struct init *init;
    struct listing *listing;
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
        t->listing->is_truncated = true;
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
    add_row(t->listing, &row);
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
    if (!is_wanted(t->listing, s->name))
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
    if (!is_wanted(t->listing, process_session(p)))
        return;
    t->id = process_id(p);
    t->session = process_session(p);
    process_each_root(p, tree_rows, t);
}

int verb_tree(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct listing *l = listing_new(in, c, r, e);
    struct tree_listing *t = l ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        if (l) {
            listing_free(l);
            error_set(e, ERR_MEMORY, "tree: no memory");
        }
        return -1;
    }
    t->init = in;
    t->listing = l;
    list_each(s, &in->sessions.sessions, struct session, link) tree_session(t, s);
    processes_each(&in->sessions, tree_process, t);
    free(t);
    listing_send(l);
    return 0;
}
