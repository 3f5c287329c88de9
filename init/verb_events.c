/*
 * events: the ring of events to one client. A row an event, as fast as the client reads; what the
 * ring lost before is a row of the kind "lost".
 */
#include "init/verb.h"
#include "base/clock.h"
#include "control/wire.h"
#include "sessions/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct watch {
    struct conn *conn;
    struct event_reader reader;
    unsigned kinds;   /* a bit each; 0: all */
    char session[65]; /* "": all */
    uint64_t skip;    /* so many of those that are wanted are left out, for `tail` */
};

static void watch_free(struct watch *w)
{
    event_reader_detach(&w->reader);
    free(w);
}

/* ---- rows ---- */

static bool is_wanted(const struct watch *w, const struct event *event)
{
    if (w->kinds && !(w->kinds & 1u << event->kind))
        return false;
    if (!w->session[0])
        return true;
    for (unsigned i = 0; i < event->field_count; i++)
        if (strcmp(event->fields[i].key, "session") == 0)
            return strcmp(event->fields[i].text, w->session) == 0;
    return false;
}

static void add_time(struct record *to, uint64_t real_ns)
{
    char stamp[32], text[40];
    clock_utc(real_ns / 1000000000u, stamp);
    snprintf(text, sizeof text, "%s.%03uZ", stamp, (unsigned)(real_ns / 1000000u % 1000u));
    record_str(to, "time", text);
}

static bool send_row(struct watch *w, struct record *row)
{
    enum conn_sent sent = CONN_SENT;
    if (row->is_broken)
        conn_row(w->conn, row); /* no memory: the last packet says that a row is missing */
    else
        sent = conn_send(w->conn, WIRE_ROW, row->bytes.data, row->bytes.len);
    record_free(row);
    return sent == CONN_SENT;
}

static bool on_event(void *owner, const struct event *event)
{
    struct watch *w = owner;
    struct record row = {0};
    if (!is_wanted(w, event))
        return true;
    if (w->skip > 0) {
        w->skip--;
        return true;
    }
    record_int(&row, "number", (int64_t)event->number);
    add_time(&row, event->real_ns);
    record_str(&row, "kind", event_kind_name(event->kind));
    record_str(&row, "what", event->what);
    for (unsigned i = 0; i < event->field_count; i++) {
        const struct log_field *f = &event->fields[i];
        if (f->is_number)
            record_int(&row, f->key, f->number);
        else
            record_str(&row, f->key, f->text);
    }
    return send_row(w, &row);
}

static void on_lost(void *owner, uint64_t from, uint64_t to)
{
    struct watch *w = owner;
    struct record row = {0};
    record_str(&row, "kind", "lost");
    record_int(&row, "from", (int64_t)from);
    record_int(&row, "to", (int64_t)to);
    conn_row(w->conn, &row);
    record_free(&row);
}

static void on_end(void *owner)
{
    struct watch *w = owner;
    struct record done = {0};
    record_int(&done, "next", (int64_t)w->reader.next);
    conn_result(w->conn, &done);
    record_free(&done);
    watch_free(w);
}

static const struct event_reader_events reader_events = {
    .on_event = on_event, .on_lost = on_lost, .on_end = on_end};

/* ---- the client ---- */

static void on_writable(void *owner)
{
    struct watch *w = owner;
    event_reader_pump(&w->reader);
}

static void on_closed(void *owner)
{
    watch_free(owner);
}

static const struct conn_events conn_events = {.on_writable = on_writable, .on_closed = on_closed};

/* ---- the request ---- */

static int get_kinds(const struct request *r, unsigned *kinds, struct error *e)
{
    struct field f;
    size_t at = 0;
    while (record_next(r->args.data, r->args.len, &at, &f) > 0) {
        if (!field_is(&f, "kind"))
            continue;
        int kind = event_kind_of(f.value);
        if (kind >= 0) {
            *kinds |= 1u << kind;
            continue;
        }
        error_set(e, ERR_INVALID, "events: kind '%.40s': want one of", f.value);
        for (int i = 0; i < EVENT_KIND_COUNT; i++) {
            size_t used = strlen(e->text);
            snprintf(e->text + used, sizeof e->text - used, "%s %s", i ? "," : "",
                     event_kind_name((enum event_kind)i));
        }
        return -1;
    }
    return 0;
}

struct count {
    const struct watch *watch;
    uint64_t matching;
};

static bool count_event(void *owner, const struct event *event)
{
    struct count *c = owner;
    c->matching += is_wanted(c->watch, event);
    return true;
}

static void count_lost(void *owner, uint64_t from, uint64_t to)
{
    (void)owner, (void)from, (void)to;
}

static void count_end(void *owner)
{
    (void)owner;
}

/* How many there are of those that are wanted. */
static uint64_t count_wanted(const struct watch *w)
{
    if (!w->kinds && !w->session[0])
        return events_next() - events_first();
    static const struct event_reader_events counting = {
        .on_event = count_event, .on_lost = count_lost, .on_end = count_end};
    struct count c = {.watch = w};
    struct event_reader reader = {
        .events = &counting, .owner = &c, .next = events_first(), .limit = events_next()};
    event_reader_pump(&reader);
    return c.matching;
}

/* Where to begin: `from`, or (has_tail) so many of the newest, or all that there are. */
static int get_start(const struct request *r, uint64_t *start, bool *has_tail, uint64_t *tail,
                     struct error *e)
{
    uint64_t from, next = events_next();
    bool has_from;
    if (verb_get_number(r, "from", &from, &has_from, e) < 0 ||
        verb_get_number(r, "tail", tail, has_tail, e) < 0)
        return -1;
    if (has_from && *has_tail)
        return error_set(e, ERR_INVALID, "events: from and tail exclude each other");
    if (has_from && (from == 0 || from > next))
        return error_set(e, ERR_INVALID,
                         "events: number %llu does not exist: they begin with 1, and the next one "
                         "will be %llu",
                         (unsigned long long)from, (unsigned long long)next);
    *start = has_from ? from : events_first();
    return 0;
}

int verb_events(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *session = request_get(r, "session");
    uint64_t start = 0, tail = 0;
    bool has_tail = false;
    unsigned kinds = 0;
    (void)in;
    if (get_start(r, &start, &has_tail, &tail, e) < 0 || get_kinds(r, &kinds, e) < 0)
        return -1;
    if (session && strlen(session) >= sizeof((struct watch *)0)->session)
        return error_set(e, ERR_INVALID, "events: session '%.80s': too long a name", session);
    struct watch *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(e, ERR_MEMORY, "events: no memory");
    w->conn = c;
    w->kinds = kinds;
    snprintf(w->session, sizeof w->session, "%s", session ? session : "");
    uint64_t matching = has_tail ? count_wanted(w) : 0;
    w->skip = matching > tail ? matching - tail : 0;
    w->reader = (struct event_reader){.events = &reader_events, .owner = w, .next = start};
    w->reader.limit = request_get(r, "follow") ? UINT64_MAX : events_next();
    conn_set_owner(c, &conn_events, w);
    event_reader_attach(&w->reader);
    event_reader_pump(&w->reader);
    return 0;
}
