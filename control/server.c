/*
 * The control socket's server: accepting, who may connect, how many, and the sweep that ends
 * connections after the callbacks of a turn. conn.c is one connection, request.c a request.
 */
#include "control/server_internal.h"

#include "base/fd.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_PER_TURN 16
#define ACCEPT_PAUSE_S   0.1
#define HANGUPS_PER_TURN 16
#define FD_RESERVE       8 /* descriptors that no connection takes */

/* ---- packets without a connection -------------------------------------------------------- */

size_t wire_error_record(const struct error *e, char *buf, size_t size)
{
    int n = snprintf(buf, size, "code=%s%cerrno:=%d%cmessage=%s", error_code_name(e->code), 0,
                     e->sys, 0, e->text);
    size_t len = n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
    return len + 1; /* the NUL that snprintf wrote ends the last field */
}

void wire_drain(int fd)
{
    char byte;
    shutdown(fd, SHUT_RD);
    /* Bounded by the peer's send buffer; the number is for a peer that made that huge. */
    for (int i = 0; i < 256; i++)
        if (recv(fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) <= 0)
            return;
}

/* Send an error packet on a descriptor that has no connection, best effort. */
static void wire_refuse(int fd, const struct error *e)
{
    char packet[1024] = {WIRE_ERROR};
    size_t n = 1 + wire_error_record(e, packet + 1, sizeof packet - 1);
    (void)send(fd, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    wire_drain(fd);
}

/* ---- the sweep --------------------------------------------------------------------------- */

void server_make_due(struct server *s, struct list *due_node)
{
    if (list_is_empty(due_node))
        list_append(&s->due, due_node);
    ev_feed_event(s->loop, &s->sweep, EV_CUSTOM);
}

/* Runs behind the other events of the turn, when no callback of a connection is on the stack.
 * on_closed may end further connections: they join the list and are settled in the same sweep. It
 * may also start what is to run before the loop sleeps (sessions/events.c), and a watcher of
 * ev_prepare that another one starts does not: so this is none. */
static void server_on_sweep(struct ev_loop *loop, ev_check *w, int revents)
{
    struct server *s = w->data;
    (void)loop;
    (void)revents;
    while (!list_is_empty(&s->due)) {
        struct list *node = s->due.next;
        list_remove(node);
        conn_settle(conn_of_due(node));
    }
}

/* ---- hang-ups ---------------------------------------------------------------------------- */

static void server_on_hangups(struct ev_loop *loop, ev_io *w, int revents)
{
    struct server *s = w->data;
    struct epoll_event events[HANGUPS_PER_TURN];
    (void)loop;
    (void)revents;
    int n = epoll_wait(s->hangups, events, HANGUPS_PER_TURN, 0);
    for (int i = 0; i < n; i++)
        conn_on_hangup(events[i].data.ptr);
}

int server_watch_hangup(struct server *s, int fd, struct conn *c)
{
    if (s->hangups < 0) {
        s->hangups = epoll_create1(EPOLL_CLOEXEC);
        if (s->hangups < 0)
            return -1;
        ev_io_set(&s->hangups_io, s->hangups, EV_READ);
        ev_io_start(s->loop, &s->hangups_io);
    }
    struct epoll_event event = {.events = 0, .data.ptr = c}; /* EPOLLHUP needs no asking */
    return epoll_ctl(s->hangups, EPOLL_CTL_ADD, fd, &event);
}

void server_unwatch_hangup(struct server *s, int fd)
{
    epoll_ctl(s->hangups, EPOLL_CTL_DEL, fd, NULL);
}

/* ---- accepting --------------------------------------------------------------------------- */

static int check_count(unsigned count, unsigned limit, struct error *e)
{
    if (count < limit)
        return 0;
    return error_set(e, ERR_LIMIT,
                     "%u connections are open, max_connections is %u; try again later", count,
                     limit);
}

/* May this peer have a connection? */
static int check_peer(const struct server *s, const struct ucred *peer, struct error *e)
{
    if (peer->uid != 0 && peer->uid != s->config.allowed_uid)
        return error_set(e, ERR_DENIED,
                         "uid %u may not use this control socket; root and uid %u may",
                         (unsigned)peer->uid, (unsigned)s->config.allowed_uid);
    return check_count(s->count - s->adopted, s->config.max_connections, e);
}

static void serve(struct server *s, int fd)
{
    struct error e;
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        error_set_sys(&e, errno, "peer credentials");
    else if (fd_is_scarce(fd, FD_RESERVE))
        error_set(&e, ERR_LIMIT, "sandbox-init has no descriptors left; try again later");
    else if (check_peer(s, &peer, &e) == 0) {
        conn_new(s, fd, peer.uid, peer.pid, false);
        return;
    }
    LOG_WRN("client_refused", F_STR("reason", error_code_name(e.code)), F_INT("uid", peer.uid),
            F_INT("pid", peer.pid));
    wire_refuse(fd, &e);
    close(fd);
}

/* accept() failed: with no descriptor or memory left the waiting client would wake the loop again
 * at once, so look away for a while. Said once until an accept succeeds. */
static void server_pause_accepting(struct server *s, int error)
{
    if (!s->is_accept_failing)
        LOG_WRN("accept_failed", F_STR("error", strerror(error)), F_INT("errno", error));
    s->is_accept_failing = true;
    ev_io_stop(s->loop, &s->accept_io);
    ev_timer_set(&s->accept_pause, ACCEPT_PAUSE_S, 0.0);
    ev_timer_start(s->loop, &s->accept_pause);
}

static void server_on_pause_over(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct server *s = w->data;
    (void)revents;
    if (s->file.fd >= 0)
        ev_io_start(loop, &s->accept_io);
}

/* One client per turn, without asking for a second one that is rarely there; several while turn
 * after turn brings one, or where others must not overtake them. */
static void accept_clients(struct arrival *arrival)
{
    struct server *s = list_entry(arrival, struct server, clients);
    unsigned turn = ev_iteration(s->loop);
    bool are_several = turn - s->last_accept_turn <= 1 || !list_is_empty(&s->arrivals.waiting);
    int budget = are_several ? ACCEPTS_PER_TURN : 1;
    while (budget-- > 0) {
        int fd = accept4(s->file.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno == EAGAIN)
            return;
        if (fd < 0) {
            server_pause_accepting(s, errno);
            return;
        }
        s->is_accept_failing = false;
        s->last_accept_turn = turn;
        serve(s, fd);
    }
}

static void server_on_accept(struct ev_loop *loop, ev_io *w, int revents)
{
    struct server *s = w->data;
    (void)loop;
    (void)revents;
    arrivals_add(&s->arrivals, &s->clients);
}

/* ---- life -------------------------------------------------------------------------------- */

static void start_accepting(struct server *s)
{
    ev_io_stop(s->loop, &s->accept_io);
    ev_timer_stop(s->loop, &s->accept_pause);
    ev_io_set(&s->accept_io, s->file.fd, EV_READ);
    ev_io_start(s->loop, &s->accept_io);
}

struct server *server_new(struct ev_loop *loop, const struct server_config *config, struct error *e)
{
    struct server *s = malloc(sizeof *s);
    if (!s) {
        error_set_sys(e, ENOMEM, "control socket");
        return NULL;
    }
    memset(s, 0, offsetof(struct server, packet)); /* not the buffer: its pages stay untouched */
    s->loop = loop;
    s->config = *config;
    s->uploads.limit = config->upload_limit;
    s->uploads.text_limit = config->text_limit;
    s->hangups = s->file.fd = -1;
    list_init(&s->conns);
    list_init(&s->due);
    arrivals_init(&s->arrivals, loop);
    arrival_init(&s->clients, accept_clients);
    ev_io_init(&s->accept_io, server_on_accept, -1, EV_READ);
    ev_io_init(&s->hangups_io, server_on_hangups, -1, EV_READ);
    ev_timer_init(&s->accept_pause, server_on_pause_over, 0.0, 0.0);
    ev_check_init(&s->sweep, server_on_sweep);
    ev_set_priority(&s->sweep, EV_MINPRI);
    s->accept_io.data = s->hangups_io.data = s->accept_pause.data = s->sweep.data = s;
    if (!config->path)
        return s;
    if (socket_file_open(&s->file, config->path, e) < 0) {
        free(s);
        return NULL;
    }
    memcpy(s->path, config->path, strlen(config->path) + 1); /* its length was checked */
    s->config.path = s->path;
    start_accepting(s);
    return s;
}

void server_hang_up(struct server *s, const struct error *why)
{
    while (!list_is_empty(&s->conns)) {
        struct conn *c = conn_of_all(s->conns.next);
        if (c->state == CONN_ASSEMBLING || c->state == CONN_SERVING)
            conn_finish_error(c, why);
        conn_on_hangup(c);
        conn_settle(c);
    }
}

void server_free(struct server *s)
{
    if (!s)
        return;
    ev_io_stop(s->loop, &s->accept_io);
    ev_io_stop(s->loop, &s->hangups_io);
    ev_timer_stop(s->loop, &s->accept_pause);
    while (!list_is_empty(&s->conns))
        conn_destroy(conn_of_all(s->conns.next));
    arrivals_end(&s->arrivals);
    ev_clear_pending(s->loop, &s->sweep);
    if (s->config.path)
        socket_file_close(&s->file, s->path);
    fd_close(&s->hangups);
    free(s);
}

void server_set_limits(struct server *s, unsigned max_connections, unsigned max_adopted,
                       size_t text_limit, size_t upload_limit, uint64_t client_stall_ms)
{
    s->uploads.limit = upload_limit;
    s->config.max_connections = max_connections;
    s->config.max_adopted = max_adopted;
    s->config.client_stall_ms = client_stall_ms;
    s->uploads.text_limit = text_limit;
}

int server_rebind(struct server *s, struct error *e)
{
    struct socket_file fresh;
    if (!s->config.path || socket_file_is_ours(&s->file, s->path))
        return 0;
    if (socket_file_open(&fresh, s->path, e) < 0)
        return -1;
    ev_io_stop(s->loop, &s->accept_io);
    fd_close(&s->file.fd);
    s->file = fresh;
    start_accepting(s);
    return 0;
}

uint64_t server_last_closed_ns(const struct server *s)
{
    return s->last_closed_ns;
}

unsigned server_connection_count(const struct server *s)
{
    return s->count;
}

void server_add_arrival(struct server *s, struct arrival *arrival)
{
    arrivals_add(&s->arrivals, arrival);
}

int server_adopt(struct server *s, int fd, uid_t uid, pid_t pid, struct error *e)
{
    struct error refusal;
    int status = check_count(s->adopted, s->config.max_adopted, &refusal);
    if (status == 0 && fd_is_scarce(fd, FD_RESERVE))
        status =
            error_set(&refusal, ERR_LIMIT, "sandbox-init has no descriptors left; try again later");
    if (status < 0) {
        if (e)
            *e = refusal;
        wire_refuse(fd, &refusal);
        close(fd);
        return -1;
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (!conn_new(s, fd, uid, pid, true))
        return error_set(e, ERR_MEMORY, "no memory for a connection");
    return 0;
}
