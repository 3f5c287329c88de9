/*
 * exec. A job is one client of a run: it follows the output, feeds stdin if it began the run, and
 * answers when the run is over and its client has all the output. Several jobs may share a run (an
 * id of the caller's); a job that leaves early is no end of the others.
 */
#include "init/verb.h"
#include "control/wire.h"
#include "base/quote.h"
#include "sessions/excerpt.h"
#include "sessions/run.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>

struct job {
    struct init *init;
    struct conn *conn;
    struct run_viewer viewer;
    struct follower follower;
    struct strbuf input; /* taken from the client, not yet by the command's stdin */
    bool has_input_end;
    bool is_joining;   /* the run was there before this job */
    bool is_delivered; /* all output went out, or into the excerpt */
    uint64_t lost;     /* bytes that the log did not keep for this client */

    struct excerpt excerpt; /* with a limit of its output */
    bool ends_at_limit;     /* more output than the limit ends the command */
    ev_timer limit;         /* ends it from the loop, not from inside the capture */

    struct lock_patience patience; /* this client's own: others may share the run */
    ev_timer impatience;

    uint64_t soft_ms; /* 0: none */
    ev_timer soft;
    bool is_soft_over; /* its client gets the id; the run goes on */
};

static void job_free(struct job *j)
{
    ev_timer_stop(j->init->loop, &j->limit);
    ev_timer_stop(j->init->loop, &j->soft);
    ev_timer_stop(j->init->loop, &j->impatience);
    follower_detach(&j->follower);
    run_leave(&j->viewer);
    excerpt_free(&j->excerpt);
    strbuf_free(&j->input);
    free(j);
}

/* ---- the answer ---- */

static void add_kept(struct record *r, const struct job *j)
{
    const struct excerpt *x = &j->excerpt;
    if (x->limit) {
        record_int(r, "stdout_kept", (int64_t)excerpt_kept(x, STREAM_STDOUT));
        record_int(r, "stderr_kept", (int64_t)excerpt_kept(x, STREAM_STDERR));
        if (excerpt_kept(x, STREAM_STDOUT) < x->streams[STREAM_STDOUT].seen)
            record_int(r, "stdout_head", (int64_t)excerpt_head(x, STREAM_STDOUT));
        if (excerpt_kept(x, STREAM_STDERR) < x->streams[STREAM_STDERR].seen)
            record_int(r, "stderr_head", (int64_t)excerpt_head(x, STREAM_STDERR));
    }
    if (j->lost)
        record_int(r, "lost_bytes", (int64_t)j->lost);
    record_bool(r, "truncated", j->lost || (x->limit && excerpt_is_exceeded(x)));
}

/* The answer to a client whose soft clock ran out before the command was over: where its output
 * goes on for `logs --from`. */
static void add_running(struct record *r, const struct job *j)
{
    const struct output *out = run_output(j->viewer.run);
    record_str(r, "id", run_id(j->viewer.run));
    record_str(r, "verdict", "running");
    record_str(r, "clock", "soft");
    record_int(r, "offset", (int64_t)j->follower.offset);
    record_int(r, "stdout_bytes", (int64_t)output_bytes(out, STREAM_STDOUT));
    record_int(r, "stderr_bytes", (int64_t)output_bytes(out, STREAM_STDERR));
}

static void job_finish_if_complete(struct job *j)
{
    const struct outcome *o = run_outcome(j->viewer.run);
    if ((!o && !j->is_soft_over) || !j->is_delivered ||
        (j->excerpt.limit && !excerpt_pump(&j->excerpt)))
        return;
    struct record r = {0};
    struct error e;
    if (o && !j->is_soft_over && outcome_is_busy(o)) {
        error_set(&e, ERR_BUSY, "%s", o->message);
        conn_fail(j->conn, &e);
    } else {
        if (!j->is_soft_over)
            answer_outcome(&r, run_id(j->viewer.run), o, run_output(j->viewer.run));
        else
            add_running(&r, j);
        add_kept(&r, j);
        conn_result(j->conn, &r);
    }
    record_free(&r);
    job_free(j);
}

/* ---- output ---- */

static enum deliver send_bytes(void *owner, enum stream stream, const char *bytes, size_t n)
{
    struct job *j = owner;
    run_tell_start(j->viewer.run);
    return answer_bytes(j->conn, stream, bytes, n);
}

static enum deliver excerpt_bytes(void *owner, enum stream stream, const char *bytes, size_t n)
{
    struct job *j = owner;
    excerpt_add(&j->excerpt, stream, bytes, n);
    if (j->ends_at_limit && excerpt_is_exceeded(&j->excerpt) && !ev_is_active(&j->limit))
        ev_timer_start(j->init->loop, &j->limit);
    return DELIVERED;
}

static void on_limit(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct job *j = w->data;
    ev_timer_stop(loop, w);
    j->ends_at_limit = false;
    run_kill(j->viewer.run, VERDICT_OUTPUT_LIMIT);
}

static void on_cut(void *owner, enum stream stream, uint64_t from, uint64_t to)
{
    struct job *j = owner;
    struct record r = {0};
    record_str(&r, "event", "cut");
    record_str(&r, "stream", stream == STREAM_STDOUT ? "stdout" : "stderr");
    record_int(&r, "from", (int64_t)from);
    record_int(&r, "to", (int64_t)to);
    record_int(&r, "bytes", (int64_t)output_bytes(run_output(j->viewer.run), stream));
    conn_note(j->conn, &r);
    record_free(&r);
}

static void on_lost(void *owner, uint64_t from, uint64_t to)
{
    struct job *j = owner;
    j->lost += to - from;
    answer_lost(j->conn, from, to);
}

static void on_end(void *owner)
{
    struct job *j = owner;
    j->is_delivered = true;
    if (j->excerpt.limit)
        excerpt_complete(&j->excerpt);
}

static const struct follower_events all_events = {
    .on_bytes = send_bytes, .on_lost = on_lost, .on_end = on_end};
static const struct follower_events limited_events = {
    .on_bytes = excerpt_bytes, .on_lost = on_lost, .on_end = on_end};
static const struct excerpt_events excerpt_events = {.on_bytes = send_bytes, .on_cut = on_cut};

static void on_writable(void *owner)
{
    struct job *j = owner;
    if (j->excerpt.limit)
        excerpt_pump(&j->excerpt);
    else
        follower_pump(&j->follower);
    job_finish_if_complete(j);
}

/* ---- the soft clock ---- */

static void on_soft(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct job *j = w->data;
    ev_timer_stop(loop, w);
    if (run_outcome(j->viewer.run))
        return; /* over: its output is on the way */
    j->is_soft_over = true;
    run_detach(j->viewer.run);
    follower_detach(&j->follower);
    j->is_delivered = true;
    if (j->excerpt.limit)
        excerpt_complete(&j->excerpt);
    job_finish_if_complete(j);
}

static void start_soft_clock(struct job *j)
{
    if (!j->soft_ms)
        return;
    ev_timer_set(&j->soft, (double)j->soft_ms / 1000.0, 0.);
    ev_timer_start(j->init->loop, &j->soft);
}

/* ---- patience ---- */

/* The lock refuses a run that nobody waits for any longer; this is for one that others wait for. */
static void on_impatient(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct job *j = w->data;
    struct error e = {0};
    if (!run_is_waiting(j->viewer.run))
        return;
    run_explain_wait(j->viewer.run, j->patience.ms, &e);
    conn_fail(j->conn, &e);
    job_free(j);
}

static void start_patience(struct job *j)
{
    if (!j->patience.has_limit || !j->patience.ms || !run_is_waiting(j->viewer.run))
        return;
    ev_now_update(j->init->loop);
    ev_timer_set(&j->impatience, (double)j->patience.ms / 1000.0, 0.);
    ev_timer_start(j->init->loop, &j->impatience);
}

/* ---- stdin ---- */

/* Give the command what is held for it; true when nothing is left. */
static bool push_input(struct job *j)
{
    struct error e;
    while (j->input.len > 0) {
        long k = run_write(j->viewer.run, j->input.data, j->input.len, &e);
        if (k == 0)
            return false;
        if (k < 0) /* it takes no input (any more): what is sent to it is dropped */
            k = (long)j->input.len;
        strbuf_drop(&j->input, (size_t)k);
    }
    if (j->has_input_end)
        run_close_stdin(j->viewer.run);
    return true;
}

static void on_stdin_ready(void *owner)
{
    struct job *j = owner;
    if (push_input(j))
        conn_resume_input(j->conn);
}

static bool on_data(void *owner, char channel, const char *bytes, size_t n)
{
    struct job *j = owner;
    if (channel == WIRE_SIGNAL)
        run_kill(j->viewer.run, VERDICT_KILLED_BY_CLIENT);
    if (channel != WIRE_STDIN || j->is_joining)
        return true;
    if (n == 0)
        j->has_input_end = true;
    else if (strbuf_add(&j->input, bytes, n) < 0)
        return false;
    return push_input(j);
}

static void on_closed(void *owner)
{
    job_free(owner);
}

static const struct conn_events conn_events = {
    .on_data = on_data, .on_writable = on_writable, .on_closed = on_closed};

/* ---- life ---- */

static void tell_started(const struct job *j, pid_t pid)
{
    struct record r = {0};
    record_str(&r, "event", "started");
    record_str(&r, "id", run_id(j->viewer.run));
    record_int(&r, "pid", pid);
    if (j->is_joining)
        record_bool(&r, "joined", true);
    conn_note(j->conn, &r);
    record_free(&r);
}

static void on_started(void *owner, pid_t pid)
{
    struct job *j = owner;
    ev_timer_stop(j->init->loop, &j->impatience);
    tell_started(j, pid);
    start_soft_clock(j);
    if (!j->is_joining && push_input(j))
        conn_resume_input(j->conn);
}

static void on_done(void *owner)
{
    struct job *j = owner;
    if (!j->follower.is_blocked)
        follower_pump(&j->follower);
    job_finish_if_complete(j);
}

static const struct run_events run_events = {
    .on_started = on_started, .on_stdin_ready = on_stdin_ready, .on_done = on_done};

/* ---- the request ---- */

/* An argv for a session becomes a text of quoted words: builtins and functions work, and nothing
 * is ever parsed again. */
static int argv_to_text(const char *const *argv, struct strbuf *text, struct error *e)
{
    for (size_t i = 0; argv[i]; i++)
        if ((i && strbuf_adds(text, " ") < 0) || quote_sh(text, argv[i], strlen(argv[i])) < 0)
            return error_set(e, ERR_MEMORY, "exec: no memory");
    return 0;
}

static int get_clocks(const struct request *r, struct clock_limits otherwise,
                      struct clock_limits *to, struct error *e)
{
    bool has;
    *to = otherwise;
    return verb_get_ms(r, "timeout_ms", &to->total_ms, &has, e) < 0 ||
                   verb_get_ms(r, "idle_timeout_ms", &to->output_ms, &has, e) < 0 ||
                   verb_get_ms(r, "cpu_timeout_ms", &to->cpu_ms, &has, e) < 0
               ? -1
               : 0;
}

static struct run *begin_command(struct session *s, struct request *r, const struct run_call *call,
                                 const char *const *argv, const struct env_set *env,
                                 struct error *e)
{
    struct command_request q = {
        .env = env, .cwd = request_get(r, "cwd"), .has_stdin = request_get(r, "stdin") != NULL};
    struct run *run = NULL;
    if (get_clocks(r, s->limits, &q.limits, e) < 0 || verb_get_patience(r, &q.patience, e) < 0)
        return NULL;
    if (!argv)
        q.text = request_take_text(r);
    if (!argv || argv_to_text(argv, &q.text, e) == 0)
        run = run_command(s, &q, call, e);
    strbuf_free(&q.text);
    return run;
}

static struct run *begin_process(struct init *in, struct request *r, const struct run_call *call,
                                 const char *const *argv, const struct env_set *env,
                                 struct error *e)
{
    struct process_request q = {.argv = argv,
                                .env = env,
                                .cwd = request_get(r, "cwd"),
                                .has_stdin = request_get(r, "stdin") != NULL,
                                .waits_for_output = request_get(r, "drain") != NULL};
    if (get_clocks(r, sessions_clock_limits(&in->config->defaults), &q.limits, e) < 0)
        return NULL;
    if (!argv)
        q.text = request_take_text(r);
    struct run *run = run_process(&in->sessions, &q, call, e);
    strbuf_free(&q.text);
    return run;
}

static struct run *begin_run(struct init *in, struct request *r, const struct run_call *call,
                             struct session *s, struct error *e)
{
    const char **argv = NULL;
    struct env_set env = {0};
    struct run *run = NULL;
    if (verb_get_argv(r, &argv, e) == 0 && verb_get_env(r, &env, e) == 0)
        run = s ? begin_command(s, r, call, argv, &env, e)
                : begin_process(in, r, call, argv, &env, e);
    free(argv);
    env_free(&env);
    return run;
}

/* How much of the output its client wants: the call's own limit, else that of the session, else
 * what the client takes where neither has one. */
static int get_limit(struct job *j, const struct request *r, const struct session *s,
                     struct error *e)
{
    static const uint64_t most = (uint64_t)1 << 30;
    const char *action = request_get(r, "output_limit_action");
    bool has_limit, has_default;
    uint64_t limit, otherwise = 0;
    if (verb_get_number(r, "output_limit", &limit, &has_limit, e) < 0 ||
        verb_get_number(r, "output_limit_default", &otherwise, &has_default, e) < 0)
        return -1;
    if (!has_limit)
        limit = s ? s->output_limit : j->init->config->defaults.output_limit;
    if (!has_limit && limit == 0)
        limit = otherwise;
    if (limit > most)
        return error_set(e, ERR_INVALID, "exec: output_limit %llu: at most %llu bytes (1G)",
                         (unsigned long long)limit, (unsigned long long)most);
    if (action && strcmp(action, "keep") != 0 && strcmp(action, "kill") != 0)
        return error_set(e, ERR_INVALID, "exec: output_limit_action '%.20s': want keep or kill",
                         action);
    j->ends_at_limit = limit && action && strcmp(action, "kill") == 0;
    excerpt_init(&j->excerpt, limit, &excerpt_events, j);
    return 0;
}

static struct job *job_new(struct init *in, struct conn *c, struct error *e)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j) {
        error_set(e, ERR_MEMORY, "exec: no memory");
        return NULL;
    }
    j->init = in;
    j->conn = c;
    j->viewer = (struct run_viewer){.events = &run_events, .owner = j, .is_holder = true};
    list_init(&j->follower.link);
    ev_timer_init(&j->limit, on_limit, 0., 0.);
    ev_timer_init(&j->soft, on_soft, 0., 0.);
    ev_timer_init(&j->impatience, on_impatient, 0., 0.);
    j->limit.data = j->soft.data = j->impatience.data = j;
    return j;
}

static void attach(struct job *j, struct run *run, uint64_t from)
{
    run_join(run, &j->viewer);
    j->follower = (struct follower){.events = j->excerpt.limit ? &limited_events : &all_events,
                                    .owner = j,
                                    .offset = from,
                                    .limit = UINT64_MAX,
                                    .wants = {true, true},
                                    .is_pressing = !j->excerpt.limit};
    follower_attach(&j->follower, run_output(run));
    conn_set_owner(j->conn, &conn_events, j);
}

/* Catch up with a run that has begun before. The job may be gone afterwards. */
static void catch_up(struct job *j)
{
    if (run_has_started(j->viewer.run))
        tell_started(j, run_pid(j->viewer.run));
    if (run_has_started(j->viewer.run))
        start_soft_clock(j);
    follower_pump(&j->follower);
    job_finish_if_complete(j);
}

/* from: the offset that a client which lost its connection goes on at. It wants the run that there
 * was, never a second one. */
static int get_from(const struct request *r, const struct run *run, uint64_t *from, struct error *e)
{
    bool has_from;
    *from = 0;
    if (verb_get_number(r, "from", from, &has_from, e) < 0)
        return -1;
    if (!has_from)
        return 0;
    if (!run)
        return error_set(e, ERR_NOT_FOUND,
                         "exec: from: there is no command '%.80s' to join (any more)",
                         request_get(r, "id") ? request_get(r, "id") : "");
    if (*from > output_end_offset(run_output(run)))
        return error_set(e, ERR_INVALID, "exec: offset %llu is behind the end, %llu",
                         (unsigned long long)*from,
                         (unsigned long long)output_end_offset(run_output(run)));
    return 0;
}

int verb_exec(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *name = request_get(r, "session");
    struct run_call call = {.id = request_get(r, "id"),
                            .is_detached = request_get(r, "detach") != NULL,
                            .is_by_id =
                                request_get(r, "from") && !r->has_text && !request_get(r, "arg")};
    struct run *run = NULL;
    struct session *s = NULL;
    uint64_t from;
    if (call.id)
        call.number = verb_call_number(r);
    if (run_of_call(&in->sessions, &call, &run, e) < 0 || get_from(r, run, &from, e) < 0)
        return -1;
    if (name && !(s = session_find(&in->sessions, name, e)) && !run)
        return -1;
    struct job *j = job_new(in, c, e);
    if (!j)
        return -1;
    j->is_joining = run != NULL;
    bool has_soft;
    j->soft_ms = s ? s->soft_timeout_ms : in->config->defaults.command_soft_timeout_ms;
    bool is_valid = get_limit(j, r, s, e) == 0 &&
                    verb_get_ms(r, "soft_timeout_ms", &j->soft_ms, &has_soft, e) == 0 &&
                    verb_get_patience(r, &j->patience, e) == 0 &&
                    (!run || run_wait_with(run, &j->patience, e) == 0);
    if (is_valid && !run)
        run = begin_run(in, r, &call, s, e);
    if (!is_valid || !run) {
        excerpt_free(&j->excerpt);
        free(j);
        return -1;
    }
    if (j->is_joining && call.is_detached)
        run_detach(run);
    attach(j, run, from);
    start_patience(j);
    if (j->is_joining || run_outcome(run))
        catch_up(j);
    else if (s)
        session_step(s);
    return 0;
}
