/*
 * Answers: the head, the body in one of its forms (announced length, chunks, until close), the end,
 * and the whole answers that are made of them.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "gateway/http_internal.h"
#include "gateway/http_range.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* For people who look at the wire; clients go by the number. */
static const char *reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        {101, "Switching Protocols"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Payload Too Large"},
        {414, "URI Too Long"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Status";
}

const char *http_date(struct http_server *s)
{
    uint64_t now = (uint64_t)ev_now(s->loop);
    if (now == s->date_s && s->date[0])
        return s->date;
    char text[HTTP_TIME_SIZE];
    snprintf(s->date, sizeof s->date, "Date: %s\r\n", http_time((int64_t)now, text));
    s->date_s = now;
    return s->date;
}

/* ---- the body of the request that is still to come --------------------------------------- */

void answer_continue(struct exchange *x)
{
    if (!x->expects_continue || x->answer_has_begun || !x->route || x->route->body == BODY_IGNORED)
        return;
    x->expects_continue = false;
    if (x->received == 0)
        http_conn_send(x->conn, "", 0, "HTTP/1.1 100 Continue\r\n\r\n", 25, "");
}

bool answer_may_drain(const struct exchange *x)
{
    if (x->body_has_ended)
        return true;
    if (!x->keeps_alive || x->is_too_large || x->expects_continue)
        return false;
    int64_t left = x->length >= 0 ? x->length - (int64_t)x->received : (int64_t)x->received;
    if (x->length < 0 && !(x->route && x->route->body == BODY_IGNORED))
        return false;
    return left <= HTTP_DRAIN_MAX;
}

/* ---- head -------------------------------------------------------------------------------- */

static bool is_plain(const char *text)
{
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
            return false;
    return true;
}

void exchange_add_header(struct exchange *x, const char *name, const char *value)
{
    if (!*name || !is_plain(name) || !is_plain(value))
        return;
    if (strbuf_addf(&x->answer_headers, "%s: %s\r\n", name, value) < 0)
        x->conn->is_broken = true;
}

static void add_framing(struct exchange *x, int64_t length, struct strbuf *head)
{
    int rc = 0;
    bool has_none = x->status == 204 || x->status == 304 || x->status < 200;
    x->has_no_body = has_none || x->is_head;
    x->left = length;
    if (length >= 0 && !has_none)
        rc = strbuf_addf(head, "Content-Length: %lld\r\n", (long long)length);
    else if (length < 0 && !has_none && !x->is_http10)
        rc = strbuf_adds(head, "Transfer-Encoding: chunked\r\n");
    x->is_chunked = length < 0 && !x->has_no_body && !x->is_http10;
    if (length < 0 && !has_none && x->is_http10)
        x->keeps_alive = false;
    if (!x->keeps_alive && x->status != 101)
        rc |= strbuf_adds(head, "Connection: close\r\n");
    else if (x->is_http10)
        rc |= strbuf_adds(head, "Connection: keep-alive\r\n");
    if (rc < 0)
        x->conn->is_broken = true;
}

int http_add_cors(const struct http_server *s, struct strbuf *head)
{
    const char *origin = s->config.cors_origin;
    if (!origin)
        return 0;
    return strbuf_addf(head,
                       "Access-Control-Allow-Origin: %s\r\nAccess-Control-Expose-Headers: *\r\n%s",
                       origin, strcmp(origin, "*") == 0 ? "" : "Vary: Origin\r\n");
}

void exchange_begin(struct exchange *x, int status, const char *content_type, int64_t length)
{
    struct conn *c = x->conn;
    if (x->answer_has_begun)
        return;
    x->answer_has_begun = true;
    x->status = status;
    c->server->counts.by_class[status / 100 % 6]++;
    if (c->server->is_stopping)
        x->keeps_alive = false;
    CLEANUP_STRBUF struct strbuf head = {0};
    if (strbuf_addf(&head, "HTTP/1.1 %d %s\r\n%s", status, reason(status), http_date(c->server)) <
            0 ||
        (content_type && strbuf_addf(&head, "Content-Type: %s\r\n", content_type) < 0) ||
        strbuf_add(&head, strbuf_text(&x->answer_headers), x->answer_headers.len) < 0)
        c->is_broken = true;
    if (http_add_cors(c->server, &head) < 0)
        c->is_broken = true;
    add_framing(x, length, &head);
    strbuf_free(&x->answer_headers);
    http_conn_send(c, strbuf_text(&head), head.len, "", 0, "\r\n");
}

/* ---- body -------------------------------------------------------------------------------- */

bool exchange_write(struct exchange *x, const char *bytes, size_t n)
{
    struct conn *c = x->conn;
    size_t waiting = conn_pending(c);
    if (x->has_no_body || n == 0)
        return true;
    if (waiting >= 4 * EXCHANGE_HIGH || (x->left >= 0 && n > (uint64_t)x->left)) {
        c->is_broken = true; /* it was asked to stop; or what it announced is not so */
        conn_touch(c);
        return false;
    }
    if (x->is_chunked) {
        char size[24];
        int k = snprintf(size, sizeof size, "%zx\r\n", n);
        http_conn_send(c, size, (size_t)k, bytes, n, "\r\n");
    } else {
        http_conn_send(c, "", 0, bytes, n, "");
        if (x->left >= 0)
            x->left -= (int64_t)n;
    }
    x->is_full |= conn_pending(c) >= EXCHANGE_HIGH;
    return !x->is_full;
}

/* The handler is through with x. */
static void answer_finish(struct exchange *x)
{
    x->answer_has_ended = true;
    x->events = NULL;
    x->owner = NULL;
    conn_touch(x->conn);
}

void exchange_end_with_file(struct exchange *x, int fd, int64_t offset, int64_t length)
{
    struct conn *c = x->conn;
    if (x->has_no_body || length == 0) {
        close(fd);
        exchange_end(x);
        return;
    }
    if (x->left >= 0 && length != x->left)
        c->is_broken = true;
    if (x->is_chunked) {
        char size[24];
        int k = snprintf(size, sizeof size, "%llx\r\n", (unsigned long long)length);
        http_conn_send(c, "", 0, size, (size_t)k, "");
    }
    c->file_fd = fd;
    c->file_at = offset;
    c->file_left = length;
    c->has_file_tail = x->is_chunked;
    answer_finish(x);
}

void exchange_end(struct exchange *x)
{
    if (!x->has_no_body && x->left > 0)
        x->conn->is_broken = true; /* less than announced */
    if (x->is_chunked)
        http_conn_send(x->conn, "", 0, "0\r\n\r\n", 5, "");
    answer_finish(x);
}

void exchange_cut(struct exchange *x)
{
    struct conn *c = x->conn;
    /* Only a reset tells a client that reads until the end that this was not it. */
    if (!x->is_chunked && x->left < 0) {
        struct linger reset = {.l_onoff = 1};
        (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    http_conn_flush(c);
    c->is_broken = true;
    answer_finish(x);
}

/* ---- whole answers ----------------------------------------------------------------------- */

void exchange_answer(struct exchange *x, int status, const char *content_type, const char *bytes,
                     size_t n)
{
    if (!answer_may_drain(x))
        x->keeps_alive = false;
    exchange_begin(x, status, content_type, (int64_t)n);
    exchange_write(x, bytes, n);
    exchange_end(x);
}

void exchange_json(struct exchange *x, int status, const char *json)
{
    exchange_answer(x, status, "application/json", json, strlen(json));
}

static void answer_error(struct exchange *x, int status, const char *code, const char *text,
                         size_t n)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    if (strbuf_adds(&json, "{\"error\":") < 0 || json_add_string(&json, text, n) < 0 ||
        strbuf_addf(&json, ",\"code\":\"%s\"}", code) < 0)
        x->conn->is_broken = true;
    exchange_json(x, status, strbuf_text(&json));
}

void exchange_error(struct exchange *x, int status, const char *code, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    answer_error(x, status, code, text, n < 0 ? 0 : strlen(text));
}

void exchange_failed(struct exchange *x, const char *code, const char *what, const struct error *e)
{
    exchange_error(x, 502, code, "%s failed: %s", what, e->text);
}
