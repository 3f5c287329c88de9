/*
 * Where a terminal's output may be cut: not inside a UTF-8 character or an escape sequence. A
 * viewer that comes later gets the last REPLAY_MAX bytes at most, from such a place on.
 *
 * The bytes go by once, through the few states of ECMA-48 (after Paul Williams' parser); places are
 * remembered in a ring, one in REPLAY_STEP bytes, the beginnings of lines before others.
 */
#ifndef SESSIONS_REPLAY_H
#define SESSIONS_REPLAY_H

#include <stddef.h>
#include <stdint.h>

#define REPLAY_MAX   ((uint64_t)256 * 1024)
#define REPLAY_STEP  ((uint64_t)1024)
#define REPLAY_MARKS 320 /* somewhat more than REPLAY_MAX can have */

struct replay {
    uint64_t end;           /* bytes that went by */
    unsigned char state;    /* of the sequence that the end stands in; 0: none */
    unsigned char utf8;     /* bytes that the character at the end still lacks */
    uint64_t sequence_from; /* where that sequence began */
    uint64_t marks[REPLAY_MARKS];
    uint64_t count; /* all marks ever made; the newest REPLAY_MARKS are kept */
};

/* Look at the next n bytes of the output. */
void replay_take(struct replay *r, const char *bytes, size_t n);

/* The first safe place at or behind an offset; UINT64_MAX: none yet, the end is not one. */
uint64_t replay_safe_from(const struct replay *r, uint64_t offset);

/* Where a viewer that comes now begins (UINT64_MAX as above). */
uint64_t replay_begin(const struct replay *r);

#endif
