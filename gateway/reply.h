/* Answers that are the same on all routes: what init refused or could not do, as HTTP. */
#ifndef GATEWAY_REPLY_H
#define GATEWAY_REPLY_H

#include "base/error.h"
#include "gateway/http.h"

/* The status for a code of init's: 400 invalid, 403 denied, 404 not_found, 409 exists, busy and
 * state, 413 too_large, 429 limit, 503 memory, 502 for the others. */
int reply_status(enum error_code code);
/* The code of the body: init's word, but invalid_request for ERR_INVALID, payload_too_large for
 * ERR_TOO_LARGE. */
const char *reply_code(enum error_code code);
/* Answer x with the error: init's own words. */
void reply_error(struct exchange *x, const struct error *e);

#endif
