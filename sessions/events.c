/*
 * The ring holds frames: a header, the word `what`, then the fields, each a type byte, the key and
 * the value (a string, or eight bytes of a number). A place is counted in bytes since the first
 * frame, so that it stays valid while the ring turns; the byte of a place is place % size.
 */
#include "sessions/events.h"
#include "base/clock.h"
#include "base/head.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_MAX   2048
#define KEEP_MIN    ((uint64_t)2 * FRAME_MAX)
#define FIELD_TEXT  's'
#define FIELD_INT   'i'
#define CUT_RESERVE 16 /* bytes of the field that says that others are missing */

static const char *const kind_names[] = {
    [EVENT_INIT] = "init",       [EVENT_SESSION] = "session",   [EVENT_COMMAND] = "command",
    [EVENT_PROCESS] = "process", [EVENT_TERMINAL] = "terminal", [EVENT_STRAY] = "stray",
    [EVENT_OOM] = "oom",         [EVENT_RELOAD] = "reload",     [EVENT_STOP] = "stop",
    [EVENT_MAIN] = "main",       [EVENT_SERVICE] = "service",   [EVENT_GATEWAY] = "gateway",
};
_Static_assert(sizeof(kind_names) / sizeof(kind_names[0]) == EVENT_KIND_COUNT, "all named");

struct header {
    uint32_t size; /* of the whole frame */
    uint32_t kind;
    uint64_t real_ns;
};

struct frame {
    size_t size;
    char bytes[FRAME_MAX];
};

static struct {
    struct ev_loop *loop;
    char *bytes; /* NULL: nothing can be kept */
    uint64_t size;
    uint64_t begin, end;  /* places of the oldest frame and behind the newest */
    uint64_t first, next; /* numbers of the same */
    struct list readers;
    ev_prepare serve; /* active while there may be something to deliver */
} ring = {.first = 1, .next = 1, .readers = {&ring.readers, &ring.readers}};

const char *event_kind_name(enum event_kind kind)
{
    return kind_names[kind];
}

int event_kind_of(const char *name)
{
    for (int i = 0; i < EVENT_KIND_COUNT; i++)
        if (strcmp(kind_names[i], name) == 0)
            return i;
    return -1;
}

uint64_t events_next(void)
{
    return ring.next;
}

uint64_t events_first(void)
{
    return ring.first;
}

/* ---- the ring ---- */

static void ring_get(uint64_t place, void *to, size_t n)
{
    size_t at = (size_t)(place % ring.size);
    size_t part = n < ring.size - at ? n : (size_t)(ring.size - at);
    memcpy(to, ring.bytes + at, part);
    memcpy((char *)to + part, ring.bytes, n - part);
}

static void ring_put(const char *from, size_t n)
{
    size_t at = (size_t)(ring.end % ring.size);
    size_t part = n < ring.size - at ? n : (size_t)(ring.size - at);
    memcpy(ring.bytes + at, from, part);
    memcpy(ring.bytes, from + part, n - part);
    ring.end += n;
}

static uint32_t size_at(uint64_t place)
{
    uint32_t size;
    ring_get(place, &size, sizeof size);
    return size;
}

static void drop_oldest(void)
{
    ring.begin += size_at(ring.begin);
    ring.first++;
}

static void ring_add(const struct frame *f)
{
    if (!ring.bytes) {
        ring.first = ++ring.next;
        return;
    }
    while (ring.end - ring.begin + f->size > ring.size)
        drop_oldest();
    ring_put(f->bytes, f->size);
    ring.next++;
}

/* ---- emitting ---- */

static bool frame_add(struct frame *f, const void *bytes, size_t n, size_t limit)
{
    if (n > limit - f->size)
        return false;
    memcpy(f->bytes + f->size, bytes, n);
    f->size += n;
    return true;
}

/* The field whole or not at all. */
static bool add_field(struct frame *f, const struct log_field *field, size_t limit)
{
    char head[EVENT_TEXT_MAX + 1];
    size_t before = f->size;
    char type = field->is_number ? FIELD_INT : FIELD_TEXT;
    bool is_whole =
        frame_add(f, &type, 1, limit) && frame_add(f, field->key, strlen(field->key) + 1, limit);
    if (is_whole && field->is_number)
        is_whole = frame_add(f, &field->number, sizeof field->number, limit);
    else if (is_whole) {
        size_t n = head_copy(head, sizeof head, field->text);
        is_whole = frame_add(f, head, n + 1, limit);
    }
    if (!is_whole)
        f->size = before;
    return is_whole;
}

static void wake_readers(void)
{
    if (!list_is_empty(&ring.readers) && ring.loop && !ev_is_active(&ring.serve))
        ev_prepare_start(ring.loop, &ring.serve);
}

void event_emit(enum event_kind kind, const char *what, const struct log_field *fields,
                unsigned count)
{
    struct frame f;
    struct header h = {.kind = kind, .real_ns = clock_real_ns()};
    unsigned added = 0;
    bool is_cut = false;
    f.size = sizeof h;
    frame_add(&f, what, strlen(what) + 1, FRAME_MAX - CUT_RESERVE);
    for (unsigned i = 0; i < count; i++) {
        if (!fields[i].is_number && (!fields[i].text || !fields[i].text[0]))
            continue;
        if (added < EVENT_FIELDS_MAX - 1 && add_field(&f, &fields[i], FRAME_MAX - CUT_RESERVE))
            added++;
        else
            is_cut = true;
    }
    if (is_cut)
        add_field(&f, &F_INT("cut", 1), FRAME_MAX);
    h.size = (uint32_t)f.size;
    memcpy(f.bytes, &h, sizeof h);
    ring_add(&f);
    wake_readers();
}

/* ---- reading ---- */

/* Take a frame apart; the event points into it. Returns its size. */
static size_t decode(struct frame *f, uint64_t place, struct event *event)
{
    struct header h;
    f->size = size_at(place);
    ring_get(place, f->bytes, f->size);
    memcpy(&h, f->bytes, sizeof h);
    event->real_ns = h.real_ns;
    event->kind = (enum event_kind)h.kind;
    event->what = f->bytes + sizeof h;
    event->field_count = 0;
    const char *p = event->what + strlen(event->what) + 1;
    while (p < f->bytes + f->size && event->field_count < EVENT_FIELDS_MAX) {
        struct log_field *field = &event->fields[event->field_count++];
        char type = *p++;
        field->key = p;
        field->is_number = type == FIELD_INT;
        p += strlen(p) + 1;
        field->text = p;
        if (field->is_number)
            memcpy(&field->number, p, sizeof field->number);
        p += field->is_number ? sizeof field->number : strlen(p) + 1;
    }
    return f->size;
}

static void find_place(struct event_reader *r)
{
    r->at = ring.begin;
    for (uint64_t n = ring.first; n < r->next; n++)
        r->at += size_at(r->at);
    r->has_place = true;
}

static void skip_lost(struct event_reader *r)
{
    uint64_t from = r->next;
    r->next = ring.first < r->limit ? ring.first : r->limit;
    r->has_place = false;
    r->events->on_lost(r->owner, from, r->next - 1);
}

void event_reader_pump(struct event_reader *r)
{
    struct frame f;
    struct event event;
    r->is_blocked = false;
    while (r->next < ring.next && r->next < r->limit) {
        if (r->next < ring.first) {
            skip_lost(r);
            continue;
        }
        if (!r->has_place)
            find_place(r);
        size_t size = decode(&f, r->at, &event);
        event.number = r->next;
        if (!r->events->on_event(r->owner, &event)) {
            r->is_blocked = true;
            return;
        }
        r->next++;
        r->at += size;
    }
    if (r->next >= r->limit)
        r->events->on_end(r->owner);
}

static void on_serve(struct ev_loop *loop, ev_prepare *w, int events)
{
    (void)events;
    ev_prepare_stop(loop, w);
    list_each(r, &ring.readers, struct event_reader, link) if (!r->is_blocked) event_reader_pump(r);
}

void event_reader_attach(struct event_reader *r)
{
    r->has_place = r->is_blocked = false;
    list_append(&ring.readers, &r->link);
}

void event_reader_detach(struct event_reader *r)
{
    if (r->link.next)
        list_remove(&r->link);
}

/* ---- life ---- */

void events_init(struct ev_loop *loop, uint64_t keep)
{
    ring.loop = loop;
    ev_prepare_init(&ring.serve, on_serve);
    (void)events_resize(keep);
}

bool events_resize(uint64_t keep)
{
    uint64_t size = keep < KEEP_MIN ? KEEP_MIN : keep;
    if (ring.bytes && size == ring.size)
        return true;
    char *fresh = malloc(size);
    if (!fresh)
        return false;
    size_t kept = 0;
    if (ring.bytes) {
        while (ring.end - ring.begin > size)
            drop_oldest();
        kept = (size_t)(ring.end - ring.begin);
        ring_get(ring.begin, fresh, kept);
    }
    free(ring.bytes);
    ring.bytes = fresh;
    ring.size = size;
    ring.begin = 0;
    ring.end = kept;
    list_each(r, &ring.readers, struct event_reader, link) r->has_place = false;
    return true;
}

void events_end(void)
{
    list_each(r, &ring.readers, struct event_reader, link)
    {
        r->limit = ring.next;
        event_reader_pump(r);
    }
}

void events_free(void)
{
    if (ring.loop && ev_is_active(&ring.serve))
        ev_prepare_stop(ring.loop, &ring.serve);
    free(ring.bytes);
    ring.bytes = NULL;
    ring.loop = NULL;
    ring.begin = ring.end = 0;
    ring.first = ring.next;
}
