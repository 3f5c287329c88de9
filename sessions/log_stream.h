/*
 * What log_feed.c (the log writer and the way to it) and log_stream.c (the log of one process)
 * share; private to the two.
 */
#ifndef SESSIONS_LOG_STREAM_H
#define SESSIONS_LOG_STREAM_H

#include "base/list.h"
#include "logger/message.h"
#include "sessions/log_feed.h"
#include "sessions/user.h"

struct log_feed {
    struct ev_loop *loop;
    char *dir, size[24], files[24], age[24], keep[24];
    struct user owner;
    bool has_owner; /* another one than init's own */
    struct child *child;
    int fd; /* to the writer; -1: none is there */
    ev_io io;
    ev_timer restart, limit, pause;
    uint64_t restart_ms, started_ns;
    struct list streams; /* struct log_stream, all */
    struct list waiting; /* those that have something to send and found no room */
    unsigned left_count; /* of streams whose output is gone */
    uint32_t numbers;
    int budget; /* packets that may still be sent now; < 0: any number */
    uint64_t lost;
    char trouble[320];
    bool is_ending;
    void (*on_done)(void *context);
    void *context;
};

struct log_stream {
    struct list link, wait_link;
    struct log_feed *feed;
    struct log_stream *elder; /* of the same ID, not complete yet: that one comes first */
    struct log_stream **slot; /* of the process; NULL: it is gone */
    struct follower follower; /* output NULL: gone */
    char id[LOGGER_ID_MAX + 1];
    uint32_t number;
    uint64_t run; /* when it began: no other log of this ID has the same */
    pid_t pid;
    uint64_t sent;               /* offset up to which anything was ever sent */
    uint64_t written;            /* what the writer has said */
    uint64_t lost_from, lost_to; /* to be told; empty: nothing */
    uint64_t end;  /* is_over: of the output, when the process ended; gone: for good */
    char exit[48]; /* content of the exit file; "": not over yet */
    bool is_begun; /* by the present one */
    bool is_pid_sent;
    bool is_exit_sent, is_exit_written;
    bool is_drained;
};

/* Send what there is for a stream, in order, as far as there is room. May free it. */
void log_stream_step(struct log_stream *s);
/* True if nothing more can come and all of it is written. */
bool log_stream_is_complete(const struct log_stream *s);
/* There is a writer, or will be: serve the stream when the socket has room. */
void log_stream_wait(struct log_stream *s);
/* The writer is gone: what it was sent and has not written is to be sent again. */
void log_stream_rewind(struct log_stream *s);
void log_stream_free(struct log_stream *s);

/* The kernel takes nothing now, for another reason than a full socket: try again a little later. */
void log_feed_pause(struct log_feed *feed, int sys);
/* Watch the socket for answers, and for room if a stream waits for it. */
void log_feed_watch(struct log_feed *feed);

#endif
