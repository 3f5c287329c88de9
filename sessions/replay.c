#include "sessions/replay.h"

#include <stdbool.h>

/* What never ends was no string (images are long ones), or no control sequence. */
#define STRING_MAX  ((uint64_t)256 * 1024)
#define CONTROL_MAX ((uint64_t)1024)

enum { GROUND, ESCAPE, INTERMEDIATE, CSI, STRING };

/* Bytes that follow the first one of a UTF-8 character. */
static unsigned char tail_of(unsigned char b)
{
    return b >= 0xf5 ? 0 : b >= 0xf0 ? 3 : b >= 0xe0 ? 2 : b >= 0xc2 ? 1 : 0;
}

static void begin_escape(struct replay *r, unsigned char b)
{
    if (b == '[')
        r->state = CSI;
    else if (b == ']' || b == 'P' || b == 'X' || b == '^' || b == '_')
        r->state = STRING;
    else if (b >= 0x20 && b <= 0x2f)
        r->state = INTERMEDIATE;
    else
        r->state = GROUND;
    r->sequence_from = r->end;
}

static void step(struct replay *r, unsigned char b)
{
    r->end++;
    if (r->utf8 > 0 && (b & 0xc0) == 0x80) {
        r->utf8--;
        return;
    }
    r->utf8 = 0;
    if (b == 0x1b) {
        r->state = ESCAPE;
        return;
    }
    if (b == 0x18 || b == 0x1a) { /* CAN and SUB break off any sequence */
        r->state = GROUND;
        return;
    }
    uint64_t length = r->end - r->sequence_from;
    switch (r->state) {
    case ESCAPE:
        if (b >= 0x20)
            begin_escape(r, b);
        break;
    case INTERMEDIATE:
        if (b >= 0x30 || length > CONTROL_MAX)
            r->state = GROUND;
        break;
    case CSI:
        if (b >= 0x40 || length > CONTROL_MAX)
            r->state = GROUND;
        break;
    case STRING:
        if (b == 0x07 || length > STRING_MAX)
            r->state = GROUND;
        break;
    default:
        r->utf8 = tail_of(b);
    }
}

/* Marks stand at the beginnings of lines, or anywhere where no line begins for long. */
static void mark(struct replay *r, bool is_line)
{
    uint64_t gap = r->end - r->marks[(r->count - 1) % REPLAY_MARKS];
    if (gap >= (is_line ? REPLAY_STEP : 2 * REPLAY_STEP))
        r->marks[r->count++ % REPLAY_MARKS] = r->end;
}

void replay_take(struct replay *r, const char *bytes, size_t n)
{
    if (r->count == 0)
        r->count = 1; /* the very beginning is safe */
    for (size_t i = 0; i < n; i++) {
        step(r, (unsigned char)bytes[i]);
        if (r->state == GROUND && r->utf8 == 0)
            mark(r, bytes[i] == '\n');
    }
}

uint64_t replay_safe_from(const struct replay *r, uint64_t offset)
{
    uint64_t kept = r->count < REPLAY_MARKS ? r->count : REPLAY_MARKS;
    for (uint64_t i = r->count - kept; i < r->count; i++)
        if (r->marks[i % REPLAY_MARKS] >= offset)
            return r->marks[i % REPLAY_MARKS];
    return r->state == GROUND && r->utf8 == 0 ? r->end : UINT64_MAX;
}

uint64_t replay_begin(const struct replay *r)
{
    return r->end <= REPLAY_MAX ? 0 : replay_safe_from(r, r->end - REPLAY_MAX);
}
