/*
 * Lists in supervisord's values: the words of a command (Python's shlex.split), and the pairs of
 * `environment` (KEY="value",KEY2=value). And how words are written in sandbox.ini.
 */
#ifndef IMPORT_WORDS_H
#define IMPORT_WORDS_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

struct words {
    char **items; /* NULL-terminated */
    size_t count;
};

/* Add the words of a command; variables that expand() has marked stay marked. One that stands alone
 * and unquoted has EXPAND_VARIABLE twice in front: supervisord would split its value. -1 with *e.
 */
int words_split(struct words *to, const char *command, struct error *e);
/* Add one "NAME=VALUE"; a name that is there gets the new value. -1 without memory. */
int words_add_pair(struct words *to, const char *pair, struct error *e);
/* Add the pairs as "NAME=VALUE"; one that is there gets the new value. -1 with *e. */
int words_add_pairs(struct words *to, const char *text, struct error *e);
void words_free(struct words *w);

/* True if a variable is to be looked up at the start. */
bool words_has_variable(const char *word);
/* Append "command = …", or, where variables are to be looked up at the start, a "script = …": it
 * exports those of the environment's pairs that use any, and execs the command. -1 with *e. */
int words_print_command(const struct words *command, const struct words *environment,
                        struct strbuf *to, struct error *e);
/* Append "KEY = VALUE", a value of several lines indented. -1 without memory. */
int words_print_value(const char *key, const char *value, struct strbuf *to);

#endif
