/* The ports of servers inside, as the routes below …/port/:port name them (route_port.c). */
#ifndef GATEWAY_PORT_H
#define GATEWAY_PORT_H

#include "gateway/http.h"

#include <stdint.h>

/* The port of the request's path: 1 … 65535, and none that the gateway itself listens on. 0 if the
 * request was answered with 400 instead. */
uint16_t port_of_exchange(struct exchange *x);

#endif
