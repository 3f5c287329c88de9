/*
 * Three segments: the head is filled once and stays; then two for the tail take turns, so that at
 * any time between one and two of them hold the newest bytes. A segment is contiguous in offsets;
 * gaps stand between segments only, so "lost" is a comparison of two numbers.
 */
#include "sessions/output.h"
#include "base/clock.h"
#include "sessions/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEAD, OLD, NEW, SEGMENTS };

/* A pressing follower may lag so far; then reading stops. With what the two pipes can hold on top
 * (a last read when a command ends takes it all) this must fit into one tail segment. */
#define PRESS_WINDOW  ((uint64_t)128 * 1024)
#define TAIL_MIN      ((uint64_t)768 * 1024)
#define SEGMENT_SMALL ((uint64_t)4096)
#define EXPIRE_FRAMES 4096 /* looked at in one turn of the loop */

struct output {
    uint64_t keep;
    struct segment segments[SEGMENTS];
    uint64_t end;
    uint64_t bytes[STREAM_COUNT];
    uint64_t lost;
    uint64_t last_ns; /* when the last bytes came, monotonic */
    bool has_ended;
    bool is_orphan; /* its owner let go of it: it lives as long as its followers */
    struct list followers;
    unsigned pressing_count;
    bool is_by_fastest; /* output_press_by_fastest() */
    void (*on_relief)(void *context);
    void *relief_context;
    struct ev_loop *loop; /* of the timer; NULL: there is none */
    uint64_t age_ms;      /* 0: no limit */
    ev_timer age_timer;   /* runs while there is something that grows old */
};

/* One buffer serves all reads from logs: the loop is single-threaded and no delivery reenters. */
static char read_buffer[OUTPUT_CHUNK];

struct output *output_new(uint64_t keep)
{
    struct output *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->keep = keep < SEGMENT_SMALL ? SEGMENT_SMALL : keep;
    for (int i = 0; i < SEGMENTS; i++)
        o->segments[i].fd = -1;
    list_init(&o->followers);
    return o;
}

static void destroy(struct output *o)
{
    for (int i = 0; i < SEGMENTS; i++)
        segment_close(&o->segments[i]);
    if (o->loop)
        ev_timer_stop(o->loop, &o->age_timer);
    free(o);
}

void output_free(struct output *o)
{
    if (!o)
        return;
    output_end(o);
    o->on_relief = NULL;
    o->is_orphan = true;
    if (list_is_empty(&o->followers))
        destroy(o);
}

/* ---- age ---- */

/* Up to where bytes may be dropped. */
static uint64_t expirable_end(const struct output *o)
{
    uint64_t end = o->end;
    list_each(f, &o->followers, struct follower, link) if (f->is_pressing && f->offset < end) end =
        f->offset;
    return end;
}

/* Nanoseconds until something is too old, 0: nothing is left. */
static uint64_t expire(struct output *o)
{
    uint64_t now = clock_real_ns(), age = o->age_ms * 1000000u, until = expirable_end(o);
    unsigned budget = EXPIRE_FRAMES;
    for (int i = 0; i < SEGMENTS; i++) {
        struct segment *s = &o->segments[i];
        if (s->fd < 0)
            continue;
        uint64_t first_ns = segment_expire(s, now > age ? now - age : 0, until, &budget);
        if (first_ns == 0) {
            segment_close(s);
            continue;
        }
        /* A clock that was set back makes nothing stay longer than the age from now on. */
        uint64_t due = first_ns + age;
        return budget == 0 || due <= now ? 1 : due - now < age ? due - now : age;
    }
    return 0;
}

/* Rather late than often: once for what grows old within a sixteenth of the age. */
static void arm_age(struct output *o, uint64_t in_ns)
{
    double slack = (double)o->age_ms / 16000.0;
    slack = slack < 0.02 ? 0.02 : slack > 60 ? 60 : slack;
    ev_timer_set(&o->age_timer, (double)in_ns / 1e9 + slack, 0.);
    ev_timer_start(o->loop, &o->age_timer);
}

static void on_age(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct output *o = w->data;
    uint64_t in_ns = expire(o);
    if (in_ns)
        arm_age(o, in_ns);
}

void output_limit_age(struct output *o, struct ev_loop *loop, uint64_t age_ms)
{
    o->loop = loop;
    o->age_ms = age_ms;
    ev_timer_init(&o->age_timer, on_age, 0., 0.);
    o->age_timer.data = o;
}

void output_expire(struct output *o)
{
    if (o->age_ms && expire(o) == 0)
        ev_timer_stop(o->loop, &o->age_timer);
}

/* ---- appending ---- */

static uint64_t capacity_of(const struct output *o, int segment)
{
    if (segment == HEAD)
        return o->keep / 4;
    uint64_t tail = o->keep * 3 / 8;
    return o->pressing_count && tail < TAIL_MIN ? TAIL_MIN : tail;
}

/* The segment that takes the next n bytes, opened anew where the present one is full or ends
 * before a gap. NULL: none can be had. */
static struct segment *segment_for(struct output *o, size_t n)
{
    struct segment *head = &o->segments[HEAD], *new = &o->segments[NEW];
    uint64_t need = n + FRAME_HEADER;
    bool head_is_open = new->fd < 0 && (head->fd < 0 || head->end == o->end);
    if (head_is_open && head->size + need <= capacity_of(o, HEAD)) {
        if (head->fd >= 0 || segment_open(head, o->end, capacity_of(o, HEAD)) == 0)
            return head;
        return NULL;
    }
    bool fits = new->fd >= 0 && new->end == o->end &&
                (new->size == 0 || new->size + need <= capacity_of(o, NEW));
    if (fits)
        return new;
    /* A flood goes round in the same pages: new ones cost more than the copy into them. */
    struct segment fresh = o->segments[OLD];
    if (fresh.fd >= 0)
        segment_reopen(&fresh, o->end, capacity_of(o, NEW));
    else if (segment_open(&fresh, o->end, capacity_of(o, NEW)) < 0)
        return NULL;
    o->segments[OLD] = *new;
    *new = fresh;
    return new;
}

/* Try to hand fresh bytes to a follower that stands right at them. */
static void deliver_fresh(struct follower *f, enum stream stream, const char *bytes, size_t n,
                          uint64_t time_ns)
{
    if (f->is_blocked)
        return;
    if (f->wants[stream]) {
        f->time_ns = time_ns;
        enum deliver d = f->events->on_bytes(f->owner, stream, bytes, n);
        if (d != DELIVERED) {
            f->is_blocked = true;
            return;
        }
    }
    f->offset += n;
}

static void append_frame(struct output *o, enum stream stream, const char *bytes, size_t n)
{
    uint64_t start = o->end, time_ns = clock_real_ns();
    o->last_ns = clock_mono_ns();
    struct segment *s = segment_for(o, n);
    if (!s || segment_append(s, stream, bytes, n, time_ns) < 0)
        o->lost += n;
    o->end += n;
    o->bytes[stream] += n;
    if (o->age_ms && !ev_is_active(&o->age_timer))
        arm_age(o, o->age_ms * 1000000u);
    list_each(f, &o->followers, struct follower, link)
    {
        if (f->offset == start)
            deliver_fresh(f, stream, bytes, n, time_ns);
        else if (!f->is_blocked)
            follower_pump(f);
    }
}

/* What a small log could not keep to its size as one frame is cut into several. */
void output_append(struct output *o, enum stream stream, const char *bytes, size_t n)
{
    while (n > 0) {
        bool is_first = o->segments[HEAD].fd < 0 && o->segments[NEW].fd < 0;
        uint64_t most = capacity_of(o, is_first ? HEAD : NEW) - FRAME_HEADER;
        size_t piece = n < most ? n : (size_t)most;
        append_frame(o, stream, bytes, piece);
        bytes += piece;
        n -= piece;
    }
}

/* The segment that holds an offset, or the first one behind it (*lost_to set), or NULL. */
static const struct segment *segment_at(const struct output *o, uint64_t offset, uint64_t *lost_to)
{
    *lost_to = 0;
    for (int i = 0; i < SEGMENTS; i++) {
        const struct segment *s = &o->segments[i];
        if (s->fd < 0 || s->end <= offset)
            continue;
        if (s->start > offset)
            *lost_to = s->start;
        return s;
    }
    if (offset < o->end)
        *lost_to = o->end;
    return NULL;
}

static void skip_lost(struct follower *f, uint64_t to)
{
    uint64_t from = f->offset;
    f->offset = to;
    if (f->events->on_lost)
        f->events->on_lost(f->owner, from, to);
}

/* Deliver the rest of one frame. False: the follower is blocked. */
static bool deliver_frame(struct follower *f, const struct segment *s, const struct frame *frame)
{
    uint64_t skip = f->offset - frame->offset;
    size_t n = (size_t)(frame->length - skip);
    if (f->wants[frame->stream]) {
        ssize_t k = pread(s->fd, read_buffer, n, (off_t)(frame->position + skip));
        if (k != (ssize_t)n) {
            skip_lost(f, frame->offset + frame->length);
            return true;
        }
        f->time_ns = frame->time_ns;
        if (f->events->on_bytes(f->owner, frame->stream, read_buffer, n) != DELIVERED) {
            f->is_blocked = true;
            return false;
        }
    }
    f->offset += n;
    return true;
}

static void tell_relief(struct output *o)
{
    if (o->on_relief && !output_is_pressed(o))
        o->on_relief(o->relief_context);
}

void follower_pump(struct follower *f)
{
    struct output *o = f->output;
    if (!o)
        return;
    f->is_blocked = false;
    while (f->offset < o->end && f->offset < f->limit && !f->is_blocked) {
        uint64_t lost_to;
        const struct segment *s = segment_at(o, f->offset, &lost_to);
        if (lost_to) {
            skip_lost(f, lost_to);
            continue;
        }
        struct frame frame;
        if (!s || segment_find(s, f->offset, &frame) < 0) {
            skip_lost(f, s ? s->end : o->end);
            continue;
        }
        while (deliver_frame(f, s, &frame) && f->offset < s->end && segment_next(s, &frame) == 0)
            continue;
    }
    if (f->is_pressing)
        tell_relief(o);
    bool is_at_end = f->offset >= f->limit || (o->has_ended && f->offset >= o->end);
    if (is_at_end && !f->has_ended) {
        f->has_ended = true;
        f->events->on_end(f->owner); /* may free it */
    }
}

void output_end(struct output *o)
{
    if (o->has_ended)
        return;
    o->has_ended = true;
    list_each(f, &o->followers, struct follower, link) if (!f->is_blocked) follower_pump(f);
}

uint64_t output_end_offset(const struct output *o)
{
    return o->end;
}

uint64_t output_bytes(const struct output *o, enum stream stream)
{
    return o->bytes[stream];
}

uint64_t output_last_ns(const struct output *o)
{
    return o->last_ns;
}

uint64_t output_lost_bytes(const struct output *o)
{
    return o->lost;
}

size_t output_last_bytes(const struct output *o, enum stream stream, char *buf, size_t n)
{
    struct frame last = {.length = 0}, f;
    const struct segment *s = &o->segments[o->segments[NEW].fd >= 0 ? NEW : HEAD];
    if (s->fd < 0 || !s->mark_count || segment_find(s, s->marks[s->mark_count - 1].offset, &f) < 0)
        return 0;
    do {
        if (f.stream == stream)
            last = f;
    } while (segment_next(s, &f) == 0);
    size_t k = last.length < n ? last.length : n;
    ssize_t got = k ? pread(s->fd, buf, k, (off_t)(last.position + last.length - k)) : 0;
    return got < 0 ? 0 : (size_t)got;
}

/* The offset behind the last byte of the wanted streams: a newline right before it begins no line.
 */
static uint64_t end_of_streams(const struct output *o, const bool wants[STREAM_COUNT])
{
    uint64_t end = wants[STREAM_STDOUT] && wants[STREAM_STDERR] ? o->end : 0;
    for (int i = SEGMENTS - 1; i >= 0 && end == 0; i--) {
        struct frame f;
        const struct segment *s = &o->segments[i];
        if (s->fd < 0 || segment_find(s, s->start, &f) < 0)
            continue;
        do
            end = wants[f.stream] ? f.offset + f.length : end;
        while (segment_next(s, &f) == 0);
    }
    return end;
}

/* Where the last `lines` lines of one segment begin: walks its frames, remembers the offset behind
 * each newline (but not behind `end`). Returns how many were found. */
static uint64_t tail_of_segment(const struct segment *s, uint64_t end, uint64_t lines,
                                const bool wants[STREAM_COUNT], uint64_t *start)
{
    struct frame f;
    uint64_t total = 0;
    for (int pass = 0; pass < 2; pass++) {
        uint64_t seen = 0;
        if (segment_find(s, s->start, &f) < 0)
            return 0;
        do {
            if (!wants[f.stream] || pread(s->fd, read_buffer, f.length, (off_t)f.position) < 0)
                continue;
            for (uint32_t i = 0; i < f.length; i++) {
                if (read_buffer[i] != '\n' || f.offset + i + 1 >= end)
                    continue;
                seen++;
                if (pass == 1 && total - seen < lines) {
                    *start = f.offset + i + 1;
                    return total < lines ? total : lines;
                }
            }
        } while (segment_next(s, &f) == 0);
        if (pass == 0 && (total = seen) == 0)
            return 0;
    }
    return 0;
}

uint64_t output_tail_offset(const struct output *o, uint64_t lines, const bool wants[STREAM_COUNT])
{
    uint64_t at = o->end, end = end_of_streams(o, wants);
    if (lines == 0)
        return at;
    for (int i = SEGMENTS - 1; i >= 0; i--) {
        const struct segment *s = &o->segments[i];
        uint64_t start = 0;
        if (s->fd < 0)
            continue;
        uint64_t found = tail_of_segment(s, end, lines, wants, &start);
        if (found == lines)
            return start;
        lines -= found;
        at = s->start;
    }
    return at;
}

bool output_is_pressed(const struct output *o)
{
    unsigned lagging = 0;
    if (!o->pressing_count)
        return false;
    list_each(f, &o->followers, struct follower, link) lagging +=
        f->is_pressing && o->end - f->offset >= PRESS_WINDOW;
    return o->is_by_fastest ? lagging == o->pressing_count : lagging > 0;
}

void output_press_by_fastest(struct output *o)
{
    o->is_by_fastest = true;
}

void output_on_relief(struct output *o, void (*on_relief)(void *context), void *context)
{
    o->on_relief = on_relief;
    o->relief_context = context;
}

void follower_attach(struct follower *f, struct output *o)
{
    f->output = o;
    f->is_blocked = false;
    f->has_ended = false;
    list_append(&o->followers, &f->link);
    o->pressing_count += f->is_pressing;
}

void follower_press(struct follower *f, bool is_pressing)
{
    if (f->is_pressing == is_pressing)
        return;
    f->is_pressing = is_pressing;
    if (is_pressing) {
        f->output->pressing_count++;
    } else {
        f->output->pressing_count--;
        tell_relief(f->output);
    }
}

void follower_detach(struct follower *f)
{
    struct output *o = f->output;
    if (!o)
        return;
    f->output = NULL;
    list_remove(&f->link);
    o->pressing_count -= f->is_pressing;
    if (f->is_pressing)
        tell_relief(o);
    if (o->is_orphan && list_is_empty(&o->followers))
        destroy(o);
}
