#include "gateway/reply.h"
#include "gateway/json_body.h"

#include <stdio.h>

/* The status for a code of init's: 400 invalid, 403 denied, 404 not_found, 409 exists, busy and
 * state, 413 too_large, 429 limit, 503 memory, 502 for the others. */
static int reply_status(enum error_code code)
{
    switch (code) {
    case ERR_INVALID:
        return 400;
    case ERR_DENIED:
        return 403;
    case ERR_NOT_FOUND:
        return 404;
    case ERR_EXISTS:
    case ERR_BUSY:
    case ERR_STATE:
        return 409;
    case ERR_TOO_LARGE:
        return 413;
    case ERR_LIMIT:
    case ERR_MEMORY:
        return 503;
    case ERR_NONE:
    case ERR_SYSTEM:
    case ERR_PROTOCOL:
    case ERR_UNAVAILABLE:
    case ERR_CODE_COUNT:
        break;
    }
    return 502;
}

/* The code of the body: init's word, but invalid_request for ERR_INVALID, payload_too_large for
 * ERR_TOO_LARGE. */
static const char *reply_code(enum error_code code)
{
    return code == ERR_INVALID     ? "invalid_request"
           : code == ERR_TOO_LARGE ? "payload_too_large"
           : code == ERR_LIMIT     ? "capacity_exceeded"
                                   : error_code_name(code);
}

void reply_error(struct exchange *x, const struct error *e)
{
    exchange_error(x, reply_status(e->code), reply_code(e->code), "%s", e->text);
}

void reply_warn(struct exchange *x, const char *text)
{
    char value[sizeof((struct error *)NULL)->text + 40];
    size_t n = (size_t)snprintf(value, sizeof value, "299 sandbox-gateway \"");
    for (; *text && n < sizeof value - 2; text++)
        value[n++] =
            (char)(*text < ' ' || *text > '~' || *text == '"' || *text == '\\' ? '?' : *text);
    value[n++] = '"';
    value[n] = '\0';
    exchange_add_header(x, "Warning", value);
}

void reply_warn_ignored(struct exchange *x, const char *fields)
{
    char text[sizeof((struct error *)NULL)->text];
    snprintf(text, sizeof text, "ignored: %s", fields);
    if (*fields)
        reply_warn(x, text);
}

void reply_warn_unknown(struct exchange *x, const json_t *body, const char *const *known)
{
    CLEANUP_STRBUF struct strbuf fields = {0};
    json_add_unknown(body, known, &fields);
    reply_warn_ignored(x, strbuf_text(&fields));
}
