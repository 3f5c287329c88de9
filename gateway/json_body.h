/* Bodies of requests as JSON (jansson), and values of it as text. */
#ifndef GATEWAY_JSON_BODY_H
#define GATEWAY_JSON_BODY_H

#include "base/strbuf.h"

#include <jansson.h>
#include <stddef.h>

/* Any JSON value; whatever the Content-Type says. NULL if it is none: not UTF-8, a key twice in one
 * object, deeper than jansson goes (2048), something behind it. All numbers are reals, as in
 * JavaScript; strings may hold NUL. The caller calls json_decref(). */
json_t *json_body_parse(const char *bytes, size_t n);

/* Append what JavaScript's String() makes of a value: 1 is "1", true "true", null "null". May hold
 * NUL. 0 or -1 (no memory). */
int json_to_text(const json_t *value, struct strbuf *to);

/* The value of a body's "cwd" as an absolute path of the workspace; *to stays empty where there is
 * none. 0, or the HTTP status of the refusal: its text is in *why, and good as long as *to. */
int json_cwd(const json_t *cwd, const char *workspace, struct strbuf *to, const char **why);

/* The same as json_to_text() of a number. */
int number_to_text(double value, struct strbuf *to);

/* Append the keys of an object that are not among the known ones (which end with NULL), with commas
 * between; a few, and not more than the first 40 bytes of each. */
void json_add_unknown(const json_t *object, const char *const *known, struct strbuf *to);

#endif
