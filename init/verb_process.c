/* logs, wait and send: what follows one process or running command. */
#include "init/verb.h"
#include "control/wire.h"
#include "sessions/process.h"
#include "sessions/run.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>

struct process *verb_find_process(struct init *in, const char *id, const char *of_service,
                                  struct error *e)
{
    struct process *p = process_find(&in->sessions, id, e);
    if (!p && service_find(in->services, id, NULL))
        error_set(e, ERR_NOT_FOUND,
                  "process '%.80s': not found; it is a service (see: sandboxctl service %s %.80s)",
                  id, of_service, id);
    else if (!p && in->main_child && strcmp(id, "main") == 0)
        error_set(e, ERR_NOT_FOUND,
                  "process 'main': not found; the main command is no process of a client: it ends "
                  "with the container (see: sandboxctl shutdown), and its output is init's");
    return p;
}

/* ---- logs ---- */

/* The output of a command (one that is over too, if it is kept) or process, by id. */
static struct output *find_output(struct init *in, const char *id, struct error *e)
{
    const struct run *run = run_find(&in->sessions, id);
    if (run)
        return run_output(run);
    struct process *p = verb_find_process(in, id, "logs", e);
    return p ? process_output(p) : NULL;
}

struct reader {
    struct conn *conn;
    struct follower follower;
};

static void reader_end(void *owner)
{
    struct reader *w = owner;
    struct record done = {0};
    record_int(&done, "to", (int64_t)w->follower.offset);
    conn_result(w->conn, &done);
    record_free(&done);
    follower_detach(&w->follower);
    free(w);
}

static enum deliver reader_bytes(void *owner, enum stream stream, const char *bytes, size_t n)
{
    struct reader *w = owner;
    return answer_bytes(w->conn, stream, bytes, n);
}

static void reader_lost(void *owner, uint64_t from, uint64_t to)
{
    struct reader *w = owner;
    answer_lost(w->conn, from, to);
}

static const struct follower_events reader_events = {
    .on_bytes = reader_bytes, .on_lost = reader_lost, .on_end = reader_end};

static void reader_writable(void *owner)
{
    struct reader *w = owner;
    follower_pump(&w->follower);
}

static void reader_closed(void *owner)
{
    struct reader *w = owner;
    follower_detach(&w->follower);
    free(w);
}

static const struct conn_events reader_conn_events = {.on_writable = reader_writable,
                                                      .on_closed = reader_closed};

static int get_streams(const struct request *r, bool wants[STREAM_COUNT], struct error *e)
{
    const char *stream = request_get(r, "stream");
    wants[STREAM_STDOUT] = !stream || strcmp(stream, "stdout") == 0;
    wants[STREAM_STDERR] = !stream || strcmp(stream, "stderr") == 0;
    if (!wants[STREAM_STDOUT] && !wants[STREAM_STDERR])
        return error_set(e, ERR_INVALID, "%s: stream '%.20s': want stdout or stderr", r->verb,
                         stream);
    return 0;
}

int verb_follow(struct conn *c, const struct request *r, struct output *o, struct error *e)
{
    bool has_from, has_tail, wants[STREAM_COUNT];
    uint64_t from = 0, tail = 0;
    if (verb_get_number(r, "from", &from, &has_from, e) < 0 ||
        verb_get_number(r, "tail", &tail, &has_tail, e) < 0 || get_streams(r, wants, e) < 0)
        return -1;
    output_expire(o);
    if (has_from && from > output_end_offset(o))
        return error_set(e, ERR_INVALID, "%s: offset %llu is behind the end, %llu", r->verb,
                         (unsigned long long)from, (unsigned long long)output_end_offset(o));
    if (has_tail && !has_from)
        from = output_tail_offset(o, tail, wants);
    struct reader *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(e, ERR_MEMORY, "%s: no memory", r->verb);
    w->conn = c;
    w->follower = (struct follower){.events = &reader_events, .owner = w, .offset = from};
    memcpy(w->follower.wants, wants, sizeof wants);
    struct record note = {0};
    record_int(&note, "from", (int64_t)from);
    conn_note(c, &note);
    record_free(&note);
    conn_set_owner(c, &reader_conn_events, w);
    w->follower.limit = request_get(r, "follow") ? UINT64_MAX : output_end_offset(o);
    follower_attach(&w->follower, o);
    follower_pump(&w->follower);
    return 0;
}

int verb_logs(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *id = verb_required(r, "id", e);
    struct output *o = id ? find_output(in, id, e) : NULL;
    return o ? verb_follow(c, r, o, e) : -1;
}

/* ---- wait ---- */

/* A connection that waits for the end of a process, or views a run without holding it. */
struct waiter {
    struct process_wish wish;
    struct run_viewer viewer;
    struct conn *conn;
};

static void waiter_answer(struct waiter *w, const char *id, const struct outcome *o,
                          const struct output *output)
{
    struct record r = {0};
    answer_outcome(&r, id, o, output);
    conn_result(w->conn, &r);
    record_free(&r);
    run_leave(&w->viewer);
    free(w);
}

static void on_process_waited(void *owner, struct process *p, const struct teardown_report *report)
{
    (void)report;
    waiter_answer(owner, process_id(p), process_outcome(p), process_output(p));
}

static void on_run_done(void *owner)
{
    struct waiter *w = owner;
    const struct run *r = w->viewer.run;
    waiter_answer(w, run_id(r), run_outcome(r), run_output(r));
}

static const struct run_events waiter_run_events = {.on_done = on_run_done};

static void on_waiter_closed(void *owner)
{
    struct waiter *w = owner;
    process_wish_drop(&w->wish);
    run_leave(&w->viewer);
    free(w);
}

static const struct conn_events waiter_events = {.on_closed = on_waiter_closed};

static struct waiter *waiter_new(struct conn *c, struct error *e)
{
    struct waiter *w = calloc(1, sizeof *w);
    if (!w) {
        error_set(e, ERR_MEMORY, "wait: no memory");
        return NULL;
    }
    list_init(&w->wish.link);
    w->wish.on_done = on_process_waited;
    w->viewer.events = &waiter_run_events;
    w->wish.owner = w->viewer.owner = w;
    w->conn = c;
    return w;
}

int verb_wait(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *id = verb_required(r, "id", e);
    struct run *run = id ? run_find(&in->sessions, id) : NULL;
    struct process *p = id && !run ? verb_find_process(in, id, "show", e) : NULL;
    struct waiter *w = run || p ? waiter_new(c, e) : NULL;
    if (!w)
        return -1;
    conn_set_owner(c, &waiter_events, w);
    if (p) {
        process_wait(p, &w->wish);
        return 0;
    }
    run_join(run, &w->viewer);
    if (run_outcome(run))
        on_run_done(w);
    return 0;
}

/* ---- send ---- */

struct sender {
    struct init *init;
    struct conn *conn;
    char id[65];
    struct strbuf input;
    uint64_t sent;
    bool has_end;      /* the process's stdin is to be closed, and is not yet */
    bool is_half_done; /* the client sends no more */
    ev_timer retry;
};

static void sender_free(struct sender *s)
{
    ev_timer_stop(s->init->loop, &s->retry);
    strbuf_free(&s->input);
    free(s);
}

static void sender_fail(struct sender *s, const struct error *e)
{
    conn_fail(s->conn, e);
    sender_free(s);
}

/* Something is held that the process does not take yet. */
static bool sender_holds(const struct sender *s)
{
    return s->input.len > 0 || s->has_end;
}

/* Push what is held; answer when the client has sent all. False: it is over, s is gone. */
static bool sender_step(struct sender *s)
{
    struct error e = {0};
    struct process *p = process_find(&s->init->sessions, s->id, &e);
    while (p && s->input.len > 0) {
        long k = process_write(p, s->input.data, s->input.len, &e);
        if (k == 0)
            return true;
        if (k < 0)
            break;
        s->sent += (uint64_t)k;
        strbuf_drop(&s->input, (size_t)k);
    }
    if (!p || e.code != ERR_NONE) {
        sender_fail(s, &e);
        return false;
    }
    if (s->has_end)
        s->has_end = !process_close_stdin(p);
    if (!s->is_half_done || s->has_end)
        return true;
    struct record r = {0};
    record_int(&r, "bytes", (int64_t)s->sent);
    conn_result(s->conn, &r);
    record_free(&r);
    sender_free(s);
    return false;
}

static bool sender_data(void *owner, char channel, const char *bytes, size_t n)
{
    struct sender *s = owner;
    if (channel != WIRE_STDIN)
        return true;
    if (n == 0)
        s->has_end = true;
    else if (strbuf_add(&s->input, bytes, n) < 0)
        return false;
    if (!sender_step(s) || !sender_holds(s))
        return true;
    ev_timer_again(s->init->loop, &s->retry);
    return false;
}

/* The process's pipe is full: several may send to it, so each looks again by itself. */
static void sender_retry(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct sender *s = w->data;
    struct conn *c = s->conn;
    if (!sender_step(s) || sender_holds(s))
        return;
    ev_timer_stop(loop, w);
    conn_resume_input(c);
}

static void sender_input_end(void *owner)
{
    struct sender *s = owner;
    s->is_half_done = true;
    (void)sender_step(s);
}

static void sender_closed(void *owner)
{
    sender_free(owner);
}

static const struct conn_events sender_events = {
    .on_data = sender_data, .on_input_end = sender_input_end, .on_closed = sender_closed};

int verb_send(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *id = verb_required(r, "id", e);
    struct process *p = id ? verb_find_process(in, id, "show", e) : NULL;
    if (!p || process_write(p, "", 0, e) < 0)
        return -1;
    struct sender *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(e, ERR_MEMORY, "send: no memory");
    s->init = in;
    s->conn = c;
    memcpy(s->id, id, strlen(id) + 1);
    ev_timer_init(&s->retry, sender_retry, 0., 0.02);
    s->retry.data = s;
    conn_set_owner(c, &sender_events, s);
    return 0;
}
