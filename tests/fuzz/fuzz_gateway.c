/*
 * The request path of the gateway: what one client sends, through a socketpair and the server's
 * loop. The input goes in twice, as it is and in small pieces, and what the handlers see (routes,
 * segments, parameters, bodies as JSON, WebSocket messages) must be the same: a request that can be
 * read in two ways would show. The first byte chooses the configuration, the second the pieces; or
 * the input is WebSocket frames only, without a request before them.
 */
#include "base/hash.h"
#include "gateway/http.h"
#include "gateway/json_body.h"
#include "gateway/path.h"
#include "gateway/websocket.h"
#include "gateway/websocket_codec.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BODY_MAX    600
#define MESSAGE_MAX 500

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

struct seen {
    uint64_t hash;
    unsigned requests, live; /* live: exchanges and sockets whose owner waits */
    struct websocket *socket;
    struct exchange *streamed;
    struct strbuf body;
    bool pauses;
};

static void add(struct seen *s, const char *text, size_t n)
{
    s->hash = hash_add(s->hash, text, n);
}

static void add_parameter(struct seen *s, const struct exchange *x, const char *name)
{
    CLEANUP_STRBUF struct strbuf value = {0};
    int found = exchange_parameter(x, name, &value);
    if (found == 1 && memchr(strbuf_text(&value), '\0', value.len))
        abort(); /* a name with a NUL in it would be another one to the system */
    add(s, (char[]){(char)('0' + found)}, 1);
    add(s, strbuf_text(&value), found == 1 ? value.len : 0);
}

/* A path as the file routes take it: whatever it is, it stays in the workspace. */
static void add_path(struct seen *s, const char *raw)
{
    CLEANUP_STRBUF struct strbuf path = {0}, resolved = {0};
    if (percent_decode(raw, strlen(raw), false, &path) < 0 ||
        workspace_resolve("/workspace", strbuf_text(&path), &resolved) < 0)
        return;
    const char *text = strbuf_text(&resolved);
    if (strncmp(text, "/workspace", 10) != 0 || (text[10] && text[10] != '/') ||
        strstr(text, "/../") || strstr(text, "//"))
        abort();
    add(s, text, resolved.len);
}

static struct seen *look(struct exchange *x)
{
    struct seen *s = exchange_context(x);
    const char *name, *value;
    s->requests++;
    add(s, exchange_method(x), strlen(exchange_method(x)));
    add(s, exchange_path(x), strlen(exchange_path(x)));
    add(s, exchange_query(x), strlen(exchange_query(x)));
    add(s, exchange_segment(x, "id"), strlen(exchange_segment(x, "id")));
    for (size_t i = 0; exchange_header_at(x, i, &name, &value); i++) {
        if (!*name || strpbrk(name, " \t\r\n:") || strpbrk(value, "\r\n"))
            abort();
        add(s, name, strlen(name));
        add(s, exchange_header(x, name), strlen(exchange_header(x, name)));
    }
    add_parameter(s, x, "token");
    add_parameter(s, x, "cols");
    return s;
}

static void plain(struct exchange *x)
{
    look(x);
    exchange_json(x, 200, "{}");
}

static void whole(struct exchange *x)
{
    struct seen *s = look(x);
    CLEANUP_STRBUF struct strbuf text = {0};
    size_t n;
    const char *body = exchange_body(x, &n);
    if (n > BODY_MAX)
        abort();
    add(s, body, n);
    json_t *json = json_body_parse(body, n);
    if (json)
        (void)json_to_text(json, &text);
    json_decref(json);
    add(s, strbuf_text(&text), text.len);
    if (json)
        exchange_json(x, 200, "{\"ok\":true}");
    else
        exchange_error(x, 400, "invalid_request", "Invalid JSON body");
}

static void on_body(void *owner, const char *bytes, size_t n)
{
    struct seen *s = owner;
    if (s->pauses)
        abort(); /* nothing comes after exchange_pause_body() */
    if (strbuf_add(&s->body, bytes, n) < 0)
        abort();
    s->pauses = s->body.len % 3 == 0;
    if (s->pauses)
        exchange_pause_body(s->streamed);
}

static void on_body_end(void *owner)
{
    struct seen *s = owner;
    struct exchange *x = s->streamed;
    if (s->pauses)
        abort();
    add(s, strbuf_text(&s->body), s->body.len);
    s->streamed = NULL;
    s->live--;
    exchange_begin(x, 200, "text/plain", -1);
    exchange_write(x, strbuf_text(&s->body), s->body.len);
    exchange_end(x);
}

static void on_closed(void *owner)
{
    struct seen *s = owner;
    s->streamed = NULL;
    s->live--;
}

static void streamed(struct exchange *x)
{
    static const struct exchange_events events = {
        .on_body = on_body, .on_body_end = on_body_end, .on_closed = on_closed};
    struct seen *s = look(x);
    add_path(s, exchange_segment(x, "*"));
    s->streamed = x;
    s->live++;
    s->pauses = false;
    strbuf_clear(&s->body);
    exchange_own(x, &events, s);
}

static bool on_message(void *owner, enum websocket_kind kind, const char *bytes, size_t n)
{
    struct seen *s = owner;
    if (n > MESSAGE_MAX)
        abort();
    add(s, (char[]){(char)kind}, 1);
    add(s, bytes, n);
    websocket_send(s->socket, kind, bytes, n);
    return true;
}

static void on_socket_closed(void *owner)
{
    struct seen *s = owner;
    s->socket = NULL;
    s->live--;
}

static void upgraded(struct exchange *x)
{
    static const struct websocket_events events = {.on_message = on_message,
                                                   .on_closed = on_socket_closed};
    struct seen *s = look(x);
    s->socket = websocket_accept(x, MESSAGE_MAX, &events, s);
    s->live += s->socket != NULL;
}

static const struct route table[] = {
    {"GET", "/health", BODY_IGNORED, ROUTE_OPEN, 0, NULL, plain},
    {"POST", "/v1/sandbox", BODY_IGNORED, 0, 0, NULL, plain},
    {"POST", "/v1/sandbox/:id/exec", BODY_WHOLE, 0, 0, NULL, whole},
    {"*", "/v1/sandbox/:id/file/*", BODY_STREAMED, ROUTE_QUERY_TOKEN, 300, NULL, streamed},
    {"GET", "/v1/sandbox/:id/pty", BODY_IGNORED, ROUTE_UPGRADE, 0, NULL, upgraded},
    {"GET", "/v1/pool/stats", BODY_IGNORED, ROUTE_EXACT_BEARER, 0, NULL, plain},
    {0},
};
static const struct route *const tables[] = {table, NULL};

/* ---- one run ----------------------------------------------------------------------------- */

static void drain(int fd)
{
    static char bytes[65536];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

static void turn(struct ev_loop *loop, struct seen *s, int fd)
{
    do {
        ev_run(loop, EVRUN_NOWAIT);
        drain(fd);
        if (!s->streamed || !s->pauses)
            return;
        s->pauses = false;
        exchange_resume_body(s->streamed);
    } while (true);
}

static struct seen seen; /* of the present run: the context of every server */

/* One for each configuration; it is as new when its connections are gone. */
static struct http_server *server_for(struct ev_loop *loop, uint8_t flags)
{
    static struct http_server *servers[8];
    struct http_config config = {.routes = tables,
                                 .token = flags & 1 ? "key" : NULL,
                                 .sandbox_id = flags & 2 ? "abc" : NULL,
                                 .cors_origin = flags & 4 ? "*" : NULL,
                                 .max_body = BODY_MAX,
                                 .max_connections = 2,
                                 .context = &seen};
    struct http_server **server = &servers[flags & 7];
    if (!*server)
        *server = http_server_new(loop, &config, NULL);
    return *server;
}

static struct seen run(struct ev_loop *loop, uint8_t flags, const char *bytes, size_t n,
                       size_t piece)
{
    struct http_server *server = server_for(loop, flags);
    int pair[2];
    seen = (struct seen){.hash = HASH_START};
    if (!server || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        abort();
    http_server_adopt(server, pair[1], NULL);
    for (size_t at = 0; at < n; at += piece) {
        size_t k = piece < n - at ? piece : n - at;
        if (send(pair[0], bytes + at, k, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            break;
        turn(loop, &seen, pair[0]);
    }
    for (int i = 0; i < 4; i++) /* answer all that has come before it leaves */
        turn(loop, &seen, pair[0]);
    close(pair[0]);
    for (int i = 0; i < 8; i++)
        ev_run(loop, EVRUN_NOWAIT);
    struct http_counts now;
    http_server_counts(server, &now);
    /* Whatever it was: the client has left, and each owner has heard it. */
    if (now.connections != 0 || seen.socket || seen.live > 0)
        abort();
    strbuf_free(&seen.body);
    return seen;
}

/* ---- frames alone ------------------------------------------------------------------------ */

static uint64_t decode(const char *bytes, size_t n, size_t piece)
{
    struct seen s = {.hash = HASH_START};
    struct websocket_decoder d;
    struct websocket_decoded got = {.event = DECODED_NOTHING};
    websocket_decoder_init(&d, MESSAGE_MAX);
    for (size_t at = 0; at < n && got.event != DECODED_BROKEN && got.event != DECODED_CLOSE;) {
        size_t end = at + piece < n ? at + piece : n;
        do {
            at += websocket_decode(&d, bytes + at, end - at, &got);
            if (got.event == DECODED_NOTHING)
                break;
            if (got.n > MESSAGE_MAX && got.event == DECODED_MESSAGE)
                abort();
            add(&s, (char[]){(char)got.event, (char)got.opcode, (char)got.code}, 3);
            add(&s, got.bytes, got.n);
        } while (at < end && got.event != DECODED_BROKEN && got.event != DECODED_CLOSE);
        if (at < end && got.event == DECODED_NOTHING)
            abort();
    }
    websocket_decoder_free(&d);
    return s.hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct ev_loop *loop;
    if (!loop)
        loop = ev_loop_new(EVFLAG_AUTO);
    if (n < 2 || n > 20000)
        return 0;
    size_t piece = 1 + bytes[1] % 64;
    const char *text = (const char *)bytes + 2;
    n -= 2;
    if (bytes[0] & 8) {
        if (decode(text, n, n + 1) != decode(text, n, piece))
            abort();
        return 0;
    }
    struct seen a = run(loop, bytes[0], text, n, n + 1), b = run(loop, bytes[0], text, n, piece);
    if (a.hash != b.hash || a.requests != b.requests)
        abort();
    return 0;
}
