/*
 * GET /v1/sandbox/:id/pty: a terminal over a WebSocket. A view is one client and its call to init,
 * which is a view there, too (init/verb_terminal.c): what is typed and shown passes through.
 *
 * Without a session the terminal is the client's own and hangs up with it; with one it is shared
 * by all that name the session. The upgrade is answered when init has said that the terminal is
 * there, so that what goes wrong before has a status; a shell that can't be started is told by an
 * error frame instead, as the contract has it. First comes what the terminal has shown before, in
 * one frame, then `ready`, then what it shows from then on.
 *
 * Both ways the slower side holds up the other: init is read only while the client takes what is
 * shown, the client only while init takes what is typed.
 */
#include "base/json.h"
#include "base/number.h"
#include "control/record.h"
#include "control/wire.h"
#include "gateway/gateway.h"
#include "gateway/path.h"
#include "gateway/reply.h"
#include "gateway/session_name.h"
#include "gateway/websocket.h"
#include "gateway/websocket_codec.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX    ((size_t)1024 * 1024)
#define FRAME_ENOUGH   ((size_t)64 * 1024) /* bytes that are gathered into one frame when live */
#define SIZE_MAX_CELLS 10000               /* rows or columns; init takes no more */
#define PATIENCE_MS    "30000"             /* in the queue of a session; clients wait no longer */
#define COLS           "80"
#define ROWS           "24"

struct view {
    struct gateway *gateway;
    struct exchange *x;  /* until the upgrade is answered */
    struct websocket *w; /* from then on */
    struct call *call;
    char session[SESSION_NAME_SIZE]; /* "": none */
    char *shell;                     /* NULL: the default */
    char rows[8], cols[8];
    enum {
        FINDING,
        MAKING,
        MADE
    } session_is;  /* what init is asked for: the terminal, the session,
                    * the terminal */
    bool is_ready; /* `ready` is sent */
    bool has_typed;
    bool is_full;        /* the client does not take more now */
    struct strbuf shown; /* goes out as one frame */
    struct strbuf typed; /* not yet taken by init */
    char window[24];     /* a size that init has not been told yet; "": none */
};

/* ---- life ---- */

static void view_free(struct view *v)
{
    call_close(v->call);
    strbuf_free(&v->shown);
    strbuf_free(&v->typed);
    free(v->shell);
    free(v);
}

/* Close the connection with a code and forget the view. */
static void view_close(struct view *v, uint16_t code, const char *reason)
{
    websocket_close(v->w, code, reason);
    view_free(v);
}

static void send_text(struct view *v, const struct strbuf *json)
{
    if (json->len > 0)
        (void)websocket_send(v->w, WEBSOCKET_TEXT, json->data, json->len);
}

static void send_error(struct view *v, const char *message)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    if (strbuf_adds(&json, "{\"type\":\"error\",\"message\":") < 0 ||
        json_add_string(&json, message, strlen(message)) < 0 || strbuf_adds(&json, "}") < 0)
        return;
    send_text(v, &json);
}

/* ---- what is shown ---- */

static void send_shown(struct view *v)
{
    if (v->shown.len > 0)
        v->is_full = !websocket_send(v->w, WEBSOCKET_BINARY, v->shown.data, v->shown.len);
    strbuf_free(&v->shown);
}

/* All of the replay is gathered: now it is live. */
static void tell_ready(struct view *v)
{
    static const char ready[] = "{\"type\":\"ready\"}";
    if (v->is_ready)
        return;
    v->is_ready = true;
    send_shown(v);
    v->is_full = !websocket_send(v->w, WEBSOCKET_TEXT, ready, sizeof ready - 1);
}

static void show(struct view *v, const char *bytes, size_t n)
{
    if (strbuf_add(&v->shown, bytes, n) < 0) { /* no memory for one frame: then for several */
        send_shown(v);
        (void)strbuf_add(&v->shown, bytes, n);
    }
    if (v->is_ready && v->shown.len >= FRAME_ENOUGH)
        send_shown(v);
}

/* ---- what is typed ---- */

/* Give init what it has room for. True if nothing is left. */
static bool send_typed(struct view *v)
{
    size_t at = 0;
    bool has_room = true;
    while (v->call && has_room && at < v->typed.len) {
        size_t n = v->typed.len - at < WIRE_PAYLOAD_MAX ? v->typed.len - at : WIRE_PAYLOAD_MAX;
        has_room = call_send(v->call, WIRE_STDIN, v->typed.data + at, n);
        at += has_room ? n : 0;
    }
    if (at == v->typed.len)
        strbuf_free(&v->typed);
    else
        strbuf_drop(&v->typed, at);
    if (v->call && has_room && v->window[0] &&
        call_send(v->call, WIRE_RESIZE, v->window, strlen(v->window)))
        v->window[0] = '\0';
    return v->typed.len == 0;
}

/* A positive size, or 0. */
static unsigned get_cells(const json_t *message, const char *key)
{
    double n = json_number_value(json_object_get(message, key));
    return n >= SIZE_MAX_CELLS ? SIZE_MAX_CELLS : n >= 1 ? (unsigned)n : 0;
}

static void take_resize(struct view *v, const json_t *message)
{
    unsigned rows = get_cells(message, "rows"), cols = get_cells(message, "cols");
    if (!rows || !cols) {
        send_error(v, "Invalid dimensions: cols and rows must be positive");
        return;
    }
    snprintf(v->window, sizeof v->window, "%u %u", rows, cols);
    (void)send_typed(v);
}

static void take_control(struct view *v, const char *bytes, size_t n)
{
    json_t *message = json_loadb(bytes, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    const json_t *type = json_object_get(message, "type");
    static const char resize[] = "resize";
    bool is_resize = json_string_length(type) == sizeof resize - 1 &&
                     memcmp(json_string_value(type), resize, sizeof resize - 1) == 0;
    if (!message)
        send_error(v, "Invalid control message");
    else if (is_resize)
        take_resize(v, message);
    json_decref(message);
}

static bool on_message(void *owner, enum websocket_kind kind, const char *bytes, size_t n)
{
    struct view *v = owner;
    if (kind == WEBSOCKET_TEXT) {
        take_control(v, bytes, n);
        return true;
    }
    v->has_typed = true;
    if (strbuf_add(&v->typed, bytes, n) < 0) {
        view_close(v, CLOSE_INTERNAL, "no memory");
        return false;
    }
    return send_typed(v);
}

static void on_room_at_init(void *owner)
{
    struct view *v = owner;
    if (send_typed(v) && v->w)
        websocket_resume(v->w);
}

static void on_room_at_client(void *owner)
{
    struct view *v = owner;
    v->is_full = false;
    if (v->call)
        call_resume(v->call);
}

static void on_left(void *owner)
{
    view_free(owner);
}

static const struct websocket_events websocket_events = {
    .on_message = on_message, .on_writable = on_room_at_client, .on_closed = on_left};

/* ---- what init says ---- */

/* The terminal is there, or the client is to be told in a frame. False: the view is gone. */
static bool upgrade(struct view *v)
{
    if (v->w)
        return true;
    v->w = websocket_accept(v->x, MESSAGE_MAX, &websocket_events, v);
    v->x = NULL;
    if (v->w)
        return true;
    view_free(v);
    return false;
}

/* To a viewer of a shared terminal that others read faster. Init cuts at a safe place. */
static void show_lost(struct view *v, const char *bytes, size_t n)
{
    const char *from = record_get(bytes, n, "lost_from"), *to = record_get(bytes, n, "lost_to");
    uint64_t first = 0, end = 0;
    char text[100];
    if (!from || !to || number_parse_u64(from, INT64_MAX, &first) < 0 ||
        number_parse_u64(to, INT64_MAX, &end) < 0 || end <= first)
        return;
    int k = snprintf(text, sizeof text, "\r\n[%llu bytes are left out: read too slowly]\r\n",
                     (unsigned long long)(end - first));
    show(v, text, (size_t)k);
}

static bool take_note(struct view *v, const char *bytes, size_t n)
{
    const char *event = record_get(bytes, n, "event");
    if (!event) {
        show_lost(v, bytes, n);
        return !v->is_full;
    }
    if (strcmp(event, "started") == 0 || strcmp(event, "attached") == 0)
        if (!upgrade(v))
            return false;
    if (strcmp(event, "started") == 0 || strcmp(event, "live") == 0)
        tell_ready(v);
    return !v->is_full;
}

static bool on_packet(void *owner, char channel, const char *bytes, size_t n)
{
    struct view *v = owner;
    if (channel == WIRE_NOTE)
        return take_note(v, bytes, n);
    if (channel == WIRE_STDOUT || channel == WIRE_STDERR)
        show(v, bytes, n);
    return !v->is_full;
}

static void on_idle(void *owner)
{
    struct view *v = owner;
    if (v->is_ready)
        send_shown(v);
}

/* {"type":"exit","code":N,"signal"?:"SIGTERM"} */
static void send_exit(struct view *v, const char *record, size_t n)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    const char *status = record_get(record, n, "status");
    const char *signal = record_get(record, n, "signal");
    int rc = strbuf_addf(&json, "{\"type\":\"exit\",\"code\":%s", status ? status : "1");
    if (signal && rc == 0)
        rc = strbuf_adds(&json, ",\"signal\":") < 0
                 ? -1
                 : json_add_string(&json, signal, strlen(signal));
    if (rc == 0 && strbuf_adds(&json, "}") == 0)
        send_text(v, &json);
}

/* What the client named is started by the session's shell, if there is a session. This one ends
 * with 127 or 126 if it can't, and shows why; nothing else does before a word was typed. */
static bool is_refused_by_session(const struct view *v, const char *record, size_t n)
{
    const char *status = record_get(record, n, "status");
    return *v->session && v->shell && !v->has_typed && status &&
           (strcmp(status, "127") == 0 || strcmp(status, "126") == 0);
}

/* The shell has ended, or never began. */
static void take_result(struct view *v, const char *record, size_t n)
{
    const char *verdict = record_get(record, n, "verdict");
    const char *message = record_get(record, n, "message");
    bool is_spawn_failed = verdict && strcmp(verdict, "spawn_failed") == 0 && !v->is_ready;
    if (!upgrade(v))
        return;
    if (!is_spawn_failed) {
        tell_ready(v);
        send_shown(v);
    }
    if (is_spawn_failed || is_refused_by_session(v, record, n)) {
        send_error(v, message ? message : "the shell cannot be started");
        view_close(v, CLOSE_INTERNAL, "the shell cannot be started");
        return;
    }
    send_exit(v, record, n);
    view_close(v, CLOSE_NORMAL, "");
}

static void open_terminal(struct view *v);
static void make_session(struct view *v);

static void fail(struct view *v, const struct error *e)
{
    if (v->x && e->code == ERR_LIMIT) {
        reply_error(v->x, e);
        view_free(v);
        return;
    }
    if (v->x) {
        exchange_failed(v->x, "exec_transport_error", "terminal", e);
        view_free(v);
        return;
    }
    send_shown(v);
    send_error(v, e->text);
    view_close(v, CLOSE_INTERNAL, "the terminal is lost");
}

static void on_end(void *owner, char channel, const char *bytes, size_t n, const struct error *e)
{
    struct view *v = owner;
    v->call = NULL;
    bool is_made = v->session_is == MAKING && (channel == WIRE_RESULT || e->code == ERR_EXISTS);
    if (is_made) {
        v->session_is = MADE;
        open_terminal(v);
    } else if (channel == WIRE_RESULT) {
        take_result(v, bytes, n);
    } else if (*v->session && v->x && v->session_is == FINDING && e->code == ERR_NOT_FOUND) {
        v->session_is = MAKING;
        make_session(v);
    } else {
        fail(v, e);
    }
}

static const struct call_events call_events = {
    .on_packet = on_packet, .on_end = on_end, .on_writable = on_room_at_init, .on_idle = on_idle};

/* ---- what init is asked for ---- */

static void ask(struct view *v, struct client_request *q)
{
    struct error e = {0};
    v->call = call_open(v->gateway->upstream, q, &call_events, v, &e);
    client_request_free(q);
    if (!v->call)
        fail(v, &e);
}

static void make_session(struct view *v)
{
    struct client_request q;
    client_request_init(&q, "session.create");
    client_request_add(&q, "name", v->session);
    client_request_add(&q, "cwd", v->gateway->options.workspace);
    ask(v, &q);
}

static void open_terminal(struct view *v)
{
    struct client_request q;
    client_request_init(&q, "terminal.open");
    if (*v->session) {
        client_request_add(&q, "session", v->session);
        client_request_add(&q, "shared", "1");
        client_request_add(&q, "wait_ms", PATIENCE_MS);
    } else {
        client_request_add(&q, "hang_up", "1");
        client_request_add(&q, "cwd", v->gateway->options.workspace);
    }
    client_request_add(&q, "rows", v->rows);
    client_request_add(&q, "cols", v->cols);
    client_request_add(&q, "term", "xterm-256color");
    client_request_add(&q, "env", "PROMPT_COMMAND=clear; unset PROMPT_COMMAND");
    if (v->shell)
        client_request_add(&q, "arg", v->shell);
    ask(v, &q);
}

/* ---- the request ---- */

/* A parameter of the query, to be freed: 1; 0 absent or empty; -1 it can't be decoded. */
static int get_parameter(const struct exchange *x, const char *name, char **to)
{
    struct strbuf b = {0};
    int rc = exchange_parameter(x, name, &b);
    if (rc > 0 && b.len > 0) {
        *to = b.data;
        return 1;
    }
    strbuf_free(&b);
    return rc < 0 ? -1 : 0;
}

static bool get_size(const struct exchange *x, const char *name, const char *standard, char to[8])
{
    CLEANUP_STRBUF struct strbuf text = {0};
    uint64_t n;
    int rc = exchange_parameter(x, name, &text);
    if (rc < 0 || (rc > 0 && (number_parse_u64(strbuf_text(&text), SIZE_MAX_CELLS, &n) < 0 || !n)))
        return false;
    snprintf(to, 8, "%s", rc > 0 ? text.data : standard);
    return true;
}

/* The header wins over the query. False: it is no id. */
static bool get_session(const struct exchange *x, char name[SESSION_NAME_SIZE])
{
    CLEANUP_STRBUF struct strbuf parameter = {0};
    const char *id = exchange_header(x, "session-id");
    if (!id || !*id) {
        if (exchange_parameter(x, "session", &parameter) < 0)
            return false;
        id = strbuf_text(&parameter);
    }
    if (!*id)
        return true;
    if (!is_session_id(id))
        return false;
    session_name_of(id, name);
    return true;
}

/* Fill the view from the request. False: x was answered. */
static bool take_request(struct view *v, struct exchange *x)
{
    if (!get_size(x, "cols", COLS, v->cols) || !get_size(x, "rows", ROWS, v->rows)) {
        exchange_error(x, 400, "invalid_request", "cols and rows must be valid numbers");
        return false;
    }
    if (!get_session(x, v->session)) {
        exchange_error(x, 400, "invalid_request", "Invalid session ID format");
        return false;
    }
    if (get_parameter(x, "shell", &v->shell) < 0) {
        exchange_error(x, 400, "invalid_request", "shell cannot be decoded");
        return false;
    }
    return true;
}

static const struct exchange_events exchange_events = {.on_closed = on_left};

static void begin_terminal(struct exchange *x)
{
    if (!websocket_check(x))
        return;
    struct view *v = calloc(1, sizeof *v);
    if (!v) {
        exchange_cut(x);
        return;
    }
    v->gateway = exchange_context(x);
    v->x = x;
    if (!take_request(v, x)) {
        view_free(v);
        return;
    }
    exchange_own(x, &exchange_events, v);
    open_terminal(v);
}

const struct route routes_terminal[] = {{.method = "GET",
                                         .pattern = "/v1/sandbox/:id/pty",
                                         .flags = ROUTE_UPGRADE,
                                         .begin = begin_terminal},
                                        {0}};
