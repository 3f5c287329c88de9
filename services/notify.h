/*
 * What a service says of itself while it runs: sd_notify(3) datagrams on a socket of its own
 * (NOTIFY_SOCKET) and s6's notification descriptor (a newline, or the descriptor's end without
 * one). Messages count only from processes of the service's own tree (SCM_CREDENTIALS); anything
 * else, and anything malformed, is dropped.
 */
#ifndef SERVICES_NOTIFY_H
#define SERVICES_NOTIFY_H

#include "base/error.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define NOTIFY_STATUS_MAX 256

struct notify_events {
    void (*on_ready)(void *context);     /* READY=1, or the newline */
    void (*on_reloading)(void *context); /* RELOADING=1: not ready until the next READY=1 */
    void (*on_stopping)(void *context);  /* STOPPING=1 */
    void (*on_status)(void *context, const char *text);
    void (*on_watchdog)(void *context); /* WATCHDOG=1 */
    /* The descriptor was closed without a newline: it will never become ready this way. */
    void (*on_closed)(void *context);
    bool (*is_own)(void *context, pid_t pid); /* of the service's tree? */
};

struct notify;

/* folder: of init's runtime folder, a directory descriptor with its path, where the socket is
 * made (as `notify.NAME`, reachable for the service's user); folder_fd -1: an abstract socket.
 * wants_pipe: make the descriptor pair of s6 as well. NULL with *e set. */
struct notify *notify_new(struct ev_loop *loop, int folder_fd, const char *folder,
                          const char *service, uid_t owner, bool wants_pipe,
                          const struct notify_events *events, void *context, struct error *e);
/* The value of NOTIFY_SOCKET for the child. */
const char *notify_address(const struct notify *n);
/* The end that the child gets as its descriptor N; -1: none. notify_started() closes it. */
int notify_child_fd(const struct notify *n);
/* The child was forked. */
void notify_started(struct notify *n);
void notify_free(struct notify *n);

#endif
