/*
 * A log writer as init sees it, the child and the way to it: started, fed with packets, listened
 * to, started again when it dies. What is said is the business of log_feed.c (logs of processes)
 * and log_text.c (plain files); private to them.
 */
#ifndef SESSIONS_LOG_WRITER_H
#define SESSIONS_LOG_WRITER_H

#include "logger/message.h"
#include "sessions/user.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_WRITER_TEXT_MAX 320 /* of an answer, with its NUL */

struct log_writer {
    struct ev_loop *loop;
    /* Set by the owner before the start. */
    const char *args[6]; /* behind LOGGER_OPTION; NULL: no more */
    struct user owner;
    bool has_owner; /* another one than init's own */
    void (*on_started)(void *context);
    void (*on_answer)(void *context, const struct logger_message *m, const char *text, size_t n);
    void (*on_room)(void *context); /* the socket has some, and wants_room is set */
    void (*on_ended)(void *context);
    void *context;
    bool wants_room; /* log_writer_watch() after a change */

    struct child *child;
    int fd; /* -1: none is there */
    ev_io io;
    ev_timer restart, pause;
    uint64_t restart_ms, started_ns;
    bool is_ending; /* log_writer_finish() was called: its end is its end */
};

void log_writer_init(struct log_writer *w, struct ev_loop *loop);
/* Start it now, whatever the last one's end has put off. */
void log_writer_start(struct log_writer *w);
/* Send one packet, whole or not at all, without waiting. False: no room, or nobody is there; set
 * wants_room to hear when to try again. */
bool log_writer_send(struct log_writer *w, const struct logger_message *m, const char *bytes,
                     size_t n);
void log_writer_watch(struct log_writer *w);
/* No more comes: it ends when it has done what it was sent. on_ended tells. */
void log_writer_finish(struct log_writer *w);
/* From now on it is not started again. */
void log_writer_end(struct log_writer *w);
void log_writer_kill(struct log_writer *w);
void log_writer_close(struct log_writer *w);

#endif
