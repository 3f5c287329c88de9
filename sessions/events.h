/*
 * Events: what happened in this init, told to clients that watch. They are numbered from 1 without
 * a gap and kept in a ring of a fixed number of bytes; the oldest go first. A reader has a number
 * and is served from the ring: backlog and live are one sequence, and what the ring has lost before
 * a reader came to it is said to that reader, never silently skipped.
 *
 * Emitting takes no memory, calls nobody and never fails: readers are served before the loop sleeps
 * next. Without a reader it is a copy of some hundred bytes.
 *
 * No event holds an environment; texts are cut to their head.
 */
#ifndef SESSIONS_EVENTS_H
#define SESSIONS_EVENTS_H

#include "base/list.h"
#include "base/log.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum event_kind {
    EVENT_INIT,     /* started */
    EVENT_SESSION,  /* created, ready, restarted, reset, deleted, failed */
    EVENT_COMMAND,  /* queued, started, ended; also an exec without a session */
    EVENT_PROCESS,  /* queued, started, ended */
    EVENT_TERMINAL, /* opened, attached, detached, ended */
    EVENT_STRAY,    /* left, ended */
    EVENT_OOM,      /* killed */
    EVENT_RELOAD,   /* done, failed */
    EVENT_STOP,     /* begun, hurried, done */
    EVENT_MAIN,     /* started, ended */
    EVENT_SERVICE,  /* each state of services.h; reloading, unready, ready; healthy, unhealthy */
    EVENT_GATEWAY,  /* started, ended */
    EVENT_KIND_COUNT
};

#define EVENT_TEXT_MAX   200 /* bytes of one text, with the "…" of one that was cut */
#define EVENT_FIELDS_MAX 16

/* Tell that something happened: EVENT(EVENT_COMMAND, "ended", F_STR("session", s->name),
 * F_STR("id", id), F_INT("status", status)). Keys and `what` are words of docs/control-protocol.md;
 * texts that are NULL or "" are left out, and so is what does not fit (cut=1 says it). */
#define EVENT(kind, what, ...)                                                                     \
    event_emit((kind), (what), (const struct log_field[]){__VA_ARGS__},                            \
               sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))
void event_emit(enum event_kind kind, const char *what, const struct log_field *fields,
                unsigned count);

const char *event_kind_name(enum event_kind kind);
/* The kind of this name, or -1. */
int event_kind_of(const char *name);

/* Begin: keep so many bytes. For want of memory none are kept; every event is lost then. */
void events_init(struct ev_loop *loop, uint64_t keep);
/* Keep another number of bytes from now on, and as many of the newest events as they hold. False:
 * no memory, and nothing changed. */
bool events_resize(uint64_t keep);
/* The stop is over: readers get what is there and hear on_end. */
void events_end(void);
/* Free the ring; there must be no readers. */
void events_free(void);

/* The number that the next event will have, and that of the oldest one that is kept (the same if
 * there is none). */
uint64_t events_next(void);
uint64_t events_first(void);

/* An event as it is given to a reader; the pointers live for the call. */
struct event {
    uint64_t number;
    uint64_t real_ns; /* CLOCK_REALTIME */
    enum event_kind kind;
    const char *what;
    struct log_field fields[EVENT_FIELDS_MAX];
    unsigned field_count;
};

struct event_reader_events {
    /* False: not taken; event_reader_pump() goes on, with the same one. */
    bool (*on_event)(void *owner, const struct event *event);
    void (*on_lost)(void *owner, uint64_t from, uint64_t to); /* both included */
    void (*on_end)(void *owner); /* all was delivered, up to the limit; may free the reader */
};

struct event_reader {
    struct list link;
    const struct event_reader_events *events;
    void *owner;
    uint64_t next;  /* number of the next event to deliver */
    uint64_t limit; /* where it ends; UINT64_MAX: nowhere */
    uint64_t at;    /* place of `next` in the ring, if the ring has it */
    bool has_place; /* at is set */
    bool is_blocked;
};

/* Read from r->next on; the caller filled events, owner, next and limit. Delivers only in
 * event_reader_pump() and then from the loop. */
void event_reader_attach(struct event_reader *r);
void event_reader_detach(struct event_reader *r);
void event_reader_pump(struct event_reader *r);

#endif
