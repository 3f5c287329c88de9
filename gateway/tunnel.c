/*
 * Tunnels: POST …/tunnel/:port makes a server inside reachable from outside, by cloudflared if the
 * image has it. There is at most one a port; asking again tells of the one there is. cloudflared is
 * an aide (aide.h) of the name tunnel-PORT; it writes its address into its log.
 */
#include "gateway/aide.h"
#include "gateway/gateway.h"
#include "gateway/mount_request.h"
#include "gateway/port.h"
#include "gateway/port_routes.h"

#include "base/clock.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TUNNEL_READY_S  30. /* until cloudflared has told its address */
#define TUNNEL_GRACE_MS 5000

struct tunnel {
    struct exchange *x;
    struct ev_loop *loop;
    struct aide *aide;
    ev_timer deadline;
    struct strbuf name;
    unsigned port;
    uint64_t began_real_ns;
    bool is_ours; /* this request has started it */
};

/* ---- ends -------------------------------------------------------------------------------- */

static struct exchange *tunnel_free(struct tunnel *t)
{
    struct exchange *x = t->x;
    ev_timer_stop(t->loop, &t->deadline);
    aide_close(t->aide);
    strbuf_free(&t->name);
    free(t);
    return x;
}

static void tunnel_fail(struct tunnel *t, const char *why)
{
    exchange_error(tunnel_free(t), 502, "tunnel_error", "tunnel failed: %s", why);
}

static void on_tunnel_failed(void *owner, const struct error *e)
{
    struct tunnel *t = owner;
    char why[sizeof e->text + 96];
    snprintf(why, sizeof why, "%s%s", e->text,
             e->code == ERR_SYSTEM ? "; a tunnel needs the program cloudflared in the image's PATH"
                                   : "");
    tunnel_fail(t, why);
}

static void tunnel_answer(struct tunnel *t, const char *host, size_t n)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    char time[32];
    clock_utc(t->began_real_ns / 1000000000u, time);
    int rc =
        strbuf_addf(&json,
                    "{\"id\":\"%s\",\"port\":%u,\"url\":\"https://%.*s\",\"hostname\":\"%.*s\","
                    "\"createdAt\":\"%s.%03uZ\"",
                    aide_id(t->aide), t->port, (int)n, host, (int)n, host, time,
                    (unsigned)(t->began_real_ns / 1000000u % 1000u));
    if (rc == 0 && t->name.len > 0)
        rc = strbuf_addf(&json, ",\"name\":\"%s\"", t->name.data); /* a DNS label */
    if (rc < 0 || strbuf_adds(&json, "}") < 0)
        tunnel_fail(t, "no memory for the answer");
    else
        exchange_json(tunnel_free(t), 200, json.data);
}

static void on_tunnel_closed(void *owner)
{
    (void)tunnel_free(owner); /* the tunnel goes on: the next request finds it */
}

static const struct exchange_events tunnel_exchange_events = {.on_closed = on_tunnel_closed};

/* ---- the address ------------------------------------------------------------------------- */

/* The public host in a line of cloudflared's, "NAME.trycloudflare.com" with its length in *n, or
 * NULL. The host of the service itself is none. */
static const char *tunnel_host_in(const char *line, size_t *n)
{
    static const char suffix[] = ".trycloudflare.com";
    for (const char *p = line; (p = strstr(p, "https://"));) {
        p += strlen("https://");
        *n = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789-.");
        size_t label = strcspn(p, ".");
        if (*n == label + sizeof suffix - 1 && strncmp(p + label, suffix, sizeof suffix - 1) == 0 &&
            label > 0 && strncmp(p, "api.", 4) != 0)
            return p;
    }
    return NULL;
}

static void on_tunnel_line(void *owner, const char *line)
{
    struct tunnel *t = owner;
    size_t n;
    const char *host = tunnel_host_in(line, &n);
    if (host)
        tunnel_answer(t, host, n);
}

static void on_tunnel_ended(void *owner, const char *last_line)
{
    char why[AIDE_LINE_MAX + 80];
    snprintf(why, sizeof why, "cloudflared ended before it had an address: %s",
             *last_line ? last_line : "it wrote nothing");
    tunnel_fail(owner, why);
}

static void on_tunnel_late(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct tunnel *t = w->data;
    struct error e = {0};
    if (!t->is_ours || aide_kill(t->aide, TUNNEL_GRACE_MS, &e) < 0)
        tunnel_fail(t, "cloudflared did not tell its address in time");
}

static void on_tunnel_killed(void *owner)
{
    tunnel_fail(owner, "cloudflared did not tell its address in time");
}

static void tunnel_follow(struct tunnel *t)
{
    struct error e = {0};
    ev_now_update(t->loop);
    ev_timer_set(&t->deadline, TUNNEL_READY_S, 0.);
    ev_timer_start(t->loop, &t->deadline);
    if (aide_follow(t->aide, &e) < 0)
        tunnel_fail(t, e.text);
}

/* ---- the steps --------------------------------------------------------------------------- */

static void on_tunnel_started(void *owner)
{
    tunnel_follow(owner);
}

static void on_tunnel_found(void *owner, bool is_live, uint64_t uptime_ms)
{
    struct tunnel *t = owner;
    struct client_request q;
    struct error e = {0};
    char url[48];
    t->began_real_ns = clock_real_ns() - uptime_ms * 1000000u;
    if (is_live) {
        tunnel_follow(t);
        return;
    }
    t->is_ours = true;
    snprintf(url, sizeof url, "http://127.0.0.1:%u", t->port);
    client_request_init(&q, "start");
    client_request_add(&q, "arg", "cloudflared");
    client_request_add(&q, "arg", "tunnel");
    client_request_add(&q, "arg", "--url");
    client_request_add(&q, "arg", url);
    client_request_add(&q, "arg", "--no-autoupdate");
    if (aide_start(t->aide, &q, &e) < 0)
        tunnel_fail(t, e.text);
}

static const struct aide_events tunnel_events = {.on_found = on_tunnel_found,
                                                 .on_started = on_tunnel_started,
                                                 .on_line = on_tunnel_line,
                                                 .on_ended = on_tunnel_ended,
                                                 .on_killed = on_tunnel_killed,
                                                 .on_failed = on_tunnel_failed};

static void on_delete_killed(void *owner)
{
    exchange_answer(tunnel_free(owner), 204, NULL, "", 0);
}

static void on_delete_found(void *owner, bool is_live, uint64_t uptime_ms)
{
    struct tunnel *t = owner;
    struct error e = {0};
    (void)uptime_ms;
    if (!is_live)
        on_delete_killed(t);
    else if (aide_kill(t->aide, TUNNEL_GRACE_MS, &e) < 0)
        tunnel_fail(t, e.text);
}

static const struct aide_events delete_events = {
    .on_found = on_delete_found, .on_killed = on_delete_killed, .on_failed = on_tunnel_failed};

/* ---- the requests ------------------------------------------------------------------------ */

/* NULL: x was answered. */
static struct tunnel *tunnel_new(struct exchange *x)
{
    unsigned port = tunnel_port_parse(exchange_segment(x, "port"));
    if (port == 0) {
        exchange_error(x, 400, "invalid_request", "Invalid port");
        return NULL;
    }
    struct tunnel *t = calloc(1, sizeof *t);
    if (!t) {
        exchange_error(x, 502, "tunnel_error", "tunnel failed: no memory");
        return NULL;
    }
    t->x = x;
    t->port = port;
    t->loop = exchange_loop(x);
    ev_timer_init(&t->deadline, on_tunnel_late, 0., 0.);
    t->deadline.data = t;
    exchange_own(x, &tunnel_exchange_events, t);
    return t;
}

static void tunnel_find(struct tunnel *t, const struct aide_events *events)
{
    const struct gateway *g = exchange_context(t->x);
    struct error e = {0};
    char name[32];
    snprintf(name, sizeof name, "tunnel-%u", t->port);
    t->aide = aide_find(g->upstream, name, events, t, &e);
    if (!t->aide)
        tunnel_fail(t, e.text);
}

void tunnel_begin(struct exchange *x)
{
    CLEANUP_STRBUF struct strbuf complaint = {0};
    struct tunnel *t = tunnel_new(x);
    if (!t)
        return;
    size_t n;
    const char *body = exchange_body(x, &n);
    if (tunnel_request_parse(body, n, &t->name, &complaint) < 0) {
        (void)tunnel_free(t);
        exchange_error(x, 400, "invalid_request", "%s", strbuf_text(&complaint));
        return;
    }
    tunnel_find(t, &tunnel_events);
}

void tunnel_end_begin(struct exchange *x)
{
    struct tunnel *t = tunnel_new(x);
    if (t)
        tunnel_find(t, &delete_events);
}
