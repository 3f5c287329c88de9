/*
 * GET …/port/:port/wait: answer when a TCP connection to the port works. Tries again and again,
 * each one a flow that is closed as soon as it is there, until timeout_ms is over.
 */
#include "gateway/flow.h"
#include "gateway/port.h"
#include "gateway/port_routes.h"

#include "base/clock.h"
#include "base/number.h"
#include "base/strbuf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_DEFAULT_MS 30000
#define WAIT_MAX_MS     ((uint64_t)24 * 3600 * 1000)
#define PAUSE_FIRST_S   0.01
#define PAUSE_MAX_S     0.25

struct port_wait {
    struct exchange *x;
    struct ev_loop *loop;
    struct flow *flow; /* the try that is under way, or NULL */
    ev_timer pause;    /* between two tries */
    char host[64];
    uint16_t port;
    uint64_t began_ns, deadline_ns;
    double pause_s;
};

static void wait_free(struct port_wait *w)
{
    ev_timer_stop(w->loop, &w->pause);
    flow_close(w->flow);
    free(w);
}

static uint64_t elapsed_ms(const struct port_wait *w)
{
    return (clock_mono_ns() - w->began_ns) / 1000000;
}

static void wait_fail(struct port_wait *w, int status, const char *why)
{
    struct exchange *x = w->x;
    unsigned port = w->port;
    wait_free(w);
    if (status == 400)
        exchange_error(x, 400, "invalid_request", "%s", why);
    else
        exchange_error(x, status, "port_error", "port %u: %s", port, why);
}

static void on_wait_open(void *owner)
{
    struct port_wait *w = owner;
    struct exchange *x = w->x;
    char json[96];
    snprintf(json, sizeof json, "{\"port\":%u,\"open\":true,\"waited_ms\":%llu}", (unsigned)w->port,
             (unsigned long long)elapsed_ms(w));
    wait_free(w);
    exchange_json(x, 200, json);
}

static bool on_wait_bytes(void *owner, const char *bytes, size_t n)
{
    (void)owner;
    (void)bytes;
    (void)n;
    return false;
}

static void on_wait_end(void *owner)
{
    (void)owner;
}

static void on_wait_broken(void *owner, const struct error *e)
{
    struct port_wait *w = owner;
    flow_close(w->flow);
    w->flow = NULL;
    uint64_t now = clock_mono_ns();
    if (now >= w->deadline_ns) {
        char why[sizeof e->text + 64];
        snprintf(why, sizeof why, "no connection within %llu ms: %s",
                 (unsigned long long)((w->deadline_ns - w->began_ns) / 1000000), e->text);
        wait_fail(w, 504, why);
        return;
    }
    double left_s = (double)(w->deadline_ns - now) / 1e9;
    ev_now_update(w->loop);
    ev_timer_set(&w->pause, w->pause_s < left_s ? w->pause_s : left_s, 0.);
    ev_timer_start(w->loop, &w->pause);
    w->pause_s = w->pause_s * 2 < PAUSE_MAX_S ? w->pause_s * 2 : PAUSE_MAX_S;
}

static const struct flow_events wait_events = {.on_open = on_wait_open,
                                               .on_bytes = on_wait_bytes,
                                               .on_end = on_wait_end,
                                               .on_broken = on_wait_broken};

static void wait_try(struct port_wait *w)
{
    struct error e = {0};
    uint64_t now = clock_mono_ns();
    uint64_t left_ms = now < w->deadline_ns ? (w->deadline_ns - now) / 1000000 + 1 : 1;
    w->flow = flow_connect(w->loop, w->host, w->port, left_ms, &wait_events, w, &e);
    if (!w->flow)
        wait_fail(w, e.code == ERR_INVALID ? 400 : 502, e.text);
}

static void on_wait_pause(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    wait_try(timer->data);
}

static void on_wait_closed(void *owner)
{
    wait_free(owner);
}

static const struct exchange_events wait_exchange_events = {.on_closed = on_wait_closed};

/* timeout_ms and host of the query. 0, or -1: answered with 400. */
static int get_parameters(struct exchange *x, struct port_wait *w)
{
    CLEANUP_STRBUF struct strbuf host = {0};
    CLEANUP_STRBUF struct strbuf timeout = {0};
    uint64_t ms = WAIT_DEFAULT_MS;
    int has_host = exchange_parameter(x, "host", &host);
    int has_timeout = exchange_parameter(x, "timeout_ms", &timeout);
    if (has_timeout != 0 &&
        (has_timeout < 0 || number_parse_u64(strbuf_text(&timeout), WAIT_MAX_MS, &ms) < 0)) {
        exchange_error(x, 400, "invalid_request", "timeout_ms must be a number of milliseconds");
        return -1;
    }
    if (has_host < 0 || host.len >= sizeof w->host) {
        exchange_error(x, 400, "invalid_request",
                       "host must be localhost or an address in numbers");
        return -1;
    }
    const char *place = host.len > 0 ? host.data : "localhost";
    memcpy(w->host, place, strlen(place) + 1);
    w->began_ns = clock_mono_ns();
    w->deadline_ns = w->began_ns + ms * 1000000;
    return 0;
}

void port_wait_begin(struct exchange *x)
{
    uint16_t port = port_of_exchange(x);
    if (port == 0)
        return;
    struct port_wait *w = calloc(1, sizeof *w);
    if (!w) {
        exchange_error(x, 502, "port_error", "port %u: no memory", (unsigned)port);
        return;
    }
    if (get_parameters(x, w) < 0) {
        free(w);
        return;
    }
    w->x = x;
    w->port = port;
    w->loop = exchange_loop(x);
    w->pause_s = PAUSE_FIRST_S;
    ev_timer_init(&w->pause, on_wait_pause, 0., 0.);
    w->pause.data = w;
    exchange_own(x, &wait_exchange_events, w);
    wait_try(w);
}
