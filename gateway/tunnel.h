/* Handlers of the routes …/tunnel/:port (tunnel.c), …/mount and …/unmount (mount.c). */
#ifndef GATEWAY_TUNNEL_H
#define GATEWAY_TUNNEL_H

#include "gateway/http.h"

#include <stdbool.h>
#include <stddef.h>

void tunnel_begin(struct exchange *x);
void tunnel_end_begin(struct exchange *x);
void mount_begin(struct exchange *x);
void unmount_begin(struct exchange *x);

/* The public host in a line of cloudflared's, "NAME.trycloudflare.com" with its length in *n, or
 * NULL. The host of the service itself is none. */
const char *tunnel_host_in(const char *line, size_t *n);

/* True if something is mounted at this path (absolute, without a slash at its end), as
 * /proc/self/mountinfo tells it (proc_pid_mountinfo(5)). */
bool is_mount_point(const char *path);
/* The same for given contents of that file. */
bool mountinfo_has(const char *mountinfo, const char *path);

#endif
