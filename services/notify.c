/*
 * One socket and one pipe of a service. Both are read a little at a time, and not at all for a
 * moment once somebody floods them: he then waits in his own write.
 */
#include "services/notify.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/head.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MESSAGE_MAX 4096 /* bytes of a datagram; a longer one is dropped, as systemd does */
#define PER_PAUSE   16   /* datagrams, or reads of the pipe, in … */
#define PAUSE_MS    10   /* … so much time; then a rest as long */
#define SLICE_NS    ((uint64_t)1000000) /* of one turn, for senders that are hard to find … */
#define REST_FACTOR 9                   /* … and so many times that long they wait then */
#define RIGHTS_MAX  253  /* descriptors that a message can carry: SCM_MAX_FD, unix(7) */
#define FD_RESERVE  8    /* descriptors that no service takes for this */
#define QUEUE_MAX   1024 /* datagrams that may wait: net.unix.max_dgram_qlen, mostly 512 */
#define PIPE_BYTES  512

struct source {
    int fd;
    ev_io io;
    ev_timer rest; /* until it is read again */
    uint64_t since_ns;
    unsigned used; /* datagrams or reads since then */
};

struct notify {
    struct ev_loop *loop;
    const struct notify_events *events;
    void *context;
    uid_t owner;
    struct source socket, pipe;
    int child_fd; /* -1: none */
    bool has_newline;
    bool is_busy; /* inside a callback: freed after it */
    bool is_freed;
    unsigned dropped;
    int folder_fd; /* of the caller; -1: the socket has no file */
    char file[96];
    dev_t dev;
    ino_t ino;
    char address[sizeof((struct sockaddr_un *)0)->sun_path + 1];
};

/* What one datagram says: each thing is told once, however often it stands there. */
enum said_state { SAID_NOTHING, SAID_READY, SAID_RELOADING, SAID_STOPPING };
struct said {
    enum said_state state; /* the last one */
    bool is_watchdog;
    bool has_status;
    char status[NOTIFY_STATUS_MAX];
};

/* ---- reading a datagram ---- */

static void take_line(struct said *s, const char *line)
{
    if (strcmp(line, "READY=1") == 0)
        s->state = SAID_READY;
    else if (strcmp(line, "RELOADING=1") == 0)
        s->state = SAID_RELOADING;
    else if (strcmp(line, "STOPPING=1") == 0)
        s->state = SAID_STOPPING;
    else if (strcmp(line, "WATCHDOG=1") == 0)
        s->is_watchdog = true;
    else if (strncmp(line, "STATUS=", 7) == 0) {
        s->has_status = true;
        head_copy(s->status, sizeof s->status, line + 7);
        for (char *c = s->status; *c; c++)
            if ((unsigned char)*c < ' ' || *c == 127)
                *c = ' ';
    }
}

/* text has room for a NUL behind it. */
static bool parse(char *text, size_t n, struct said *s)
{
    if (n > 0 && text[n - 1] == '\0') /* some send their NUL along */
        n--;
    if (memchr(text, '\0', n))
        return false;
    text[n] = '\0';
    for (char *line = text; line;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        take_line(s, line);
        line = next;
    }
    return true;
}

/* Close what came along; the sender's credentials, or none (pid 0). */
static struct ucred take_control(struct msghdr *m)
{
    struct ucred who = {.uid = (uid_t)-1};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len >= CMSG_LEN(sizeof who))
            memcpy(&who, CMSG_DATA(c), sizeof who);
        for (size_t at = 0; c->cmsg_type == SCM_RIGHTS && CMSG_LEN(at + sizeof(int)) <= c->cmsg_len;
             at += sizeof(int)) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
            fd_close_foreign(fd);
        }
    }
    return who;
}

static bool may_speak(const struct notify *n, const struct ucred *who)
{
    if (who->pid <= 0) /* of a PID namespace above ours */
        return false;
    if (n->events->is_own(n->context, who->pid))
        return true;
    bool has_ended = kill(who->pid, 0) < 0 && errno == ESRCH;
    return has_ended && (who->uid == n->owner || who->uid == 0);
}

/* Call one of the owner's functions. False: it has freed n. */
#define TELL(n, function, ...)                                                                     \
    ((n)->is_freed ? false : ((n)->events->function((n)->context, ##__VA_ARGS__), !(n)->is_freed))

static bool tell(struct notify *n, const struct said *s)
{
    if (s->has_status && !TELL(n, on_status, s->status))
        return false;
    if (s->is_watchdog && !TELL(n, on_watchdog))
        return false;
    switch (s->state) {
    case SAID_NOTHING:
        return true;
    case SAID_READY:
        return TELL(n, on_ready);
    case SAID_RELOADING:
        return TELL(n, on_reloading);
    case SAID_STOPPING:
        return TELL(n, on_stopping);
    }
    return true;
}

static void note_dropped(struct notify *n, const struct ucred *who, const char *why)
{
    if (n->dropped++ == 0) /* said once, not for each of a flood */
        LOG_WRN("notify_dropped", F_STR("socket", n->address), F_INT("pid", who->pid),
                F_INT("uid", who->uid), F_STR("why", why));
}

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(RIGHTS_MAX * sizeof(int))];
};

/* Take one datagram. False: there is none, or n was freed. */
static bool take_datagram(struct notify *n)
{
    char text[MESSAGE_MAX + 1];
    union control control;
    struct iovec iov = {.iov_base = text, .iov_len = MESSAGE_MAX};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    ssize_t k = recvmsg(n->socket.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (k < 0)
        return errno == EINTR;
    struct said s = {0};
    struct ucred who = take_control(&m);
    if (!may_speak(n, &who))
        note_dropped(n, &who, "the sender is not of this service");
    else if ((m.msg_flags & MSG_TRUNC) || !parse(text, (size_t)k, &s))
        note_dropped(n, &who, "it is malformed");
    else
        return tell(n, &s);
    return true;
}

/* ---- turns ---- */

/* What may be read until its io rests. A short queue is empty after each turn, though its writer
 * never pauses: so the time counts, not the turn. */
static unsigned left_of(struct source *s)
{
    uint64_t now = clock_mono_ns();
    if (now - s->since_ns >= PAUSE_MS * 1000000u) {
        s->since_ns = now;
        s->used = 0;
    }
    return PER_PAUSE - s->used;
}

static void rest(struct notify *n, struct source *s, uint64_t ns)
{
    ev_io_stop(n->loop, &s->io);
    ev_now_update(n->loop);
    ev_timer_set(&s->rest, (double)ns / 1e9, 0.);
    ev_timer_start(n->loop, &s->rest);
}

/* To whom a sender belongs is found by climbing, and its tree may be thousands deep. */
static void read_some(struct notify *n, struct source *s, bool (*take)(struct notify *n))
{
    unsigned left = left_of(s);
    uint64_t begun = clock_mono_ns(), spent = 0;
    n->is_busy = true;
    while (left > 0 && spent < SLICE_NS && take(n)) {
        s->used++;
        left--;
        spent = clock_mono_ns() - begun;
    }
    n->is_busy = false;
    if (n->is_freed)
        free(n);
    else if (spent >= SLICE_NS)
        rest(n, s, REST_FACTOR * spent);
    else if (left == 0)
        rest(n, s, PAUSE_MS * 1000000u);
}

static void on_datagrams(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    struct notify *n = w->data;
    read_some(n, &n->socket, take_datagram);
}

/* s6: a newline says that it is ready. What comes behind it is read and forgotten, so that nobody
 * gets a SIGPIPE for saying more. False: no more now. */
static bool take_pipe(struct notify *n)
{
    char bytes[PIPE_BYTES];
    ssize_t k = read(n->pipe.fd, bytes, sizeof bytes);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (k > 0) {
        if (n->has_newline || !memchr(bytes, '\n', (size_t)k))
            return true;
        n->has_newline = true;
        return TELL(n, on_ready);
    }
    ev_io_stop(n->loop, &n->pipe.io);
    fd_close(&n->pipe.fd);
    if (!n->has_newline)
        (void)TELL(n, on_closed);
    return false;
}

static void on_pipe(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    struct notify *n = w->data;
    read_some(n, &n->pipe, take_pipe);
}

static void on_rested(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct source *s = w->data;
    ev_io_start(loop, &s->io);
}

/* ---- life ---- */

static int bind_file(struct notify *n, int folder_fd, const char *path, struct error *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat st;
    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    if (unlinkat(folder_fd, n->file, 0) < 0 && errno != ENOENT)
        return error_set_sys(e, errno, "%s: cannot be replaced", path);
    mode_t old = umask(0111); /* read and write for all; PID 1 has one thread */
    int rc = bind(n->socket.fd, (const struct sockaddr *)&to, sizeof to);
    int sys = errno;
    umask(old);
    if (rc < 0 || fstatat(folder_fd, n->file, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set_sys(e, rc < 0 ? sys : errno, "%s: bind", path);
    n->folder_fd = folder_fd;
    n->dev = st.st_dev;
    n->ino = st.st_ino;
    snprintf(n->address, sizeof n->address, "%s", path);
    return 0;
}

/* A number of the kernel's choice: no two inits in one network namespace can meet (unix(7):
 * autobind). */
static int bind_abstract(struct notify *n, struct error *e)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t size = offsetof(struct sockaddr_un, sun_path);
    if (bind(n->socket.fd, (const struct sockaddr *)&at, size) < 0)
        return error_set_sys(e, errno, "an abstract socket: bind");
    size = sizeof at;
    if (getsockname(n->socket.fd, (struct sockaddr *)&at, &size) < 0)
        return error_set_sys(e, errno, "an abstract socket: its name");
    int len = (int)(size - offsetof(struct sockaddr_un, sun_path)) - 1;
    snprintf(n->address, sizeof n->address, "@%.*s", len, at.sun_path + 1);
    return 0;
}

static int open_socket(struct notify *n, int folder_fd, const char *folder, const char *service,
                       struct error *e)
{
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    int yes = 1;
    n->socket.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (n->socket.fd < 0)
        return error_set_sys(e, errno, "socket");
    if (fd_is_scarce(n->socket.fd, FD_RESERVE))
        return error_set(e, ERR_LIMIT, "too few descriptors are left (RLIMIT_NOFILE)");
    if (setsockopt(n->socket.fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) < 0)
        return error_set_sys(e, errno, "SO_PASSCRED");
    snprintf(n->file, sizeof n->file, "notify.%s", service);
    int len = folder_fd < 0 ? 0 : snprintf(path, sizeof path, "%s/%s", folder, n->file);
    if (folder_fd < 0 || len < 0 || (size_t)len >= sizeof path)
        return bind_abstract(n, e);
    if (bind_file(n, folder_fd, path, e) == 0)
        return 0;
    /* The folder may have been removed since, or its disk may be full: no reason not to start. */
    LOG_WRN("notify_socket", F_STR("why", e->text), F_STR("instead", "an abstract socket"));
    return bind_abstract(n, e);
}

static int open_pipe(struct notify *n, struct error *e)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_sys(e, errno, "pipe");
    n->pipe.fd = ends[0];
    n->child_fd = ends[1];
    if (fd_set_nonblock(n->pipe.fd) < 0)
        return error_set_sys(e, errno, "pipe");
    if (fd_is_scarce(n->child_fd, FD_RESERVE))
        return error_set(e, ERR_LIMIT, "too few descriptors are left (RLIMIT_NOFILE)");
    return 0;
}

static struct notify *make(struct ev_loop *loop, uid_t owner, const struct notify_events *events,
                           void *context)
{
    struct notify *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->loop = loop;
    n->events = events;
    n->context = context;
    n->owner = owner;
    n->socket.fd = n->pipe.fd = n->child_fd = n->folder_fd = -1;
    ev_timer_init(&n->socket.rest, on_rested, 0., 0.);
    ev_timer_init(&n->pipe.rest, on_rested, 0., 0.);
    ev_io_init(&n->socket.io, on_datagrams, -1, EV_READ);
    ev_io_init(&n->pipe.io, on_pipe, -1, EV_READ);
    n->socket.io.data = n->pipe.io.data = n;
    n->socket.rest.data = &n->socket;
    n->pipe.rest.data = &n->pipe;
    return n;
}

struct notify *notify_new(struct ev_loop *loop, int folder_fd, const char *folder,
                          const char *service, uid_t owner, bool wants_pipe,
                          const struct notify_events *events, void *context, struct error *e)
{
    struct notify *n = make(loop, owner, events, context);
    if (!n) {
        error_set(e, ERR_MEMORY, "notify socket of '%s': no memory", service);
        return NULL;
    }
    if (open_socket(n, folder_fd, folder, service, e) < 0 || (wants_pipe && open_pipe(n, e) < 0)) {
        error_wrap(e, "notify socket of '%s'", service);
        notify_free(n);
        return NULL;
    }
    ev_io_set(&n->socket.io, n->socket.fd, EV_READ);
    ev_io_start(loop, &n->socket.io);
    return n;
}

const char *notify_address(const struct notify *n)
{
    return n->address;
}

int notify_child_fd(const struct notify *n)
{
    return n->child_fd;
}

void notify_started(struct notify *n)
{
    if (n->child_fd < 0)
        return;
    fd_close(&n->child_fd);
    ev_io_set(&n->pipe.io, n->pipe.fd, EV_READ);
    ev_io_start(n->loop, &n->pipe.io);
}

/* What nobody will read may carry descriptors, too. */
static void forget_datagrams(const struct notify *n)
{
    union control control;
    for (int left = QUEUE_MAX; left > 0; left--) {
        struct msghdr m = {.msg_control = &control, .msg_controllen = sizeof control};
        if (recvmsg(n->socket.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
            return;
        take_control(&m);
    }
}

static void remove_file(const struct notify *n)
{
    struct stat st;
    if (n->folder_fd >= 0 && fstatat(n->folder_fd, n->file, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_dev == n->dev && st.st_ino == n->ino)
        unlinkat(n->folder_fd, n->file, 0);
}

void notify_free(struct notify *n)
{
    if (!n || n->is_freed)
        return;
    ev_io_stop(n->loop, &n->socket.io);
    ev_io_stop(n->loop, &n->pipe.io);
    ev_timer_stop(n->loop, &n->socket.rest);
    ev_timer_stop(n->loop, &n->pipe.rest);
    remove_file(n);
    if (n->socket.fd >= 0)
        forget_datagrams(n);
    fd_close(&n->socket.fd);
    fd_close(&n->pipe.fd);
    fd_close(&n->child_fd);
    n->is_freed = true;
    if (!n->is_busy)
        free(n);
}
