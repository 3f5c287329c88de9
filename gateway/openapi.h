/* The OpenAPI document (gateway/openapi.json, a part of the program) as a page for people. */
#ifndef GATEWAY_OPENAPI_H
#define GATEWAY_OPENAPI_H

#include "base/strbuf.h"

#include <stddef.h>

/* Append a whole page that needs nothing else: each operation of the document in json[0..n) with
 * its parameters, body and answers, then the schemas. 0 or -1 (no memory). */
int openapi_to_html(const char *json, size_t n, struct strbuf *to);

#endif
