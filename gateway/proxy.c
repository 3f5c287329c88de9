/*
 * The proxy: a request for …/port/:port/PATH goes to the server inside that listens on 127.0.0.1
 * (or
 * ::1) and that port, over a connection of its own; the answer comes back as it is sent. Bodies are
 * streamed with back-pressure both ways: what one side does not take, the other is not asked for.
 *
 * One struct proxy an exchange. It ends when the answer is whole, when the client leaves
 * (on_closed) or when the server does; each end closes the other side. Callbacks may end it while
 * another one of it is on the stack: it is freed when the outermost returns (`depth`). After 101
 * the two sockets become a relay, and the proxy ends without closing them.
 */
#include "gateway/flow.h"
#include "gateway/gateway.h"
#include "gateway/port.h"
#include "gateway/port_routes.h"
#include "gateway/proxy_head.h"
#include "gateway/relay.h"

#include "base/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROXY_CONNECT_MS 10000

struct proxy {
    struct exchange *x; /* NULL: dead for us */
    struct flow *inner; /* NULL: closed, or given to the relay */
    struct response response;
    struct proxy_place place;
    struct strbuf prefix, path;
    unsigned depth;
    bool is_chunked;   /* the request's body */
    bool is_answering; /* exchange_begin() was called */
    bool is_over;
};

static void proxy_free(struct proxy *p)
{
    response_free(&p->response);
    strbuf_free(&p->prefix);
    strbuf_free(&p->path);
    free(p);
}

/* From here on no callback comes. */
static void proxy_end(struct proxy *p)
{
    p->is_over = true;
    p->x = NULL;
    flow_close(p->inner);
    p->inner = NULL;
}

static void proxy_enter(struct proxy *p)
{
    p->depth++;
}

static void proxy_leave(struct proxy *p)
{
    if (--p->depth == 0 && p->is_over)
        proxy_free(p);
}

/* The server inside cannot give an answer, or not the rest of it. */
static void proxy_fail(struct proxy *p, const char *why)
{
    struct exchange *x = p->x;
    bool is_answering = p->is_answering;
    unsigned port = p->place.port;
    proxy_end(p);
    if (!x)
        return;
    if (is_answering)
        exchange_cut(x);
    else
        exchange_error(x, 502, "port_error", "port %u: %s", port, why);
}

/* ---- the request ------------------------------------------------------------------------- */

static void on_request_body(void *owner, const char *bytes, size_t n)
{
    struct proxy *p = owner;
    if (n == 0 || !p->inner)
        return;
    char size[24];
    if (p->is_chunked) {
        int len = snprintf(size, sizeof size, "%zx\r\n", n);
        flow_write(p->inner, size, (size_t)len);
    }
    bool has_room = flow_write(p->inner, bytes, n);
    if (p->is_chunked)
        has_room = flow_write(p->inner, "\r\n", 2);
    if (!has_room)
        exchange_pause_body(p->x);
}

static void on_request_body_end(void *owner)
{
    struct proxy *p = owner;
    if (p->is_chunked && p->inner)
        flow_write(p->inner, "0\r\n\r\n", 5);
}

static void on_client_writable(void *owner)
{
    struct proxy *p = owner;
    if (p->inner)
        flow_resume(p->inner);
}

static void on_client_closed(void *owner)
{
    struct proxy *p = owner;
    proxy_enter(p);
    proxy_end(p);
    proxy_leave(p);
}

static const struct exchange_events client_events = {.on_body = on_request_body,
                                                     .on_body_end = on_request_body_end,
                                                     .on_writable = on_client_writable,
                                                     .on_closed = on_client_closed};

/* ---- the answer -------------------------------------------------------------------------- */

static void on_response_head(void *owner)
{
    struct proxy *p = owner;
    if (!p->x || p->response.state == RESPONSE_UPGRADED)
        return;
    if (proxy_response_headers(&p->response, &p->place, p->x) < 0) {
        proxy_fail(p, "no memory for the answer's headers");
        return;
    }
    p->is_answering = true;
    exchange_begin(p->x, response_status(&p->response), response_find(&p->response, "content-type"),
                   response_length(&p->response));
}

static void on_response_body(void *owner, const char *bytes, size_t n)
{
    struct proxy *p = owner;
    if (p->x && !exchange_write(p->x, bytes, n) && p->inner)
        flow_pause(p->inner);
}

static const struct response_events response_events = {.on_head = on_response_head,
                                                       .on_body = on_response_body};

/* 101: both sockets become one connection; rest is what the server has sent behind its head. */
static void become_relay(struct proxy *p, const char *rest, size_t n)
{
    CLEANUP_STRBUF struct strbuf head = {0};
    CLEANUP_STRBUF struct strbuf early = {0};
    struct ev_loop *loop = exchange_loop(p->x);
    if (proxy_upgrade_head(&p->response, &head) < 0) {
        proxy_fail(p, "no memory for the answer");
        return;
    }
    struct http_server *server = NULL;
    int fd = exchange_take_socket(p->x, &early, &server);
    p->x = NULL;
    struct flow *inner = p->inner;
    p->inner = NULL;
    proxy_end(p);
    struct flow *client = fd < 0 ? NULL : flow_adopt(loop, fd, NULL, NULL, NULL);
    if (!client) {
        flow_close(inner);
        http_server_left(server);
        return;
    }
    if (relay_start(loop, server, client, inner) < 0)
        return;
    flow_write(client, strbuf_text(&head), head.len);
    flow_write(client, rest, n);
    flow_write(inner, strbuf_text(&early), early.len);
}

static void proxy_step(struct proxy *p, const char *rest, size_t n)
{
    if (!p->x)
        return;
    switch (p->response.state) {
    case RESPONSE_HEAD:
    case RESPONSE_BODY:
        break;
    case RESPONSE_DONE: {
        struct exchange *x = p->x;
        proxy_end(p);
        exchange_end(x);
        break;
    }
    case RESPONSE_UPGRADED:
        become_relay(p, rest, n);
        break;
    case RESPONSE_BAD:
        proxy_fail(p, response_complaint(&p->response));
        break;
    }
}

static bool on_inner_bytes(void *owner, const char *bytes, size_t n)
{
    struct proxy *p = owner;
    size_t used;
    proxy_enter(p);
    (void)response_take(&p->response, bytes, n, &used);
    proxy_step(p, bytes + used, n - used);
    proxy_leave(p);
    return true; /* a pause was asked for by flow_pause() */
}

static void on_inner_end(void *owner)
{
    struct proxy *p = owner;
    proxy_enter(p);
    (void)response_end(&p->response);
    proxy_step(p, "", 0);
    proxy_leave(p);
}

static void on_inner_writable(void *owner)
{
    struct proxy *p = owner;
    if (p->x)
        exchange_resume_body(p->x);
}

static void on_inner_broken(void *owner, const struct error *e)
{
    struct proxy *p = owner;
    char why[sizeof e->text + 80];
    snprintf(why, sizeof why, "%s%s", e->text,
             e->sys == ECONNREFUSED
                 ? "; nobody listens there (start a server first, or wait for it)"
                 : "");
    proxy_enter(p);
    proxy_fail(p, why);
    proxy_leave(p);
}

static const struct flow_events inner_events = {.on_bytes = on_inner_bytes,
                                                .on_end = on_inner_end,
                                                .on_writable = on_inner_writable,
                                                .on_broken = on_inner_broken};

/* ---- the beginning ----------------------------------------------------------------------- */

static int find_place(struct proxy *p, uint16_t port)
{
    struct exchange *x = p->x;
    p->place.port = port;
    p->place.is_upgrade = exchange_is_upgrade(x, "websocket");
    p->is_chunked = exchange_length(x) < 0;
    if (strbuf_addf(&p->prefix, "/v1/sandbox/%s/port/%s", exchange_segment(x, "id"),
                    exchange_segment(x, "port")) < 0)
        return -1;
    if (strbuf_addf(&p->path, "/%s", exchange_segment(x, "*")) < 0)
        return -1;
    p->place.prefix = p->prefix.data;
    p->place.path = p->path.data;
    return 0;
}

static int proxy_connect(struct proxy *p, struct error *e)
{
    CLEANUP_STRBUF struct strbuf head = {0};
    if (proxy_request_head(p->x, &p->place, &head) < 0)
        return error_set(e, ERR_MEMORY, "no memory for the request");
    p->inner = flow_connect(exchange_loop(p->x), "localhost", p->place.port, PROXY_CONNECT_MS,
                            &inner_events, p, e);
    if (!p->inner)
        return -1;
    flow_write(p->inner, head.data, head.len);
    return 0;
}

/* Send the client to the same place: with a slash behind the port, without the token in its
 * address. */
static void proxy_redirect(struct exchange *x, int status, bool wants_slash)
{
    CLEANUP_STRBUF struct strbuf to = {0};
    bool failed = strbuf_addf(&to, "%s%s", exchange_path(x), wants_slash ? "/" : "") < 0;
    if (status == 303)
        (void)proxy_query(x, &to, &failed);
    else if (*exchange_query(x))
        failed |= strbuf_addf(&to, "?%s", exchange_query(x)) < 0;
    if (failed) {
        exchange_error(x, 502, "port_error", "no memory for the answer");
        return;
    }
    exchange_add_header(x, "Location", to.data);
    exchange_answer(x, status, NULL, "", 0);
}

/* A page at …/port/8080 would look for what it needs beside the number. */
static bool needs_slash(struct exchange *x)
{
    const char *path = exchange_path(x);
    return *exchange_segment(x, "*") == '\0' && path[strlen(path) - 1] != '/';
}

/* A browser opens a page. To hosts without TLS it does not say so (Fetch Metadata). */
static bool is_navigation(const struct exchange *x)
{
    const char *mode = exchange_header(x, "sec-fetch-mode");
    const char *accept = exchange_header(x, "accept");
    if (strcmp(exchange_method(x), "GET") != 0)
        return false;
    return mode ? strcmp(mode, "navigate") == 0 : accept && strstr(accept, "text/html");
}

/* A person has opened an address with the token in it. What the
 * page loads would come without it, and it would be told to others as Referer: the browser gets a
 * cookie for this port instead. True if x was answered. */
static bool gives_pass(struct exchange *x, bool wants_slash)
{
    CLEANUP_STRBUF struct strbuf query = {0};
    CLEANUP_STRBUF struct strbuf cookie = {0};
    bool failed = false;
    if (!is_navigation(x) || !proxy_query(x, &query, &failed) || !*exchange_pass(x))
        return false;
    if (strbuf_addf(&cookie,
                    EXCHANGE_COOKIE "=%s; Path=/v1/sandbox/%s/port/%s/; HttpOnly; SameSite=Strict",
                    exchange_pass(x), exchange_segment(x, "id"), exchange_segment(x, "port")) < 0)
        return false;
    exchange_add_header(x, "Set-Cookie", cookie.data);
    exchange_add_header(x, "Cache-Control", "no-store");
    proxy_redirect(x, 303, wants_slash);
    return true;
}

void proxy_begin(struct exchange *x)
{
    uint16_t port = port_of_exchange(x);
    if (port == 0)
        return;
    if (gives_pass(x, needs_slash(x)))
        return;
    if (needs_slash(x)) {
        proxy_redirect(x, 308, true);
        return;
    }
    struct error e = {0};
    struct proxy *p = calloc(1, sizeof *p);
    if (!p) {
        exchange_error(x, 502, "port_error", "port %u: no memory", (unsigned)port);
        return;
    }
    p->x = x;
    exchange_own(x, &client_events, p);
    proxy_enter(p);
    if (find_place(p, port) < 0)
        error_set(&e, ERR_MEMORY, "no memory for the request");
    response_init(&p->response, strcmp(exchange_method(x), "HEAD") == 0, p->place.is_upgrade,
                  &response_events, p);
    if (e.code != ERR_NONE || proxy_connect(p, &e) < 0)
        proxy_fail(p, e.text);
    proxy_leave(p);
}
