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

#define DIRECT    ((size_t)16 * 1024) /* a piece from this size on is sent at once */
#define FILE_TURN ((size_t)2 << 20)   /* bytes of a file before others have their turn */

size_t conn_pending(const struct conn *c)
{
    return byte_queue_len(&c->out);
}

static void sent(struct conn *c, size_t n)
{
    c->server->counts.bytes_out += n;
    c->since = ev_now(c->server->loop);
}

/* Send what n pieces hold; bytes that went, 0 if it would block or broke. */
static size_t send_pieces(struct conn *c, const struct iovec *pieces, size_t n, bool has_more)
{
    ssize_t k = fd_send_pieces(c->fd, pieces, n, has_more ? MSG_MORE : 0);
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

/* Queue what is behind the first `skip` bytes of all pieces. */
static void queue(struct conn *c, const struct iovec *pieces, size_t n, size_t skip)
{
    bool was_empty = conn_pending(c) == 0;
    if (byte_queue_put_rest(&c->out, pieces, n, skip) < 0)
        c->is_broken = true;
    if (was_empty && conn_pending(c) > 0)
        c->since = ev_now(c->server->loop);
}

static struct iovec piece_of(const char *bytes, size_t n)
{
    return (struct iovec){.iov_base = (char *)(uintptr_t)bytes, .iov_len = n};
}

void http_conn_send(struct conn *c, const char *head, size_t head_n, const char *bytes, size_t n,
                    const char *tail)
{
    const struct iovec pieces[] = {piece_of(byte_queue_first(&c->out), conn_pending(c)),
                                   piece_of(head, head_n), piece_of(bytes, n),
                                   piece_of(tail, strlen(tail))};
    size_t went = 0;
    conn_touch(c);
    if (c->is_broken)
        return;
    if (n >= DIRECT && !c->is_blocked) {
        went = send_pieces(c, pieces, 4, false);
        size_t queued = conn_pending(c) < went ? conn_pending(c) : went;
        byte_queue_take(&c->out, queued);
        went -= queued;
    }
    if (!c->is_broken)
        queue(c, pieces + 1, 3, went);
}

static void flush_queue(struct conn *c)
{
    while (conn_pending(c) > 0 && !c->is_blocked && !c->is_broken) {
        const struct iovec piece = piece_of(byte_queue_first(&c->out), conn_pending(c));
        size_t k = send_pieces(c, &piece, 1, c->file_fd >= 0);
        if (k < piece.iov_len && k > 0)
            c->is_blocked = true;
        byte_queue_take(&c->out, k);
    }
}

static void file_has_ended(struct conn *c)
{
    const struct iovec tail = piece_of("\r\n0\r\n\r\n", 7);
    fd_close(&c->file_fd);
    if (c->has_file_tail)
        queue(c, &tail, 1, 0);
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
