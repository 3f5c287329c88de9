/*
 * The routes below …/process: what they share. A process is named in a path by its id or its PID.
 */
#ifndef GATEWAY_PROCESS_H
#define GATEWAY_PROCESS_H

#include "base/strbuf.h"
#include "gateway/http.h"

#include <stdbool.h>
#include <stddef.h>

/* What a path names. The row (of the verb `ps`) is only there where it was asked for. */
struct process_ref {
    const char *id;
    const char *row;
    size_t row_len;
};

/* Find out which process the segment :pid of x names, with its row if wants_row, and call then();
 * it owns x as begin() would. If there is none x is answered with 404. A body that is streamed is
 * paused until then() resumes it. */
void process_resolve(struct exchange *x, bool wants_row,
                     void (*then)(struct exchange *x, const struct process_ref *ref));

/* The outcome of a process (result of the verb `wait`) as a JSON object: exit_code and all that
 * init says. 0 or -1: no memory. */
int process_outcome_json(const char *result, size_t n, struct strbuf *to);

/* Handlers. */
void process_start_begin(struct exchange *x); /* process_start.c */
void process_logs_begin(struct exchange *x);  /* process_logs.c */
void process_kill_begin(struct exchange *x);  /* process_control.c */
void process_wait_begin(struct exchange *x);  /* process_control.c */
void process_stdin_begin(struct exchange *x); /* process_stdin.c */

#endif
