/*
 * A frame of an output log, in memory and on disk: a 16-byte header (3-byte mark, flags, u32
 * length, u64 CLOCK_REALTIME nanoseconds, little-endian) and its payload (design: output). The
 * mark is 01 01 01 for stdout, 02 02 02 for stderr, 03 03 03 for a note of the log itself: a line
 * of text, "offset N run R" (the payload byte that follows is the Nth of the log R; R is a number
 * that no other log has) or "lost FROM..TO".
 *
 * The reader goes through a file and finds its way again behind bytes that are no frame.
 */
#ifndef BASE_FRAME_H
#define BASE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_HEADER      16
#define FRAME_PAYLOAD_MAX 65535

enum frame_kind { FRAME_STDOUT, FRAME_STDERR, FRAME_NOTE, FRAME_KIND_COUNT };

struct frame_head {
    enum frame_kind kind;
    uint32_t length; /* of the payload */
    uint64_t time_ns;
};

void frame_encode(unsigned char to[FRAME_HEADER], const struct frame_head *h);
/* 0, or -1: these 16 bytes are no header. */
int frame_decode(const unsigned char from[FRAME_HEADER], struct frame_head *h);

/* "offset N run R" and "lost FROM..TO": true, with the numbers, if the payload of a note says so.
 */
bool frame_note_offset(const char *payload, size_t n, uint64_t *offset, uint64_t *run);
bool frame_note_lost(const char *payload, size_t n, uint64_t *from, uint64_t *to);

#define FRAME_WINDOW ((size_t)4 * (FRAME_HEADER + FRAME_PAYLOAD_MAX))

struct frame_reader {
    int fd;            /* borrowed; read from where it stands */
    char *window;      /* FRAME_WINDOW bytes */
    size_t at, len;    /* what is not taken yet */
    uint64_t base;     /* of the window in the file */
    bool has_ended;    /* the file has no more */
    bool is_lost;      /* looking for the next frame */
    uint64_t position; /* in the file, behind the frame that was given last */
    uint64_t skipped;  /* bytes so far that were no frame */
    uint64_t searched; /* no sound frame begins between the present one and here */
};

/* 0, or -1 without memory. */
int frame_reader_init(struct frame_reader *r, int fd);
void frame_reader_free(struct frame_reader *r);
/* The next frame: 1, *h and its payload, which is good until the next call. 0: the end; what is
 * left was no frame and is counted as skipped. -1 with errno. */
int frame_reader_next(struct frame_reader *r, struct frame_head *h, const char **payload);

#endif
