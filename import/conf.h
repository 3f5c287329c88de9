/*
 * A file as supervisord reads it: Python's RawConfigParser with supervisord's settings. Comments
 * begin with ; or #, also behind a blank in a line; a key ends at the first = or :; indented lines
 * continue the value above; a section or key that comes again adds to or replaces the first.
 */
#ifndef IMPORT_CONF_H
#define IMPORT_CONF_H

#include "base/error.h"

#include <stddef.h>

struct conf_setting {
    char *section;
    char *key;        /* in lower case; NULL: the section's own line */
    char *value;      /* its lines joined by newlines; NULL: the section's own line */
    const char *file; /* owned by struct conf */
    unsigned line;
};

struct conf {
    struct conf_setting *items; /* sections and keys in their order */
    size_t count, room;
    char **files;
    size_t file_count;
};

/* Add what a file says. -1 with *e "FILE:LINE: …". */
int conf_read(struct conf *c, const char *path, struct error *e);
/* The setting, or that of [DEFAULT], or NULL. key NULL: the section itself. */
const struct conf_setting *conf_find(const struct conf *c, const char *section, const char *key);
void conf_free(struct conf *c);

#endif
