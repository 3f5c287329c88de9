/*
 * What init and the log writer say to each other: one packet of a SOCK_SEQPACKET pair each, this
 * struct and then the payload. Both ends are the same program, so the numbers are the machine's.
 */
#ifndef LOGGER_MESSAGE_H
#define LOGGER_MESSAGE_H

#include "base/frame.h"

#include <stdint.h>

enum logger_kind {
    /* from init */
    LOGGER_BEGIN, /* number; offset: of the bytes that follow; to: highest offset sent so far;
                     run: tells this log from all others, of this ID too; payload: the ID */
    LOGGER_PID,   /* payload: what ID.pid is to hold */
    LOGGER_BYTES, /* kind_of_frame, offset, time_ns; payload */
    LOGGER_LOST,  /* offset .. to */
    LOGGER_EXIT,  /* payload: what ID.exit is to hold, behind all that came before */
    LOGGER_CLOSE, /* the number is free again */
    /* from the writer */
    LOGGER_WRITTEN,      /* number; offset: all below is in the file, or told there as lost */
    LOGGER_EXIT_WRITTEN, /* ID.exit is there */
    LOGGER_TROUBLE,      /* payload: what can't be done and why; it goes on trying */
    LOGGER_RECOVERED,
    /* from init, about a plain file */
    LOGGER_TEXT_BEGIN, /* number; offset: of the bytes that follow; payload: struct logger_text */
    LOGGER_TEXT_BYTES, /* offset; payload: whole lines */
    LOGGER_TEXT_CLOSE, /* the number is free again */
    /* from the writer */
    LOGGER_TEXT_WRITTEN, /* number; offset: all below is in the file; payload: struct logger_place
                          */
    LOGGER_TEXT_FAILED,  /* number; payload: why; it is closed, what is not written is to come again
                          */
    LOGGER_TEXT_NOTE,    /* number; payload: what is wrong though lines are written; "": nothing */
};

struct logger_message {
    uint32_t kind;
    uint32_t number; /* of the log, chosen by init */
    uint32_t frame;  /* enum frame_kind */
    uint64_t offset, to, run, time_ns;
};

/* Where the bytes of a plain file are, all of them so far. */
struct logger_place {
    uint64_t device, inode; /* inode 0: nowhere yet */
    uint64_t size;
};

struct logger_text {
    uint64_t max_size, keep;
    struct logger_place place; /* as the last writer told it */
    char path[];               /* absolute; without NUL */
};

#define LOGGER_ID_MAX 64

#endif
