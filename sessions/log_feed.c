/*
 * The way of all logs out of init: to the log writer of processes, to those of plain files
 * (log_text.c), to init's own stdout and stderr (log_stdio.c); and the end of them all.
 */
#include "base/log.h"
#include "sessions/log_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TURN_PACKETS 64    /* sent in one turn of the loop to catch up */
#define END_LOOK_S   0.001 /* at the end: is all of it where it was to go? */

/* ---- what the writer of processes says ---- */

static struct log_stream *find(struct log_feed *feed, uint32_t number)
{
    list_each(s, &feed->streams, struct log_stream, link) if (s->number == number) return s;
    return NULL;
}

static void on_trouble(struct log_feed *feed, const char *text)
{
    LOG_WRN("log_trouble", F_STR("why", text));
    snprintf(feed->trouble, sizeof feed->trouble, "%s", text);
}

static void on_recovered(struct log_feed *feed)
{
    LOG_INF("log_recovered", F_INT("lost_bytes", feed->lost));
    feed->trouble[0] = '\0';
}

static void on_answer(void *context, const struct logger_message *m, const char *text, size_t n)
{
    (void)n;
    struct log_feed *feed = context;
    struct log_stream *s = m->number ? find(feed, m->number) : NULL;
    switch ((enum logger_kind)m->kind) {
    case LOGGER_TROUBLE:
        on_trouble(feed, text);
        break;
    case LOGGER_RECOVERED:
        on_recovered(feed);
        break;
    case LOGGER_EXIT_WRITTEN:
        if (s)
            s->is_exit_written = true;
        break;
    case LOGGER_WRITTEN:
        if (s && m->offset > s->written && m->offset <= s->sent)
            s->written = m->offset;
        break;
    default:
        break;
    }
    if (s && log_stream_is_complete(s))
        log_stream_step(s);
}

static void on_room(void *context)
{
    struct log_feed *feed = context;
    struct list turn;
    list_init(&turn);
    while (!list_is_empty(&feed->waiting)) {
        struct list *first = feed->waiting.next;
        list_remove(first);
        list_append(&turn, first);
    }
    feed->budget = TURN_PACKETS;
    while (!list_is_empty(&turn)) {
        struct log_stream *s = list_entry(turn.next, struct log_stream, wait_link);
        list_remove(&s->wait_link);
        if (list_is_empty(&feed->waiting))
            log_stream_step(s);
        else /* the first one has filled it */
            list_append(&feed->waiting, &s->wait_link);
    }
    feed->budget = -1;
    feed->writer.wants_room = !list_is_empty(&feed->waiting);
}

static void on_started(void *context)
{
    struct log_feed *feed = context;
    list_each(s, &feed->streams, struct log_stream, link) log_stream_wait(s);
}

static void on_ended(void *context)
{
    struct log_feed *feed = context;
    list_each(s, &feed->streams, struct log_stream, link) log_stream_rewind(s);
}

/* ---- beginning ---- */

/* The writer is who the folder belongs to. */
static void make_folder(struct log_feed *feed)
{
    struct stat st;
    if (mkdir(feed->dir, 0700) < 0 && errno != EEXIST)
        LOG_WRN("log_dir", F_STR("dir", feed->dir), F_STR("why", strerror(errno)));
    user_self(&feed->writer.owner);
    if (stat(feed->dir, &st) < 0 || geteuid() != 0 || st.st_uid == 0)
        return;
    feed->writer.owner.uid = st.st_uid;
    feed->writer.owner.gid = st.st_gid;
    feed->writer.owner.group_count = 0;
    feed->writer.has_owner = true;
}

static int start_writer(struct log_feed *feed, const struct config *config)
{
    struct log_writer *w = &feed->writer;
    feed->dir = strdup(config->log_dir);
    if (!feed->dir)
        return -1;
    snprintf(feed->size, sizeof feed->size, "%llu", (unsigned long long)config->log_file_size);
    snprintf(feed->files, sizeof feed->files, "%llu", (unsigned long long)config->log_files);
    snprintf(feed->keep, sizeof feed->keep, "%llu", (unsigned long long)config->log_keep);
    snprintf(feed->age, sizeof feed->age, "%llu", (unsigned long long)config->log_file_age_ms);
    const char *args[] = {feed->dir, feed->size, feed->files, feed->age, feed->keep};
    memcpy(w->args, args, sizeof args);
    w->on_started = on_started;
    w->on_answer = on_answer;
    w->on_room = on_room;
    w->on_ended = on_ended;
    w->context = feed;
    make_folder(feed);
    log_writer_start(w);
    return 0;
}

static void look_at_end(struct log_feed *feed);

static void on_look(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop;
    (void)events;
    look_at_end(t->data);
}

struct log_feed *log_feed_new(struct ev_loop *loop, const struct config *config, struct error *e)
{
    struct log_feed *feed = calloc(1, sizeof *feed);
    if (feed) {
        feed->loop = loop;
        feed->budget = -1;
        list_init(&feed->streams);
        list_init(&feed->waiting);
        ev_timer_init(&feed->limit, NULL, 0., 0.);
        ev_timer_init(&feed->look, on_look, END_LOOK_S, END_LOOK_S);
        feed->limit.data = feed->look.data = feed;
        log_writer_init(&feed->writer, loop);
        log_texts_init(&feed->texts);
        log_stdio_init(&feed->stdio, loop);
    }
    if (!feed || (config->log_dir && start_writer(feed, config) < 0)) {
        log_feed_free(feed);
        error_set(e, ERR_MEMORY, "log_dir: no memory");
        return NULL;
    }
    return feed;
}

/* ---- end ---- */

static void tell_done(struct log_feed *feed)
{
    void (*on_done)(void *context) = feed->on_done;
    feed->on_done = NULL;
    feed->has_ended = true;
    ev_timer_stop(feed->loop, &feed->limit);
    ev_timer_stop(feed->loop, &feed->look);
    if (on_done)
        on_done(feed->context);
}

/* Whoever was sent all ends when it has written it. */
static void look_at_end(struct log_feed *feed)
{
    if (list_is_empty(&feed->waiting))
        log_writer_finish(&feed->writer);
    bool is_done = log_texts_finish(&feed->texts);
    if (is_done && !feed->writer.child && log_stdio_is_idle(&feed->stdio))
        tell_done(feed);
}

static void on_limit(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct log_feed *feed = w->data;
    const char *why = log_texts_trouble(&feed->texts);
    LOG_WRN("log_incomplete", F_STR("why", feed->trouble[0] ? feed->trouble
                                           : why            ? why
                                                            : "who takes the logs is slow"));
    log_writer_kill(&feed->writer);
    log_texts_kill(&feed->texts);
    tell_done(feed);
}

void log_feed_end(struct log_feed *feed, uint64_t limit_ms, void (*on_done)(void *context),
                  void *context)
{
    feed->on_done = on_done;
    feed->context = context;
    log_writer_end(&feed->writer);
    if (feed->dir && !feed->writer.child && !list_is_empty(&feed->streams))
        log_writer_start(&feed->writer);
    log_texts_end(&feed->texts);
    ev_timer_init(&feed->limit, on_limit, (double)limit_ms / 1000.0, 0.);
    feed->limit.data = feed;
    ev_timer_start(feed->loop, &feed->limit);
    ev_timer_start(feed->loop, &feed->look);
    look_at_end(feed);
}

void log_feed_free(struct log_feed *feed)
{
    if (!feed)
        return;
    list_each(s, &feed->streams, struct log_stream, link) log_stream_free(s);
    ev_timer_stop(feed->loop, &feed->limit);
    ev_timer_stop(feed->loop, &feed->look);
    log_writer_close(&feed->writer);
    log_texts_free(&feed->texts);
    log_stdio_close(&feed->stdio);
    free(feed->dir);
    free(feed);
}

/* ---- what there is to know ---- */

bool log_feed_is_writer(const struct log_feed *feed, pid_t pid)
{
    return feed && ((feed->writer.child && feed->writer.child->pid == pid) ||
                    log_texts_has_writer(&feed->texts, pid));
}

const char *log_feed_trouble(const struct log_feed *feed)
{
    if (!feed)
        return NULL;
    if (feed->dir && feed->writer.fd < 0)
        return "the log writer does not run";
    return feed->trouble[0] ? feed->trouble : log_texts_trouble(&feed->texts);
}

uint64_t log_feed_lost_bytes(const struct log_feed *feed)
{
    return feed ? feed->lost : 0;
}

struct log_stdio *log_feed_stdio(struct log_feed *feed)
{
    return &feed->stdio;
}
