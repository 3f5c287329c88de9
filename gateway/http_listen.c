/*
 * Where the server listens, and how connections come in. What a connection gets that is one too
 * many, or comes when the process has no descriptor left, is decided here.
 */
#include "base/fd.h"
#include "base/log.h"
#include "base/number.h"
#include "gateway/http_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG      1024
#define ACCEPTS_TURN 64
#define RETRY_S      0.5 /* after descriptors ran out */
#define REFUSING_MAX 64  /* connections that are being told that there are too many */

struct listener {
    struct http_server *server;
    struct list node;
    int fd;
    ev_io watcher;
    struct arrival clients;                               /* that can be accepted */
    char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* of a Unix socket, else "" */
};

static void listeners_pause(struct http_server *s)
{
    list_each(l, &s->listeners, struct listener, node) ev_io_stop(s->loop, &l->watcher);
    ev_timer_stop(s->loop, &s->accept);
    ev_timer_set(&s->accept, RETRY_S, 0.);
    ev_timer_start(s->loop, &s->accept);
}

static void on_accept_again(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct http_server *s = w->data;
    list_each(l, &s->listeners, struct listener, node) ev_io_start(loop, &l->watcher);
}

void listeners_init(struct http_server *s)
{
    list_init(&s->listeners);
    ev_init(&s->accept, on_accept_again);
    s->accept.data = s;
}

static void tell_full(struct http_server *s, int fd)
{
    static const char body[] =
        "{\"error\":\"too many connections; try again\",\"code\":\"capacity_exceeded\"}";
    s->counts.refused++;
    if (s->refusing >= REFUSING_MAX) {
        close(fd);
        return;
    }
    if (http_conn_new(s, fd, true, NULL) < 0)
        return;
    struct conn *c = list_entry(s->connections.prev, struct conn, node);
    CLEANUP_STRBUF struct strbuf head = {0};
    if (strbuf_addf(&head,
                    "HTTP/1.1 503 Service Unavailable\r\n%sContent-Type: application/json\r\n"
                    "Content-Length: %zu\r\nRetry-After: 1\r\n",
                    http_date(s), sizeof body - 1) < 0 ||
        http_add_cors(s, &head) < 0 || strbuf_adds(&head, "Connection: close\r\n\r\n") < 0)
        c->is_broken = true;
    http_conn_send(c, head.data, head.len, body, sizeof body - 1, "");
    c->ends = true;
}

static void accept_clients(struct arrival *arrival)
{
    struct listener *l = list_entry(arrival, struct listener, clients);
    struct http_server *s = l->server;
    for (int i = 0; i < ACCEPTS_TURN; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            LOG_WRN("accept_failed", F_STR("why", strerror(errno)),
                    F_INT("connections", s->counts.connections));
            listeners_pause(s);
            return;
        }
        if (fd < 0)
            return; /* nobody waits, or the one who did is gone */
        if (s->counts.connections >= s->config.max_connections)
            tell_full(s, fd);
        else
            (void)http_conn_new(s, fd, false, NULL);
    }
}

static void on_connection(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    struct listener *l = w->data;
    arrivals_add(&l->server->arrivals, &l->clients);
}

static int add(struct http_server *s, int fd, const char *path)
{
    struct listener *l = calloc(1, sizeof *l);
    if (!l)
        return -1;
    l->server = s;
    l->fd = fd;
    snprintf(l->path, sizeof l->path, "%s", path);
    ev_io_init(&l->watcher, on_connection, fd, EV_READ);
    l->watcher.data = l;
    arrival_init(&l->clients, accept_clients);
    ev_io_start(s->loop, &l->watcher);
    list_append(&s->listeners, &l->node);
    return 0;
}

static int listen_unix(struct http_server *s, const char *path, struct error *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof a.sun_path)
        return error_set(e, ERR_INVALID, "listen unix:%s: the path is empty or too long", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(path);
    mode_t old = umask(0177);
    int rc = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&a, sizeof a);
    int failed = errno;
    umask(old);
    if (rc < 0 || listen(fd, BACKLOG) < 0)
        return error_set_sys(e, rc < 0 ? failed : errno, "listen unix:%s", path);
    if (add(s, fd, path) < 0)
        return error_set(e, ERR_MEMORY, "listen unix:%s: no memory", path);
    fd_take(&fd);
    return 0;
}

static int listen_inet(struct http_server *s, const struct sockaddr *a, socklen_t n, bool v6_only,
                       struct error *e)
{
    int one = 1, only = v6_only;
    CLEANUP_FD int fd =
        socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0)
        return error_set_sys(e, errno, "socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    /* Connections inherit these (tcp(7)). */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if (a->sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    if (bind(fd, a, n) < 0 || listen(fd, BACKLOG) < 0)
        return error_set_sys(e, errno, "bind");
    if (add(s, fd, "") < 0)
        return error_set(e, ERR_MEMORY, "no memory");
    fd_take(&fd);
    return 0;
}

/* "HOST:PORT", "[V6]:PORT", ":PORT" into two strings. */
static int split(const char *address, char host[64], char port[8])
{
    const char *colon = strrchr(address, ':');
    if (!colon || !colon[1] || strlen(colon + 1) > 5 ||
        colon[1 + strspn(colon + 1, "0123456789")] != '\0')
        return -1;
    size_t n = (size_t)(colon - address);
    if (n >= 2 && address[0] == '[' && colon[-1] == ']') {
        address++;
        n -= 2;
    }
    if (n >= 64)
        return -1;
    memcpy(host, address, n);
    host[n] = '\0';
    snprintf(port, 8, "%s", colon + 1);
    return 0;
}

int http_server_listen(struct http_server *s, const char *address, struct error *e)
{
    char host[64], port_text[8];
    uint64_t port;
    if (strncmp(address, "unix:", 5) == 0)
        return listen_unix(s, address + 5, e);
    if (split(address, host, port_text) < 0 || number_parse_u64(port_text, 65535, &port) < 0)
        return error_set(e, ERR_INVALID, "listen %s: not HOST:PORT, [V6]:PORT, :PORT or unix:PATH",
                         address);
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    int rc;
    if (host[0] == '\0') { /* both families through one socket, where there is IPv6 */
        rc = listen_inet(s, (struct sockaddr *)&v6, sizeof v6, false, e);
        if (rc < 0 && (e->sys == EAFNOSUPPORT || e->sys == EADDRNOTAVAIL))
            rc = listen_inet(s, (struct sockaddr *)&v4, sizeof v4, false, e);
    } else if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
                         &v4.sin_addr) == 1) {
        rc = listen_inet(s, (struct sockaddr *)&v4, sizeof v4, false, e);
    } else if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
        rc = listen_inet(s, (struct sockaddr *)&v6, sizeof v6, true, e);
    } else { /* a static program must not load what looks names up (nss) */
        rc = error_set(e, ERR_INVALID, "the host must be an address or localhost");
    }
    return rc < 0 ? error_wrap(e, "listen %s", address) : 0;
}

void listeners_stop(struct http_server *s)
{
    list_each(l, &s->listeners, struct listener, node)
    {
        ev_io_stop(s->loop, &l->watcher);
        arrival_drop(&l->clients);
        list_remove(&l->node);
        close(l->fd);
        if (l->path[0])
            unlink(l->path);
        free(l);
    }
    ev_timer_stop(s->loop, &s->accept);
}
