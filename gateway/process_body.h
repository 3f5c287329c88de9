/*
 * The body of POST …/process: {"argv": [string, …]} or {"command": text}, and session, cwd, env, id
 * (or name), stdin, wait_ms. Pure: it becomes the arguments of the verb `start`.
 */
#ifndef GATEWAY_PROCESS_BODY_H
#define GATEWAY_PROCESS_BODY_H

#include "base/strbuf.h"
#include "control/client.h"

#include <stdbool.h>

struct process_body {
    struct client_request request; /* of the verb start, without its session */
    struct strbuf command;         /* the text, which the request is given when it is sent */
    struct strbuf session;         /* "" for none */
    struct strbuf cwd;             /* absolute, if there is one */
    struct strbuf ignored;         /* what has no effect, for a warning; "": nothing */
    bool has_command, has_cwd;
};

/* 0, or the HTTP status of the refusal with its text in *why, which is good as long as the body.
 * To be freed in any case. */
int process_body_parse(struct process_body *b, const char *bytes, size_t n, const char *workspace,
                       const char **why);
void process_body_free(struct process_body *b);

#endif
