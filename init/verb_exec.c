/*
 * exec and start. An exec is a job: what runs (a command of a session, or an attached process when
 * there is no session) and the connection that follows it. The job is over when the outcome is
 * known and all output was delivered; it ends early when the client leaves.
 */
#include "init/verb.h"
#include "control/wire.h"
#include "base/log.h"
#include "base/quote.h"
#include "sessions/command.h"
#include "sessions/process.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>

struct job {
    struct conn *conn;
    struct command *command; /* one of the two */
    struct process *process;
    struct follower follower;
    char id[65];
    struct strbuf input; /* taken from the client, not yet by the command's stdin */
    bool has_input_end;
    bool is_over;      /* outcome is set */
    bool is_delivered; /* all output went out */
    struct outcome outcome;
};

static struct output *job_output(const struct job *j)
{
    return j->command ? command_output(j->command) : process_output(j->process);
}

static void job_free(struct job *j)
{
    follower_detach(&j->follower);
    if (j->command)
        command_abandon(j->command);
    if (j->process)
        process_leave(j->process);
    strbuf_free(&j->input);
    free(j);
}

static void job_finish_if_complete(struct job *j)
{
    if (!j->is_over || !j->is_delivered)
        return;
    struct record r = {0};
    answer_outcome(&r, j->id, &j->outcome, job_output(j));
    conn_result(j->conn, &r);
    record_free(&r);
    job_free(j);
}

/* ---- output ---- */

static enum deliver on_bytes(void *owner, enum stream stream, const char *bytes, size_t n)
{
    struct job *j = owner;
    return answer_bytes(j->conn, stream, bytes, n);
}

static void on_lost(void *owner, uint64_t from, uint64_t to)
{
    struct job *j = owner;
    answer_lost(j->conn, from, to);
}

static void on_end(void *owner)
{
    struct job *j = owner;
    j->is_delivered = true;
}

static const struct follower_events follower_events = {
    .on_bytes = on_bytes, .on_lost = on_lost, .on_end = on_end};

static void on_writable(void *owner)
{
    struct job *j = owner;
    follower_pump(&j->follower);
    job_finish_if_complete(j);
}

/* ---- stdin ---- */

/* Give the command what is held for it; true when nothing is left. */
static bool push_input(struct job *j)
{
    struct error e;
    while (j->input.len > 0) {
        long k = j->command ? command_write(j->command, j->input.data, j->input.len, &e)
                            : process_write(j->process, j->input.data, j->input.len, &e);
        if (k == 0)
            return false;
        if (k < 0) /* it takes no input (any more): what is sent to it is dropped */
            k = (long)j->input.len;
        memmove(j->input.data, j->input.data + k, j->input.len - (size_t)k);
        j->input.len -= (size_t)k;
    }
    if (j->has_input_end) {
        if (j->command)
            command_close_stdin(j->command);
        else
            process_close_stdin(j->process);
    }
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
    struct error e;
    if (channel == WIRE_SIGNAL) {
        if (j->command)
            command_kill(j->command, VERDICT_KILLED_BY_CLIENT,
                         command_session(j->command)->kill_grace_ms);
        else if (process_kill(j->process, VERDICT_KILLED_BY_CLIENT,
                              process_kill_grace_ms(j->process), NULL, &e) < 0)
            LOG_ERR("kill", F_STR("id", j->id), F_STR("why", e.text));
        return true;
    }
    if (channel != WIRE_STDIN)
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

static void on_started(void *owner, pid_t pid)
{
    struct job *j = owner;
    struct record r = {0};
    record_str(&r, "event", "started");
    record_str(&r, "id", j->id);
    record_int(&r, "pid", pid);
    conn_note(j->conn, &r);
    record_free(&r);
    if (push_input(j))
        conn_resume_input(j->conn);
}

static void on_done(void *owner, const struct outcome *outcome)
{
    struct job *j = owner;
    j->outcome = *outcome;
    j->is_over = true;
    if (!output_has_ended(job_output(j)))
        output_end(job_output(j));
    if (!j->follower.is_blocked)
        follower_pump(&j->follower);
    job_finish_if_complete(j);
}

static const struct command_events command_events = {
    .on_started = on_started, .on_stdin_ready = on_stdin_ready, .on_done = on_done};
static const struct process_events process_events = {
    .on_started = on_started, .on_stdin_ready = on_stdin_ready, .on_done = on_done};

/* All `arg=` arguments as an argv of borrowed strings; *argv is NULL if there are none. */
static int get_argv(const struct request *r, const char ***argv, struct error *e)
{
    struct field f;
    size_t at = 0, n = 0;
    *argv = NULL;
    while (record_next(r->args.data, r->args.len, &at, &f) > 0)
        n += field_is(&f, "arg");
    if (n == 0)
        return r->has_text ? 0
                           : error_set(e, ERR_INVALID, "%s: neither a text nor an argv", r->verb);
    if (r->has_text)
        return error_set(e, ERR_INVALID, "%s: both a text and an argv", r->verb);
    *argv = calloc(n + 1, sizeof **argv);
    if (!*argv)
        return error_set(e, ERR_MEMORY, "%s: no memory", r->verb);
    n = 0;
    at = 0;
    while (record_next(r->args.data, r->args.len, &at, &f) > 0)
        if (field_is(&f, "arg"))
            (*argv)[n++] = f.value;
    return 0;
}

/* An argv for a session becomes a text of quoted words: builtins and functions work, and nothing
 * is ever parsed again. */
static int argv_to_text(const char *const *argv, struct strbuf *text, struct error *e)
{
    for (size_t i = 0; argv[i]; i++)
        if ((i && strbuf_adds(text, " ") < 0) || quote_sh(text, argv[i], strlen(argv[i])) < 0)
            return error_set(e, ERR_MEMORY, "exec: no memory");
    return 0;
}

static int submit_command(struct init *in, struct job *j, struct request *r, const char *session,
                          const char *const *argv, const struct env_set *env, struct error *e)
{
    struct command_request q = {
        .env = env, .cwd = request_get(r, "cwd"), .has_stdin = request_get(r, "stdin") != NULL};
    struct session *s = session_find(&in->sessions, session, e);
    if (!s || verb_get_ms(r, "timeout_ms", &q.timeout_ms, &q.has_timeout, e) < 0 ||
        verb_get_patience(r, &q.patience, e) < 0)
        return -1;
    if (argv && argv_to_text(argv, &q.text, e) < 0) {
        strbuf_free(&q.text);
        return -1;
    }
    if (!argv)
        q.text = request_take_text(r);
    j->command = command_submit(s, &q, &command_events, j, e);
    strbuf_free(&q.text);
    if (!j->command)
        return -1;
    memcpy(j->id, command_id(j->command), strlen(command_id(j->command)) + 1);
    return 0;
}

static int submit_process(struct init *in, struct job *j, struct request *r,
                          const char *const *argv, const struct env_set *env, struct error *e)
{
    bool has_timeout;
    struct process_request q = {.argv = argv,
                                .env = env,
                                .cwd = request_get(r, "cwd"),
                                .has_stdin = request_get(r, "stdin") != NULL,
                                .is_attached = true};
    if (verb_get_ms(r, "timeout_ms", &q.timeout_ms, &has_timeout, e) < 0)
        return -1;
    if (!has_timeout)
        q.timeout_ms = in->config->defaults.command_timeout_ms;
    if (!argv)
        q.text = request_take_text(r);
    j->process = process_start(&in->sessions, NULL, &q, &process_events, j, e);
    strbuf_free(&q.text);
    if (!j->process)
        return -1;
    memcpy(j->id, process_id(j->process), strlen(process_id(j->process)) + 1);
    return 0;
}

int verb_exec(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char **argv = NULL;
    const char *session = request_get(r, "session");
    struct env_set env = {0};
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        return error_set(e, ERR_MEMORY, "exec: no memory");
    j->conn = c;
    list_init(&j->follower.link);
    int rc = get_argv(r, &argv, e);
    rc = rc < 0 ? rc : verb_get_env(r, &env, e);
    if (rc == 0)
        rc = session ? submit_command(in, j, r, session, argv, &env, e)
                     : submit_process(in, j, r, argv, &env, e);
    free(argv);
    env_free(&env);
    if (rc < 0) {
        free(j);
        return -1;
    }
    j->follower = (struct follower){.events = &follower_events,
                                    .owner = j,
                                    .limit = UINT64_MAX,
                                    .wants = {true, true},
                                    .is_pressing = true};
    follower_attach(&j->follower, job_output(j));
    conn_set_owner(c, &conn_events, j);
    if (j->command)
        session_step(command_session(j->command));
    return 0;
}

/* ---- start ---- */

struct start {
    struct conn *conn; /* NULL: the client left */
    struct process *process;
};

static void start_answer(struct start *s, const struct outcome *failure)
{
    struct record r = {0};
    record_str(&r, "id", process_id(s->process));
    record_int(&r, "pid", process_pid(s->process));
    if (failure) {
        struct error e = {0};
        bool is_busy = failure->step && strcmp(failure->step, "queue") == 0;
        error_set(&e, is_busy ? ERR_BUSY : ERR_SYSTEM, "start %s: %s", process_id(s->process),
                  failure->message);
        e.sys = failure->sys;
        conn_fail(s->conn, &e);
    } else {
        conn_result(s->conn, &r);
    }
    record_free(&r);
    process_leave(s->process);
    free(s);
}

static void on_start_started(void *owner, pid_t pid)
{
    (void)pid;
    start_answer(owner, NULL);
}

static void on_start_done(void *owner, const struct outcome *outcome)
{
    const struct start *s = owner;
    bool has_begun = process_began_ns(s->process) > 0 && outcome->verdict != VERDICT_SPAWN_FAILED;
    start_answer(owner, has_begun ? NULL : outcome);
}

static void on_start_closed(void *owner)
{
    struct start *s = owner;
    process_leave(s->process);
    free(s);
}

static const struct process_events start_events = {.on_started = on_start_started,
                                                   .on_done = on_start_done};
static const struct conn_events start_conn_events = {.on_closed = on_start_closed};

int verb_start(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char **argv = NULL;
    const char *name = request_get(r, "session");
    struct env_set env = {0};
    struct session *session = name ? session_find(&in->sessions, name, e) : NULL;
    if ((name && !session) || get_argv(r, &argv, e) < 0)
        return -1;
    struct start *s = calloc(1, sizeof *s);
    if (!s) {
        free(argv);
        return error_set(e, ERR_MEMORY, "start: no memory");
    }
    struct process_request q = {.id = request_get(r, "id"),
                                .argv = argv,
                                .env = &env,
                                .cwd = request_get(r, "cwd"),
                                .has_stdin = request_get(r, "stdin") != NULL};
    int rc = verb_get_patience(r, &q.patience, e);
    rc = rc < 0 ? rc : verb_get_env(r, &env, e);
    if (rc == 0 && !argv)
        q.text = request_take_text(r);
    if (rc == 0) {
        s->conn = c;
        s->process = process_start(&in->sessions, session, &q, &start_events, s, e);
        rc = s->process ? 0 : -1;
    }
    strbuf_free(&q.text);
    free(argv);
    env_free(&env);
    if (rc < 0) {
        free(s);
        return -1;
    }
    conn_set_owner(c, &start_conn_events, s);
    if (session)
        session_step(session);
    return 0;
}
