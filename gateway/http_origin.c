/*
 * Where nobody has to show a token, a browser must not lend its place in the network to the pages
 * that it shows: any page may send a request anywhere, and learn or not learn the answer. Browsers
 * tell whose page it is (Origin), and the name under which they have looked us up (Host). A name
 * that its owner has pointed at this address (DNS rebinding) makes his page one of ours; so only
 * names are taken that nobody can own in public.
 */
#include "gateway/http_internal.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define HOST_MAX 256

/* The name in "NAME", "NAME:PORT", "[V6]:PORT", without brackets and a last dot. 0, or -1. */
static int host_name(const char *host, char to[HOST_MAX])
{
    bool is_v6 = *host == '[';
    host += is_v6;
    size_t n = strcspn(host, is_v6 ? "]" : ":");
    if (n == 0 || n >= HOST_MAX)
        return -1;
    memcpy(to, host, n);
    if (n > 1 && to[n - 1] == '.')
        n--;
    to[n] = '\0';
    return 0;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && strcasecmp(name + n - k, end) == 0;
}

/* An address, or a name that is none of the public DNS: without a dot (localhost, the name of a
 * container or of its service), below .localhost or .internal (RFC 6761; reserved by ICANN). */
static bool is_private_name(const char *name)
{
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1 ||
           !strchr(name, '.') || ends_with(name, ".localhost") || ends_with(name, ".internal");
}

/* The operator has named the page, or all. Its name may also be that of the gateway, where a proxy
 * before it serves both. */
static bool is_host_of(const char *origin, const char *name)
{
    char own[HOST_MAX];
    const char *host = origin ? strstr(origin, "://") : NULL;
    return (origin && strcmp(origin, "*") == 0) ||
           (host && host_name(host + 3, own) == 0 && strcasecmp(own, name) == 0);
}

/* Who comes over a Unix socket comes through a proxy, with the name that this one has. */
static bool came_over_unix(const struct exchange *x)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    return getsockname(x->conn->fd, (struct sockaddr *)&a, &n) == 0 && a.ss_family == AF_UNIX;
}

const char *origin_complaint(const struct exchange *x)
{
    const struct http_config *config = &x->conn->server->config;
    const char *allowed = config->cors_origin;
    const char *origin = exchange_header(x, "origin"), *host = exchange_header(x, "host");
    char name[HOST_MAX];
    if (config->token)
        return NULL;
    if (host && !came_over_unix(x) &&
        (host_name(host, name) < 0 || (!is_private_name(name) && !is_host_of(allowed, name))))
        return "without a token the Host must be an address, localhost or another name without a "
               "dot, or that of cors_origin";
    if (!origin || (allowed && (strcmp(allowed, "*") == 0 || strcasecmp(allowed, origin) == 0)))
        return NULL;
    const char *own = strstr(origin, "://");
    if (own && host && strcasecmp(own + 3, host) == 0)
        return NULL;
    return "without a token the page of another origin may not call; cors_origin can name it";
}
