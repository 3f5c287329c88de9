/*
 * A place where lines of several writers go, one whole line after the other: the queue before it,
 * those who wait for room in it, and the patience with a place that takes nothing.
 *
 * While the place takes something, however slowly, a writer that finds no room waits. A place that
 * takes nothing for SINK_PATIENCE_MS holds nobody up any more: lines are dropped and counted until
 * half of the queue is free again; then a line says how many, where they are missing.
 */
#ifndef SESSIONS_LOG_SINK_H
#define SESSIONS_LOG_SINK_H

#include "base/line_queue.h"
#include "base/list.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SINK_PATIENCE_MS 2000

struct log_sink {
    struct ev_loop *loop;
    struct line_queue *queue;
    /* Take what you can of the queue now, and tell log_sink_taken(). */
    void (*flush)(struct log_sink *s);
    struct list waiting; /* struct sink_writer */
    ev_timer patience;   /* runs while somebody waits */
    ev_timer wake;
    bool is_dropping;
    uint64_t dropped; /* lines that are not told yet */
    char why[320];    /* what the place can't do now; "": nothing is wrong */
    char dropped_why[320];
};

/* Somebody who puts lines. */
struct sink_writer {
    struct list link;
    void (*on_room)(void *owner); /* from the loop: try again */
    void *owner;
};

enum sink_answer {
    SINK_TAKEN,
    SINK_DROPPED,
    SINK_WAIT /* no room: on_room will be called */
};

void log_sink_init(struct log_sink *s, struct ev_loop *loop, struct line_queue *queue,
                   void (*flush)(struct log_sink *s));
/* Put a line, given in two parts of which the second ends with its newline, into the queue. A NULL
 * writer leaves and does not wait: its last lines may go above the limit of the queue. */
enum sink_answer log_sink_put(struct log_sink *s, struct sink_writer *w, const char *head,
                              size_t head_n, const char *text, size_t n);
/* The place took something: what was taken is out of the queue. */
void log_sink_taken(struct log_sink *s);
/* True if nothing waits, in the queue or for room in it. */
bool log_sink_is_idle(const struct log_sink *s);
/* The queue stays its owner's. */
void log_sink_close(struct log_sink *s);

#endif
