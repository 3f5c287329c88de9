/*
 * The client library of the control socket: one connection is one request and its answers.
 *
 * init may refuse a request while it is still being sent: it then sends an error, closes its
 * receiving side and goes. So a failed send is no error here; the reason waits in the socket and
 * comes with the next client_receive(). A close of the other side with unread bytes of ours shows
 * as ECONNRESET once, before what it had sent: that one is skipped.
 */
#include "control/client.h"

#include "base/fd.h"
#include "base/number.h"
#include "control/record.h"
#include "control/wire.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* What of a request is to be sent, in this order, and how far that is. */
struct upload {
    struct strbuf first; /* the packet that has no channel byte */
    const char *args, *text;
    size_t args_len, text_len;
    struct strbuf kept; /* what args and text point into, once the caller's own may go */
    bool is_first_sent;
};

struct client {
    int fd;
    bool was_reset;
    struct upload upload;
    char *packet; /* WIRE_PACKET_MAX bytes */
    bool owns_packet;
};

/* ---- the request ------------------------------------------------------------------------- */

void client_request_init(struct client_request *q, const char *verb)
{
    memset(q, 0, sizeof *q);
    q->is_broken = strbuf_add(&q->args, verb, strlen(verb) + 1) < 0;
}

void client_request_add(struct client_request *q, const char *key, const char *value)
{
    if (q->is_broken)
        return;
    q->is_broken = strbuf_adds(&q->args, key) < 0 || strbuf_adds(&q->args, "=") < 0 ||
                   strbuf_add(&q->args, value, strlen(value) + 1) < 0;
}

void client_request_free(struct client_request *q)
{
    strbuf_free(&q->args);
    q->text = NULL;
    q->text_len = 0;
}

/* ---- sending ----------------------------------------------------------------------------- */

/* One packet. Returns like send(2), EINTR retried. */
static ssize_t send_packet(int fd, char channel, const char *bytes, size_t n, int flags)
{
    struct iovec iov[2] = {{&channel, 1}, {(void *)(uintptr_t)bytes, n}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t k;
    do
        k = sendmsg(fd, &m, flags | MSG_NOSIGNAL);
    while (k < 0 && errno == EINTR);
    return k;
}

static bool is_gone(int error)
{
    return error == EPIPE || error == ECONNRESET;
}

/* The first packet: 1, 0 if there is no room now, -1 with *e. */
static int send_first(int fd, const struct strbuf *packet, int flags, struct error *e)
{
    ssize_t k;
    do
        k = send(fd, packet->data, packet->len, flags | MSG_NOSIGNAL);
    while (k < 0 && errno == EINTR);
    if (k >= 0 || is_gone(errno))
        return 1;
    return errno == EAGAIN ? 0 : error_set_sys(e, errno, "send to sandbox-init");
}

/* The rest of *bytes, which is taken off as it goes. Returns as send_first(). */
static int send_all(int fd, char channel, const char **bytes, size_t *n, int flags, struct error *e)
{
    while (*n > 0) {
        size_t part = *n < WIRE_PAYLOAD_MAX ? *n : WIRE_PAYLOAD_MAX;
        if (send_packet(fd, channel, *bytes, part, flags) < 0) {
            if (is_gone(errno))
                return 1;
            return errno == EAGAIN ? 0 : error_set_sys(e, errno, "send to sandbox-init");
        }
        *bytes += part;
        *n -= part;
    }
    return 1;
}

/* Go on with the upload: 1 all is sent, 0 there is no room now, -1 with *e. */
static int upload_go_on(struct client *c, int flags, struct error *e)
{
    struct upload *u = &c->upload;
    int rc = u->is_first_sent ? 1 : send_first(c->fd, &u->first, flags, e);
    u->is_first_sent = rc > 0;
    if (rc > 0)
        rc = send_all(c->fd, WIRE_ARGS, &u->args, &u->args_len, flags, e);
    if (rc > 0)
        rc = send_all(c->fd, WIRE_TEXT, &u->text, &u->text_len, flags, e);
    if (rc > 0) {
        strbuf_free(&u->first);
        strbuf_free(&u->kept);
    }
    return rc;
}

/* Everything in one packet where it fits, which it nearly always does. */
static int plan_short(struct upload *u, const struct client_request *q)
{
    int rc = strbuf_add(&u->first, q->args.data, q->args.len);
    if (rc == 0 && q->text)
        rc = strbuf_adds(&u->first, "text=") < 0 ||
             strbuf_add(&u->first, q->text, q->text_len) < 0 || strbuf_add(&u->first, "", 1) < 0;
    return rc;
}

/* The verb and the sizes first, then arguments and text in packets of their own. */
static int plan_long(struct upload *u, const struct client_request *q)
{
    size_t verb_len = strlen(q->args.data) + 1;
    u->args = q->args.data + verb_len;
    u->args_len = q->args.len - verb_len;
    u->text = q->text;
    u->text_len = q->text_len;
    int rc = strbuf_add(&u->first, q->args.data, verb_len);
    if (rc == 0 && u->args_len > 0)
        rc = strbuf_addf(&u->first, "args_size=%zu", u->args_len) < 0 ||
             strbuf_add(&u->first, "", 1) < 0;
    if (rc == 0 && q->text)
        rc = strbuf_addf(&u->first, "text_size=%zu", q->text_len) < 0 ||
             strbuf_add(&u->first, "", 1) < 0;
    return rc;
}

static int plan_upload(struct upload *u, const struct client_request *q, struct error *e)
{
    static const size_t text_key = sizeof "text=";
    bool is_short = q->args.len + text_key + q->text_len <= WIRE_PACKET_MAX &&
                    !(q->text_len > 0 && memchr(q->text, '\0', q->text_len));
    if ((is_short ? plan_short(u, q) : plan_long(u, q)) != 0)
        return error_set(e, ERR_MEMORY, "no memory for the request");
    return 0;
}

/* The rest of the upload from memory of its own. */
static int keep_upload(struct upload *u, struct error *e)
{
    if (strbuf_add(&u->kept, u->args, u->args_len) < 0 ||
        strbuf_add(&u->kept, u->text, u->text_len) < 0)
        return error_set(e, ERR_MEMORY, "no memory for the request");
    u->args = u->kept.data;
    u->text = u->kept.data ? u->kept.data + u->args_len : NULL;
    return 0;
}

/* ---- life -------------------------------------------------------------------------------- */

static int connect_error(const char *path, int error, struct error *e)
{
    error_set_sys(e, error, "cannot reach sandbox-init at %s", path);
    if (e)
        e->code = ERR_UNAVAILABLE;
    const char *advice = error == EACCES
                             ? "; only root and the user that sandbox-init runs as may connect"
                             : "; is it running? give its socket with -S SOCKET or SANDBOX_SOCKET";
    size_t used = e ? strlen(e->text) : 0;
    if (e)
        snprintf(e->text + used, sizeof e->text - used, "%s", advice);
    return -1;
}

static int client_connect(const char *path, struct error *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0)
        return error_set(e, ERR_INVALID, "the path of the control socket is empty");
    if (n >= sizeof address.sun_path)
        return error_set(e, ERR_INVALID,
                         "the path of the control socket has %zu bytes, at most %zu are possible: "
                         "%.200s",
                         n, sizeof address.sun_path - 1, path);
    memcpy(address.sun_path, path, n);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_sys(e, errno, "socket");
    int rc;
    do
        rc = connect(fd, (const struct sockaddr *)&address, sizeof address);
    while (rc < 0 && errno == EINTR);
    if (rc < 0) {
        connect_error(path, errno, e);
        fd_close(&fd);
    }
    return fd;
}

static struct client *client_new(char *packet, const struct client_request *q, struct error *e)
{
    if (q->is_broken) {
        error_set(e, ERR_MEMORY, "no memory for the request");
        return NULL;
    }
    struct client *c = calloc(1, sizeof *c);
    if (c) {
        c->fd = -1;
        c->packet = packet ? packet : malloc(WIRE_PACKET_MAX);
        c->owns_packet = !packet;
    }
    if (c && c->packet && plan_upload(&c->upload, q, e) == 0)
        return c;
    if (!c || !c->packet)
        error_set_sys(e, ENOMEM, "client");
    client_free(c);
    return NULL;
}

struct client *client_open(const char *path, const struct client_request *q, struct error *e)
{
    struct client *c = client_new(NULL, q, e);
    if (!c)
        return NULL;
    c->fd = client_connect(path, e);
    if (c->fd >= 0 && upload_go_on(c, 0, e) > 0)
        return c;
    client_free(c);
    return NULL;
}

struct client *client_start(int fd, const struct client_request *q, char *packet, struct error *e)
{
    struct client *c = client_new(packet, q, e);
    if (!c) {
        close(fd);
        return NULL;
    }
    c->fd = fd;
    int rc = upload_go_on(c, MSG_DONTWAIT, e);
    if (rc > 0 || (rc == 0 && keep_upload(&c->upload, e) == 0))
        return c;
    client_free(c);
    return NULL;
}

int client_flush(struct client *c, struct error *e)
{
    return upload_go_on(c, MSG_DONTWAIT, e);
}

void client_free(struct client *c)
{
    if (!c)
        return;
    fd_close(&c->fd);
    strbuf_free(&c->upload.first);
    strbuf_free(&c->upload.kept);
    if (c->owns_packet)
        free(c->packet);
    free(c);
}

int client_fd(const struct client *c)
{
    return c->fd;
}

/* ---- talking ----------------------------------------------------------------------------- */

int client_receive(struct client *c, const char **payload, size_t *n, struct error *e)
{
    for (;;) {
        ssize_t k = recv(c->fd, c->packet, WIRE_PACKET_MAX, MSG_TRUNC);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == ECONNRESET && !c->was_reset) {
            c->was_reset = true;
            continue;
        }
        if (k < 0 && errno == EAGAIN)
            return CLIENT_WAIT;
        if (k < 0)
            return error_set_sys(e, errno, "receive from sandbox-init");
        if (k == 0)
            return 0;
        if (k > WIRE_PACKET_MAX || c->packet[0] <= ' ')
            return error_set(e, ERR_PROTOCOL, "sandbox-init sent a malformed packet of %zd bytes",
                             k);
        *payload = c->packet + 1;
        *n = (size_t)k - 1;
        return c->packet[0];
    }
}

int client_send(struct client *c, char channel, const char *bytes, size_t n, struct error *e)
{
    if (send_packet(c->fd, channel, bytes, n, 0) >= 0)
        return 0;
    return error_set_sys(e, errno, "send to sandbox-init");
}

int client_try_send(struct client *c, char channel, const char *bytes, size_t n, struct error *e)
{
    if (send_packet(c->fd, channel, bytes, n, MSG_DONTWAIT) >= 0)
        return 1;
    if (errno == EAGAIN)
        return 0;
    return error_set_sys(e, errno, "send to sandbox-init");
}

void client_end_sending(struct client *c)
{
    shutdown(c->fd, SHUT_WR);
}

int client_error(const char *payload, size_t n, struct error *e)
{
    const char *code = record_get(payload, n, "code");
    const char *number = record_get(payload, n, "errno");
    const char *message = record_get(payload, n, "message");
    uint64_t sys = 0;
    if (number)
        (void)number_parse_u64(number, INT_MAX, &sys);
    error_set(e, code ? error_code_of(code) : ERR_SYSTEM, "%s",
              message ? message : "sandbox-init gave no reason");
    if (e)
        e->sys = (int)sys;
    return -1;
}
