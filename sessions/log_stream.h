/*
 * What log_feed.c (the way of all logs), log_stream.c (the log of one process) and log_text.c
 * (plain files) share; private to them.
 */
#ifndef SESSIONS_LOG_STREAM_H
#define SESSIONS_LOG_STREAM_H

#include "base/list.h"
#include "logger/message.h"
#include "sessions/child.h"
#include "sessions/log_feed.h"
#include "sessions/log_stdio.h"
#include "sessions/log_writer.h"

/* Plain files and their writers. */
struct log_texts {
    struct list files;   /* struct log_text */
    struct list writers; /* struct text_writer, one for each owner of a folder, on each device */
    uint32_t numbers;
    bool is_ending;
};

struct log_feed {
    struct ev_loop *loop;
    char *dir, size[24], files[24], age[24], keep[24]; /* dir NULL: no logs of processes */
    struct log_writer writer;
    ev_timer limit, look;
    struct list streams; /* struct log_stream, all */
    struct list waiting; /* those that have something to send and found no room */
    unsigned left_count; /* of streams that outlive their process's record */
    uint64_t left_bytes; /* that their outputs hold */
    uint32_t numbers;
    int budget; /* packets that may still be sent now; < 0: any number */
    uint64_t lost;
    char trouble[LOG_WRITER_TEXT_MAX];
    struct log_texts texts;
    struct log_stdio stdio;
    bool has_ended; /* on_done was told: no writer begins any more */
    void (*on_done)(void *context);
    void *context;
};

struct log_stream {
    struct list link, wait_link;
    struct log_feed *feed;
    struct log_stream *elder; /* of the same ID, not complete yet: that one comes first */
    struct log_stream **slot; /* of the process; NULL: it is gone */
    struct follower follower; /* output NULL: gone */
    bool has_left;            /* its process is forgotten */
    uint64_t left_bytes;      /* that the output holds all the same, for this log */
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

void log_texts_init(struct log_texts *all);
/* No writer is started again; those that still have something to write are started now. */
void log_texts_end(struct log_texts *all);
/* Let the writers end that have written all. True if none is left, and nothing waits. */
bool log_texts_finish(struct log_texts *all);
/* What one of them can't do now, or NULL. */
const char *log_texts_trouble(const struct log_texts *all);
void log_texts_kill(struct log_texts *all);
bool log_texts_has_writer(const struct log_texts *all, pid_t pid);
void log_texts_free(struct log_texts *all);

#endif
