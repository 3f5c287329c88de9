/* Routes about the gateway itself: is it there, its numbers, and the pool of one sandbox. */
#include "gateway/gateway.h"

static void health(struct exchange *x)
{
    exchange_json(x, 200, "{\"ok\":true}");
}

const struct route routes_health[] = {
    {"GET", "/health", BODY_IGNORED, ROUTE_OPEN, 0, NULL, health},
    {0},
};
