/*
 * Heads of the proxy (proxy_head.h). Names and values come from parsers that let no CR, LF or NUL
 * through, so they can be written down again as they are.
 */
#include "gateway/proxy_head.h"

#include "gateway/path.h"

#include <string.h>
#include <strings.h>

/* ---- words ------------------------------------------------------------------------------- */

/* True if the comma list (may be NULL) has this word, in any case. */
static bool list_has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p && *p;) {
        p += strspn(p, " \t,");
        size_t len = strcspn(p, ",");
        size_t used = len;
        while (used > 0 && (p[used - 1] == ' ' || p[used - 1] == '\t'))
            used--;
        if (used == n && strncasecmp(p, word, n) == 0)
            return true;
        p += len;
    }
    return false;
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcasecmp(name, *names) == 0)
            return true;
    return false;
}

static const char *const hop_by_hop[] = {"connection",
                                         "keep-alive",
                                         "proxy-connection",
                                         "proxy-authenticate",
                                         "te",
                                         "proxy-authorization",
                                         "trailer",
                                         "transfer-encoding",
                                         "upgrade",
                                         NULL};

/* ---- the request ------------------------------------------------------------------------- */

/* Told anew by the proxy itself. */
static const char *const own_request[] = {"host",
                                          "content-length",
                                          "expect",
                                          "x-forwarded-host",
                                          "x-forwarded-proto",
                                          "x-forwarded-prefix",
                                          NULL};

static bool goes_inside(const struct exchange *x, const char *name, const char *value)
{
    if (is_one_of(name, hop_by_hop) || is_one_of(name, own_request) ||
        list_has_word(exchange_header(x, "connection"), name))
        return false;
    return strcasecmp(name, "authorization") != 0 || !exchange_is_token(x, value);
}

/* One parameter of a query: does it carry the token? */
static bool is_token_parameter(const struct exchange *x, const char *text, size_t n)
{
    bool has_key = (n > 6 && strncmp(text, "token=", 6) == 0) ||
                   (n > 14 && strncmp(text, "authorization=", 14) == 0);
    const char *value = has_key ? memchr(text, '=', n) : NULL;
    CLEANUP_STRBUF struct strbuf decoded = {0};
    if (!value || percent_decode(value + 1, n - (size_t)(value + 1 - text), true, &decoded) < 0)
        return false;
    return exchange_is_token(x, strbuf_text(&decoded));
}

bool proxy_query(const struct exchange *x, struct strbuf *to, bool *failed)
{
    char before = '?';
    bool had_token = false;
    for (const char *p = exchange_query(x); *p && !*failed;) {
        size_t n = strcspn(p, "&");
        if (is_token_parameter(x, p, n)) {
            had_token = true;
        } else {
            *failed = strbuf_add(to, &before, 1) < 0 || strbuf_add(to, p, n) < 0;
            before = '&';
        }
        p += n + (p[n] == '&');
    }
    return had_token;
}

static int add_query(const struct exchange *x, struct strbuf *to)
{
    bool failed = false;
    (void)proxy_query(x, to, &failed);
    return failed ? -1 : 0;
}

/* The cookies but the pass. */
static int add_cookies(const char *value, struct strbuf *to)
{
    static const char pass[] = EXCHANGE_COOKIE "=";
    const char *between = "Cookie: ";
    int rc = 0;
    for (const char *at = value; *at && rc == 0;) {
        at += strspn(at, "; \t");
        size_t n = strcspn(at, ";");
        if (n > 0 && strncmp(at, pass, sizeof pass - 1) != 0) {
            rc = strbuf_addf(to, "%s%.*s", between, (int)n, at);
            between = "; ";
        }
        at += n;
    }
    return rc < 0 || *between == 'C' ? rc : strbuf_adds(to, "\r\n");
}

static int add_headers(const struct exchange *x, struct strbuf *to)
{
    const char *name, *value;
    int rc = 0;
    for (size_t i = 0; rc == 0 && exchange_header_at(x, i, &name, &value); i++) {
        if (strcasecmp(name, "cookie") == 0)
            rc = add_cookies(value, to);
        else if (goes_inside(x, name, value))
            rc = strbuf_addf(to, "%s: %s\r\n", name, value);
    }
    return rc;
}

/* What a proxy in front of the gateway has said counts. */
static int add_forwarded(const struct exchange *x, const struct proxy_place *p, struct strbuf *to)
{
    const char *host = exchange_header(x, "x-forwarded-host");
    const char *proto = exchange_header(x, "x-forwarded-proto");
    const char *prefix = exchange_header(x, "x-forwarded-prefix");
    if (!host)
        host = exchange_header(x, "host");
    size_t n = prefix ? strlen(prefix) : 0;
    if (n > 0 && prefix[n - 1] == '/')
        n--;
    if (host && strbuf_addf(to, "X-Forwarded-Host: %s\r\n", host) < 0)
        return -1;
    return strbuf_addf(to, "X-Forwarded-Proto: %s\r\nX-Forwarded-Prefix: %.*s%s\r\n",
                       proto ? proto : "http", (int)n, prefix ? prefix : "", p->prefix);
}

static bool wants_length(const struct exchange *x)
{
    const char *m = exchange_method(x);
    return exchange_length(x) > 0 || exchange_header(x, "content-length") ||
           strcmp(m, "POST") == 0 || strcmp(m, "PUT") == 0 || strcmp(m, "PATCH") == 0;
}

static int add_framing(const struct exchange *x, const struct proxy_place *p, struct strbuf *to)
{
    int rc = 0;
    if (exchange_length(x) < 0)
        rc = strbuf_adds(to, "Transfer-Encoding: chunked\r\n");
    else if (wants_length(x))
        rc = strbuf_addf(to, "Content-Length: %lld\r\n", (long long)exchange_length(x));
    if (rc < 0)
        return -1;
    return strbuf_adds(to, p->is_upgrade ? "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                                         : "Connection: close\r\n\r\n");
}

int proxy_request_head(const struct exchange *x, const struct proxy_place *p, struct strbuf *to)
{
    bool is_bad = strbuf_addf(to, "%s %s", exchange_method(x), *p->path ? p->path : "/") < 0 ||
                  add_query(x, to) < 0 ||
                  strbuf_addf(to, " HTTP/1.1\r\nHost: localhost:%u\r\n", (unsigned)p->port) < 0 ||
                  add_headers(x, to) < 0 || add_forwarded(x, p, to) < 0 ||
                  add_framing(x, p, to) < 0;
    return is_bad ? -1 : 0;
}

/* ---- the answer -------------------------------------------------------------------------- */

static const char *const own_response[] = {"content-length", "content-type", "date", NULL};

static bool is_named_by_connection(const struct response *r, const char *wanted)
{
    const char *name, *value;
    for (size_t at = 0; response_header(r, &at, &name, &value);)
        if (strcasecmp(name, "connection") == 0 && list_has_word(value, wanted))
            return true;
    return false;
}

/* A redirection to the server's own root leads out of the prefix: put it back, unless the server
 * has looked at X-Forwarded-Prefix. */
static int add_location(const struct proxy_place *p, const char *value, struct exchange *x)
{
    CLEANUP_STRBUF struct strbuf origin = {0};
    CLEANUP_STRBUF struct strbuf whole = {0};
    size_t n = strlen(p->prefix);
    if (strbuf_addf(&origin, "http://localhost:%u/", (unsigned)p->port) < 0)
        return -1;
    if (strncmp(value, origin.data, origin.len) == 0)
        value += origin.len - 1;
    bool is_inside = strncmp(value, p->prefix, n) == 0 && (value[n] == '/' || value[n] == '\0');
    if (value[0] == '/' && value[1] != '/' && !is_inside) {
        if (strbuf_adds(&whole, p->prefix) < 0 || strbuf_adds(&whole, value) < 0)
            return -1;
        value = whole.data;
    }
    exchange_add_header(x, "Location", value);
    return 0;
}

int proxy_response_headers(const struct response *r, const struct proxy_place *p,
                           struct exchange *x)
{
    const char *name, *value;
    for (size_t at = 0; response_header(r, &at, &name, &value);) {
        if (is_one_of(name, hop_by_hop) || is_one_of(name, own_response) ||
            is_named_by_connection(r, name))
            continue;
        if (strcasecmp(name, "location") != 0)
            exchange_add_header(x, name, value);
        else if (add_location(p, value, x) < 0)
            return -1;
    }
    return 0;
}

int proxy_upgrade_head(const struct response *r, struct strbuf *to)
{
    const char *name, *value;
    int rc = strbuf_adds(to, "HTTP/1.1 101 Switching Protocols\r\n");
    for (size_t at = 0; rc == 0 && response_header(r, &at, &name, &value);)
        if (strcasecmp(name, "content-length") != 0 && strcasecmp(name, "transfer-encoding") != 0)
            rc = strbuf_addf(to, "%s: %s\r\n", name, value);
    return rc < 0 ? -1 : strbuf_adds(to, "\r\n");
}
