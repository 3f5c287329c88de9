/*
 * A plain text file of whole lines, PATH, and the older PATH.1 … Lines are appended as they come;
 * between two of them the file is put aside when the next one would make it larger than it may be.
 * A file that was deleted or moved away is made anew, one that was emptied is gone on with.
 *
 * Nothing tells in the file which bytes it holds. What is known of it is told with each progress
 * (text_file_on_written): a writer that takes over from one that was killed is given that, and
 * leaves out what stands behind it already.
 */
#ifndef LOGGER_TEXT_FILE_H
#define LOGGER_TEXT_FILE_H

#include "base/error.h"
#include "base/list.h"
#include "logger/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_file {
    struct list link;     /* of the writer */
    struct list use_link; /* of the writer: those that are open, the latest used last */
    uint32_t number;
    char *path;
    uint64_t max_size;
    unsigned keep;
    int fd; /* -1: not open now */
    struct logger_place place;
    uint64_t end;       /* all below is written */
    bool has_tail;      /* bytes from tail_from on may be those that come next */
    uint64_t tail_from; /* in the file */
    bool is_mid_line;   /* a killed writer has left the beginning of one */
    char note[200];     /* why it can't be put aside; "": it can, or was not tried */
    void (*on_written)(struct text_file *f); /* `end` or `place` is another one */
};

/* Have it open. place: what the last writer said of it. 0 or -1 with *e. */
int text_file_begin(struct text_file *f, struct error *e);
/* Append whole lines, of which the first byte is `end`. 0, or -1 with *e: what is behind `end` is
 * not written. */
int text_file_append(struct text_file *f, const char *lines, size_t n, struct error *e);
void text_file_close(struct text_file *f);

#endif
