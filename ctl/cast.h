/*
 * A recording of what a terminal shows, as asciicast v2 (docs.asciinema.org): a header line, then
 * one line an event: "o" for output, "r" for another window size. Input is not recorded.
 */
#ifndef CTL_CAST_H
#define CTL_CAST_H

#include "base/error.h"
#include "ctl/raw_tty.h"

#include <stddef.h>
#include <stdint.h>

struct cast {
    int fd; /* -1: not recording */
    uint64_t began_ns;
    struct window size; /* as last told */
    char rest[4];       /* the beginning of a character whose end is still to come */
    size_t rest_len;
    struct error failed; /* code ERR_NONE: all was written so far */
    const char *path;
};

/* Begin a file (what is there is replaced; only its owner may read it). 0 or -1 with *e. */
int cast_open(struct cast *c, const char *path, struct error *e);
/* The first line; time begins here. */
void cast_begin(struct cast *c, struct window size);
void cast_output(struct cast *c, const char *bytes, size_t n);
/* No event if it is the size there is. */
void cast_resize(struct cast *c, struct window size);
/* 0, or -1 with *e if something could not be written. Harmless when not recording. */
int cast_close(struct cast *c, struct error *e);

#endif
