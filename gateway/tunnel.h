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

#endif
