/* Answers that are the same on all routes: what init refused or could not do, as HTTP. */
#ifndef GATEWAY_REPLY_H
#define GATEWAY_REPLY_H

#include "base/error.h"
#include "gateway/http.h"

#include <jansson.h>

/* Answer x with the error: init's own words. */
void reply_error(struct exchange *x, const struct error *e);
/* Add a header Warning to the answer that follows; what a header cannot hold becomes "?". */
void reply_warn(struct exchange *x, const char *text);
/* The same for fields of the request that have no effect; "": there are none. */
void reply_warn_ignored(struct exchange *x, const char *fields);
/* The same for the keys of a body's object (NULL: none) that are not among the known ones, which
 * end with NULL. */
void reply_warn_unknown(struct exchange *x, const json_t *body, const char *const *known);

#endif
