/* The log writer's end of the socket to init. */
#ifndef LOGGER_PACKET_H
#define LOGGER_PACKET_H

#include "logger/message.h"

#include <stddef.h>

#define SOCKET_FD 0

struct packet {
    struct logger_message m;
    char payload[FRAME_PAYLOAD_MAX + 1]; /* with a NUL behind it */
    size_t n;
};

/* The next packet: 1, 0 at the end, -1: none now (flags MSG_DONTWAIT), or the socket is broken. */
int packet_receive(struct packet *p, int flags);
/* Tell init. */
void packet_send(const struct logger_message *m, const void *payload, size_t n);

#endif
