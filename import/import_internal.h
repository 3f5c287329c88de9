/*
 * What the translation of supervisord's sections shares: the text that is being made, the notes on
 * what has no equivalent, and the first fault. After a fault nothing more counts; only the end
 * looks at it.
 */
#ifndef IMPORT_IMPORT_INTERNAL_H
#define IMPORT_IMPORT_INTERNAL_H

#include "base/error.h"
#include "base/strbuf.h"
#include "import/conf.h"
#include "import/expand.h"
#include "import/words.h"

#include <stdbool.h>

#define PRIORITY_DEFAULT 999 /* of supervisord */

struct import {
    struct conf conf;
    char *const *environ_;
    char host_name[65];
    char folder[4096];     /* where it runs */
    struct strbuf out;     /* the sandbox.ini */
    struct strbuf missing; /* for the summary, a line each */
    unsigned missing_count, service_count;
    struct error e; /* the first fault; e.code ERR_NONE: none yet */

    /* What every program inherits from [supervisord]. */
    struct words env;
    char *user, *directory, *umask;
    unsigned long descriptors; /* 0: not set */
};

/* Append to the ini. */
void import_put(struct import *im, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A comment on a setting: why it is not needed, or is otherwise here. */
void import_hint(struct import *im, const struct conf_setting *s, const char *why);
/* The same for one that has no equivalent: it is in the summary as well. */
void import_missing(struct import *im, const struct conf_setting *s, const char *why);
/* A fault of a setting. */
void import_fault(struct import *im, const struct conf_setting *s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The value of a setting, filled in; the caller frees it. NULL if it isn't set, or cannot be had
 * (which is noted). import_text() leaves variables to the start of the service. */
char *import_value(struct import *im, struct expand_names *names, const char *section,
                   const char *key);
char *import_text(struct import *im, struct expand_names *names, const char *section,
                  const char *key);
/* A path made absolute; the caller frees it. NULL without path. */
char *import_path(struct import *im, const char *path);
bool import_flag(struct import *im, struct expand_names *names, const char *section,
                 const char *key, bool initial);
unsigned long import_number(struct import *im, struct expand_names *names, const char *section,
                            const char *key, unsigned long initial, unsigned long max);

/* program.c: all services of one [program:NAME]. */
void import_program(struct import *im, const struct conf_setting *head);
/* keys.c: comments on the keys of a section that the translation does not look at. */
void import_other_keys(struct import *im, const char *section);
/* keys.c: a comment on a section that is none of ours; false if it is translated. */
bool import_other_section(struct import *im, const struct conf_setting *head);
/* log.c: where a program's output goes. */
void import_log(struct import *im, struct expand_names *names, const char *section);
/* order.c: the priority of a program among all; false: none has one. */
bool import_priority(struct import *im, const char *section, long *priority);

#endif
