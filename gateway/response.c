/*
 * Answers of servers inside (response.h). llhttp tells names and values in pieces: they are
 * gathered as NAME NUL VALUE NUL. It decides by itself whether a body follows, but not for HEAD,
 * 204 and 304, whose Content-Length speaks of a body that does not come, and it takes an Upgrade
 * header for an upgrade under any status: on_headers_complete() puts both right.
 */
#include "gateway/response.h"

#include <string.h>
#include <strings.h>

/* ---- llhttp's callbacks ------------------------------------------------------------------ */

static int complain(struct response *r, const char *why)
{
    r->complaint = why;
    return HPE_USER;
}

static int on_status(llhttp_t *parser, const char *bytes, size_t n)
{
    struct response *r = parser->data;
    (void)bytes;
    r->reason_len += n;
    if (r->reason_len > RESPONSE_HEAD_MAX)
        return complain(r, "its reason phrase is too long");
    return 0;
}

static int add_to_header(struct response *r, const char *bytes, size_t n)
{
    if (r->header.len + n + 1 > RESPONSE_HEAD_MAX)
        return complain(r, "its headers are longer than 64 KiB");
    return strbuf_add(&r->header, bytes, n) < 0 ? complain(r, "no memory for its headers") : 0;
}

static int on_header_field(llhttp_t *parser, const char *bytes, size_t n)
{
    return add_to_header(parser->data, bytes, n);
}

static int on_header_value(llhttp_t *parser, const char *bytes, size_t n)
{
    return add_to_header(parser->data, bytes, n);
}

static int on_piece_complete(llhttp_t *parser)
{
    return add_to_header(parser->data, "", 1);
}

static bool has_no_body(const struct response *r, int status)
{
    return r->is_of_head || status < 200 || status == 204 || status == 304;
}

static int on_headers_complete(llhttp_t *parser)
{
    struct response *r = parser->data;
    int status = response_status(r);
    parser->upgrade = 0;
    if (status == 101 && !r->may_upgrade)
        return complain(r, "it changes to a protocol that nobody asked for");
    if (status < 200 && status != 101)
        return 1;
    r->has_content_length = (parser->flags & F_CONTENT_LENGTH) != 0;
    r->state = status == 101 ? RESPONSE_UPGRADED : RESPONSE_BODY;
    r->events->on_head(r->owner);
    if (status == 101)
        return 2;
    return has_no_body(r, status) ? 1 : 0;
}

static int on_body(llhttp_t *parser, const char *bytes, size_t n)
{
    struct response *r = parser->data;
    r->events->on_body(r->owner, bytes, n);
    return 0;
}

static int on_message_complete(llhttp_t *parser)
{
    struct response *r = parser->data;
    if (r->state == RESPONSE_BODY) {
        r->state = RESPONSE_DONE;
        return HPE_PAUSED; /* whatever comes behind it is nobody's */
    }
    if (r->state == RESPONSE_HEAD) { /* it was an interim one */
        r->reason_len = 0;
        strbuf_clear(&r->header);
    }
    return 0;
}

static const llhttp_settings_t response_settings = {
    .on_status = on_status,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_header_field_complete = on_piece_complete,
    .on_header_value_complete = on_piece_complete,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

/* ---- taking ------------------------------------------------------------------------------ */

void response_init(struct response *r, bool is_of_head, bool may_upgrade,
                   const struct response_events *events, void *owner)
{
    memset(r, 0, sizeof *r);
    llhttp_init(&r->parser, HTTP_RESPONSE, &response_settings);
    r->parser.data = r;
    r->is_of_head = is_of_head;
    r->may_upgrade = may_upgrade;
    r->events = events;
    r->owner = owner;
}

void response_free(struct response *r)
{
    strbuf_free(&r->header);
}

static enum response_state fail(struct response *r, const char *why)
{
    r->state = RESPONSE_BAD;
    if (!r->complaint)
        r->complaint = why;
    return RESPONSE_BAD;
}

enum response_state response_take(struct response *r, const char *bytes, size_t n, size_t *used)
{
    *used = 0;
    if (r->state >= RESPONSE_DONE)
        return r->state;
    llhttp_errno_t rc = llhttp_execute(&r->parser, bytes, n);
    if (rc == HPE_OK)
        *used = n;
    else if (r->state == RESPONSE_DONE || r->state == RESPONSE_UPGRADED)
        *used = (size_t)(llhttp_get_error_pos(&r->parser) - bytes);
    else
        return fail(r, "what it sends is not HTTP/1");
    return r->state;
}

enum response_state response_end(struct response *r)
{
    if (r->state >= RESPONSE_DONE)
        return r->state;
    bool has_head = r->state == RESPONSE_BODY;
    (void)llhttp_finish(&r->parser);
    if (r->state == RESPONSE_DONE)
        return r->state;
    return fail(r, has_head ? "it closed the connection in the middle of its answer"
                            : "it closed the connection without an answer");
}

const char *response_complaint(const struct response *r)
{
    return r->complaint ? r->complaint : "";
}

/* ---- the head ---------------------------------------------------------------------------- */

int response_status(const struct response *r)
{
    return r->parser.status_code;
}

int64_t response_length(const struct response *r)
{
    const char *text = r->has_content_length ? response_find(r, "content-length") : NULL;
    int64_t length = 0;
    for (const char *c = text; c && *c >= '0' && *c <= '9'; c++)
        if (__builtin_mul_overflow(length, 10, &length) ||
            __builtin_add_overflow(length, *c - '0', &length))
            return -1;
    return text ? length : -1;
}

bool response_header(const struct response *r, size_t *at, const char **name, const char **value)
{
    if (*at >= r->header.len)
        return false;
    *name = r->header.data + *at;
    *value = *name + strlen(*name) + 1;
    *at = (size_t)(*value + strlen(*value) + 1 - r->header.data);
    return true;
}

const char *response_find(const struct response *r, const char *wanted)
{
    const char *name, *value;
    for (size_t at = 0; response_header(r, &at, &name, &value);)
        if (strcasecmp(name, wanted) == 0)
            return value;
    return NULL;
}
