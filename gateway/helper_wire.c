#include "gateway/helper_wire.h"

#include "base/fd.h"
#include "base/number.h"
#include "control/record.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The one descriptor of a message, or -1; closes the others and tells if there were any. */
static int take_descriptors(struct msghdr *m, bool *has_more)
{
    int kept = -1;
    *has_more = false;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (kept < 0) {
                kept = fd;
            } else {
                close(fd);
                *has_more = true;
            }
        }
    }
    return kept;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): recvmsg(2) writes into buf. */
ssize_t helper_receive(int sock, char *buf, int *fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
    struct iovec iov = {buf, HELPER_PACKET_MAX};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n;
    *fd = -1;
    /* ECONNRESET comes once, before what the other side had sent: it left something unread. */
    do
        n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && (errno == EINTR || errno == ECONNRESET));
    if (n < 0)
        return -1;
    bool has_more;
    *fd = take_descriptors(&m, &has_more);
    if (!has_more && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return n;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = EPROTO;
    return -1;
}

int helper_send(int sock, char channel, const void *bytes, size_t n, int fd)
{
    const struct iovec iov[2] = {{&channel, 1}, {(void *)(size_t)bytes, n}};
    if (n > HELPER_DATA_MAX) {
        errno = EMSGSIZE;
        return -1;
    }
    return fd_send_packet(sock, iov, 2, fd, 0);
}

bool helper_is_record(const char *bytes, size_t n)
{
    struct field f;
    size_t at = 0;
    int rc;
    while ((rc = record_next(bytes, n, &at, &f)) > 0)
        ;
    return rc == 0;
}

long long helper_number(const char *bytes, size_t n, const char *key, long long max,
                        long long otherwise)
{
    const char *text = record_get(bytes, n, key);
    uint64_t value;
    if (!text || number_parse_u64(text, (uint64_t)max, &value) < 0)
        return otherwise;
    return (long long)value;
}
