/*
 * From bytes to a request. The head (request line and headers) is looked for first, by a scan that
 * is stricter than any parser: lines end with CR LF, nothing is folded, no NUL. Only then, whole
 * and in memory of its own, it goes through llhttp, which gets the body piece by piece. What llhttp
 * lets through but two servers could read in two ways is refused here.
 */
#include "gateway/http_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OVERHEAD_MAX ((uint64_t)64 * 1024) /* of chunk headers and trailers, plus 16 a byte */

static long refuse(struct http_refusal *why, int status, const char *text)
{
    *why = (struct http_refusal){status, "invalid_request", text};
    return -1;
}

long head_find(const char *bytes, size_t n, size_t *scanned, struct http_refusal *why)
{
    size_t line = *scanned; /* where the line begins that is looked at */
    while (line < n) {
        const char *lf = memchr(bytes + line, '\n', n - line);
        size_t end = lf ? (size_t)(lf - bytes) : n;
        if (line == 0 && end > HTTP_URL_MAX)
            return refuse(why, 414, "the request line is too long");
        if (end > HTTP_HEAD_MAX)
            return refuse(why, 431, "the headers are too large");
        if (!lf)
            return 0;
        if (end == line || bytes[end - 1] != '\r' ||
            memchr(bytes + line, '\r', end - line) != bytes + end - 1)
            return refuse(why, 400, "a line of the headers does not end with CR LF");
        if (memchr(bytes + line, '\0', end - line))
            return refuse(why, 400, "NUL in the headers");
        if (line > 0 && (bytes[line] == ' ' || bytes[line] == '\t'))
            return refuse(why, 400, "folded header line");
        if (line > 0 && bytes[line] == ':')
            return refuse(why, 400, "header without a name");
        if (line == 0 && memmem(bytes, end, "  ", 2))
            return refuse(why, 400, "two blanks in the request line");
        if (end == line + 1)
            return (long)(end + 1);
        line = *scanned = end + 1;
    }
    return 0;
}

struct exchange *exchange_new(struct conn *c, const char *head, size_t n)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->conn = c;
    x->path = x->query = "";
    if (strbuf_add(&x->head, head, n) == 0)
        return x;
    free(x);
    return NULL;
}

void exchange_free(struct exchange *x)
{
    if (!x)
        return;
    for (struct http_joined *j = x->joined, *next; j; j = next) {
        next = j->next;
        free(j);
    }
    strbuf_free(&x->head);
    strbuf_free(&x->body);
    strbuf_free(&x->answer_headers);
    free(x->segments);
    free(x);
}

/* ---- what llhttp calls ------------------------------------------------------------------- */

static uint32_t offset_of(const struct exchange *x, const char *at)
{
    return (uint32_t)(at - x->head.data);
}

static int on_url(llhttp_t *p, const char *at, size_t n)
{
    struct exchange *x = p->data;
    if (x->url_len == 0)
        x->url = offset_of(x, at);
    x->url_len = offset_of(x, at) + (uint32_t)n - x->url;
    return 0;
}

/* Offsets are ends, not lengths, until end_strings() has put a NUL there. */
static int on_field(llhttp_t *p, const char *at, size_t n)
{
    struct exchange *x = p->data;
    if (x->has_head)
        return 0;
    if (!x->is_value_next) {
        if (x->header_count == HTTP_HEADERS_MAX) {
            llhttp_set_error_reason(p, "headers");
            return -1;
        }
        x->headers[x->header_count].name = offset_of(x, at);
        x->is_value_next = true;
    }
    x->name_len = offset_of(x, at) + (uint32_t)n - x->headers[x->header_count].name;
    return 0;
}

static int on_value(llhttp_t *p, const char *at, size_t n)
{
    struct exchange *x = p->data;
    if (x->has_head)
        return 0;
    struct http_header *h = &x->headers[x->header_count];
    if (h->value == 0)
        h->value = offset_of(x, at);
    x->value_len = offset_of(x, at) + (uint32_t)n - h->value;
    return 0;
}

static int on_value_complete(llhttp_t *p)
{
    struct exchange *x = p->data;
    if (x->has_head)
        return 0;
    if (x->name_len == 0)
        return -1; /* llhttp takes a line that begins with its colon */
    struct http_header *h = &x->headers[x->header_count++];
    char *bytes = x->head.data;
    uint32_t name_end = h->name + x->name_len;
    if (h->value == 0)
        h->value = name_end;
    uint32_t end = h->value + x->value_len;
    while (end > h->value && (bytes[end - 1] == ' ' || bytes[end - 1] == '\t'))
        end--;
    x->is_value_next = false;
    x->name_len = x->value_len = 0;
    /* The parser is past both places: they hold ':' and a blank or CR. */
    bytes[name_end] = '\0';
    if (end > h->value)
        bytes[end] = '\0';
    else
        h->value = name_end; /* "" */
    return 0;
}

static int on_headers_complete(llhttp_t *p)
{
    struct exchange *x = p->data;
    x->has_head = true;
    /* Whatever it asks to be upgraded to, HTTP is read until a route takes the socket. */
    p->upgrade = 0;
    return 0;
}

/* What stands between the pieces of a chunked body ends its lines with CR LF, too, and nowhere else
 * has either: llhttp is satisfied with less. */
static bool is_framing(struct exchange *x, const char *to)
{
    for (; x->framing_at < to; x->framing_at++) {
        char c = *x->framing_at;
        if (c == '\0' || (c == '\n') != (x->framing_last == '\r'))
            return false;
        x->framing_last = c;
    }
    return true;
}

static int on_body(llhttp_t *p, const char *at, size_t n)
{
    struct exchange *x = p->data;
    if (x->length < 0 && !is_framing(x, at))
        return -1;
    x->framing_at = at + n;
    if (n == 0)
        return 0; /* llhttp stopped at the end of a buffer, inside a piece */
    x->framing_last = '\0';
    x->received += n;
    if (x->received > exchange_body_limit(x)) {
        x->is_too_large = true;
        return -1;
    }
    if (x->answer_has_ended || !x->route || x->route->body == BODY_IGNORED)
        return 0;
    if (x->route->body == BODY_WHOLE) {
        x->body.limit = exchange_body_limit(x);
        if (strbuf_add(&x->body, at, n) < 0)
            x->conn->is_broken = true;
    } else if (x->events && x->events->on_body) {
        x->events->on_body(x->owner, at, n);
    }
    return x->conn->is_broken ? -1 : x->is_paused && !x->answer_has_ended ? HPE_PAUSED : 0;
}

static int on_chunk_header(llhttp_t *p)
{
    struct exchange *x = p->data;
    uint64_t sum;
    if (!__builtin_add_overflow(x->received, p->content_length, &sum) &&
        sum <= exchange_body_limit(x))
        return 0;
    x->received = sum;
    x->is_too_large = true;
    return -1;
}

static int on_message_complete(llhttp_t *p)
{
    ((struct exchange *)p->data)->body_has_ended = true;
    return HPE_PAUSED; /* what follows is the next request */
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_chunk_header = on_chunk_header,
    .on_message_complete = on_message_complete,
};

/* ---- what a request must be -------------------------------------------------------------- */

static unsigned count_header(const struct exchange *x, const char *name, const char **value)
{
    unsigned count = 0;
    for (unsigned i = 0; i < x->header_count; i++)
        if (strcasecmp(x->head.data + x->headers[i].name, name) == 0) {
            *value = x->head.data + x->headers[i].value;
            count++;
        }
    return count;
}

/* Origin form, or absolute form as proxies write it (RFC 9112, 3.2); else NULL. */
static char *target_path(char *target)
{
    if (target[0] == '/')
        return target;
    char *rest = strstr(target, "://");
    if (!rest ||
        (strncasecmp(target, "http://", 7) != 0 && strncasecmp(target, "https://", 8) != 0))
        return NULL;
    rest += 3;
    if (*rest == '\0' || *rest == '/' || *rest == '?')
        return NULL;
    rest += strcspn(rest, "/?");
    if (*rest == '/')
        return rest;
    *--rest = '/'; /* no path: over the last byte of the host */
    return rest;
}

static struct http_refusal set_target(struct exchange *x)
{
    char *target = x->head.data + x->url;
    if (x->url != strlen(exchange_method(x)) + 1 || target[x->url_len + 1] != 'H')
        return (struct http_refusal){400, "invalid_request", "one blank parts the request line"};
    target[x->url_len] = '\0';
    if (strcmp(target, "*") == 0 && x->parser.method == HTTP_OPTIONS) {
        x->path = target;
        return (struct http_refusal){0};
    }
    char *path = x->parser.method == HTTP_CONNECT ? NULL : target_path(target);
    if (!path || strchr(path, '#'))
        return (struct http_refusal){400, "invalid_request", "the request target is not a path"};
    x->path = path;
    char *query = strchr(path, '?');
    if (query) {
        *query = '\0';
        x->query = query + 1;
    }
    return (struct http_refusal){0};
}

static struct http_refusal check_framing(struct exchange *x)
{
    const char *length = NULL, *encoding = NULL;
    unsigned lengths = count_header(x, "content-length", &length);
    unsigned encodings = count_header(x, "transfer-encoding", &encoding);
    if (lengths > 1 || encodings > 1 || (lengths && encodings))
        return (struct http_refusal){400, "invalid_request",
                                     "the length of the body is told twice"};
    if (encodings && x->is_http10)
        return (struct http_refusal){400, "invalid_request", "Transfer-Encoding in HTTP/1.0"};
    if (encodings && strcasecmp(encoding, "chunked") != 0)
        return (struct http_refusal){501, "invalid_request",
                                     "no transfer encoding but chunked is known"};
    x->length = encodings ? -1 : (int64_t)x->parser.content_length;
    if (lengths && (x->parser.content_length > INT64_MAX || strspn(length, "0123456789") == 0 ||
                    length[strspn(length, "0123456789")] != '\0'))
        return (struct http_refusal){400, "invalid_request", "bad Content-Length"};
    return (struct http_refusal){0};
}

static struct http_refusal check_headers(struct exchange *x)
{
    const char *value = NULL;
    unsigned hosts = count_header(x, "host", &value);
    if (hosts > 1 || (hosts == 0 && !x->is_http10))
        return (struct http_refusal){400, "invalid_request",
                                     hosts ? "more than one Host" : "no Host header"};
    if (count_header(x, "expect", &value) && !x->is_http10) {
        if (strcasecmp(value, "100-continue") != 0)
            return (struct http_refusal){417, "invalid_request",
                                         "no expectation but 100-continue is known"};
        x->expects_continue = !x->body_has_ended;
    }
    return check_framing(x);
}

static struct http_refusal parse_failure(const struct exchange *x, enum llhttp_errno failed)
{
    if (failed == HPE_USER && x->header_count == HTTP_HEADERS_MAX)
        return (struct http_refusal){431, "invalid_request", "too many headers"};
    if (failed == HPE_INVALID_VERSION)
        return (struct http_refusal){505, "invalid_request",
                                     "the version of HTTP is neither 1.0 nor 1.1"};
    const char *reason = llhttp_get_error_reason(&x->parser);
    return (struct http_refusal){400, "invalid_request",
                                 reason && *reason ? reason : "malformed request"};
}

/* Bytes beyond ASCII in the target, as people type them, count as their escapes. */
static int escape_target(struct exchange *x)
{
    const char *line = x->head.data;
    size_t n = (size_t)((const char *)memchr(line, '\r', x->head.len) - line);
    size_t at = 0;
    while (at < n && (unsigned char)line[at] < 0x80)
        at++;
    if (at == n)
        return 0;
    CLEANUP_STRBUF struct strbuf escaped = {0};
    int rc = strbuf_add(&escaped, line, at);
    for (; at < n && rc == 0; at++)
        rc = (unsigned char)line[at] < 0x80
                 ? strbuf_add(&escaped, line + at, 1)
                 : strbuf_addf(&escaped, "%%%02X", (unsigned char)line[at]);
    if (rc < 0 || strbuf_add(&escaped, line + n, x->head.len - n) < 0)
        return -1;
    struct strbuf old = x->head;
    x->head = escaped;
    escaped = old;
    return 0;
}

struct http_refusal request_parse(struct exchange *x)
{
    if (escape_target(x) < 0)
        return (struct http_refusal){503, "capacity_exceeded", "no memory for the request"};
    llhttp_init(&x->parser, HTTP_REQUEST, &settings);
    x->parser.data = x;
    enum llhttp_errno failed = llhttp_execute(&x->parser, x->head.data, x->head.len);
    if ((failed != HPE_OK && failed != HPE_PAUSED) || !x->has_head)
        return parse_failure(x, failed);
    x->is_http10 = x->parser.http_minor == 0;
    if (x->parser.http_major != 1 || x->parser.http_minor > 1)
        return parse_failure(x, HPE_INVALID_VERSION);
    x->is_head = x->parser.method == HTTP_HEAD;
    x->keeps_alive = llhttp_should_keep_alive(&x->parser);
    struct http_refusal why = check_headers(x);
    if (why.status == 0)
        why = set_target(x);
    if (x->body_has_ended)
        x->length = 0;
    return why;
}

size_t request_parse_body(struct exchange *x, const char *bytes, size_t n, struct http_refusal *why)
{
    uint64_t before = x->received;
    x->framing_at = bytes;
    if (x->parser.error == HPE_PAUSED)
        llhttp_resume(&x->parser);
    enum llhttp_errno failed = llhttp_execute(&x->parser, bytes, n);
    size_t used = failed == HPE_OK ? n : (size_t)(llhttp_get_error_pos(&x->parser) - bytes);
    bool is_fine = (failed == HPE_OK || failed == HPE_PAUSED) &&
                   (x->length >= 0 || is_framing(x, bytes + used));
    if (!is_fine && !x->is_too_large)
        *why =
            (struct http_refusal){400, "invalid_request", "the chunks of the body are malformed"};
    if (!x->is_too_large)
        x->overhead += used - (x->received - before);
    if (x->overhead > OVERHEAD_MAX + 16 * x->received)
        *why =
            (struct http_refusal){400, "invalid_request", "the chunks of the body are too small"};
    return used;
}
