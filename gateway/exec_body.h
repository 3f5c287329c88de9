/* The body of POST …/exec: {"argv": [string, …], "timeout_ms"?: number, "cwd"?: string}. */
#ifndef GATEWAY_EXEC_BODY_H
#define GATEWAY_EXEC_BODY_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

struct exec_body {
    struct strbuf argv; /* strings that end in NUL, at least one */
    bool has_timeout;
    double timeout_ms; /* may be zero, negative, a fraction */
    bool has_cwd;
    struct strbuf cwd;     /* absolute, in the workspace */
    struct strbuf ignored; /* what has no effect, for a warning; "": nothing */
};

/* 0, or the HTTP status of the refusal with its text in *why, which is good as long as the body.
 * Free it in any case. */
int exec_body_parse(struct exec_body *b, const char *bytes, size_t n, const char *workspace,
                    const char **why);
void exec_body_free(struct exec_body *b);

#endif
