/*
 * What the gateway hands to init over its socket: packets of one byte with one descriptor. It is
 * the least trusted of init's children, so each descriptor is looked at before it is used: none but
 * one is taken, all others are closed at once, and what is no socket of the right kind is dropped.
 * A bounded number of packets a turn.
 */
#include "init/gateway.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "control/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PACKETS_PER_TURN 32
#define FDS_MAX          253 /* of one packet: SCM_MAX_FD, unix(7) */
#define PAUSE_S          0.1

/* ---- descriptors ---- */

static int option_of(int fd, int name)
{
    int value = -1;
    socklen_t size = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &size) < 0 ? -1 : value;
}

static bool is_packet_socket(int fd)
{
    return option_of(fd, SO_DOMAIN) == AF_UNIX && option_of(fd, SO_TYPE) == SOCK_SEQPACKET &&
           option_of(fd, SO_ACCEPTCONN) == 0;
}

/* Said once of each gateway: one that is broken could say it without end. */
static void complain(struct gateway *g, const char *why)
{
    if (!g->has_erred)
        LOG_WRN("gateway_error", F_INT("pid", g->child ? g->child->pid : 0), F_STR("why", why));
    g->has_erred = true;
}

/* ---- the file helpers ---- */

static void on_helper_exit(void *context, const struct child_exit *how)
{
    struct gateway_helper *h = context;
    h->child = NULL;
    if (how->step)
        LOG_ERR("file_helper", F_STR("step", how->step), F_STR("why", strerror(how->sys)));
    else
        LOG_DBG("file_helper_ended", F_INT("wait_status", how->status));
}

static struct gateway_helper *free_helper(struct gateway *g)
{
    for (size_t i = 0; i < GATEWAY_HELPERS; i++)
        if (!g->helpers[i].child)
            return &g->helpers[i];
    if (!g->has_told_helpers)
        LOG_ERR("file_helper", F_INT("running", GATEWAY_HELPERS),
                F_STR("why", "so many have not ended, so no other is started"));
    g->has_told_helpers = true;
    return NULL;
}

static void start_helper(struct gateway *g, int fd)
{
    struct error e = {0};
    struct gateway_plan p = {0};
    struct gateway_helper *h = free_helper(g);
    if (!h)
        return;
    h->gateway = g;
    h->began_ns = clock_mono_ns();
    if (gateway_plan_helper(g, &p, fd, &e) == 0) {
        p.spawn.on_exit = on_helper_exit;
        p.spawn.context = h;
        h->child = spawn(&p.spawn, &e);
    }
    gateway_plan_free(&p);
    if (h->child)
        LOG_DBG("file_helper", F_INT("pid", h->child->pid));
    else
        LOG_ERR("file_helper", F_STR("why", e.text));
}

void gateway_wake_helpers(const struct gateway *g)
{
    for (size_t i = 0; i < GATEWAY_HELPERS; i++)
        if (g->helpers[i].child) /* it leads a group, with its workers */
            (void)kill(-g->helpers[i].child->pid, SIGCONT);
}

void gateway_renew_helpers(struct gateway *g)
{
    for (size_t i = 0; i < GATEWAY_HELPERS; i++)
        if (g->helpers[i].child)
            (void)child_signal(g->helpers[i].child, SIGTERM);
    gateway_wake_helpers(g);
}

/* ---- packets ---- */

/* Owns fd. */
static void serve(struct gateway *g, char what, int fd)
{
    struct error e = {0};
    if (!is_packet_socket(fd)) {
        complain(g, "it handed over what is no SOCK_SEQPACKET Unix socket");
    } else if (what == WIRE_HAND_CONNECTION) {
        if (server_adopt(g->init->server, fd, g->uid, g->child ? g->child->pid : 0, &e) < 0)
            LOG_DBG("client_refused", F_STR("why", e.text));
        return;
    } else if (what == WIRE_HAND_HELPER) {
        if (g->init->stop_state == STOP_NONE)
            start_helper(g, fd);
    } else {
        complain(g, "it asked for what does not exist");
    }
    fd_close_foreign(fd);
}

/* The descriptor that came with the packet; -1 if it was not exactly one. All others are closed. */
static int take_descriptor(struct msghdr *m)
{
    int fds[FDS_MAX], count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n && count < FDS_MAX; i++)
            memcpy(&fds[count++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    }
    if (count == 1 && !(m->msg_flags & (MSG_CTRUNC | MSG_TRUNC)))
        return fds[0];
    for (int i = 0; i < count; i++)
        fd_close_foreign(fds[i]);
    return -1;
}

enum received { RECEIVED, NOTHING, NO_MEMORY, ENDED };

static bool is_words(const char *packet, ssize_t n, int flags)
{
    return n >= 1 && !(flags & (MSG_TRUNC | MSG_CTRUNC)) &&
           (packet[0] == WIRE_SAY_END || packet[0] == WIRE_SAY_TROUBLE);
}

/* Of one that has ended the words alone count. */
static enum received receive(struct gateway *g, bool has_ended)
{
    char what[1 + WIRE_WORDS_MAX];
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec v = {what, sizeof what};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(g->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return NOTHING;
    if (n < 0 && (errno == ENOMEM || errno == ENOBUFS))
        return NO_MEMORY;
    if (n < 0)
        return ENDED;
    int fd = take_descriptor(&m);
    if (n == 0 && fd < 0)
        return ENDED;
    if (n == 1 && fd >= 0 && !has_ended) {
        serve(g, what[0], fd);
        return RECEIVED;
    }
    if (fd < 0 && is_words(what, n, m.msg_flags)) {
        gateway_take_words(g, what[0], what + 1, (size_t)n - 1);
        return RECEIVED;
    }
    if (m.msg_flags & MSG_CTRUNC)
        LOG_WRN("client_refused", F_STR("why", "there are no descriptors left for the gateway"));
    else
        complain(g, "its packet is not one byte with one descriptor");
    if (fd >= 0)
        fd_close_foreign(fd);
    return RECEIVED;
}

static void on_pause_over(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct gateway *g = w->data;
    if (g->fd >= 0)
        ev_io_start(loop, &g->io);
}

static void take_packets(struct arrival *arrival)
{
    struct gateway *g = list_entry(arrival, struct gateway, packets);
    enum received r = RECEIVED;
    for (int i = 0; i < PACKETS_PER_TURN && r == RECEIVED; i++)
        r = receive(g, false);
    if (r == NO_MEMORY) {
        ev_io_stop(g->init->loop, &g->io);
        ev_timer_start(g->init->loop, &g->pause);
    } else if (r == ENDED) { /* it has ended, or nothing can be done with it */
        gateway_deaf(g);
        if (g->child)
            (void)child_signal(g->child, SIGKILL);
    }
}

static void on_packets(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    struct gateway *g = w->data;
    server_add_arrival(g->init->server, &g->packets);
}

void gateway_hear_rest(struct gateway *g)
{
    for (int i = 0; i < PACKETS_PER_TURN && g->fd >= 0; i++)
        if (receive(g, true) != RECEIVED)
            return;
}

void gateway_listen(struct gateway *g)
{
    ev_io_init(&g->io, on_packets, g->fd, EV_READ);
    ev_timer_init(&g->pause, on_pause_over, PAUSE_S, 0.);
    arrival_init(&g->packets, take_packets);
    g->io.data = g->pause.data = g;
    ev_io_start(g->init->loop, &g->io);
}

void gateway_deaf(struct gateway *g)
{
    ev_io_stop(g->init->loop, &g->io);
    ev_timer_stop(g->init->loop, &g->pause);
    arrival_drop(&g->packets);
    fd_close(&g->fd);
}
