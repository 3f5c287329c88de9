#include "sessions/log_stdio.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MIN_S 0.2
#define RETRY_MAX_S 10.0

/* More goes out when there is room, or, where the loop can't tell, a little later. */
static void watch(struct log_way *w, int sys)
{
    struct ev_loop *loop = w->sink.loop;
    bool waits = sys != 0, for_room = sys == EAGAIN && !w->outlet->is_file;
    if (!for_room)
        ev_io_stop(loop, &w->io);
    else if (!ev_is_active(&w->io))
        ev_io_start(loop, &w->io);
    if (!waits || for_room)
        w->retry_s = RETRY_MIN_S;
    if (!waits || for_room || ev_is_active(&w->retry))
        return;
    ev_timer_set(&w->retry, sys == EAGAIN ? 0. : w->retry_s, 0.);
    ev_timer_start(loop, &w->retry);
    w->retry_s = 2 * w->retry_s < RETRY_MAX_S ? 2 * w->retry_s : RETRY_MAX_S;
}

static size_t flush_way(struct log_way *w)
{
    size_t n, all = 0;
    int sys;
    do {
        all += n = outlet_flush(w->outlet, &sys);
        if (n)
            log_sink_taken(&w->sink); /* it may have put a line of its own */
    } while (sys == 0 && line_queue_used(&w->outlet->queue));
    if (sys)
        snprintf(w->sink.why, sizeof w->sink.why, "%s: %s", w->name,
                 sys == EAGAIN ? "nobody reads it" : strerror(sys));
    else
        w->sink.why[0] = '\0';
    watch(w, sys);
    return all;
}

static void flush(struct log_sink *s)
{
    (void)flush_way(list_entry(s, struct log_way, sink));
}

/* The log of init may meanwhile have written what waited. */
static void flush_from_loop(struct log_way *w)
{
    if (flush_way(w) == 0 && line_queue_used(&w->outlet->queue) == 0)
        log_sink_taken(&w->sink);
}

static void on_room(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop;
    (void)events;
    flush_from_loop(io->data);
}

static void on_retry(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop;
    (void)events;
    flush_from_loop(t->data);
}

void log_stdio_init(struct log_stdio *o, struct ev_loop *loop)
{
    o->loop = loop;
}

static void open_both(struct log_stdio *o)
{
    static const char *const names[STREAM_COUNT] = {"stdout", "stderr"};
    o->is_one = outlet_is_same(STDOUT_FILENO, STDERR_FILENO);
    outlet_open(&o->own_stdout, STDOUT_FILENO);
    for (enum stream s = 0; s < STREAM_COUNT; s++) {
        struct log_way *w = &o->ways[s];
        w->outlet = s == STREAM_STDOUT ? &o->own_stdout : log_outlet();
        w->name = names[s];
        w->retry_s = RETRY_MIN_S;
        log_sink_init(&w->sink, o->loop, &w->outlet->queue, flush);
        ev_io_init(&w->io, on_room, w->outlet->fd, EV_WRITE);
        ev_timer_init(&w->retry, on_retry, 0., 0.);
        w->io.data = w->retry.data = w;
    }
    o->is_open = true;
}

struct log_sink *log_stdio_sink(struct log_stdio *o, enum stream stream)
{
    if (!o->is_open)
        open_both(o);
    return &o->ways[o->is_one ? STREAM_STDERR : stream].sink;
}

bool log_stdio_is_idle(const struct log_stdio *o)
{
    return !o->is_open || (log_sink_is_idle(&o->ways[STREAM_STDOUT].sink) &&
                           log_sink_is_idle(&o->ways[STREAM_STDERR].sink));
}

void log_stdio_close(struct log_stdio *o)
{
    for (enum stream s = 0; o->is_open && s < STREAM_COUNT; s++) {
        struct log_way *w = &o->ways[s];
        ev_io_stop(w->sink.loop, &w->io);
        ev_timer_stop(w->sink.loop, &w->retry);
        log_sink_close(&w->sink);
    }
    if (o->is_open)
        outlet_close(&o->own_stdout);
}
