/*
 * `ready` and `health`: how it is found out that a service works. The form is looked at here, so
 * that a check which could never succeed is a complaint about the file and not a service that is
 * never ready. Hosts are addresses: PID 1 asks no name server.
 */
#include "config/config_internal.h"

#include "base/number.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define HTTP_PORT    80
#define FD_FIRST     3
#define FD_LAST      255
#define SOCKET_BYTES 107 /* sun_path without its NUL, unix(7) */
#define PATH_BYTES   4095

static const struct form {
    const char *prefix;
    enum check_kind kind;
} forms[] = {
    {"tcp:", CHECK_TCP}, {"unix:", CHECK_UNIX}, {"http:", CHECK_HTTP},
    {"fd:", CHECK_FD},   {"file:", CHECK_FILE}, {"command:", CHECK_COMMAND},
};

/* ---- hosts and ports ---- */

/* Copy n bytes; NULL with *e without memory. */
static char *copy_bytes(const char *text, size_t n, struct error *e)
{
    char *copy = malloc(n + 1);
    if (!copy) {
        error_set(e, ERR_MEMORY, "out of memory");
        return NULL;
    }
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

static int take_port(const char *text, size_t n, unsigned *port, struct error *e)
{
    char digits[8] = "", buf[SHOWN_SIZE];
    uint64_t value;
    if (n < sizeof digits)
        memcpy(digits, text, n);
    if (number_parse_u64(digits, 65535, &value) < 0 || value == 0)
        return error_set(e, ERR_INVALID, "'%s' is not a port (1 to 65535)", shown(text, n, buf));
    *port = (unsigned)value;
    return 0;
}

/* An address, with or without the brackets of IPv6, or "localhost". */
static int take_host(const char *text, size_t n, struct check *c, struct error *e)
{
    char host[INET6_ADDRSTRLEN] = "", buf[SHOWN_SIZE];
    struct in6_addr address;
    bool has_brackets = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    size_t k = has_brackets ? n - 2 : n;
    if (k < sizeof host)
        memcpy(host, text + has_brackets, k);
    if (!has_brackets && strcmp(host, "localhost") == 0)
        strcpy(host, "127.0.0.1");
    if (inet_pton(has_brackets ? AF_INET6 : AF_INET, host, &address) != 1)
        return error_set(e, ERR_INVALID,
                         "'%s' is not an address such as 127.0.0.1 or [::1] (names are not looked "
                         "up)",
                         shown(text, n, buf));
    c->target = copy_bytes(host, strlen(host), e);
    return c->target ? 0 : -1;
}

/* Where the host at the start of n bytes ends: at the ':' before a port, or at the end. */
static size_t host_length(const char *text, size_t n)
{
    const char *bracket = n > 0 && text[0] == '[' ? memchr(text, ']', n) : NULL;
    size_t from = bracket ? (size_t)(bracket - text) + 1 : 0;
    const char *colon = memchr(text + from, ':', n - from);
    return colon ? (size_t)(colon - text) : n;
}

/* HOST[:PORT]; without a port it is port. */
static int take_authority(const char *text, size_t n, unsigned port, struct check *c,
                          struct error *e)
{
    size_t host_n = host_length(text, n);
    c->port = port;
    if (host_n < n && take_port(text + host_n + 1, n - host_n - 1, &c->port, e) < 0)
        return -1;
    return take_host(text, host_n, c, e);
}

int authority_check(const char *text, struct error *e)
{
    char buf[SHOWN_SIZE];
    struct check c = {.kind = CHECK_TCP, .fd = -1};
    size_t n = strlen(text), host_n = host_length(text, n);
    if (host_n == n)
        return error_set(e, ERR_INVALID,
                         "'%s' is not HOST:PORT, :PORT (every address) or unix:PATH",
                         shown(text, n, buf));
    int status =
        host_n == 0 ? take_port(text + 1, n - 1, &c.port, e) : take_authority(text, n, 0, &c, e);
    check_free(&c);
    return status;
}

/* ---- the kinds ---- */

static int parse_tcp(const char *text, struct check *c, struct error *e)
{
    size_t n = strlen(text);
    if (!strchr(text, ':')) {
        c->target = copy_bytes("127.0.0.1", 9, e);
        return c->target ? take_port(text, n, &c->port, e) : -1;
    }
    if (host_length(text, n) == n)
        return error_set(e, ERR_INVALID, "the port is missing (tcp:PORT or tcp:HOST:PORT)");
    return take_authority(text, n, 0, c, e);
}

/* The request is put together from this text, so it holds no blank and nothing unprintable. */
static int check_url(const char *text, struct error *e)
{
    char buf[SHOWN_SIZE];
    for (const char *p = text; *p; p++)
        if (*p <= ' ' || *p > '~')
            return error_set(e, ERR_INVALID,
                             "'%s' is not a URL: byte 0x%02x must be written %%%02X",
                             shown(text, strlen(text), buf), (unsigned char)*p, (unsigned char)*p);
    return 0;
}

static int no_https(struct error *e)
{
    return error_set(e, ERR_INVALID,
                     "https is not spoken here; use command: with a program that does");
}

static int parse_http(const char *text, struct check *c, struct error *e)
{
    char buf[SHOWN_SIZE];
    if (strncmp(text, "http:", 5) == 0)
        text += 5;
    if (strncmp(text, "https:", 6) == 0)
        return no_https(e);
    if (strncmp(text, "//", 2) != 0)
        return error_set(e, ERR_INVALID, "'%s' is not a URL such as http://127.0.0.1:8080/health",
                         shown(text, strlen(text), buf));
    text += 2;
    if (check_url(text, e) < 0)
        return -1;
    size_t n = strcspn(text, "/?#"), path_n = strcspn(text + n, "#");
    if (take_authority(text, n, HTTP_PORT, c, e) < 0)
        return -1;
    c->http_host = copy_bytes(text, n, e);
    if (!c->http_host)
        return -1;
    bool has_slash = text[n] == '/';
    char *path = malloc(path_n + 2);
    if (!path)
        return error_set(e, ERR_MEMORY, "out of memory");
    path[0] = '/';
    memcpy(path + !has_slash, text + n, path_n);
    path[path_n + !has_slash] = '\0';
    c->http_path = path;
    return 0;
}

static int parse_fd(const char *text, struct check *c, struct error *e)
{
    char buf[SHOWN_SIZE];
    uint64_t fd;
    if (number_parse_u64(text, FD_LAST, &fd) < 0 || fd < FD_FIRST)
        return error_set(e, ERR_INVALID, "'%s' is not a descriptor for this (%d to %d)",
                         shown(text, strlen(text), buf), FD_FIRST, FD_LAST);
    c->fd = (int)fd;
    return 0;
}

static int parse_command(const char *text, struct check *c, struct error *e)
{
    c->argv = argv_split(text, e);
    if (c->argv && (!c->argv[0] || !c->argv[0][0]))
        return error_set(e, ERR_INVALID, "the program's name is empty");
    return c->argv ? 0 : -1;
}

static int parse_target(const char *text, uint64_t max, struct check *c, struct error *e)
{
    const struct schema_row row = {.key = "path", .type = VALUE_PATH, .min = 1, .max = max};
    return value_parse(&row, text, &c->target, e);
}

static int parse_kind(const char *text, struct check *c, struct error *e)
{
    switch (c->kind) {
    case CHECK_TCP:
        return parse_tcp(text, c, e);
    case CHECK_UNIX:
        return parse_target(text, SOCKET_BYTES, c, e);
    case CHECK_HTTP:
        return parse_http(text, c, e);
    case CHECK_FD:
        return parse_fd(text, c, e);
    case CHECK_FILE:
        return parse_target(text, PATH_BYTES, c, e);
    case CHECK_COMMAND:
        return parse_command(text, c, e);
    case CHECK_NONE:
        break;
    }
    return error_set(e, ERR_INVALID, "not a check");
}

/* ---- life ---- */

int check_parse(const char *text, struct check *to, struct error *e)
{
    char buf[SHOWN_SIZE];
    struct check c = {.kind = CHECK_NONE, .fd = -1};
    size_t prefix_n = 0;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0] && !prefix_n; i++)
        if (strncmp(text, forms[i].prefix, strlen(forms[i].prefix)) == 0) {
            c.kind = forms[i].kind;
            prefix_n = strlen(forms[i].prefix);
        }
    if (strncmp(text, "https:", 6) == 0)
        return no_https(e);
    if (c.kind == CHECK_NONE)
        return error_set(e, ERR_INVALID,
                         "'%s' is not one of tcp:PORT, unix:PATH, http://HOST[:PORT][/PATH], fd:N, "
                         "file:PATH, command:ARGV",
                         shown(text, strlen(text), buf));
    c.text = copy_bytes(text, strlen(text), e);
    if (!c.text || parse_kind(text + prefix_n, &c, e) < 0) {
        check_free(&c);
        return -1;
    }
    check_free(to);
    *to = c;
    return 0;
}

int check_copy(struct check *to, const struct check *from, struct error *e)
{
    /* The text says it all. */
    return from->text ? check_parse(from->text, to, e) : 0;
}

void check_free(struct check *c)
{
    free(c->text);
    free(c->target);
    free(c->http_path);
    free(c->http_host);
    free(c->argv);
    *c = (struct check){.kind = CHECK_NONE, .fd = -1};
}
