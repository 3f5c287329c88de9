/*
 * The log writer as init sees it: started, fed, listened to, started again when it dies, ended
 * last.
 */
#include "sessions/log_stream.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "logger/logger.h"
#include "sessions/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define TURN_PACKETS   64 /* sent in one turn of the loop to catch up */
#define TURN_ANSWERS   256
#define PAUSE_S        0.1
#define RESTART_MIN_MS 100
#define RESTART_MAX_MS 10000

static void start_writer(struct log_feed *feed);

void log_feed_watch(struct log_feed *feed)
{
    ev_io_stop(feed->loop, &feed->io);
    if (feed->fd < 0)
        return;
    bool wants_room = !list_is_empty(&feed->waiting) && !ev_is_active(&feed->pause);
    ev_io_set(&feed->io, feed->fd, EV_READ | (wants_room ? EV_WRITE : 0));
    ev_io_start(feed->loop, &feed->io);
}

void log_feed_pause(struct log_feed *feed, int sys)
{
    if (ev_is_active(&feed->pause))
        return;
    LOG_DBG("log_pause", F_STR("why", strerror(sys)));
    ev_timer_set(&feed->pause, PAUSE_S, 0.);
    ev_timer_start(feed->loop, &feed->pause);
    log_feed_watch(feed);
}

static void on_pause(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    log_feed_watch(w->data);
}

/* ---- what the writer says ---- */

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

static void on_answer(struct log_feed *feed, const struct logger_message *m, const char *text)
{
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

static void read_answers(struct log_feed *feed)
{
    for (unsigned i = 0; i < TURN_ANSWERS && feed->fd >= 0; i++) {
        struct logger_message m;
        char text[320];
        struct iovec parts[2] = {{&m, sizeof m}, {text, sizeof text - 1}};
        struct msghdr h = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t k = recvmsg(feed->fd, &h, MSG_DONTWAIT);
        if (k < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (k < (ssize_t)sizeof m) { /* it has ended, or will now; the reaper tells */
            fd_close(&feed->fd);
            if (feed->child)
                (void)child_signal(feed->child, SIGKILL);
            return;
        }
        text[(size_t)k - sizeof m] = '\0';
        on_answer(feed, &m, text);
    }
}

/* ---- the loop ---- */

/* All is sent: no more comes, the writer ends when it has written it. */
static void finish_sending(struct log_feed *feed)
{
    if (feed->is_ending && feed->fd >= 0 && list_is_empty(&feed->waiting))
        shutdown(feed->fd, SHUT_WR);
}

static void serve_waiting(struct log_feed *feed)
{
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
}

static void on_io(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    struct log_feed *feed = w->data;
    if (events & EV_READ)
        read_answers(feed);
    if (events & EV_WRITE && feed->fd >= 0)
        serve_waiting(feed);
    log_feed_watch(feed);
    finish_sending(feed);
}

static void tell_done(struct log_feed *feed)
{
    void (*on_done)(void *context) = feed->on_done;
    feed->on_done = NULL;
    ev_timer_stop(feed->loop, &feed->limit);
    if (on_done)
        on_done(feed->context);
}

/* ---- the writer ---- */

static void on_writer_exit(void *context, const struct child_exit *how)
{
    struct log_feed *feed = context;
    feed->child = NULL;
    fd_close(&feed->fd);
    ev_io_stop(feed->loop, &feed->io);
    list_each(s, &feed->streams, struct log_stream, link) log_stream_rewind(s);
    if (feed->is_ending) {
        tell_done(feed);
        return;
    }
    if (clock_mono_ns() - feed->started_ns > (uint64_t)RESTART_MAX_MS * 1000000u)
        feed->restart_ms = RESTART_MIN_MS;
    LOG_WRN("log_writer_ended", F_STR("step", how->step), F_INT("wait_status", how->status),
            F_INT("restart_ms", feed->restart_ms));
    ev_timer_set(&feed->restart, (double)feed->restart_ms / 1000.0, 0.);
    ev_timer_start(feed->loop, &feed->restart);
    feed->restart_ms =
        2 * feed->restart_ms < RESTART_MAX_MS ? 2 * feed->restart_ms : RESTART_MAX_MS;
}

static void on_restart(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    start_writer(w->data);
}

/* The file that init itself runs, whatever has become of its path (proc(5)). */
static struct child *spawn_writer(struct log_feed *feed, int theirs, struct error *e)
{
    const char *argv[] = {"sandbox-init", LOGGER_OPTION, feed->dir,  feed->size,
                          feed->files,    feed->age,     feed->keep, NULL};
    const char *envp[] = {NULL};
    struct spawn_plan plan = spawn_plan_empty();
    plan.program = "/proc/self/exe";
    plan.argv = argv;
    plan.envp = envp;
    plan.cwd = "/";
    plan.stdio[0] = theirs;
    plan.user = feed->has_owner ? &feed->owner : NULL;
    plan.on_exit = on_writer_exit;
    plan.context = feed;
    return spawn(&plan, e);
}

static void start_writer(struct log_feed *feed)
{
    struct error e = {0};
    int ends[2];
    feed->started_ns = clock_mono_ns();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
        feed->child = spawn_writer(feed, ends[1], &e);
        close(ends[1]);
        if (feed->child)
            feed->fd = ends[0];
        else
            close(ends[0]);
    } else {
        error_set_sys(&e, errno, "log writer: socketpair");
    }
    if (!feed->child) {
        LOG_ERR("log_writer", F_STR("why", e.text));
        ev_timer_set(&feed->restart, RESTART_MAX_MS / 1000.0, 0.);
        ev_timer_start(feed->loop, &feed->restart);
        return;
    }
    LOG_INF("log_writer", F_INT("pid", feed->child->pid), F_STR("dir", feed->dir));
    list_each(s, &feed->streams, struct log_stream, link) log_stream_wait(s);
    log_feed_watch(feed);
}

/* The writer is who the folder belongs to. */
static void make_folder(struct log_feed *feed)
{
    struct stat st;
    if (mkdir(feed->dir, 0700) < 0 && errno != EEXIST)
        LOG_WRN("log_dir", F_STR("dir", feed->dir), F_STR("why", strerror(errno)));
    user_self(&feed->owner);
    if (stat(feed->dir, &st) < 0 || geteuid() != 0 || st.st_uid == 0)
        return;
    feed->owner.uid = st.st_uid;
    feed->owner.gid = st.st_gid;
    feed->owner.group_count = 0;
    feed->has_owner = true;
}

struct log_feed *log_feed_new(struct ev_loop *loop, const struct config *config, struct error *e)
{
    struct log_feed *feed = calloc(1, sizeof *feed);
    if (!feed || !(feed->dir = strdup(config->log_dir))) {
        free(feed);
        error_set(e, ERR_MEMORY, "log_dir: no memory");
        return NULL;
    }
    feed->loop = loop;
    feed->fd = -1;
    feed->budget = -1;
    feed->restart_ms = RESTART_MIN_MS;
    snprintf(feed->size, sizeof feed->size, "%llu", (unsigned long long)config->log_file_size);
    snprintf(feed->files, sizeof feed->files, "%llu", (unsigned long long)config->log_files);
    snprintf(feed->keep, sizeof feed->keep, "%llu", (unsigned long long)config->log_keep);
    snprintf(feed->age, sizeof feed->age, "%llu", (unsigned long long)config->log_file_age_ms);
    list_init(&feed->streams);
    list_init(&feed->waiting);
    ev_io_init(&feed->io, on_io, -1, EV_READ);
    ev_timer_init(&feed->restart, on_restart, 0., 0.);
    ev_timer_init(&feed->limit, NULL, 0., 0.);
    ev_timer_init(&feed->pause, on_pause, 0., 0.);
    feed->io.data = feed->restart.data = feed->limit.data = feed->pause.data = feed;
    make_folder(feed);
    start_writer(feed);
    return feed;
}

static void on_limit(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct log_feed *feed = w->data;
    ev_timer_stop(loop, w);
    LOG_WRN("log_incomplete",
            F_STR("why", feed->trouble[0] ? feed->trouble : "the log writer is slow"));
    if (feed->child)
        (void)child_signal(feed->child, SIGKILL);
    tell_done(feed);
}

void log_feed_end(struct log_feed *feed, uint64_t limit_ms, void (*on_done)(void *context),
                  void *context)
{
    feed->is_ending = true;
    feed->on_done = on_done;
    feed->context = context;
    ev_timer_stop(feed->loop, &feed->restart);
    if (!feed->child && !list_is_empty(&feed->streams))
        start_writer(feed);
    ev_timer_stop(feed->loop, &feed->restart);
    if (!feed->child) {
        tell_done(feed);
        return;
    }
    ev_timer_init(&feed->limit, on_limit, (double)limit_ms / 1000.0, 0.);
    feed->limit.data = feed;
    ev_timer_start(feed->loop, &feed->limit);
    finish_sending(feed);
}

void log_feed_free(struct log_feed *feed)
{
    if (!feed)
        return;
    list_each(s, &feed->streams, struct log_stream, link) log_stream_free(s);
    ev_io_stop(feed->loop, &feed->io);
    ev_timer_stop(feed->loop, &feed->restart);
    ev_timer_stop(feed->loop, &feed->limit);
    ev_timer_stop(feed->loop, &feed->pause);
    if (feed->child)
        child_forget(feed->child);
    fd_close(&feed->fd);
    free(feed->dir);
    free(feed);
}

pid_t log_feed_pid(const struct log_feed *feed)
{
    return feed && feed->child ? feed->child->pid : 0;
}

const char *log_feed_trouble(const struct log_feed *feed)
{
    if (!feed)
        return NULL;
    return feed->fd < 0 ? "the log writer does not run" : feed->trouble[0] ? feed->trouble : NULL;
}

uint64_t log_feed_lost_bytes(const struct log_feed *feed)
{
    return feed ? feed->lost : 0;
}
