/*
 * The routes below …/process: what they share. A process is named in a path by its id or its PID.
 */
#ifndef GATEWAY_PROCESS_H
#define GATEWAY_PROCESS_H

#include "base/strbuf.h"
#include "gateway/ask.h"
#include "gateway/http.h"

#include <stdbool.h>
#include <stddef.h>

/* What a path names. The row (of the verb `ps`) is only there where it was asked for. */
struct process_ref {
    const char *id;
    const char *row;
    size_t row_len;
};

/* Have the handler called with what process_chosen() wants to know: init's list, if the segment
 * :pid of x is a number or wants_row, else NULL. */
void process_choose(struct exchange *x, bool wants_row, answer_handler *handler);
/* Which process the segment :pid names; false if there is none, and x was answered. */
bool process_chosen(struct exchange *x, const struct gathered *all, struct process_ref *ref);

/* Answer x with init's record as a JSON object, or with its error. An answer_handler. */
void process_answer_result(struct exchange *x, const struct gathered *all, const char *note);
/* The outcome of a process (result of the verb `wait`) as a JSON object: exit_code and all that
 * init says. 0 or -1: no memory. */
int process_outcome_json(const char *result, size_t n, struct strbuf *to);

/* Handlers. */
void process_start_begin(struct exchange *x); /* process_start.c */
void process_logs_begin(struct exchange *x);  /* process_logs.c */
void process_kill_begin(struct exchange *x);  /* process_control.c */
void stray_kill_begin(struct exchange *x);    /* process_control.c */
void process_wait_begin(struct exchange *x);  /* process_control.c */
void process_stdin_begin(struct exchange *x); /* process_stdin.c */

#endif
