#include "sessions/terminal.h"
#include "base/fd.h"
#include "sessions/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* End of file is typed so soon; then less and less often. */
#define EOF_S     0.02
#define EOF_MAX_S 0.5

struct terminal {
    struct ev_loop *loop;
    struct pty_size size;
    int slave;
    char name[32];
    struct list viewers; /* struct viewer, in order of use */
    struct feed *input;
    ev_timer eof;
    struct follower watch;
    struct replay replay;
};

/* ---- the cut ---- */

static enum deliver on_bytes(void *owner, enum stream stream, const char *bytes, size_t n)
{
    struct terminal *t = owner;
    (void)stream;
    replay_take(&t->replay, bytes, n);
    return DELIVERED;
}

/* Only what was never read could be lost here; then the offsets go on. */
static void on_lost(void *owner, uint64_t from, uint64_t to)
{
    struct terminal *t = owner;
    (void)from;
    t->replay.end = to;
}

static void on_end(void *owner)
{
    (void)owner;
}

static const struct follower_events watch_events = {
    .on_bytes = on_bytes, .on_lost = on_lost, .on_end = on_end};

/* ---- end of file ---- */

static void on_eof_timer(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct terminal *t = w->data;
    int character = pty_eof_character(t->slave);
    char byte = (char)character;
    if (!feed_is_open(t->input)) {
        ev_timer_stop(loop, w);
        return;
    }
    if (character >= 0 && pty_is_read(t->slave))
        (void)feed_write(t->input, &byte, 1);
    if (w->repeat < EOF_MAX_S)
        w->repeat *= 2;
    ev_timer_again(loop, w);
}

void terminal_type_eof(struct terminal *t)
{
    if (t->slave < 0)
        return;
    t->eof.repeat = EOF_S;
    ev_timer_again(t->loop, &t->eof);
}

/* ---- life ---- */

struct terminal *terminal_new(struct ev_loop *loop, struct pty_size size, struct feed *input)
{
    struct terminal *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->loop = loop;
    t->slave = -1;
    t->input = input;
    t->size.rows = size.rows ? size.rows : PTY_ROWS;
    t->size.cols = size.cols ? size.cols : PTY_COLS;
    list_init(&t->viewers);
    list_init(&t->watch.link);
    ev_timer_init(&t->eof, on_eof_timer, 0., EOF_S);
    t->eof.data = t;
    return t;
}

void terminal_free(struct terminal *t)
{
    if (!t)
        return;
    terminal_end(t);
    list_each(v, &t->viewers, struct viewer, link) viewer_detach(v);
    follower_detach(&t->watch);
    free(t);
}

int terminal_open(struct terminal *t, const struct user *owner, struct output *o, int *master,
                  struct error *e)
{
    struct pty p;
    if (pty_open(&p, t->size, owner, e) < 0)
        return -1;
    t->slave = p.slave;
    snprintf(t->name, sizeof t->name, "%s", p.name);
    *master = p.master;
    t->watch = (struct follower){.events = &watch_events,
                                 .owner = t,
                                 .limit = UINT64_MAX,
                                 .offset = output_end_offset(o),
                                 .wants = {true, true}};
    follower_attach(&t->watch, o);
    return 0;
}

int terminal_slave(const struct terminal *t)
{
    return t->slave;
}

void terminal_end(struct terminal *t)
{
    ev_timer_stop(t->loop, &t->eof);
    fd_close(&t->slave);
    t->name[0] = '\0'; /* another terminal may have it from now on */
}

const char *terminal_name(const struct terminal *t)
{
    return t->name;
}

struct pty_size terminal_size(const struct terminal *t)
{
    return t->size;
}

unsigned terminal_viewers(const struct terminal *t)
{
    unsigned n = 0;
    list_each(v, &t->viewers, struct viewer, link) n++;
    return n;
}

uint64_t terminal_replay_begin(const struct terminal *t)
{
    return replay_begin(&t->replay);
}

uint64_t terminal_safe_from(const struct terminal *t, uint64_t offset)
{
    return replay_safe_from(&t->replay, offset);
}

void terminal_tell_room(struct terminal *t)
{
    list_each(v, &t->viewers, struct viewer, link) v->on_room(v->owner);
}

/* ---- the window ---- */

void terminal_resize(struct terminal *t, struct pty_size size)
{
    if (!size.rows || !size.cols || (size.rows == t->size.rows && size.cols == t->size.cols))
        return;
    t->size = size;
    if (t->slave >= 0)
        pty_resize(t->slave, size);
    list_each(v, &t->viewers, struct viewer, link) v->on_resized(v->owner, size);
}

/* The terminal has the size of the first viewer that has one. */
static void follow_front(struct terminal *t)
{
    list_each(v, &t->viewers, struct viewer, link)
    {
        if (!v->size.rows || !v->size.cols)
            continue;
        terminal_resize(t, v->size);
        return;
    }
}

static void come_to_front(struct viewer *v)
{
    if (v->terminal->viewers.next == &v->link)
        return;
    list_remove(&v->link);
    list_prepend(&v->terminal->viewers, &v->link);
    follow_front(v->terminal);
}

void viewer_attach(struct viewer *v, struct terminal *t)
{
    v->terminal = t;
    if (v->size.rows && v->size.cols)
        list_prepend(&t->viewers, &v->link);
    else
        list_append(&t->viewers, &v->link);
    follow_front(t);
}

void viewer_detach(struct viewer *v)
{
    struct terminal *t = v->terminal;
    if (!t)
        return;
    v->terminal = NULL;
    list_remove(&v->link);
    follow_front(t);
}

void viewer_typed(struct viewer *v)
{
    ev_timer_stop(v->terminal->loop, &v->terminal->eof);
    come_to_front(v);
}

void viewer_resized(struct viewer *v, struct pty_size size)
{
    v->size = size;
    come_to_front(v);
    follow_front(v->terminal);
}
