/*
 * What a service says of itself while it runs: sd_notify(3) datagrams on a socket of its own
 * (NOTIFY_SOCKET) and s6's notification descriptor (a newline, or the descriptor's end without
 * one). Anything malformed or unknown is dropped; descriptors that come along are closed at once
 * (that is what BARRIER=1 waits for).
 *
 * Who may speak: a live process of the service's own tree (SCM_CREDENTIALS). A sender that has
 * ended before it was heard, as `systemd-notify --ready` may, has no tree any more: it counts if
 * its user is the service's or root, who could end or trace the service as well.
 */
#ifndef SERVICES_NOTIFY_H
#define SERVICES_NOTIFY_H

#include "base/error.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define NOTIFY_STATUS_MAX 256

/* Called from the loop; each may call notify_free(). */
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

/* For one run of a service. folder: of init's runtime folder, a directory descriptor with its path,
 * where the socket is made (as `notify.NAME`; any user may reach it, since a service may become
 * another); folder_fd (borrowed until notify_free()) -1, a path too long for a socket, or a folder
 * that takes none: an abstract one. owner: the service's user. wants_pipe: make the descriptor pair
 * of s6 as well. NULL with *e set. */
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
