/* The routes below …/port/:port, …/tunnel and …/mount. */
#include "gateway/gateway.h"
#include "gateway/port.h"
#include "gateway/port_routes.h"

#include "base/number.h"

#include <stdlib.h>
#include <string.h>

/* The port of an address to listen on, 0 for a Unix socket. */
static uint64_t port_of_address(const char *address)
{
    uint64_t port = 0;
    const char *colon = strrchr(address, ':');
    if (strncmp(address, "unix:", 5) == 0 || !colon ||
        number_parse_u64(colon + 1, 65535, &port) < 0)
        return 0;
    return port;
}

static bool is_own_port(const struct exchange *x, uint64_t port)
{
    const struct gateway *g = exchange_context(x);
    for (size_t i = 0; i < g->options.listen_count; i++)
        if (port_of_address(g->options.listen[i]) == port)
            return true;
    return false;
}

uint16_t port_of_exchange(struct exchange *x)
{
    uint64_t port;
    const char *text = exchange_segment(x, "port");
    if (number_parse_u64(text, 65535, &port) < 0 || port == 0 || text[0] == '0') {
        exchange_error(x, 400, "invalid_request", "port must be a number from 1 to 65535");
        return 0;
    }
    if (is_own_port(x, port)) {
        exchange_error(x, 400, "invalid_request", "port %u is the gateway's own", (unsigned)port);
        return 0;
    }
    return (uint16_t)port;
}

#define MOUNT_BODY_MAX ((size_t)64 * 1024)

const struct route routes_port[] = {
    {"GET", "/v1/sandbox/:id/port/:port/wait", BODY_IGNORED, 0, 0, NULL, port_wait_begin},
    {"*", "/v1/sandbox/:id/port/:port/*", BODY_STREAMED,
     ROUTE_QUERY_TOKEN | ROUTE_UPGRADE | ROUTE_COOKIE, UINT64_MAX, NULL, proxy_begin},
    {"POST", "/v1/sandbox/:id/tunnel/:port", BODY_WHOLE, 0, MOUNT_BODY_MAX, NULL, tunnel_begin},
    {"DELETE", "/v1/sandbox/:id/tunnel/:port", BODY_IGNORED, 0, 0, NULL, tunnel_end_begin},
    {"POST", "/v1/sandbox/:id/mount", BODY_WHOLE, 0, MOUNT_BODY_MAX, NULL, mount_begin},
    {"POST", "/v1/sandbox/:id/unmount", BODY_WHOLE, 0, MOUNT_BODY_MAX, NULL, unmount_begin},
    {NULL, NULL, BODY_IGNORED, 0, 0, NULL, NULL},
};
