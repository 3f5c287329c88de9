/*
 * The log of one process on its way to the writer. Sending is one packet at a time, never waiting:
 * a stream for which the socket has no room stands in `waiting` until there is some. What was sent
 * counts only when the writer has said that it is written; until then it can be sent again from the
 * output's own log.
 */
#include "sessions/log_stream.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEFT_MAX   1024              /* streams that outlive their process's record */
#define LEFT_BYTES (4 * 1024 * 1024) /* of output that they may hold together */

/* ---- sending ---- */

void log_stream_wait(struct log_stream *s)
{
    struct log_feed *feed = s->feed;
    if (!list_is_empty(&s->wait_link))
        return;
    bool is_first = list_is_empty(&feed->waiting);
    list_append(&feed->waiting, &s->wait_link);
    feed->writer.wants_room = true;
    if (is_first)
        log_writer_watch(&feed->writer);
}

/* One packet, whole or not at all. False: no room (the stream waits) or no writer. */
static bool send_packet(struct log_stream *s, struct logger_message *m, const char *bytes, size_t n)
{
    struct log_feed *feed = s->feed;
    m->number = s->number;
    if (feed->writer.fd < 0)
        return false;
    if (feed->budget != 0 && log_writer_send(&feed->writer, m, bytes, n)) {
        feed->budget -= feed->budget > 0;
        return true;
    }
    log_stream_wait(s);
    return false;
}

static bool send_text(struct log_stream *s, enum logger_kind kind, const char *text)
{
    struct logger_message m = {.kind = kind};
    return send_packet(s, &m, text, strlen(text));
}

static bool send_begin(struct log_stream *s)
{
    struct logger_message m = {
        .kind = LOGGER_BEGIN, .offset = s->written, .to = s->sent, .run = s->run};
    char pid[16];
    snprintf(pid, sizeof pid, "%d\n", (int)s->pid);
    s->is_begun = s->is_begun || send_packet(s, &m, s->id, strlen(s->id));
    s->is_pid_sent = s->is_pid_sent || (s->is_begun && send_text(s, LOGGER_PID, pid));
    return s->is_pid_sent;
}

static bool send_loss(struct log_stream *s)
{
    struct logger_message m = {.kind = LOGGER_LOST, .offset = s->lost_from, .to = s->lost_to};
    if (s->lost_from == s->lost_to)
        return true;
    if (!send_packet(s, &m, "", 0))
        return false;
    if (s->lost_to > s->sent) {
        s->feed->lost += s->lost_to - (s->lost_from > s->sent ? s->lost_from : s->sent);
        s->sent = s->lost_to;
    }
    s->lost_from = s->lost_to;
    return true;
}

/* ---- following the output ---- */

static enum deliver on_bytes(void *owner, enum stream stream, const char *bytes, size_t n)
{
    struct log_stream *s = owner;
    struct logger_message m = {.kind = LOGGER_BYTES,
                               .frame = stream == STREAM_STDOUT ? FRAME_STDOUT : FRAME_STDERR,
                               .offset = s->follower.offset,
                               .time_ns = s->follower.time_ns};
    if (!s->is_pid_sent || !send_loss(s) || !send_packet(s, &m, bytes, n)) {
        log_stream_wait(s);
        return DELIVER_FULL;
    }
    if (m.offset + n > s->sent)
        s->sent = m.offset + n;
    return DELIVERED;
}

static void on_lost(void *owner, uint64_t from, uint64_t to)
{
    struct log_stream *s = owner;
    if (s->lost_from == s->lost_to)
        s->lost_from = from;
    s->lost_to = to;
}

static void on_end(void *owner)
{
    (void)owner; /* step() looks by itself */
}

static const struct follower_events follower_events = {
    .on_bytes = on_bytes, .on_lost = on_lost, .on_end = on_end};

static bool is_gone(const struct log_stream *s)
{
    return !s->follower.output;
}

static uint64_t held_bytes(const struct output *o)
{
    return output_end_offset(o) - output_lost_bytes(o);
}

/* The name is free for the next process of this ID. */
static void release_younger(struct log_stream *s)
{
    list_each(y, &s->feed->streams, struct log_stream, link)
    {
        if (y->elder != s)
            continue;
        y->elder = NULL;
        log_stream_wait(y);
    }
}

void log_stream_free(struct log_stream *s)
{
    if (s->slot)
        *s->slot = NULL;
    s->feed->left_count -= s->has_left;
    s->feed->left_bytes -= s->left_bytes;
    release_younger(s);
    follower_detach(&s->follower);
    list_remove(&s->wait_link);
    list_remove(&s->link);
    free(s);
}

bool log_stream_is_complete(const struct log_stream *s)
{
    uint64_t end = is_gone(s) ? s->end : output_end_offset(s->follower.output);
    return s->is_exit_written && s->written >= end && (is_gone(s) || s->is_drained);
}

void log_stream_step(struct log_stream *s)
{
    if (s->elder || !send_begin(s))
        return;
    if (!is_gone(s))
        follower_pump(&s->follower);
    bool is_sent = is_gone(s) || s->follower.offset >= output_end_offset(s->follower.output);
    if (!is_sent || !send_loss(s))
        return;
    if (s->exit[0] && !s->is_exit_sent)
        s->is_exit_sent = send_text(s, LOGGER_EXIT, s->exit);
    if (log_stream_is_complete(s) && send_text(s, LOGGER_CLOSE, ""))
        log_stream_free(s);
}

void log_stream_rewind(struct log_stream *s)
{
    s->is_begun = s->is_pid_sent = s->is_exit_sent = s->is_exit_written = false;
    s->lost_from = s->lost_to = 0;
    if (is_gone(s)) {
        s->lost_from = s->written;
        s->lost_to = s->end;
    }
    s->follower.offset = s->written;
    s->follower.is_blocked = true;
    list_remove(&s->wait_link);
}

/* ---- its life ---- */

void log_stream_begin(struct log_feed *feed, struct log_stream **slot, const char *id, pid_t pid,
                      struct output *output)
{
    if (!feed || !feed->dir)
        return;
    struct log_stream *s = calloc(1, sizeof *s);
    if (!s) {
        LOG_ERR("log", F_STR("id", id), F_STR("why", "no memory: it is not written to log_dir"));
        return;
    }
    s->feed = feed;
    s->slot = slot;
    s->pid = pid;
    s->run = clock_real_ns();
    s->number = ++feed->numbers ? feed->numbers : ++feed->numbers;
    snprintf(s->id, sizeof s->id, "%s", id);
    list_init(&s->wait_link);
    s->follower = (struct follower){
        .events = &follower_events, .owner = s, .limit = UINT64_MAX, .wants = {true, true}};
    list_each(x, &feed->streams, struct log_stream, link)
    {
        if (strcmp(x->id, s->id) == 0)
            s->elder = x;
    }
    list_append(&feed->streams, &s->link);
    follower_attach(&s->follower, output);
    *slot = s;
    log_stream_step(s);
}

void log_stream_exited(struct log_stream *s, int status, const char *verdict)
{
    if (!s)
        return;
    snprintf(s->exit, sizeof s->exit, "%d %s\n", status, verdict);
    log_stream_step(s);
}

void log_stream_drained(struct log_stream *s)
{
    if (!s)
        return;
    s->is_drained = true;
    if (log_stream_is_complete(s))
        log_stream_step(s);
}

/* The log of an ended process is kept until the writer has it, but not of any number of them. */
static void drop_oldest_left(struct log_feed *feed)
{
    list_each(s, &feed->streams, struct log_stream, link) if (s->has_left)
    {
        uint64_t end = is_gone(s) ? s->end : output_end_offset(s->follower.output);
        LOG_WRN("log_dropped", F_STR("id", s->id), F_INT("lost_bytes", end - s->written));
        feed->lost += end - s->sent;
        log_stream_free(s);
        return;
    }
}

static void give_up_output(struct log_stream *s)
{
    s->end = output_end_offset(s->follower.output);
    if (s->follower.offset < s->end)
        on_lost(s, s->follower.offset, s->end);
    follower_detach(&s->follower);
}

void log_stream_leave(struct log_stream *s, struct output *output)
{
    if (!s) {
        output_free(output);
        return;
    }
    struct log_feed *feed = s->feed;
    *s->slot = NULL;
    s->slot = NULL;
    s->has_left = s->is_drained = true;
    uint64_t held = s->written < output_end_offset(output) ? held_bytes(output) : 0;
    if (held > 0 && held <= LEFT_BYTES - feed->left_bytes)
        feed->left_bytes += s->left_bytes = held;
    else
        give_up_output(s);
    output_free(output); /* a follower that stays has what it keeps */
    if (!s->exit[0])
        snprintf(s->exit, sizeof s->exit, "unknown\n");
    if (++feed->left_count > LEFT_MAX)
        drop_oldest_left(feed);
    log_stream_step(s);
}
