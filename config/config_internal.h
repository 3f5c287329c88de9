/*
 * What the files of config/ share. The way of a file's bytes:
 *
 *     reader.c    lines -> libinih -> (section, key, value, line)
 *     load.c      sections, duplicates, inheritance; owns the whole
 *     schema.c    which key is allowed where, its type, default and range
 *     value.c     the text of one value -> its typed field
 *     env_list.c  NAME=VALUE assignments, bounded
 *     override.c  SANDBOX_INIT_KEY and SANDBOX_SESSIONS_KEY
 *     diff.c      what a reload changes
 *     rewrite.c   rewriting of signals
 *     words.c     texts in complaints: what the user wrote, the nearest known name
 */
#ifndef CONFIG_CONFIG_INTERNAL_H
#define CONFIG_CONFIG_INTERNAL_H

#include "config/config.h"

#define CONFIG_FILE_MAX  ((size_t)4 << 20)  /* bytes of a file */
#define CONFIG_LINE_MAX  ((size_t)64 << 10) /* bytes of one line without its end */
#define CONFIG_VALUE_MAX ((size_t)1 << 20)  /* bytes of a value with its continuation lines */
#define CONFIG_KEY_MAX   ((size_t)128)      /* bytes of a key, env.NAME included */

#define CONFIG_SESSIONS_MAX  1024               /* most that max_sessions can be set to */
#define CONFIG_ENV_COUNT_MAX ((size_t)1024)     /* env.NAME of one section */
#define CONFIG_ENV_MAX       ((size_t)1 << 20)  /* bytes of one section's env.NAME */
#define CONFIG_ENV_ALL_MAX   ((size_t)16 << 20) /* bytes of all sessions' environments */
#define CONFIG_ENV_ITEM_MAX  ((size_t)131071)   /* bytes of NAME=VALUE, execve(2) */

/* ---- reader.c ---- */

/* Who hears of what stands in a file, in its order. Texts live until the call returns; a value
 * may hold newlines, never NUL. A callback that returns -1 with *e set ends the reading. */
struct ini_sink {
    int (*on_section)(void *context, const char *name, unsigned line, struct error *e);
    int (*on_value)(void *context, const char *key, const char *value, unsigned line,
                    struct error *e);
    void *context;
};

/* Read n bytes as an ini file named file in messages. Returns 0, or -1 with the first complaint
 * in *e, complete with "FILE:LINE: " (also put before what a callback complains of). */
int ini_read(const char *file, const char *bytes, size_t n, const struct ini_sink *sink,
             struct error *e);

/* ---- schema.c ---- */

enum section_kind {
    SECTION_INIT = 1,
    SECTION_SESSIONS = 2,
    SECTION_SESSION = 4, /* [session:NAME] */
};

enum value_type {
    VALUE_PATH,     /* char *, absolute; min and max are lengths in bytes */
    VALUE_USER,     /* char *; lengths likewise */
    VALUE_TEXT,     /* char *, any text of several lines; lengths likewise */
    VALUE_DURATION, /* uint64_t, milliseconds */
    VALUE_SIZE,     /* uint64_t, bytes */
    VALUE_COUNT,    /* uint64_t */
    VALUE_WORD,     /* an enum that counts the row's words from 0 */
    VALUE_REWRITE,  /* struct signal_rewrite */
    VALUE_ENV,      /* struct env_list; the row stands for all env.NAME */
};

/* One key. A row that is allowed in [session:NAME] has its offset in struct session_config, any
 * other in struct config. */
struct schema_row {
    const char *key;
    unsigned sections; /* of enum section_kind, or'ed */
    enum value_type type;
    size_t offset;
    uint64_t min, max;
    const char *initial;      /* the default as it would stand in a file; NULL: not set */
    const char *const *words; /* of VALUE_WORD, NULL at the end */
};

#define SCHEMA_ROWS_MAX 64
extern const struct schema_row schema_rows[];
extern const size_t schema_row_count;

/* The row of a key in a section, or -1 with *e telling the nearest key: "unknown key 'a' in
 * [init]; …". title is the section as it stands in the file, without brackets. */
int schema_find(enum section_kind section, const char *title, const char *key, struct error *e);

/* The field of a row in c. session is NULL for [init] and [sessions]. */
void *schema_field(const struct schema_row *row, struct config *c, struct session_config *session);
const void *schema_field_const(const struct schema_row *row, const struct config *c,
                               const struct session_config *session);

/* ---- value.c ---- */

/* Parse text into the field of a row (not VALUE_ENV), replacing what is there. -1 with *e saying
 * what is wrong with the value, without the key; the field is then as before. */
int value_parse(const struct schema_row *row, const char *text, void *field, struct error *e);

/* Give an empty field its own copy of another; -1 without memory. */
int value_copy(const struct schema_row *row, void *to, const void *from, struct error *e);
bool value_equal(const struct schema_row *row, const void *a, const void *b);
/* Free what the field owns and leave it empty. */
void value_free(const struct schema_row *row, void *field);

/* ---- env_list.c ---- */

/* Append NAME=VALUE. -1 with *e (too long, too many, no memory). */
int env_list_add(struct env_list *l, const char *name, const char *value, struct error *e);
/* Index of the assignment to the name that starts name_or_item and ends at '=' or NUL; -1: none.
 * hint is looked at first. */
long env_list_find(const struct env_list *l, const char *name_or_item, size_t hint);
/* Fill an empty list with base, overridden and extended by own. */
int env_list_merge(struct env_list *to, const struct env_list *base, const struct env_list *own,
                   struct error *e);
/* About the memory that the list takes. */
size_t env_list_bytes(const struct env_list *l);
void env_list_free(struct env_list *l);

/* ---- override.c ---- */

/* Apply the overrides in environ_ (may be NULL) to [init] and [sessions]. */
int override_apply(struct config *c, char *const *environ_, struct error *e);

/* ---- words.c ---- */

#define SHOWN_SIZE 72

/* What the user wrote, fit for one line: at most 60 bytes of it, anything unprintable as '?'. */
const char *shown(const char *text, size_t n, char buf[SHOWN_SIZE]);

/* The end of a path or name, fit for the start of a complaint. */
const char *shown_file(const char *path);

/* The candidate that is nearest to text (case does not count), or NULL if none looks like a slip
 * of it. candidate(context, i) returns NULL behind the last one. */
const char *nearest_word(const char *text, const char *(*candidate)(const void *context, size_t i),
                         const void *context);

#endif
