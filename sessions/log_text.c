/*
 * Plain files on init's side. The queue of a file's sink holds what the writer has not confirmed;
 * its first byte has the offset `written`, and below `sent` all is on its way. A writer that ends,
 * or that says that the file failed, makes everything behind `written` go again.
 */
#include "sessions/log_text.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "logger/logger.h"
#include "sessions/log_stream.h"
#include "sessions/look.h"
#include "sessions/spawn.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_QUEUE  ((size_t)512 * 1024)
#define RETRY_MIN_S 0.2
#define RETRY_MAX_S 2.0
#define LEFT_NS     (10 * (uint64_t)1000000000) /* so long one that nobody has open is tried yet */

struct text_writer {
    struct list link;
    struct log_texts *all;
    struct log_writer writer;
    uid_t uid;
    unsigned long long device; /* one that does not answer holds up no file elsewhere */
};

struct log_text {
    struct list link;
    struct log_feed *feed;
    struct text_writer *writer; /* NULL: it has had none yet */
    struct log_sink sink;
    struct line_queue queue;
    char *path;
    uint64_t max_size, keep;
    unsigned users;   /* 0: it goes when all is written, */
    uint64_t left_ns; /* … or can't be, so long after this */
    bool is_given_up;
    uint32_t number;
    uint64_t written, sent;
    struct logger_place place;
    /* Whose its folder is, which a process of its own finds out (look.h). */
    struct child *look;
    int look_fd;
    bool has_owner;
    unsigned long long owner[3]; /* user, group, device */
    bool is_begun;               /* by the present writer */
    bool is_changed; /* and it is to hear of new limits, when it has written all it was sent */
    bool has_note;   /* lines are written, but why says what is wrong */
    ev_timer retry;
    double retry_s;
};

static void step(struct log_text *t);

/* ---- the writers ---- */

static struct log_text *find(const struct log_texts *all, uint32_t number)
{
    list_each(t, &all->files, struct log_text, link) if (t->number == number) return t;
    return NULL;
}

static void rewind_text(struct log_text *t)
{
    t->is_begun = t->has_owner = false;
    t->sent = t->written;
}

static void set_trouble(struct log_text *t, const char *why)
{
    if (strcmp(t->sink.why, why) == 0)
        return;
    if (why[0])
        LOG_WRN("log_file", F_STR("file", t->path), F_STR("why", why));
    else
        LOG_INF("log_file_recovered", F_STR("file", t->path));
    snprintf(t->sink.why, sizeof t->sink.why, "%s", why);
}

static void on_written(struct log_text *t, const struct logger_message *m, const char *payload,
                       size_t n)
{
    if (m->offset < t->written || m->offset > t->sent || n != sizeof t->place)
        return;
    memcpy(&t->place, payload, n);
    line_queue_take(&t->queue, (size_t)(m->offset - t->written));
    bool is_progress = m->offset > t->written;
    t->written = m->offset;
    t->retry_s = RETRY_MIN_S;
    if (!is_progress)
        return;
    log_sink_taken(&t->sink);
    if (!t->has_note)
        set_trouble(t, "");
}

/* It will be tried again, from where the writer has come. */
static void on_failed(struct log_text *t, const char *why)
{
    rewind_text(t);
    t->has_note = false;
    set_trouble(t, why);
    t->is_given_up = t->users == 0 && clock_mono_ns() - t->left_ns >= LEFT_NS;
    ev_timer_set(&t->retry, t->retry_s, 0.);
    ev_timer_start(t->feed->loop, &t->retry);
    t->retry_s = 2 * t->retry_s < RETRY_MAX_S ? 2 * t->retry_s : RETRY_MAX_S;
}

static void on_answer(void *context, const struct logger_message *m, const char *text, size_t n)
{
    struct text_writer *w = context;
    struct log_text *t = find(w->all, m->number);
    if (!t || t->writer != w)
        return;
    switch ((enum logger_kind)m->kind) {
    case LOGGER_TEXT_WRITTEN:
        on_written(t, m, text, n);
        break;
    case LOGGER_TEXT_FAILED:
        on_failed(t, text);
        break;
    case LOGGER_TEXT_NOTE:
        t->has_note = text[0] != '\0';
        set_trouble(t, text);
        break;
    default:
        return;
    }
    step(t);
}

static void step_all(void *context)
{
    struct text_writer *w = context;
    w->writer.wants_room = false;
    list_each(t, &w->all->files, struct log_text, link) if (t->writer == w) step(t);
}

static void on_ended(void *context)
{
    struct text_writer *w = context;
    list_each(t, &w->all->files, struct log_text, link) if (t->writer == w) rewind_text(t);
}

/* ---- the owner of a file's folder ---- */

static void read_owner(struct log_text *t)
{
    char text[96], *end = text;
    ssize_t k = read(t->look_fd, text, sizeof text - 1);
    text[k > 0 ? k : 0] = '\0';
    for (int i = 0; i < 3 && k > 0; i++)
        t->owner[i] = strtoull(end, &end, 10);
}

static void on_looked(void *context, const struct child_exit *how)
{
    struct log_text *t = context;
    t->look = NULL;
    t->has_owner = !how->step && WIFEXITED(how->status);
    if (t->has_owner)
        read_owner(t);
    else
        on_failed(t, "the look at its folder was ended");
    fd_close(&t->look_fd);
    step(t);
}

static int spawn_look(struct log_text *t, const char *folder, int theirs, struct error *e)
{
    const char *argv[] = {"sandbox-init", LOOK_OPTION, LOOK_OWNER, folder, NULL};
    struct spawn_plan plan = spawn_plan_self(argv);
    plan.stdio[1] = theirs;
    plan.on_exit = on_looked;
    plan.context = t;
    t->look = spawn(&plan, e);
    return t->look ? 0 : -1;
}

/* What can't be looked at is for init's own user, who will tell why not. */
static void look_for_owner(struct log_text *t)
{
    char folder[PATH_MAX];
    struct error e = {0};
    int ends[2];
    t->owner[0] = geteuid();
    t->owner[1] = getegid();
    t->owner[2] = 0;
    t->has_owner = geteuid() != 0;
    if (t->has_owner)
        return;
    snprintf(folder, sizeof folder, "%s", t->path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0) {
        on_failed(t, "no descriptor is left for a look at its folder");
        return;
    }
    t->look_fd = ends[0];
    fd_set_nonblock(t->look_fd);
    int rc = spawn_look(t, folder, ends[1], &e);
    close(ends[1]);
    if (rc < 0) {
        fd_close(&t->look_fd);
        on_failed(t, e.text);
    }
}

/* The writer for the owner of a file's folder. NULL: no memory. */
static struct text_writer *writer_for(struct log_text *t)
{
    struct log_texts *all = &t->feed->texts;
    uid_t uid = (uid_t)t->owner[0];
    list_each(w, &all->writers, struct text_writer,
              link) if (w->uid == uid && w->device == t->owner[2]) return w;
    struct text_writer *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->all = all;
    w->uid = uid;
    w->device = t->owner[2];
    log_writer_init(&w->writer, t->feed->loop);
    w->writer.args[0] = LOGGER_FILES;
    user_self(&w->writer.owner);
    if (uid != geteuid()) {
        w->writer.has_owner = true;
        w->writer.owner.uid = uid;
        w->writer.owner.gid = (gid_t)t->owner[1];
        w->writer.owner.group_count = 0;
    }
    w->writer.on_started = w->writer.on_room = step_all;
    w->writer.on_answer = on_answer;
    w->writer.on_ended = on_ended;
    w->writer.is_ending = all->is_ending;
    w->writer.context = w;
    list_append(&all->writers, &w->link);
    return w;
}

/* ---- a file ---- */

static void free_text(struct log_text *t)
{
    ev_timer_stop(t->feed->loop, &t->retry);
    if (t->look) {
        (void)child_signal(t->look, SIGKILL);
        child_forget(t->look);
    }
    fd_close(&t->look_fd);
    log_sink_close(&t->sink);
    line_queue_free(&t->queue);
    list_remove(&t->link);
    free(t->path);
    free(t);
}

/* False: no room. */
static bool send_packet(struct log_text *t, struct logger_message *m, const char *bytes, size_t n)
{
    struct log_writer *w = &t->writer->writer;
    m->number = t->number;
    if (log_writer_send(w, m, bytes, n))
        return true;
    if (w->fd >= 0 && !w->wants_room) {
        w->wants_room = true;
        log_writer_watch(w);
    }
    return false;
}

static bool send_begin(struct log_text *t)
{
    struct logger_message m = {.kind = LOGGER_TEXT_BEGIN, .offset = t->written};
    struct logger_text text = {.max_size = t->max_size, .keep = t->keep, .place = t->place};
    char payload[sizeof text + PATH_MAX];
    size_t n = strlen(t->path);
    if (t->is_begun)
        return true;
    memcpy(payload, &text, sizeof text);
    memcpy(payload + sizeof text, t->path, n);
    t->is_begun = send_packet(t, &m, payload, sizeof text + n);
    return t->is_begun;
}

static bool send_lines(struct log_text *t)
{
    size_t skip;
    while ((skip = (size_t)(t->sent - t->written)) < line_queue_used(&t->queue)) {
        struct logger_message m = {.kind = LOGGER_TEXT_BYTES, .offset = t->sent};
        size_t n = line_queue_lines(&t->queue, skip, FRAME_PAYLOAD_MAX);
        if (!send_packet(t, &m, line_queue_bytes(&t->queue, skip), n))
            return false;
        t->sent += n;
    }
    return true;
}

/* Nobody has it open and all is written, or won't be. */
static bool is_over(const struct log_text *t)
{
    return t->users == 0 && (line_queue_used(&t->queue) == 0 || t->is_given_up);
}

/* Send what there is, as far as there is room. May free it. */
static void step(struct log_text *t)
{
    struct logger_message over = {.kind = LOGGER_TEXT_CLOSE};
    if (is_over(t)) {
        if (t->is_given_up)
            LOG_WRN("log_file_given_up", F_STR("file", t->path),
                    F_INT("lost_bytes", line_queue_used(&t->queue)));
        if (!t->is_begun || send_packet(t, &over, "", 0))
            free_text(t);
        return;
    }
    if (line_queue_used(&t->queue) == 0 || ev_is_active(&t->retry) || t->look || t->feed->has_ended)
        return;
    if (t->is_changed && t->sent > t->written)
        return;
    t->is_begun = t->is_begun && !t->is_changed;
    t->is_changed = false;
    if (!t->is_begun && !t->has_owner)
        look_for_owner(t);
    if (!t->is_begun && !t->has_owner)
        return;
    if (!t->is_begun)
        t->writer = writer_for(t);
    if (!t->writer)
        return;
    if (t->writer->writer.fd < 0) {
        if (!t->writer->writer.child && !ev_is_active(&t->writer->writer.restart))
            log_writer_start(&t->writer->writer); /* it steps all of its files */
        return;
    }
    if (send_begin(t))
        (void)send_lines(t);
}

static void on_retry(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    step(timer->data);
}

static void flush(struct log_sink *s)
{
    struct log_text *t = list_entry(s, struct log_text, sink);
    step(t);
}

static struct log_text *find_path(const struct log_texts *all, const char *path)
{
    list_each(t, &all->files, struct log_text, link) if (strcmp(t->path, path) == 0) return t;
    return NULL;
}

static struct log_text *new_text(struct log_feed *feed, const char *path)
{
    struct log_text *t = calloc(1, sizeof *t);
    if (!t || !(t->path = strdup(path))) {
        free(t);
        return NULL;
    }
    t->feed = feed;
    t->number = ++feed->texts.numbers;
    t->look_fd = -1;
    t->retry_s = RETRY_MIN_S;
    line_queue_init(&t->queue, TEXT_QUEUE);
    log_sink_init(&t->sink, feed->loop, &t->queue, flush);
    ev_timer_init(&t->retry, on_retry, 0., 0.);
    t->retry.data = t;
    list_append(&feed->texts.files, &t->link);
    return t;
}

struct log_text *log_text_open(struct log_feed *feed, const char *path, uint64_t max_size,
                               uint64_t keep, struct error *e)
{
    struct log_text *t = find_path(&feed->texts, path);
    if (!t && !(t = strlen(path) < PATH_MAX ? new_text(feed, path) : NULL)) {
        error_set(e, ERR_MEMORY, "log %.200s: no memory", path);
        return NULL;
    }
    t->is_changed = t->is_changed || t->max_size != max_size || t->keep != keep;
    t->max_size = max_size;
    t->keep = keep;
    t->users++;
    t->is_given_up = false;
    return t;
}

struct log_sink *log_text_sink(struct log_text *t)
{
    return &t->sink;
}

void log_text_close(struct log_text *t)
{
    if (!t || --t->users > 0)
        return;
    t->left_ns = clock_mono_ns();
    step(t);
}

/* ---- all of them ---- */

void log_texts_init(struct log_texts *all)
{
    list_init(&all->files);
    list_init(&all->writers);
}

void log_texts_end(struct log_texts *all)
{
    all->is_ending = true;
    list_each(w, &all->writers, struct text_writer, link) log_writer_end(&w->writer);
    list_each(t, &all->files, struct log_text, link) step(t);
}

static bool is_idle(const struct log_texts *all, const struct text_writer *w)
{
    list_each(t, &all->files, struct log_text,
              link) if (t->writer == w && !log_sink_is_idle(&t->sink)) return false;
    return true;
}

bool log_texts_finish(struct log_texts *all)
{
    bool is_done = true;
    list_each(w, &all->writers, struct text_writer, link)
    {
        if (is_idle(all, w))
            log_writer_finish(&w->writer);
        else
            is_done = false;
        is_done = is_done && !w->writer.child;
    }
    list_each(t, &all->files, struct log_text, link) is_done =
        is_done && log_sink_is_idle(&t->sink);
    return is_done;
}

const char *log_texts_trouble(const struct log_texts *all)
{
    list_each(t, &all->files, struct log_text, link) if (t->sink.why[0]) return t->sink.why;
    return NULL;
}

void log_texts_kill(struct log_texts *all)
{
    list_each(w, &all->writers, struct text_writer, link) log_writer_kill(&w->writer);
    list_each(t, &all->files, struct log_text, link) if (t->look)(void)
        child_signal(t->look, SIGKILL);
}

bool log_texts_has_writer(const struct log_texts *all, pid_t pid)
{
    list_each(w, &all->writers, struct text_writer,
              link) if (w->writer.child && w->writer.child->pid == pid) return true;
    list_each(t, &all->files, struct log_text,
              link) if (t->look && t->look->pid == pid) return true;
    return false;
}

void log_texts_free(struct log_texts *all)
{
    list_each(t, &all->files, struct log_text, link) free_text(t);
    list_each(w, &all->writers, struct text_writer, link)
    {
        log_writer_close(&w->writer);
        list_remove(&w->link);
        free(w);
    }
}
