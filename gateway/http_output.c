/*
 * What a connection still has to send: a queue of bytes, then perhaps a file. Small pieces wait for
 * the end of the loop's turn, so that an answer is one system call; large ones go to the socket
 * from where they lie, and only what it does not take is copied.
 */
#include "base/fd.h"
#include "gateway/http_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define DIRECT ((size_t)16 * 1024) /* a piece from this size on is sent at once */
#define KEEP_QUEUE                                                                                 \
    ((size_t)16 * 1024)             /* memory that an empty queue may keep while a request runs */
#define FILE_TURN ((size_t)2 << 20) /* bytes of a file before others have their turn */

size_t conn_pending(const struct conn *c)
{
    return c->out.len - c->out_at;
}

static void sent(struct conn *c, size_t n)
{
    c->server->counts.bytes_out += n;
    c->since = ev_now(c->server->loop);
}

/* The socket took n of the queue. */
static void take(struct conn *c, size_t n)
{
    c->out_at += n;
    if (c->out_at < c->out.len)
        return;
    c->out_at = 0;
    if (c->out.cap > KEEP_QUEUE)
        strbuf_free(&c->out);
    else
        strbuf_clear(&c->out);
}

/* Send what n pieces hold; bytes that went, 0 if it would block or broke. */
static size_t send_pieces(struct conn *c, struct iovec *pieces, size_t n, bool has_more)
{
    struct msghdr m = {.msg_iov = pieces, .msg_iovlen = n};
    ssize_t k;
    do
        k = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT | (has_more ? MSG_MORE : 0));
    while (k < 0 && errno == EINTR);
    if (k < 0) {
        if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
            c->is_blocked = true;
        else
            c->is_broken = true;
        return 0;
    }
    sent(c, (size_t)k);
    return (size_t)k;
}

static void queue(struct conn *c, const char *bytes, size_t n)
{
    if (c->out_at > c->out.len / 2) {
        memmove(c->out.data, c->out.data + c->out_at, conn_pending(c));
        c->out.len -= c->out_at;
        c->out_at = 0;
    }
    if (conn_pending(c) == 0)
        c->since = ev_now(c->server->loop);
    if (strbuf_add(&c->out, bytes, n) < 0)
        c->is_broken = true;
}

/* Queue what is behind the first `skip` bytes of a piece; returns how many of them are left. */
static size_t queue_rest(struct conn *c, const char *bytes, size_t n, size_t skip)
{
    if (skip >= n)
        return skip - n;
    queue(c, bytes + skip, n - skip);
    return 0;
}

void http_conn_send(struct conn *c, const char *head, size_t head_n, const char *bytes, size_t n,
                    const char *tail)
{
    size_t tail_n = strlen(tail), went = 0;
    conn_touch(c);
    if (c->is_broken)
        return;
    if (n >= DIRECT && !c->is_blocked) {
        struct iovec pieces[] = {
            {.iov_base = c->out.data ? c->out.data + c->out_at : NULL, .iov_len = conn_pending(c)},
            {.iov_base = (char *)(uintptr_t)head, .iov_len = head_n},
            {.iov_base = (char *)(uintptr_t)bytes, .iov_len = n},
            {.iov_base = (char *)(uintptr_t)tail, .iov_len = tail_n}};
        went = send_pieces(c, pieces, 4, false);
        size_t queued = conn_pending(c) < went ? conn_pending(c) : went;
        take(c, queued);
        went -= queued;
        if (c->is_broken)
            return;
    }
    went = queue_rest(c, head, head_n, went);
    went = queue_rest(c, bytes, n, went);
    queue_rest(c, tail, tail_n, went);
}

static void flush_queue(struct conn *c)
{
    while (conn_pending(c) > 0 && !c->is_blocked && !c->is_broken) {
        struct iovec piece = {.iov_base = c->out.data + c->out_at, .iov_len = conn_pending(c)};
        size_t k = send_pieces(c, &piece, 1, c->file_fd >= 0);
        if (k < piece.iov_len && k > 0)
            c->is_blocked = true;
        take(c, k);
    }
}

static void file_has_ended(struct conn *c)
{
    fd_close(&c->file_fd);
    if (c->has_file_tail)
        queue(c, "\r\n0\r\n\r\n", 7);
    c->has_file_tail = false;
}

static void flush_file(struct conn *c)
{
    size_t turn = FILE_TURN;
    while (c->file_left > 0 && turn > 0 && !c->is_blocked && !c->is_broken) {
        off_t at = c->file_at;
        size_t want = (uint64_t)c->file_left < turn ? (size_t)c->file_left : turn;
        ssize_t k = sendfile(c->fd, c->file_fd, &at, want);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == ENOMEM || errno == ENOBUFS)) {
            c->is_blocked = true;
        } else if (k <= 0) {
            c->is_broken = true; /* or the file has become shorter: the client must see it */
        } else {
            sent(c, (size_t)k);
            c->file_at += k;
            c->file_left -= k;
            turn -= (size_t)k;
        }
    }
    if (c->file_left == 0)
        file_has_ended(c);
    else if (!c->is_blocked && !c->is_broken) /* its turn is over */
        c->is_blocked = true;
}

void http_conn_flush(struct conn *c)
{
    flush_queue(c);
    if (c->file_fd < 0 || conn_pending(c) > 0 || c->is_blocked || c->is_broken)
        return;
    flush_file(c);
    flush_queue(c);
}
