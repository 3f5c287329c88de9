/*
 * Who may: the token of a request against the one there is. The comparison looks at the same number
 * of bytes whatever was sent, nothing included, so that its time tells nothing.
 */
#include "gateway/http_internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

void auth_init(struct http_server *s)
{
    s->token_len = s->config.token ? strlen(s->config.token) : 0;
    if (s->token_len > sizeof s->token)
        s->token_len = sizeof s->token;
    if (!s->token_len)
        return;
    memcpy(s->token, s->config.token, s->token_len);
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return; /* then there is no pass */
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(s->pass + 2 * i, 3, "%02x", random[i]);
}

static bool is_token(const struct http_server *s, const char *given, size_t n)
{
    static char padded[HTTP_TOKEN_MAX];
    size_t fits = n <= sizeof padded ? n : 0;
    memset(padded, 0, sizeof padded);
    memcpy(padded, given, fits);
    volatile unsigned char differs = n != s->token_len;
    for (size_t i = 0; i < sizeof padded; i++)
        differs = (unsigned char)(differs | (padded[i] ^ s->token[i]));
    return !differs;
}

/* The token behind the scheme; "" if it is another scheme or none. */
static const char *bearer(const char *value, bool is_exact)
{
    if (!value || (is_exact ? strncmp(value, "Bearer ", 7) : strncasecmp(value, "Bearer ", 7)) != 0)
        return "";
    return value + 7 + strspn(value + 7, " ");
}

/* One of the cookies is the pass. */
static bool has_pass(const struct exchange *x)
{
    static const char name[] = EXCHANGE_COOKIE "=";
    const struct http_server *s = x->conn->server;
    size_t want = strlen(s->pass);
    bool found = false;
    for (const char *at = exchange_header(x, "cookie"); at && *at && want > 0;) {
        at += strspn(at, "; \t");
        size_t n = strcspn(at, "; \t");
        if (n == sizeof name - 1 + want && strncmp(at, name, sizeof name - 1) == 0) {
            volatile unsigned char differs = 0;
            for (size_t i = 0; i < want; i++)
                differs = (unsigned char)(differs | (at[sizeof name - 1 + i] ^ s->pass[i]));
            found |= !differs;
        }
        at += n;
    }
    return found;
}

bool auth_admits(const struct exchange *x, unsigned flags)
{
    const struct http_server *s = x->conn->server;
    if (!s->config.token || flags & ROUTE_OPEN)
        return true;
    bool is_exact = flags & ROUTE_EXACT_BEARER;
    const char *sent = bearer(exchange_header(x, "authorization"), is_exact);
    bool admits = is_token(s, sent, strlen(sent));
    CLEANUP_STRBUF struct strbuf value = {0};
    if (flags & ROUTE_QUERY_TOKEN && exchange_parameter(x, "token", &value) == 1)
        admits |= is_token(s, strbuf_text(&value), value.len);
    strbuf_clear(&value);
    if (flags & ROUTE_UPGRADE && exchange_parameter(x, "authorization", &value) == 1) {
        const char *token = bearer(strbuf_text(&value), is_exact);
        admits |= is_token(s, token, strlen(token));
    }
    if (flags & ROUTE_COOKIE)
        admits |= has_pass(x);
    return admits;
}

const char *exchange_pass(const struct exchange *x)
{
    return x->conn->server->pass;
}

bool exchange_is_token(const struct exchange *x, const char *text)
{
    const struct http_server *s = x->conn->server;
    const char *behind = bearer(text, false);
    const char *token = *behind ? behind : text;
    return s->config.token && is_token(s, token, strlen(token));
}
