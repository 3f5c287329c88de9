/*
 * The server as a whole: its configuration, the list of connections that have something to settle,
 * numbers, start and end.
 */
#include "gateway/http_internal.h"

#include <stdlib.h>
#include <string.h>

static struct conn *first(struct list *l)
{
    return l->next == l ? NULL : list_entry(l->next, struct conn, touched);
}

/* Before the loop sleeps: whatever happened in this turn has its consequences now. */
static void on_settle(struct ev_loop *loop, ev_prepare *w, int events)
{
    (void)events;
    struct http_server *s = w->data;
    for (struct conn *c; (c = first(&s->touched));) {
        list_remove(&c->touched);
        http_conn_settle(c);
    }
    if (!list_is_empty(&s->later) && !ev_is_active(&s->again)) {
        ev_timer_set(&s->again, 0., 0.);
        ev_timer_start(loop, &s->again);
    }
}

static void on_again(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct http_server *s = w->data;
    for (struct conn *c; (c = first(&s->later));)
        conn_touch(c);
}

struct http_server *http_server_new(struct ev_loop *loop, const struct http_config *config,
                                    struct error *e)
{
    struct http_server *s = calloc(1, sizeof *s);
    if (!s) {
        error_set(e, ERR_MEMORY, "HTTP server: no memory");
        return NULL;
    }
    s->loop = loop;
    s->config = *config;
    listeners_init(s);
    list_init(&s->connections);
    list_init(&s->touched);
    list_init(&s->later);
    list_init(&s->guests);
    arrivals_init(&s->arrivals, loop);
    auth_init(s);
    ev_prepare_init(&s->settle, on_settle);
    s->settle.data = s;
    ev_prepare_start(loop, &s->settle);
    ev_unref(loop);
    ev_timer_init(&s->again, on_again, 0., 0.);
    s->again.data = s;
    return s;
}

int http_server_adopt(struct http_server *s, int fd, struct error *e)
{
    return http_conn_new(s, fd, false, e);
}

void http_server_left(struct http_server *s)
{
    if (s)
        s->counts.connections--;
}

void http_server_add_guest(struct http_server *s, struct http_guest *g)
{
    list_append(&s->guests, &g->link);
}

static void end_following(struct exchange *x)
{
    const struct exchange_events *events = x->events;
    x->events = NULL;
    if (events && events->on_closed)
        events->on_closed(x->owner);
    if (x->answer_has_begun)
        exchange_end(x);
    else
        exchange_error(x, 502, "unavailable", "the gateway is stopping");
}

void http_server_stop(struct http_server *s)
{
    s->is_stopping = true;
    listeners_stop(s);
    list_each(c, &s->connections, struct conn, node)
    {
        if (c->x && c->x->is_following && !c->x->answer_has_ended)
            end_following(c->x);
        if (!c->x)
            c->ends = true;
        conn_touch(c);
    }
}

bool http_server_is_done(const struct http_server *s)
{
    list_each(c, &s->connections, struct conn, node) if (c->state != CONN_LINGER) return false;
    return true;
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    listeners_stop(s);
    while (!list_is_empty(&s->connections))
        conn_kill(list_entry(s->connections.next, struct conn, node));
    list_each(g, &s->guests, struct http_guest, link) g->end(g);
    arrivals_end(&s->arrivals);
    ev_ref(s->loop);
    ev_prepare_stop(s->loop, &s->settle);
    ev_timer_stop(s->loop, &s->again);
    explicit_bzero(s->token, sizeof s->token);
    free(s);
}

void http_server_counts(const struct http_server *s, struct http_counts *to)
{
    *to = s->counts;
}
