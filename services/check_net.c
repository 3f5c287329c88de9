/*
 * Checks over the network: tcp and http. A connection that comes about is the whole answer for the
 * first; http sends one request and reads as much as it takes to know the status.
 */
#include "services/check_attempt.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/number.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FD_RESERVE     8   /* descriptors that no check takes */
#define LINGER_MS      250 /* that the rest of an answer may take */
#define LINGER_BYTES   (64 * 1024)
#define REQUEST_MAX    (16 * 1024)
#define READS_PER_TURN 4

static int begin_connect(struct check_attempt *a, struct error *e);

static const char *duration(const struct check_attempt *a, char buf[32])
{
    return number_format_duration(a->plan.timeout_ms, buf, 32);
}

/* ---- addresses ---- */

static void add_v4(struct check_net *n, struct in_addr address, unsigned port)
{
    unsigned i = n->address_count++;
    n->address[i].v4 = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = address};
    n->address_size[i] = sizeof n->address[i].v4;
}

static void add_v6(struct check_net *n, struct in6_addr address, unsigned port)
{
    unsigned i = n->address_count++;
    n->address[i].v6 = (struct sockaddr_in6){
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = address};
    n->address_size[i] = sizeof n->address[i].v6;
}

/* A name would need a resolver, which waits: only the one name whose meaning is fixed. */
static int find_host(struct check_net *n, const struct check *c, struct error *e)
{
    const char *host = c->target ? c->target : "127.0.0.1";
    char bare[INET6_ADDRSTRLEN];
    struct in_addr v4 = {.s_addr = htonl(INADDR_LOOPBACK)};
    struct in6_addr v6 = IN6ADDR_LOOPBACK_INIT;
    size_t len = strlen(host);
    if (len > 2 && len < sizeof bare && host[0] == '[' && host[len - 1] == ']') {
        snprintf(bare, sizeof bare, "%.*s", (int)len - 2, host + 1);
        host = bare;
    }
    if (strcmp(host, "localhost") == 0) {
        add_v4(n, v4, c->port);
        add_v6(n, v6, c->port);
    } else if (inet_pton(AF_INET, host, &v4) == 1) {
        add_v4(n, v4, c->port);
    } else if (inet_pton(AF_INET6, host, &v6) == 1) {
        add_v6(n, v6, c->port);
    } else {
        return error_set(e, ERR_INVALID, "host '%.100s': not an address (nor localhost)", host);
    }
    snprintf(n->where, sizeof n->where, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, c->port);
    return 0;
}

static int make_request(struct check_attempt *a, struct error *e)
{
    const struct check *c = a->plan.check;
    const char *path = c->http_path ? c->http_path : "/";
    const char *host = c->http_host ? c->http_host : a->net.where;
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 127)
            return error_set(e, ERR_INVALID,
                             "%s: blanks and control characters cannot be asked for", c->text);
    a->net.request.limit = REQUEST_MAX;
    if (strbuf_addf(&a->net.request,
                    "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: sandbox-init\r\nAccept: */*\r\n"
                    "Connection: close\r\n\r\n",
                    path, host) < 0)
        return error_set(e, ERR_MEMORY, "no memory for a request of at most %d bytes", REQUEST_MAX);
    return 0;
}

/* ---- http ---- */

static void fail_sys(struct check_attempt *a, const char *what, int sys)
{
    error_set_sys(&a->why, sys, "%s %s", what, a->net.where);
    check_conclude(a, false);
}

static void take_status(struct check_attempt *a)
{
    char line[80];
    unsigned status = a->net.answer.status;
    a->is_ok = status >= 200 && status < 400;
    http_answer_show(&a->net.answer, line, sizeof line);
    error_set(&a->why, ERR_STATE, "%s answered '%s'", a->net.where, line);
    a->net.stage = NET_LINGERING;
    check_set_timer(a, LINGER_MS < a->plan.timeout_ms ? LINGER_MS : a->plan.timeout_ms);
}

/* False: it is over. */
static bool take_bytes(struct check_attempt *a, const char *bytes, size_t n)
{
    char line[64];
    if (a->net.stage == NET_LINGERING) {
        a->net.drained += n;
        if (a->net.drained < LINGER_BYTES)
            return true;
        check_conclude(a, a->is_ok);
        return false;
    }
    switch (http_answer_take(&a->net.answer, bytes, n)) {
    case HTTP_MORE:
        return true;
    case HTTP_STATUS:
        take_status(a);
        return true;
    case HTTP_GARBAGE:
        http_answer_show(&a->net.answer, line, sizeof line);
        error_set(&a->why, ERR_PROTOCOL, "%s answered with what is not HTTP: '%s'", a->net.where,
                  line);
        break;
    case HTTP_ENDLESS:
        error_set(&a->why, ERR_PROTOCOL, "%s sent %d bytes and no status", a->net.where,
                  HTTP_HEAD_MAX);
        break;
    }
    check_conclude(a, false);
    return false;
}

static void read_answer(struct check_attempt *a)
{
    char bytes[4096];
    for (int turn = 0; turn < READS_PER_TURN; turn++) {
        ssize_t k = recv(a->net.fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (k < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (k > 0) {
            if (!take_bytes(a, bytes, (size_t)k))
                return;
            continue;
        }
        if (a->net.stage == NET_LINGERING) {
            check_conclude(a, a->is_ok);
        } else if (k < 0) {
            fail_sys(a, "read from", errno);
        } else {
            error_set(&a->why, ERR_PROTOCOL, "%s closed the connection without an answer",
                      a->net.where);
            check_conclude(a, false);
        }
        return;
    }
}

static void watch(struct check_attempt *a, int events)
{
    ev_io_stop(a->plan.loop, &a->net.io);
    ev_io_set(&a->net.io, a->net.fd, events);
    ev_io_start(a->plan.loop, &a->net.io);
}

static void send_request(struct check_attempt *a)
{
    struct check_net *n = &a->net;
    const char *rest = strbuf_text(&n->request) + n->sent;
    ssize_t k = send(n->fd, rest, n->request.len - n->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (k < 0 && errno != EAGAIN && errno != EINTR) {
        fail_sys(a, "write to", errno);
        return;
    }
    n->sent += k > 0 ? (size_t)k : 0;
    if (n->sent < n->request.len) {
        watch(a, EV_WRITE);
        return;
    }
    n->stage = NET_READING;
    watch(a, EV_READ);
}

/* ---- connecting ---- */

/* A connection from a free port to itself: with nobody there a kernel that happens to choose the
 * target's number as ours makes one (RFC 9293, simultaneous open). */
static bool is_own_echo(const struct check_net *n)
{
    union net_address own = {0}, peer = {0};
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    if (getsockname(n->fd, &own.any, &own_size) < 0 ||
        getpeername(n->fd, &peer.any, &peer_size) < 0 || own.any.sa_family != peer.any.sa_family)
        return false;
    if (own.any.sa_family == AF_INET)
        return own.v4.sin_port == peer.v4.sin_port &&
               own.v4.sin_addr.s_addr == peer.v4.sin_addr.s_addr;
    return own.any.sa_family == AF_INET6 && own.v6.sin6_port == peer.v6.sin6_port &&
           memcmp(&own.v6.sin6_addr, &peer.v6.sin6_addr, sizeof own.v6.sin6_addr) == 0;
}

static void drop_socket(struct check_attempt *a)
{
    ev_io_stop(a->plan.loop, &a->net.io);
    fd_close(&a->net.fd);
}

static void connect_failed(struct check_attempt *a, int sys)
{
    struct check_net *n = &a->net;
    struct error e = {0};
    drop_socket(a);
    if (a->why.code == ERR_NONE || sys == ECONNREFUSED)
        error_set_sys(&a->why, sys, "connect to %s", n->where);
    if (n->tried == n->address_count) {
        check_conclude(a, false);
        return;
    }
    if (begin_connect(a, &e) < 0) {
        a->why = e;
        check_conclude(a, false);
    }
}

static void connected(struct check_attempt *a)
{
    if (is_own_echo(&a->net)) {
        const struct linger now = {.l_onoff = 1}; /* leaves no TIME_WAIT on the service's port */
        setsockopt(a->net.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        connect_failed(a, ECONNREFUSED);
        return;
    }
    if (a->kind != CHECK_HTTP) {
        check_conclude(a, true);
        return;
    }
    a->net.stage = NET_SENDING;
    send_request(a);
}

static void try_connect(struct check_attempt *a)
{
    struct check_net *n = &a->net;
    unsigned i = n->tried - 1;
    n->stage = NET_CONNECTING;
    if (connect(n->fd, &n->address[i].any, n->address_size[i]) == 0) {
        connected(a);
    } else if (errno == EINPROGRESS || errno == EINTR) {
        watch(a, EV_WRITE);
    } else {
        connect_failed(a, errno);
    }
}

/* Try the next address. 0, or -1 with *e where init has no socket to give. */
static int begin_connect(struct check_attempt *a, struct error *e)
{
    struct check_net *n = &a->net;
    int family = n->address[n->tried++].any.sa_family;
    n->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (n->fd < 0 && errno == EAFNOSUPPORT) { /* says nothing of init: there is no such network */
        connect_failed(a, errno);
        return 0;
    }
    if (n->fd < 0)
        return error_set_sys(e, errno, "a socket for a check");
    if (fd_is_scarce(n->fd, FD_RESERVE)) {
        fd_close(&n->fd);
        return error_set(e, ERR_LIMIT, "too few descriptors are left for a check (RLIMIT_NOFILE)");
    }
    try_connect(a);
    return 0;
}

static void on_io(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    struct check_attempt *a = w->data;
    int sys = 0;
    socklen_t size = sizeof sys;
    switch (a->net.stage) {
    case NET_CONNECTING:
        if (getsockopt(a->net.fd, SOL_SOCKET, SO_ERROR, &sys, &size) < 0)
            sys = errno;
        if (sys)
            connect_failed(a, sys);
        else
            connected(a);
        break;
    case NET_SENDING:
        send_request(a);
        break;
    case NET_READING:
    case NET_LINGERING:
        read_answer(a);
        break;
    }
}

/* ---- one attempt ---- */

int check_net_begin(struct check_attempt *a, struct error *e)
{
    struct check_net *n = &a->net;
    const struct check *c = a->plan.check;
    ev_io_init(&n->io, on_io, -1, 0);
    n->io.data = a;
    if (find_host(n, c, e) < 0)
        return -1;
    if (c->kind == CHECK_HTTP && make_request(a, e) < 0)
        return -1;
    return begin_connect(a, e);
}

void check_net_expire(struct check_attempt *a)
{
    char time[32];
    switch (a->net.stage) {
    case NET_CONNECTING:
        error_set(&a->why, ERR_STATE, "connect to %s: no answer within %s", a->net.where,
                  duration(a, time));
        break;
    case NET_SENDING:
    case NET_READING:
        error_set(&a->why, ERR_STATE, "%s took the connection and did not answer within %s",
                  a->net.where, duration(a, time));
        break;
    case NET_LINGERING:
        break;
    }
    check_conclude(a, a->net.stage == NET_LINGERING && a->is_ok);
}

void check_net_end(struct check_attempt *a)
{
    drop_socket(a);
    strbuf_free(&a->net.request);
}
