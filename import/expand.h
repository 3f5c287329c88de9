/*
 * The %(name)s of supervisord's values, which Python's % operator fills in: %(ENV_X)s,
 * %(program_name)s, %(process_num)02d, %%.
 */
#ifndef IMPORT_EXPAND_H
#define IMPORT_EXPAND_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stdbool.h>

/* Around the name of a variable that the service is to look up when it starts. */
#define EXPAND_VARIABLE     '\x01'
#define EXPAND_VARIABLE_END '\x02'

struct expand_names {
    const char *here; /* folder of the main file */
    const char *program_name, *group_name, *host_name;
    int process_num, numprocs; /* -1: not known here */
    char *const *environ_;
    char *const *own; /* "NAME=VALUE" that stand above it, NULL at the end; may be NULL */
};

/* Append the value, filled in. keeps_variables: %(ENV_X)s becomes a marked name. -1 with *e saying
 * what cannot be filled in. */
int expand(const struct expand_names *names, const char *value, bool keeps_variables,
           struct strbuf *to, struct error *e);
/* True if the value says %(name). */
bool expand_uses(const char *value, const char *name);

#endif
