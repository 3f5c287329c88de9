/* Whole answers of init (gather.h). A row stands in `rows` as its length and its bytes. */
#include "gateway/gather.h"

#include "control/wire.h"

#include <stdlib.h>
#include <string.h>

struct gather {
    struct call *call;
    void (*on_done)(void *owner, const struct gathered *all);
    void *owner;
    struct gathered all;
    bool is_too_much;
};

static bool on_gather_packet(void *owner, char channel, const char *bytes, size_t n)
{
    struct gather *g = owner;
    if (channel != WIRE_ROW || g->is_too_much)
        return true;
    if (strbuf_add(&g->all.rows, &n, sizeof n) < 0 || strbuf_add(&g->all.rows, bytes, n) < 0)
        g->is_too_much = true;
    g->all.count++;
    return true;
}

static void gather_free(struct gather *g)
{
    strbuf_free(&g->all.rows);
    free(g);
}

static void on_gather_end(void *owner, char channel, const char *bytes, size_t n,
                          const struct error *e)
{
    struct gather *g = owner;
    struct error much = {0};
    g->call = NULL;
    if (channel == WIRE_RESULT && !g->is_too_much) {
        g->all.result = bytes;
        g->all.result_len = n;
    } else if (channel == WIRE_RESULT) {
        error_set(&much, ERR_LIMIT, "the list is too long: more than %zu bytes", GATHER_MAX);
        g->all.error = &much;
    } else {
        g->all.error = e;
    }
    g->on_done(g->owner, &g->all);
    gather_free(g);
}

static const struct call_events gather_events = {.on_packet = on_gather_packet,
                                                 .on_end = on_gather_end};

struct gather *gather_open(struct upstream *u, struct client_request *q,
                           void (*on_done)(void *owner, const struct gathered *all), void *owner,
                           struct error *e)
{
    struct gather *g = calloc(1, sizeof *g);
    if (g) {
        g->on_done = on_done;
        g->owner = owner;
        g->all.rows.limit = GATHER_MAX;
        g->call = call_open(u, q, &gather_events, g, e);
    } else {
        error_set(e, ERR_MEMORY, "no memory for a request to sandbox-init");
    }
    client_request_free(q);
    if (g && !g->call) {
        gather_free(g);
        g = NULL;
    }
    return g;
}

void gather_close(struct gather *g)
{
    if (!g)
        return;
    if (g->call)
        call_close(g->call);
    gather_free(g);
}

bool gathered_row(const struct gathered *all, size_t *at, const char **row, size_t *n)
{
    if (*at >= all->rows.len)
        return false;
    memcpy(n, all->rows.data + *at, sizeof *n);
    *row = all->rows.data + *at + sizeof *n;
    *at += sizeof *n + *n;
    return true;
}
