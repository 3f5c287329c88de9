/* Programs that serve the gateway (aide.h). */
#include "gateway/aide.h"

#include "base/number.h"
#include "control/record.h"
#include "control/wire.h"
#include "gateway/gather.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 40

struct aide_stream {
    char line[AIDE_LINE_MAX + 1];
    size_t len;
};

struct aide {
    struct upstream *upstream;
    const struct aide_events *events;
    void *owner;
    struct gather *gather; /* the step that is under way, or … */
    struct call *logs;     /* … this one */
    char name[NAME_MAX_BYTES + 1];
    char id[65];
    struct aide_stream streams[2]; /* stdout, stderr */
    char last_line[AIDE_LINE_MAX + 1];
    unsigned depth; /* callbacks of ours that run */
    bool is_closed;
};

static void aide_leave(struct aide *a)
{
    if (--a->depth == 0 && a->is_closed)
        free(a);
}

static void aide_fail(struct aide *a, const struct error *e)
{
    a->events->on_failed(a->owner, e);
}

/* ---- which one there is ------------------------------------------------------------------ */

/* The N of an id NAME.N, or 0. */
static uint64_t number_of(const struct aide *a, const char *id)
{
    size_t n = strlen(a->name);
    uint64_t number = 0;
    if (!id || strncmp(id, a->name, n) != 0 || id[n] != '.' ||
        number_parse_u64(id + n + 1, UINT32_MAX, &number) < 0)
        return 0;
    return number;
}

static uint64_t uptime_of(const char *row, size_t n)
{
    const char *text = record_get(row, n, "uptime_s");
    return text ? (uint64_t)(strtod(text, NULL) * 1e3) : 0;
}

static void on_rows(void *owner, const struct gathered *all)
{
    struct aide *a = owner;
    const char *row;
    size_t n;
    uint64_t last = 0, live = 0, uptime_ms = 0;
    a->gather = NULL;
    for (size_t at = 0; gathered_row(all, &at, &row, &n);) {
        uint64_t number = number_of(a, record_get(row, n, "id"));
        const char *state = record_get(row, n, "state");
        if (number > last)
            last = number;
        if (number > live && state && strcmp(state, "exited") != 0) {
            live = number;
            uptime_ms = uptime_of(row, n);
        }
    }
    snprintf(a->id, sizeof a->id, "%s.%llu", a->name, (unsigned long long)(live ? live : last + 1));
    a->depth++;
    if (all->error)
        aide_fail(a, all->error);
    else
        a->events->on_found(a->owner, live > 0, uptime_ms);
    aide_leave(a);
}

struct aide *aide_find(struct upstream *u, const char *name, const struct aide_events *events,
                       void *owner, struct error *e)
{
    struct aide *a = calloc(1, sizeof *a);
    if (!a) {
        error_set(e, ERR_MEMORY, "no memory for %s", name);
        return NULL;
    }
    a->upstream = u;
    a->events = events;
    a->owner = owner;
    snprintf(a->name, sizeof a->name, "%s", name);
    struct client_request q;
    client_request_init(&q, "ps");
    client_request_add(&q, "kind", "process");
    a->gather = gather_open(u, &q, on_rows, a, e);
    if (!a->gather) {
        free(a);
        return NULL;
    }
    return a;
}

const char *aide_id(const struct aide *a)
{
    return a->id;
}

/* ---- starting and killing ---------------------------------------------------------------- */

static void on_start_answer(void *owner, const struct gathered *all)
{
    struct aide *a = owner;
    a->gather = NULL;
    a->depth++;
    if (all->error)
        aide_fail(a, all->error);
    else
        a->events->on_started(a->owner);
    aide_leave(a);
}

int aide_start(struct aide *a, struct client_request *q, struct error *e)
{
    client_request_add(q, "id", a->id);
    a->gather = gather_open(a->upstream, q, on_start_answer, a, e);
    return a->gather ? 0 : -1;
}

static void on_kill_answer(void *owner, const struct gathered *all)
{
    struct aide *a = owner;
    a->gather = NULL;
    a->depth++;
    bool is_over =
        !all->error || all->error->code == ERR_STATE || all->error->code == ERR_NOT_FOUND;
    if (!is_over)
        aide_fail(a, all->error);
    else
        a->events->on_killed(a->owner);
    aide_leave(a);
}

static void hang_up(struct aide *a)
{
    gather_close(a->gather);
    a->gather = NULL;
    if (a->logs)
        call_close(a->logs);
    a->logs = NULL;
}

int aide_kill(struct aide *a, uint64_t grace_ms, struct error *e)
{
    char grace[24];
    struct client_request q;
    hang_up(a);
    snprintf(grace, sizeof grace, "%llu", (unsigned long long)grace_ms);
    client_request_init(&q, "kill");
    client_request_add(&q, "id", a->id);
    client_request_add(&q, "grace_ms", grace);
    a->gather = gather_open(a->upstream, &q, on_kill_answer, a, e);
    return a->gather ? 0 : -1;
}

/* ---- following --------------------------------------------------------------------------- */

static void end_line(struct aide *a, struct aide_stream *s)
{
    s->line[s->len] = '\0';
    s->len = 0;
    if (s->line[strspn(s->line, " \t\r")] == '\0')
        return;
    memcpy(a->last_line, s->line, sizeof a->last_line);
    if (!a->is_closed && a->events->on_line)
        a->events->on_line(a->owner, s->line);
}

static bool on_log_packet(void *owner, char channel, const char *bytes, size_t n)
{
    struct aide *a = owner;
    if (channel != WIRE_STDOUT && channel != WIRE_STDERR)
        return true;
    struct aide_stream *s = &a->streams[channel == WIRE_STDERR];
    a->depth++;
    for (size_t i = 0; i < n && a->logs; i++) {
        if (bytes[i] == '\n')
            end_line(a, s);
        else if (s->len < AIDE_LINE_MAX && bytes[i] != '\0')
            s->line[s->len++] = bytes[i];
    }
    aide_leave(a);
    return true;
}

static void on_log_end(void *owner, char channel, const char *bytes, size_t n,
                       const struct error *e)
{
    struct aide *a = owner;
    (void)bytes;
    (void)n;
    a->logs = NULL;
    a->depth++;
    for (size_t i = 0; i < 2; i++)
        if (a->streams[i].len > 0)
            end_line(a, &a->streams[i]);
    if (a->is_closed)
        (void)e;
    else if (channel == WIRE_RESULT)
        a->events->on_ended(a->owner, a->last_line);
    else
        aide_fail(a, e);
    aide_leave(a);
}

static const struct call_events log_events = {.on_packet = on_log_packet, .on_end = on_log_end};

int aide_follow(struct aide *a, struct error *e)
{
    struct client_request q;
    client_request_init(&q, "logs");
    client_request_add(&q, "id", a->id);
    client_request_add(&q, "follow", "1");
    a->logs = call_open(a->upstream, &q, &log_events, a, e);
    client_request_free(&q);
    return a->logs ? 0 : -1;
}

void aide_close(struct aide *a)
{
    if (!a || a->is_closed)
        return;
    a->is_closed = true;
    hang_up(a);
    if (a->depth == 0)
        free(a);
}
