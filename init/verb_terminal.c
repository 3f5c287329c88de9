/*
 * terminal.open, terminal.attach and terminal.resize. A view is one connection that looks at a
 * terminal: it follows the output, types, and has a window. It ends with the terminal's outcome,
 * or when its client leaves, which is how a client detaches; the terminal lives on.
 */
#include "init/verb.h"
#include "base/number.h"
#include "control/wire.h"
#include "sessions/events.h"
#include "sessions/process.h"
#include "sessions/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct view {
    struct conn *conn;
    struct process *process; /* NULL: it is over */
    struct process_wish wish;
    struct process_wish start; /* of a terminal that was joined before it began */
    struct viewer viewer;
    struct follower follower;
    uint64_t shown_from; /* output before this offset is not shown; UINT64_MAX: no safe cut yet */
    uint64_t live_from;  /* what was there when it came ends here */
    bool is_live;        /* and has been sent: that is told, or need not be */
    bool is_read_only;
    bool hangs_up;       /* an opener whose terminal ends when it leaves */
    bool is_joiner;      /* came to a terminal that was there */
    bool is_shared;      /* the terminal is its session's: others may wait for it, too */
    bool is_told;        /* the note that it has begun is sent */
    bool is_opener;      /* and hears when it has started */
    bool is_detached;    /* an opener that does not look */
    struct strbuf input; /* taken from the client, not yet by the terminal */
    bool has_input_end;
    bool is_delivered; /* all output went out */
    bool is_over;      /* result is set */
    struct record result;
};

static void tell_event(const struct view *v, const char *what)
{
    const struct process *p = v->process;
    EVENT(EVENT_TERMINAL, what, F_STR("id", process_id(p)), F_STR("session", process_session(p)),
          F_INT("viewers", terminal_viewers(process_terminal(p))));
}

static void view_free(struct view *v)
{
    bool has_left = v->process && v->viewer.terminal; /* the terminal lives on without it */
    follower_detach(&v->follower);
    viewer_detach(&v->viewer);
    if (has_left)
        tell_event(v, "detached");
    process_wish_drop(&v->wish);
    process_wish_drop(&v->start);
    if (v->process && (v->is_opener || v->hangs_up))
        process_leave(v->process);
    strbuf_free(&v->input);
    record_free(&v->result);
    free(v);
}

static void finish_if_complete(struct view *v)
{
    if (!v->is_over || !v->is_delivered)
        return;
    conn_result(v->conn, &v->result);
    view_free(v);
}

/* Who it is, before anything that it shows. */
static void tell_begin(struct view *v, const char *event)
{
    struct record r = {0};
    v->is_told = true;
    struct pty_size size = terminal_size(process_terminal(v->process));
    record_str(&r, "event", event);
    record_str(&r, "id", process_id(v->process));
    record_int(&r, "pid", process_pid(v->process));
    record_int(&r, "rows", size.rows);
    record_int(&r, "cols", size.cols);
    conn_note(v->conn, &r);
    record_free(&r);
}

/* Once, behind the replay of an attached view. */
static void tell_if_live(struct view *v)
{
    struct record r = {0};
    if (v->is_live || !v->is_told || v->follower.offset < v->live_from)
        return;
    v->is_live = true;
    record_str(&r, "event", "live");
    conn_note(v->conn, &r);
    record_free(&r);
}

/* ---- output ---- */

static enum deliver on_bytes(void *owner, enum stream stream, const char *bytes, size_t n)
{
    struct view *v = owner;
    uint64_t at = v->follower.offset;
    if (v->shown_from == UINT64_MAX && v->viewer.terminal)
        v->shown_from = terminal_safe_from(v->viewer.terminal, at);
    if (v->shown_from >= at + n)
        return DELIVERED;
    if (!v->is_told && v->process)
        tell_begin(v,
                   v->is_joiner ? "attached" : "started"); /* quicker than the news of the exec */
    tell_if_live(v);
    size_t skip = v->shown_from > at ? (size_t)(v->shown_from - at) : 0;
    return answer_bytes(v->conn, stream, bytes + skip, n - skip);
}

static void on_lost(void *owner, uint64_t from, uint64_t to)
{
    struct view *v = owner;
    answer_lost(v->conn, from, to);
    v->shown_from = v->viewer.terminal ? terminal_safe_from(v->viewer.terminal, to) : to;
}

static void on_end(void *owner)
{
    struct view *v = owner;
    v->is_delivered = true;
}

static const struct follower_events follower_events = {
    .on_bytes = on_bytes, .on_lost = on_lost, .on_end = on_end};

static void on_writable(void *owner)
{
    struct view *v = owner;
    follower_pump(&v->follower);
    tell_if_live(v);
    finish_if_complete(v);
}

/* ---- input ---- */

/* Type what is held; true when nothing is left. */
static bool push_input(struct view *v)
{
    while (v->input.len > 0) {
        long k = v->process ? process_write(v->process, v->input.data, v->input.len, NULL) : -1;
        if (k == 0)
            return false;
        if (k < 0) /* it has ended: its outcome says so */
            k = (long)v->input.len;
        strbuf_drop(&v->input, (size_t)k);
    }
    if (v->has_input_end && v->process && !process_close_stdin(v->process))
        return false;
    v->has_input_end = false;
    return true;
}

static void on_room(void *owner)
{
    struct view *v = owner;
    if (push_input(v))
        conn_resume_input(v->conn);
}

/* "ROWS COLS"; anything else is not a size. */
static struct pty_size parse_size(const char *bytes, size_t n)
{
    char text[32];
    uint64_t rows, cols;
    snprintf(text, sizeof text, "%.*s", n < sizeof text ? (int)n : (int)sizeof text - 1, bytes);
    char *blank = strchr(text, ' ');
    if (blank)
        *blank = '\0';
    if (!blank || number_parse_u64(text, PTY_SIZE_MAX, &rows) < 0 ||
        number_parse_u64(blank + 1, PTY_SIZE_MAX, &cols) < 0)
        return (struct pty_size){0};
    return (struct pty_size){.rows = (unsigned)rows, .cols = (unsigned)cols};
}

static bool on_data(void *owner, char channel, const char *bytes, size_t n)
{
    struct view *v = owner;
    if (v->is_read_only || !v->viewer.terminal)
        return true;
    if (channel == WIRE_RESIZE)
        viewer_resized(&v->viewer, parse_size(bytes, n));
    if (channel != WIRE_STDIN)
        return true;
    if (n == 0)
        v->has_input_end = true;
    else if (strbuf_add(&v->input, bytes, n) < 0)
        return false;
    if (n > 0)
        viewer_typed(&v->viewer);
    return push_input(v);
}

static void on_resized(void *owner, struct pty_size size)
{
    const struct view *v = owner;
    struct record r = {0};
    record_str(&r, "event", "resized");
    record_int(&r, "rows", size.rows);
    record_int(&r, "cols", size.cols);
    conn_note(v->conn, &r);
    record_free(&r);
}

static void on_closed(void *owner)
{
    struct view *v = owner;
    struct process *unseen = NULL;
    struct error e;
    if (v->is_opener && !v->hangs_up && !v->is_shared && v->process &&
        process_state(v->process) == PROCESS_WAITING)
        unseen = v->process; /* and never will be: it does not begin */
    view_free(v);
    if (unseen && !process_leave_queue(unseen))
        (void)process_kill(unseen, VERDICT_KILLED_BY_CLIENT, 0, NULL, &e);
}

static const struct conn_events conn_events = {
    .on_data = on_data, .on_writable = on_writable, .on_closed = on_closed};

/* ---- life ---- */

static void on_started(void *owner, pid_t pid)
{
    struct view *v = owner;
    struct process *p = v->process;
    v->is_opener = false;
    if (v->is_detached) {
        record_str(&v->result, "id", process_id(p));
        record_int(&v->result, "pid", pid);
        v->is_over = v->is_delivered = true;
        finish_if_complete(v);
    } else if (!v->is_told) {
        tell_begin(v, "started");
    }
    if (!process_is_attached(p))
        process_leave(p);
}

/* The process has ended; the view may be gone afterwards. */
static void take_outcome(struct view *v, const struct process *p)
{
    const struct outcome *o = process_outcome(p);
    v->process = NULL;
    if (v->is_opener && (v->is_detached || outcome_is_busy(o))) {
        struct error e;
        error_set(&e, outcome_is_busy(o) ? ERR_BUSY : ERR_SYSTEM, "terminal '%s': %s",
                  process_id(p), o->message);
        e.sys = o->sys;
        conn_fail(v->conn, &e);
        view_free(v);
        return;
    }
    answer_outcome(&v->result, process_id(p), o, process_output(p));
    v->is_over = true;
    if (!v->follower.is_blocked)
        follower_pump(&v->follower);
    finish_if_complete(v);
}

static void on_over(void *owner, struct process *p, const struct teardown_report *report)
{
    struct view *v = owner;
    (void)report;
    if (v->is_opener)
        process_leave(p);
    take_outcome(v, p);
}

static const struct process_events process_events = {.on_started = on_started};

/* Instead of on_over() where the terminal hangs up with its opener: only this may let go of it. */
static void on_done(void *owner, const struct outcome *outcome)
{
    struct view *v = owner;
    struct process *p = v->process;
    (void)outcome;
    take_outcome(v, p);
    process_leave(p);
}

static const struct process_events hang_up_events = {.on_started = on_started, .on_done = on_done};

/* A terminal that the view joined while it waited for its session runs now. */
static void on_joined_begins(void *owner, struct process *p, const struct teardown_report *report)
{
    struct view *v = owner;
    (void)report;
    if (process_state(p) == PROCESS_EXITED) /* on_over() tells */
        return;
    if (!v->is_told)
        tell_begin(v, "attached");
    tell_if_live(v);
}

static int get_size(const struct request *r, struct pty_size *size, struct error *e)
{
    uint64_t rows = 0, cols = 0;
    bool has;
    if (verb_get_number(r, "rows", &rows, &has, e) < 0 ||
        verb_get_number(r, "cols", &cols, &has, e) < 0)
        return -1;
    if (rows > PTY_SIZE_MAX || cols > PTY_SIZE_MAX)
        return error_set(e, ERR_INVALID, "%s: %llu rows and %llu cols: at most %d", r->verb,
                         (unsigned long long)rows, (unsigned long long)cols, PTY_SIZE_MAX);
    *size = (struct pty_size){.rows = (unsigned)rows, .cols = (unsigned)cols};
    return 0;
}

static struct view *view_new(struct conn *c, const struct request *r, struct error *e)
{
    struct view *v = calloc(1, sizeof *v);
    if (!v) {
        error_set(e, ERR_MEMORY, "%s: no memory", r->verb);
        return NULL;
    }
    v->conn = c;
    v->is_read_only = request_get(r, "read_only") != NULL;
    v->is_detached = request_get(r, "detached") != NULL;
    v->hangs_up = request_get(r, "hang_up") != NULL;
    v->is_shared = request_get(r, "shared") != NULL;
    v->wish.on_done = on_over;
    v->start.on_done = on_joined_begins;
    v->wish.owner = v->start.owner = v;
    list_init(&v->wish.link);
    list_init(&v->start.link);
    list_init(&v->follower.link);
    v->viewer.on_room = on_room;
    v->viewer.on_resized = on_resized;
    v->viewer.owner = v;
    if (get_size(r, &v->viewer.size, e) < 0) {
        free(v);
        return NULL;
    }
    return v;
}

/* Look at the output from an offset on. Unless it hangs up the view may be gone afterwards. */
static void begin_view(struct view *v, struct process *p, uint64_t from)
{
    struct output *o = process_output(p);
    v->process = p;
    v->shown_from = from;
    v->live_from = output_end_offset(o);
    v->is_live = !v->is_joiner;
    v->follower = (struct follower){.events = &follower_events,
                                    .owner = v,
                                    .offset = from == UINT64_MAX ? output_end_offset(o) : from,
                                    .limit = UINT64_MAX,
                                    .wants = {true, true},
                                    .is_pressing = !v->is_read_only};
    if (v->is_read_only)
        v->viewer.size = (struct pty_size){0};
    conn_set_owner(v->conn, &conn_events, v);
    viewer_attach(&v->viewer, process_terminal(p));
    if (process_state(p) != PROCESS_EXITED)
        tell_event(v, "attached");
    follower_attach(&v->follower, o);
    follower_pump(&v->follower);
    tell_if_live(v);
    if (!v->hangs_up)
        process_wait(p, &v->wish);
}

/* Come to a terminal that is there. */
static void join_view(struct view *v, struct process *p)
{
    v->process = p;
    v->is_joiner = true;
    if (process_state(p) == PROCESS_WAITING)
        process_await_start(p, &v->start);
    else
        tell_begin(v, "attached");
    begin_view(v, p, terminal_replay_begin(process_terminal(p)));
}

static struct process *find_terminal(struct init *in, const struct request *r, struct error *e)
{
    const char *id = verb_required(r, "id", e);
    struct process *p = id ? process_find(&in->sessions, id, NULL) : NULL;
    if (!id || (p && process_terminal(p)))
        return p;
    error_set(e, ERR_NOT_FOUND, "terminal '%.80s': not found (see: sandboxctl terminal list)", id);
    return NULL;
}

int verb_terminal_attach(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct process *p = find_terminal(in, r, e);
    struct view *v = p ? view_new(c, r, e) : NULL;
    if (!v)
        return -1;
    join_view(v, p);
    return 0;
}

int verb_terminal_resize(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct pty_size size = {0};
    struct record done = {0};
    struct process *p = find_terminal(in, r, e);
    if (!p || get_size(r, &size, e) < 0)
        return -1;
    terminal_resize(process_terminal(p), size);
    size = terminal_size(process_terminal(p));
    record_str(&done, "id", process_id(p));
    record_str(&done, "state", process_state_name(process_state(p)));
    record_int(&done, "rows", size.rows);
    record_int(&done, "cols", size.cols);
    conn_result(c, &done);
    record_free(&done);
    return 0;
}

/* ---- open ---- */

static int get_env(const struct request *r, struct env_set *env, struct error *e)
{
    char item[256];
    const char *term = request_get(r, "term");
    snprintf(item, sizeof item, "TERM=%.200s", term && *term ? term : "dumb");
    return env_put(env, item, e) < 0 ? -1 : verb_get_env(r, env, e);
}

static int open_process(struct init *in, struct view *v, struct request *r, struct session *s,
                        struct error *e)
{
    struct env_set env = {0};
    const char **argv = NULL;
    struct process_request q = {.id = request_get(r, "id"),
                                .env = &env,
                                .cwd = request_get(r, "cwd"),
                                .is_terminal = true,
                                .is_attached = v->hangs_up,
                                .is_shared = v->is_shared,
                                .size = v->viewer.size};
    int rc = verb_get_patience(r, &q.patience, e);
    rc = rc < 0 ? rc : get_env(r, &env, e);
    if (rc == 0 && request_get(r, "arg"))
        rc = verb_get_argv(r, &argv, e);
    q.argv = argv;
    if (rc == 0)
        v->process = process_start(&in->sessions, s, &q,
                                   v->hangs_up ? &hang_up_events : &process_events, v, e);
    free(argv);
    env_free(&env);
    return v->process ? 0 : -1;
}

/* How the terminal belongs: to its opener, or to its session. */
static int check_belonging(const struct view *v, const struct session *s, struct error *e)
{
    if (v->hangs_up && (v->is_detached || v->is_shared))
        return error_set(e, ERR_INVALID,
                         "terminal.open: hang_up goes with neither detached nor shared");
    if (v->is_shared && (!s || v->is_detached))
        return error_set(e, ERR_INVALID,
                         "terminal.open: shared needs a session, and does not go with detached");
    return 0;
}

int verb_terminal_open(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *name = request_get(r, "session");
    if (r->has_text)
        return error_set(e, ERR_INVALID, "terminal.open: a text cannot be run, an argv can");
    struct session *s = name ? session_find(&in->sessions, name, e) : NULL;
    struct view *v = name && !s ? NULL : view_new(c, r, e);
    if (!v)
        return -1;
    struct process *shared = v->is_shared && s ? process_find_shared(&in->sessions, s) : NULL;
    if (check_belonging(v, s, e) < 0 || (!shared && open_process(in, v, r, s, e) < 0)) {
        free(v);
        return -1;
    }
    v->is_opener = !shared;
    if (shared) {
        join_view(v, shared);
    } else if (v->is_detached) {
        conn_set_owner(c, &conn_events, v);
        process_wait(v->process, &v->wish);
    } else {
        begin_view(v, v->process, 0);
    }
    if (s)
        session_step(s);
    return 0;
}
