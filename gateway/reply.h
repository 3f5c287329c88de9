/* Answers that are the same on all routes: what init refused or could not do, as HTTP. */
#ifndef GATEWAY_REPLY_H
#define GATEWAY_REPLY_H

#include "base/error.h"
#include "gateway/http.h"

/* Answer x with the error: init's own words. */
void reply_error(struct exchange *x, const struct error *e);

#endif
