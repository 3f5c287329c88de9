/* Handlers that the table of route_port.c names. */
#ifndef GATEWAY_PORT_ROUTES_H
#define GATEWAY_PORT_ROUTES_H

struct exchange;

void port_wait_begin(struct exchange *x);  /* port_wait.c */
void proxy_begin(struct exchange *x);      /* proxy.c */
void tunnel_begin(struct exchange *x);     /* tunnel.c */
void tunnel_end_begin(struct exchange *x); /* tunnel.c */
void mount_begin(struct exchange *x);      /* mount.c */
void unmount_begin(struct exchange *x);    /* mount.c */

#endif
