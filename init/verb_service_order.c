/*
 * service.start, stop, restart and reload: an order to some services, and a client that waits until
 * it is carried out. All services are found before the first gets its order. The order is init's
 * own from then on: a client that leaves, or whose patience ends, takes back its wish to hear of
 * it, not the order, so that a service may restart itself.
 */
#include "init/verb.h"
#include "init/service_choice.h"

#include "base/number.h"

#include <stdlib.h>
#include <string.h>

typedef int order_function(struct service *s, struct service_wish *wish, struct error *e);

struct item {
    struct service_wish wish;
    struct order *order;
    char name[SERVICE_NAME_MAX + 1];
    bool is_open; /* the wish stands */
};

struct order {
    struct init *init;
    struct conn *conn;
    ev_timer patience;
    uint64_t patience_ms;
    const char *aim; /* what is waited for: "ready", "stopped" */
    size_t open, failed, count;
    bool is_being_given; /* more items may become open */
    struct item items[];
};

void answer_service(struct record *to, const struct service *s, const struct error *e)
{
    record_str(to, "name", service_name(s));
    record_str(to, "state", service_state_name(service_state(s)));
    if (service_pid(s))
        record_int(to, "pid", service_pid(s));
    record_str(to, "detail", service_explain(s));
    if (!e)
        return;
    record_str(to, "error", e->text);
    record_str(to, "code", error_code_name(e->code));
}

static void order_free(struct order *o)
{
    ev_timer_stop(o->init->loop, &o->patience);
    for (size_t i = 0; i < o->count; i++)
        if (o->items[i].is_open)
            service_wish_drop(&o->items[i].wish);
    free(o);
}

static void on_closed(void *owner)
{
    order_free(owner);
}

static const struct conn_events order_events = {.on_closed = on_closed};

static void send_row(struct order *o, const struct service *s, const struct error *e)
{
    struct record row = {0};
    answer_service(&row, s, e);
    o->failed += e != NULL;
    conn_row(o->conn, &row);
    record_free(&row);
}

/* The answer, when nothing is waited for any more. */
static void order_step(struct order *o)
{
    struct record done = {0};
    if (o->open > 0 || o->is_being_given)
        return;
    record_int(&done, "services", (int64_t)o->count);
    record_int(&done, "failed", (int64_t)o->failed);
    conn_result(o->conn, &done);
    record_free(&done);
    order_free(o);
}

static void item_close(struct item *x)
{
    x->is_open = false;
    x->order->open--;
}

static void on_done(void *owner, struct service *s, const struct error *e)
{
    struct item *x = owner;
    item_close(x);
    send_row(x->order, s, e);
    order_step(x->order);
}

static void on_impatient(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop, (void)events;
    struct order *o = w->data;
    char text[32];
    number_format_duration(o->patience_ms, text, sizeof text);
    for (size_t i = 0; i < o->count; i++) {
        struct item *x = &o->items[i];
        struct error e = {0};
        if (!x->is_open)
            continue;
        service_wish_drop(&x->wish);
        item_close(x);
        struct service *s = service_find(o->init->services, x->name, &e);
        if (!s)
            continue;
        const char *why = service_explain(s);
        error_set(&e, ERR_BUSY, "service '%s': not %s within %s%s%s", x->name, o->aim, text,
                  why[0] ? ": " : "", why);
        send_row(o, s, &e);
    }
    order_step(o);
}

static struct order *order_new(struct init *in, struct conn *c, const struct request *r,
                               size_t count, struct error *e)
{
    uint64_t ms;
    bool has_limit;
    if (verb_get_ms(r, "timeout_ms", &ms, &has_limit, e) < 0)
        return NULL;
    struct order *o = calloc(1, sizeof *o + count * sizeof o->items[0]);
    if (!o) {
        error_set(e, ERR_MEMORY, "%s: no memory", r->verb);
        return NULL;
    }
    o->init = in;
    o->conn = c;
    o->count = count;
    o->patience_ms = has_limit ? ms : 0;
    ev_timer_init(&o->patience, on_impatient, (double)o->patience_ms / 1000., 0.);
    o->patience.data = o;
    if (has_limit)
        ev_timer_start(in->loop, &o->patience);
    return o;
}

static void give(struct order *o, struct item *x, struct service *s, order_function *run,
                 bool waits)
{
    struct error e = {0};
    list_init(&x->wish.link);
    x->wish.on_done = on_done;
    x->wish.owner = x;
    x->order = o;
    strncpy(x->name, service_name(s), sizeof x->name - 1);
    x->is_open = waits;
    o->open += waits;
    if (run(s, waits ? &x->wish : NULL, &e) == 0) {
        if (!waits)
            send_row(o, s, NULL);
        return;
    }
    if (waits)
        item_close(x);
    send_row(o, s, &e);
}

static int give_order(struct init *in, struct conn *c, const struct request *r, order_function *run,
                      const char *aim, struct error *e)
{
    struct service_choice *choice = service_choice_new(in->services, r, true, e);
    struct order *o = choice ? order_new(in, c, r, choice->count, e) : NULL;
    if (!o) {
        free(choice);
        return -1;
    }
    o->aim = aim;
    o->is_being_given = true;
    conn_set_owner(c, &order_events, o);
    for (size_t i = 0; i < choice->count; i++)
        give(o, &o->items[i], choice->services[i], run, !request_get(r, "no_wait"));
    free(choice);
    o->is_being_given = false;
    order_step(o);
    return 0;
}

int verb_service_start(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    return give_order(in, c, r, service_start, "ready", e);
}

int verb_service_stop(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    return give_order(in, c, r, service_stop, "stopped", e);
}

int verb_service_restart(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    return give_order(in, c, r, service_restart, "ready", e);
}

int verb_service_reload(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    return give_order(in, c, r, service_reload, "ready", e);
}
