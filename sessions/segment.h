/*
 * One stretch of an output log: an anonymous file of whole frames with a sparse index, appended to
 * at its end and read anywhere. Private to output.c.
 */
#ifndef SESSIONS_SEGMENT_H
#define SESSIONS_SEGMENT_H

#include "base/frame.h"
#include "sessions/output.h"

#define SEGMENT_MARKS 64

struct segment_mark {
    uint64_t offset;   /* payload offset of a frame */
    uint64_t position; /* where its header stands in the file */
};

struct segment {
    int fd;                                   /* -1: empty */
    uint64_t start, end;                      /* payload offsets */
    uint64_t size;                            /* bytes used of the file, which may be longer */
    uint64_t first;                           /* where the header of the first frame stands */
    uint64_t hole;                            /* the file is empty up to here */
    uint64_t last_ns;                         /* when the last frame was appended */
    struct segment_mark marks[SEGMENT_MARKS]; /* every mark_step bytes of file */
    unsigned mark_count;
    uint64_t mark_step;
};

/* A frame found in a segment. */
struct frame {
    enum stream stream;
    uint64_t offset;   /* of its first payload byte */
    uint64_t position; /* of its first payload byte in the file */
    uint32_t length;
    uint64_t time_ns;
};

/* Begin an empty segment at a payload offset; capacity is what it is meant to hold at most.
 * Returns 0 or -1 with errno. */
int segment_open(struct segment *s, uint64_t start, uint64_t capacity);
/* The same with an open segment, in its place: the pages of its file are used again. */
void segment_reopen(struct segment *s, uint64_t start, uint64_t capacity);
void segment_close(struct segment *s);
/* Append a frame whole or not at all. 0 or -1 with errno. */
int segment_append(struct segment *s, enum stream stream, const char *bytes, size_t n,
                   uint64_t time_ns);
/* The frame that holds payload offset `offset` (start <= offset < end). 0 or -1. */
int segment_find(const struct segment *s, uint64_t offset, struct frame *f);
/* The frame behind f. 0, or -1 at the end. */
int segment_next(const struct segment *s, struct frame *f);

/* Drop frames from the front that were appended before a time (CLOCK_REALTIME) and end at or below
 * offset `until`, at most *budget of them, which is counted down. Returns when the first frame that
 * is left was appended; 0: none is left. */
uint64_t segment_expire(struct segment *s, uint64_t before_ns, uint64_t until, unsigned *budget);

#endif
