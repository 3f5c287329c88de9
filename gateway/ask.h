/* A question to init that a whole answer of HTTP follows. */
#ifndef GATEWAY_ASK_H
#define GATEWAY_ASK_H

#include "gateway/gather.h"
#include "gateway/http.h"

/* What came; note is the text that was given with the question. */
typedef void answer_handler(struct exchange *x, const struct gathered *all, const char *note);

/* Ask, then have the handler answer x; all->error tells that init did not. If the client leaves
 * meanwhile nothing more is heard, and what was asked for goes on. Frees q, copies note (may be
 * NULL). */
void ask(struct exchange *x, struct client_request *q, const char *note, answer_handler *handler);

/* Append the rows that are wanted (NULL: all) and of that kind (NULL: any) as a JSON list of
 * objects, in which the field `key` is called `name`. 0 or -1 (no memory). */
struct row_form {
    bool (*wants)(const char *row, size_t n);
    const char *kind;
    const char *key, *name;
};
int rows_to_json(struct strbuf *to, const struct gathered *all, const struct row_form *form);
/* The same of one record, its members without the braces. */
int row_to_json(struct strbuf *to, const char *row, size_t n, const struct row_form *form);

/* Answer with what is in *json; -1 (no memory) in rc is an error. */
void answer_json(struct exchange *x, int rc, const struct strbuf *json);
/* Answer with {KEY: the rows}, or with the error there is. */
void answer_rows(struct exchange *x, const struct gathered *all, const char *key,
                 const struct row_form *form);

#endif
