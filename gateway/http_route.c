/*
 * From a request to its handler, in the order of the contract: the form of the sandbox's id (on the
 * raw segment), the token, the route, then what the route itself checks.
 */
#include "gateway/http_internal.h"
#include "gateway/path.h"

#include <stdlib.h>
#include <string.h>

#define SANDBOX_PREFIX "/v1/sandbox/"

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_method(const struct exchange *x, const char *method)
{
    const char *sent = x->is_head ? "GET" : exchange_method(x);
    return strcmp(method, sent) == 0 || strcmp(method, "*") == 0 ||
           (x->is_head && strcmp(method, "HEAD") == 0);
}

static void capture(struct exchange *x, const char *name, size_t name_len, size_t at)
{
    if (x->capture_count < HTTP_CAPTURES)
        x->captures[x->capture_count++] = (struct http_capture){name, name_len, x->segments + at};
}

/* True if the path fits the pattern; captures are then offsets into the uncut copy. */
static bool match(struct exchange *x, const char *pattern)
{
    const char *path = x->path;
    x->capture_count = 0;
    while (*pattern == '/') {
        size_t want = strcspn(++pattern, "/");
        if (*pattern == '*') {
            if (*path == '/')
                path++;
            capture(x, pattern, 1, (size_t)(path - x->path));
            return true;
        }
        if (*path != '/')
            return false;
        size_t got = strcspn(++path, "/");
        if (*pattern == ':') {
            if (got == 0)
                return false;
            capture(x, pattern + 1, want - 1, (size_t)(path - x->path));
        } else if (got != want || strncmp(pattern, path, want) != 0) {
            return false;
        }
        pattern += want;
        path += got;
    }
    return *path == '\0';
}

static const struct route *find(struct exchange *x)
{
    for (const struct route *const *table = x->conn->server->config.routes; *table; table++)
        for (const struct route *r = *table; r->method; r++)
            if (is_method(x, r->method) && match(x, r->pattern))
                return r;
    return NULL;
}

/* End each capture but "*" at its slash. */
static void cut_captures(struct exchange *x)
{
    for (unsigned i = 0; i < x->capture_count; i++)
        if (x->captures[i].name[0] != '*') {
            size_t at = (size_t)(x->captures[i].value - x->segments);
            x->segments[at + strcspn(x->segments + at, "/")] = '\0';
        }
}

/* ---- checks ------------------------------------------------------------------------------ */

/* The id in a path below /v1/sandbox/, whatever follows it: n bytes, or NULL. */
static const char *sandbox_segment(const struct exchange *x, size_t *n)
{
    if (!starts_with(x->path, SANDBOX_PREFIX))
        return NULL;
    const char *id = x->path + strlen(SANDBOX_PREFIX);
    *n = strcspn(id, "/");
    return *n > 0 ? id : NULL;
}

static bool is_well_formed(const char *id, size_t n)
{
    char text[130] = "";
    if (n >= sizeof text)
        return false;
    memcpy(text, id, n);
    return is_sandbox_id(text);
}

/* What guards a path that no route has. */
static unsigned flags_of_unknown(const char *path)
{
    if (starts_with(path, SANDBOX_PREFIX) || strcmp(path, "/v1/sandbox") == 0)
        return 0;
    if (starts_with(path, "/v1/pool/") || starts_with(path, "/v1/openapi"))
        return ROUTE_EXACT_BEARER;
    return ROUTE_OPEN;
}

static void not_found(struct exchange *x)
{
    static const char text[] = "404 Not Found";
    exchange_answer(x, 404, "text/plain; charset=UTF-8", text, sizeof text - 1);
}

/* A browser asks, without a token, whether another origin's page may. */
static bool answer_preflight(struct exchange *x)
{
    const struct http_config *config = &x->conn->server->config;
    const char *method = exchange_header(x, "access-control-request-method");
    if (!config->cors_origin || !method || !exchange_header(x, "origin") ||
        strcmp(exchange_method(x), "OPTIONS") != 0)
        return false;
    exchange_add_header(x, "Access-Control-Allow-Methods", method);
    const char *headers = exchange_header(x, "access-control-request-headers");
    if (headers)
        exchange_add_header(x, "Access-Control-Allow-Headers", headers);
    exchange_add_header(x, "Access-Control-Max-Age", "600");
    exchange_answer(x, 204, NULL, "", 0);
    return true;
}

uint64_t exchange_body_limit(const struct exchange *x)
{
    return x->route && x->route->max_body ? x->route->max_body : x->conn->server->config.max_body;
}

void exchange_answer_too_large(struct exchange *x, uint64_t length)
{
    uint64_t limit = exchange_body_limit(x);
    if (x->route && x->route->too_large)
        x->route->too_large(x, length, limit);
    else
        exchange_error(x, 413, "payload_too_large",
                       "payload too large: %llu bytes exceeds the %llu-byte limit",
                       (unsigned long long)length, (unsigned long long)limit);
}

bool route_admit(struct exchange *x)
{
    const struct http_config *config = &x->conn->server->config;
    size_t n = 0;
    if (answer_preflight(x))
        return false;
    const char *id = sandbox_segment(x, &n);
    if (id && !is_well_formed(id, n)) {
        exchange_error(x, 400, "invalid_request", "Invalid sandbox ID format");
        return false;
    }
    x->segments = strdup(x->path);
    if (!x->segments) {
        x->conn->is_broken = true;
        return false;
    }
    x->route = find(x);
    if (!auth_admits(x, x->route ? x->route->flags : flags_of_unknown(x->path))) {
        exchange_error(x, 401, "unauthorized", "Unauthorized");
        return false;
    }
    const char *complaint = origin_complaint(x);
    if (complaint) {
        exchange_error(x, 403, "unauthorized", "%s", complaint);
        return false;
    }
    if (id && config->sandbox_id &&
        (strlen(config->sandbox_id) != n || strncmp(config->sandbox_id, id, n) != 0)) {
        exchange_error(x, 404, "invalid_request", "No such sandbox: %.*s", (int)n, id);
        return false;
    }
    if (!x->route) {
        not_found(x);
        return false;
    }
    cut_captures(x);
    if (x->length > 0 && (uint64_t)x->length > exchange_body_limit(x)) {
        exchange_answer_too_large(x, (uint64_t)x->length);
        return false;
    }
    return true;
}
