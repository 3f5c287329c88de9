/*
 * Relays (relay.h). A side that cannot take more stops the other one's reading, and lets it go on
 * when there is room. The end of one side is passed on as an end; since somebody who has left often
 * looks like one who has only said his last word, the other one may go on for a while only.
 */
#include "gateway/relay.h"

#include <stdlib.h>

struct relay;

struct relay_side {
    struct relay *relay;
    struct flow *flow;
    struct relay_side *other;
    bool has_ended;
};

struct relay {
    struct ev_loop *loop;
    struct http_server *server;
    struct http_guest guest; /* of the server, if there is one */
    struct relay_side sides[2];
    ev_timer linger;
};

static void relay_end(struct relay *r)
{
    ev_timer_stop(r->loop, &r->linger);
    flow_close(r->sides[0].flow);
    flow_close(r->sides[1].flow);
    list_remove(&r->guest.link);
    http_server_left(r->server);
    free(r);
}

static void on_server_end(struct http_guest *g)
{
    relay_end(list_entry(g, struct relay, guest));
}

static void on_relay_linger(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    relay_end(w->data);
}

static bool on_side_bytes(void *owner, const char *bytes, size_t n)
{
    struct relay_side *s = owner;
    return flow_write(s->other->flow, bytes, n);
}

static void on_side_writable(void *owner)
{
    struct relay_side *s = owner;
    flow_resume(s->other->flow);
}

static void on_side_end(void *owner)
{
    struct relay_side *s = owner;
    struct relay *r = s->relay;
    s->has_ended = true;
    flow_end(s->other->flow);
    ev_timer_stop(r->loop, &r->linger);
    ev_now_update(r->loop);
    /* Both have ended: what waits may still be sent, and both ends are passed on. */
    bool is_done =
        s->other->has_ended && flow_waiting(s->flow) == 0 && flow_waiting(s->other->flow) == 0;
    ev_timer_set(&r->linger, is_done ? 0. : RELAY_LINGER_S, 0.);
    ev_timer_start(r->loop, &r->linger);
}

static void on_side_broken(void *owner, const struct error *e)
{
    (void)e;
    struct relay_side *s = owner;
    relay_end(s->relay);
}

static const struct flow_events relay_events = {.on_bytes = on_side_bytes,
                                                .on_end = on_side_end,
                                                .on_writable = on_side_writable,
                                                .on_broken = on_side_broken};

int relay_start(struct ev_loop *loop, struct http_server *server, struct flow *one,
                struct flow *other)
{
    struct relay *r = calloc(1, sizeof *r);
    if (!r) {
        flow_close(one);
        flow_close(other);
        http_server_left(server);
        return -1;
    }
    r->loop = loop;
    r->server = server;
    r->guest.end = on_server_end;
    list_init(&r->guest.link);
    if (server)
        http_server_add_guest(server, &r->guest);
    ev_timer_init(&r->linger, on_relay_linger, 0., 0.);
    r->linger.data = r;
    r->sides[0] = (struct relay_side){.relay = r, .flow = one, .other = &r->sides[1]};
    r->sides[1] = (struct relay_side){.relay = r, .flow = other, .other = &r->sides[0]};
    flow_own(one, &relay_events, &r->sides[0]);
    flow_own(other, &relay_events, &r->sides[1]);
    /* What was queued before the relay began may be more than a side takes at once. */
    flow_resume(one);
    flow_resume(other);
    return 0;
}
