/*
 * Which ports a process listens on: the sockets among its descriptors that are in the tables of its
 * network namespace (/proc/PID/net/tcp, tcp6, udp, udp6; proc(5)). Work and time are bounded for
 * all processes that one answer asks about; what is beyond them is not told.
 */
#ifndef SESSIONS_PORTS_H
#define SESSIONS_PORTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ports {
    struct listener *listeners; /* of the namespace that was read last */
    size_t count;
    uint64_t namespace_inode; /* 0: none was read yet */
    uint64_t until_ns;
    unsigned links_left; /* descriptors that may be looked at yet */
};

/* For one answer. */
void ports_begin(struct ports *p);
void ports_end(struct ports *p);
/* "tcp:127.0.0.1:8080,udp:[::]:53"; "" : none; "?": its descriptors may not be looked at. */
void ports_of(struct ports *p, pid_t pid, char *buf, size_t size);

#endif
