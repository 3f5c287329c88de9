/*
 * The heads that the proxy sends: a client's request as a server inside gets it, and the server's
 * headers as the client gets them. What belongs to one connection stays there (RFC 9110, 7.6.1),
 * the gateway's token goes nowhere, and how the end of a body is found is said anew and in one way.
 */
#ifndef GATEWAY_PROXY_HEAD_H
#define GATEWAY_PROXY_HEAD_H

#include "base/strbuf.h"
#include "gateway/response.h"
#include "gateway/http.h"

#include <stdbool.h>
#include <stdint.h>

struct proxy_place {
    uint16_t port;
    const char *prefix; /* of the path: /v1/sandbox/ID/port/PORT */
    const char *path;   /* behind the prefix, raw; "" is "/" */
    bool is_upgrade;    /* to a WebSocket */
};

/* The query of x without the token, with its "?"; "" if nothing is left. True if the token was
 * there. *failed is set if there is no memory. */
bool proxy_query(const struct exchange *x, struct strbuf *to, bool *failed);
/* The whole head of the request. 0, or -1: no memory. */
int proxy_request_head(const struct exchange *x, const struct proxy_place *p, struct strbuf *to);
/* Give x the headers of the answer, but its Content-Type and Content-Length. 0 or -1: no memory. */
int proxy_response_headers(const struct response *r, const struct proxy_place *p,
                           struct exchange *x);
/* The head of an upgrade's answer (101), whole. 0 or -1. */
int proxy_upgrade_head(const struct response *r, struct strbuf *to);

#endif
