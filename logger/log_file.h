/*
 * The log of one process on the disk: ID.log, which is appended to frame by frame, whole or not at
 * all, and the older ID.log.1 … Every file begins with a note of its first offset, so a file tells
 * by itself which bytes it holds: a writer that takes over a log goes on where the last one was.
 *
 * Nothing in the folder is followed or trusted: what stands under ID.log and is not a plain file
 * of our own is moved away like an old log. A file that was deleted is made anew.
 */
#ifndef LOGGER_LOG_FILE_H
#define LOGGER_LOG_FILE_H

#include "base/frame.h"
#include "base/list.h"
#include "logger/log_folder.h"
#include "logger/message.h"

#include <stdbool.h>

struct log_file {
    struct list link;     /* of the writer, by number */
    struct list use_link; /* of the writer: those that are open, the latest used last */
    uint32_t number;
    char id[LOGGER_ID_MAX + 1];
    uint64_t run;
    int fd; /* of ID.log, -1: not open now */
    dev_t device;
    ino_t inode;
    uint64_t size;
    uint64_t began_ns;  /* when the first frame of this file was written */
    uint64_t end;       /* all below was written, or is lost */
    uint64_t lost_from; /* has_loss: lost_from .. end is not told in the file yet */
    bool has_loss;
    bool needs_offset; /* the file does not tell yet which byte comes next */
    bool is_settled;   /* begun: what an earlier process of this ID left is out of the way */
    uint64_t checked;  /* in which turn of the folder it was seen to be there */
    bool is_dirty;     /* init has not heard of its end */
    bool is_failing;   /* init was told that it can't be written */
};

/* Begin a log, or take one over, of which bytes from `offset` on follow; `sent` is the highest
 * offset that any writer was sent. May be called again after it failed. 0 or -1 with *e. */
int log_file_begin(struct log_file *f, struct log_folder *folder, uint64_t offset, uint64_t sent,
                   struct error *e);

/* Append a frame; what stands in the log already is left out. 0, or -1 with *e: try again. */
int log_file_append(struct log_file *f, struct log_folder *folder, enum frame_kind kind,
                    uint64_t offset, const char *bytes, size_t n, uint64_t time_ns,
                    struct error *e);

/* Bytes that will not come, or could not be written; told in the file by log_file_tell_loss(), or
 * before the next frame. */
void log_file_lose(struct log_file *f, uint64_t from, uint64_t to);
int log_file_tell_loss(struct log_file *f, struct log_folder *folder, struct error *e);

void log_file_close(struct log_file *f);

#endif
