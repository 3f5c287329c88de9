#include "logger/packet.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

int packet_receive(struct packet *p, int flags)
{
    struct iovec parts[2] = {{&p->m, sizeof p->m}, {p->payload, sizeof p->payload - 1}};
    struct msghdr h = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t k;
    do
        k = recvmsg(SOCKET_FD, &h, flags);
    while (k < 0 && errno == EINTR);
    if (k == 0)
        return 0;
    if (k < (ssize_t)sizeof p->m)
        return -1;
    p->n = (size_t)k - sizeof p->m;
    p->payload[p->n] = '\0';
    return 1;
}

void packet_send(const struct logger_message *m, const void *payload, size_t n)
{
    struct iovec parts[2] = {{(void *)(uintptr_t)m, sizeof *m}, {(void *)(uintptr_t)payload, n}};
    struct msghdr h = {.msg_iov = parts, .msg_iovlen = 2};
    while (sendmsg(SOCKET_FD, &h, MSG_NOSIGNAL) < 0 && errno == EINTR)
        continue;
}
