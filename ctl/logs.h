/* What verb_logs.c and log_file.c share: one log on its way to stdout and stderr. */
#ifndef CTL_LOGS_H
#define CTL_LOGS_H

#include "ctl/ctl.h"
#include "ctl/output.h"

#include <stdbool.h>

struct logs {
    const struct args *args;
    bool is_labelled, follows;
    struct labeller labellers[2]; /* stdout, stderr */
    struct strbuf captured[2];    /* --json without -f */
    struct strbuf notes;          /* members of the JSON object: from, lost ranges */
    bool is_cut;
};

/* Each takes what came and returns 0 or an exit code. Streams: 0 stdout, 1 stderr. */
int logs_take_output(struct logs *l, int stream, const char *bytes, size_t n);
/* A record with `from`, or with `lost_from` and `lost_to`. */
int logs_take_note(struct logs *l, const char *bytes, size_t n);
/* The end: a record with `to`. */
int logs_finish(struct logs *l, const char *bytes, size_t n);

/* Print a file that the log writer wrote. Returns the exit code. */
int logs_read_file(struct logs *l, const char *path);

#endif
