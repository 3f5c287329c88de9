/*
 * The answer to an exec, and to whoever comes back to one: what init tells of a run, as events.
 *
 *     start   {"exec_id","pid"}           it runs (not of what never did)
 *     stdout, stderr  base64              output_events.h
 *     lost    {"from","to"}               bytes that are not kept any more
 *     cut     {"stream","from","to","bytes"}  what a limit of the output left out
 *     exit    {"exit_code","exec_id","verdict",…}  or
 *     error   {"error","code"}            the last one
 *
 * All that matters is init's: a run goes on without its client and without the gateway.
 */
#ifndef GATEWAY_EXEC_ANSWER_H
#define GATEWAY_EXEC_ANSWER_H

#include "control/client.h"
#include "gateway/http.h"
#include "gateway/output_events.h"
#include "gateway/session_name.h"

struct exec_plan {
    struct client_request request; /* of the verb exec; taken over */
    struct strbuf text;            /* its text, if has_text; taken over */
    bool has_text;
    char session[SESSION_NAME_SIZE]; /* made if there is none; "": that is no matter */
    bool is_in_workspace;            /* it named no folder */
    bool has_program;
    struct strbuf program; /* what runs without a shell, for messages; taken over */
    bool has_from;
    struct output_place from; /* where its client goes on */
    bool has_timeout;
    double timeout_ms; /* more than 0 */
};

/* Owns x from here on. */
void exec_answer(struct exchange *x, struct exec_plan *plan);
/* Say that the time was over before it began. */
void exec_answer_late(struct exchange *x, double timeout_ms);

#endif
