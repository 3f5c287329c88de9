/*
 * The way of a service's output: captures of its runs, the output, a follower that cuts it into
 * lines and puts them into a sink (sessions/log_sink.h).
 *
 * A sink that is full holds the follower up, in the middle of the bytes it was given; while it is
 * held up it presses, so the pipes are not read and nothing is lost. How much of the bytes is done
 * is kept in `consumed`: the same bytes come again when there is room.
 */
#include "services/service_log.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "sessions/capture.h"
#include "sessions/log_stdio.h"
#include "sessions/log_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS_MAX   8 /* whose pipes are still held open */
#define LINE_IDLE  ((size_t)1024)
#define HEAD_BYTES (SERVICE_NAME_MAX + 40)

/* The pipes of one run. */
struct run {
    struct list link;
    struct service_log *log;
    struct capture capture;
    void (*on_eof)(void *context);
    void *context;
};

/* A line that has begun. */
struct line {
    struct strbuf text;
    uint64_t time_ns;
    bool is_due; /* whole: it waits for room */
};

struct service_log {
    struct ev_loop *loop;
    struct log_feed *feed;
    char name[SERVICE_NAME_MAX + 1];
    struct output *output;
    struct list runs; /* the latest one last */
    unsigned run_count;
    struct follower ends; /* sees all bytes at once: does a stream end in the middle of a line? */
    bool is_mid_line[STREAM_COUNT];

    struct follower follower;
    size_t consumed; /* of the bytes at the follower's offset */
    struct line lines[STREAM_COUNT];
    struct log_sink *sinks[STREAM_COUNT]; /* NULL: nowhere */
    struct log_text *text;                /* of a file, or NULL */
    struct sink_writer writer;
    bool has_timestamp, has_prefix;
    bool is_leaving; /* what it still has to say does not wait for room */
    uint64_t dropped;
    char why[sizeof((struct log_sink *)0)->why];
};

/* ---- lines ---- */

/* What stands before each line. Returns its length. */
static size_t write_head(const struct service_log *l, uint64_t time_ns, char head[HEAD_BYTES])
{
    char stamp[32];
    size_t n = 0;
    if (l->has_timestamp) {
        clock_utc(time_ns / 1000000000u, stamp);
        n += (size_t)snprintf(head, HEAD_BYTES, "%s.%03uZ ", stamp,
                              (unsigned)(time_ns / 1000000u % 1000u));
    }
    if (l->has_prefix)
        n += (size_t)snprintf(head + n, HEAD_BYTES - n, "%s: ", l->name);
    return n;
}

static void note_dropped(struct service_log *l, const char *why)
{
    l->dropped++;
    snprintf(l->why, sizeof l->why, "%s", why);
}

/* False: no room, it must come again. */
static bool put(struct service_log *l, enum stream stream, uint64_t time_ns, const char *text,
                size_t n)
{
    char head[HEAD_BYTES];
    struct log_sink *sink = l->sinks[stream];
    size_t head_n = write_head(l, time_ns, head);
    switch (log_sink_put(sink, l->is_leaving ? NULL : &l->writer, head, head_n, text, n)) {
    case SINK_TAKEN:
        return true;
    case SINK_DROPPED:
        note_dropped(l, sink->why);
        return true;
    case SINK_WAIT:
        return false;
    }
    return true;
}

static void forget_line(struct line *line)
{
    if (line->text.cap > LINE_IDLE)
        strbuf_free(&line->text);
    else
        strbuf_clear(&line->text);
    line->is_due = false;
}

static bool put_due(struct service_log *l, enum stream stream)
{
    struct line *line = &l->lines[stream];
    if (!line->is_due)
        return true;
    if (l->sinks[stream] &&
        !put(l, stream, line->time_ns, strbuf_text(&line->text), line->text.len))
        return false;
    forget_line(line);
    return true;
}

/* Add to a line that has begun. False for want of memory, with the line lost. */
static bool add_to_line(struct service_log *l, struct line *line, const char *text, size_t n,
                        bool is_end)
{
    if (strbuf_add(&line->text, text, n) == 0 && (!is_end || strbuf_add(&line->text, "\n", 1) == 0))
        return true;
    note_dropped(l, "no memory");
    forget_line(line);
    return false;
}

/* Take the next bytes of a stream, up to the end of a line at most: *done of them. False: the sink
 * is full. */
static bool take(struct service_log *l, enum stream stream, const char *bytes, size_t n,
                 size_t *done)
{
    struct line *line = &l->lines[stream];
    const char *newline = memchr(bytes, '\n', n);
    size_t length = newline ? (size_t)(newline - bytes) : n;
    size_t room = SERVICE_LINE_MAX - line->text.len;
    if (line->text.len == 0) {
        line->time_ns = l->follower.time_ns;
        if (newline && length <= room) {
            *done = length + 1;
            return put(l, stream, line->time_ns, bytes, length + 1);
        }
    }
    /* A line that is too long ends here, unless it does so by itself. */
    bool is_cut = length > room;
    bool is_end = is_cut || newline;
    size_t k = is_cut ? room : length;
    line->is_due = add_to_line(l, line, bytes, k, is_end) && is_end;
    *done = k + (newline && !is_cut);
    return true;
}

static void flush(struct service_log *l)
{
    for (enum stream s = 0; s < STREAM_COUNT; s++)
        if (l->sinks[s])
            l->sinks[s]->flush(l->sinks[s]);
}

static bool take_all(struct service_log *l, enum stream stream, const char *bytes, size_t n)
{
    for (;;) {
        for (enum stream s = 0; s < STREAM_COUNT; s++)
            if (!put_due(l, s))
                return false;
        size_t done;
        if (l->consumed >= n)
            return true;
        if (!take(l, stream, bytes + l->consumed, n - l->consumed, &done))
            return false;
        l->consumed += done;
    }
}

static enum deliver on_bytes(void *owner, enum stream stream, const char *bytes, size_t n)
{
    struct service_log *l = owner;
    if (!l->sinks[stream]) {
        l->consumed = 0;
        return DELIVERED;
    }
    if (!take_all(l, stream, bytes, n)) {
        follower_press(&l->follower, true);
        return DELIVER_FULL;
    }
    l->consumed = 0;
    flush(l);
    return DELIVERED;
}

/* The output could not keep what the sink had no room for. */
static void on_lost(void *owner, uint64_t from, uint64_t to)
{
    struct service_log *l = owner;
    if (to - from <= l->consumed)
        return;
    l->consumed = 0;
    note_dropped(l, "more came than can be kept");
}

static void on_end(void *owner)
{
    (void)owner;
}

static void on_room(void *owner)
{
    struct service_log *l = owner;
    follower_pump(&l->follower);
    if (!l->follower.is_blocked)
        follower_press(&l->follower, false);
}

static const struct follower_events line_events = {
    .on_bytes = on_bytes, .on_lost = on_lost, .on_end = on_end};

static enum deliver note_end(void *owner, enum stream stream, const char *bytes, size_t n)
{
    struct service_log *l = owner;
    l->is_mid_line[stream] = bytes[n - 1] != '\n';
    return DELIVERED;
}

static const struct follower_events end_events = {.on_bytes = note_end, .on_end = on_end};

/* ---- where they go ---- */

int service_log_configure(struct service_log *l, const struct service_config *c, struct error *e)
{
    struct log_text *text = NULL;
    if (c->log == SERVICE_LOG_FILE &&
        !(text = log_text_open(l->feed, c->log_file, c->log_max_size, c->log_keep, e)))
        return -1;
    log_text_close(l->text);
    l->text = text;
    list_remove(&l->writer.link);
    for (enum stream s = 0; s < STREAM_COUNT; s++)
        l->sinks[s] = text                         ? log_text_sink(text)
                      : c->log == SERVICE_LOG_NONE ? NULL
                                                   : log_stdio_sink(log_feed_stdio(l->feed), s);
    l->has_timestamp = c->log_timestamp == TIMESTAMP_ISO;
    l->has_prefix = c->log_prefix && c->log == SERVICE_LOG_INHERIT;
    if (l->follower.is_blocked)
        on_room(l);
    return 0;
}

struct service_log *service_log_new(struct ev_loop *loop, struct log_feed *feed,
                                    const struct service_config *c, struct error *e)
{
    struct service_log *l = calloc(1, sizeof *l);
    if (!l || !(l->output = output_new(SERVICE_OUTPUT_KEEP))) {
        free(l);
        error_set(e, ERR_MEMORY, "service %s: its log: no memory", c->name);
        return NULL;
    }
    l->loop = loop;
    l->feed = feed;
    snprintf(l->name, sizeof l->name, "%s", c->name);
    list_init(&l->runs);
    list_init(&l->writer.link);
    l->writer.on_room = on_room;
    l->writer.owner = l;
    l->ends = (struct follower){
        .events = &end_events, .owner = l, .limit = UINT64_MAX, .wants = {true, true}};
    l->follower = l->ends;
    l->follower.events = &line_events;
    follower_attach(&l->ends, l->output);
    follower_attach(&l->follower, l->output);
    if (service_log_configure(l, c, e) == 0)
        return l;
    service_log_free(l);
    return NULL;
}

struct output *service_log_output(struct service_log *l)
{
    return l->output;
}

/* ---- runs ---- */

/* An output tells one capture of its relief, and these are several. */
static void on_relief(void *context)
{
    struct service_log *l = context;
    list_each(r, &l->runs, struct run, link) capture_resume(&r->capture);
}

static void end_run(struct run *r)
{
    struct service_log *l = r->log;
    void (*on_eof)(void *context) = r->on_eof;
    void *context = r->context;
    capture_stop(&r->capture);
    output_on_relief(l->output, on_relief, l);
    list_remove(&r->link);
    l->run_count--;
    free(r);
    if (on_eof)
        on_eof(context);
}

static void on_capture_eof(void *context)
{
    end_run(context);
}

void service_log_capture(struct service_log *l, const int fd[STREAM_COUNT],
                         void (*on_eof)(void *context), void *context)
{
    struct run *r = calloc(1, sizeof *r);
    if (!r) { /* it will find its pipes closed */
        LOG_ERR("service_log", F_STR("service", l->name), F_STR("why", "no memory"));
        for (enum stream s = 0; s < STREAM_COUNT; s++)
            fd_close(&(int){fd[s]});
        return;
    }
    if (l->run_count >= RUNS_MAX)
        end_run(list_entry(l->runs.next, struct run, link));
    r->log = l;
    r->on_eof = on_eof;
    r->context = context;
    r->capture.on_eof = on_capture_eof;
    r->capture.context = r;
    list_append(&l->runs, &r->link);
    l->run_count++;
    capture_start(&r->capture, l->loop, l->output, fd);
    output_on_relief(l->output, on_relief, l);
}

void service_log_run_ended(struct service_log *l)
{
    list_each(r, &l->runs, struct run, link) capture_drain(&r->capture);
    for (enum stream s = 0; s < STREAM_COUNT; s++)
        if (l->is_mid_line[s])
            output_append(l->output, s, "\n", 1);
    list_each(r, &l->runs, struct run, link) if (r->capture.fd[STREAM_STDOUT] < 0 &&
                                                 r->capture.fd[STREAM_STDERR] < 0) end_run(r);
}

uint64_t service_log_dropped(const struct service_log *l, const char **why)
{
    /* What is wrong with a file is told before anything is lost. */
    bool is_wrong = l->text && log_text_sink(l->text)->why[0];
    *why = is_wrong ? log_text_sink(l->text)->why : l->why;
    return l->dropped;
}

void service_log_free(struct service_log *l)
{
    if (!l)
        return;
    list_each(r, &l->runs, struct run, link)
    {
        r->on_eof = NULL;
        end_run(r);
    }
    l->is_leaving = true;
    list_remove(&l->writer.link);
    follower_pump(&l->follower);
    log_text_close(l->text);
    follower_detach(&l->ends);
    follower_detach(&l->follower);
    output_on_relief(l->output, NULL, NULL);
    output_free(l->output);
    for (enum stream s = 0; s < STREAM_COUNT; s++)
        strbuf_free(&l->lines[s].text);
    free(l);
}
