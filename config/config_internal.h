/*
 * What the files of config/ share. The way of a file's bytes:
 *
 *     reader.c    lines -> libinih -> (section, key, value, line)
 *     load.c      sections and keys, duplicates, inheritance; owns the whole
 *     include.c   which files are read, in which order
 *     pattern.c   the names of a folder that a pattern fits
 *     file.c      one file's bytes
 *     section.c   which sections there are
 *     schema.c    which key is allowed where, its type, default and range
 *     service_schema.c  the same for services
 *     value.c     the text of one value -> its typed field
 *     service_value.c   the types that only services have
 *     argv.c      shell-like quoting -> words
 *     check_value.c     `ready` and `health` -> struct check
 *     env_list.c  NAME=VALUE assignments, bounded
 *     env_file.c  files of NAME=VALUE lines
 *     service.c   one service as a whole: defaults, copies, what a reload compares
 *     service_complete.c  what keys mean together, instances
 *     graph.c     names of other services, cycles
 *     gateway.c   the types that only [gateway] has, what its keys mean together
 *     override.c  SANDBOX_INIT_KEY, SANDBOX_SESSIONS_KEY and SANDBOX_GATEWAY_KEY
 *     diff.c      what a reload changes
 *     rewrite.c   rewriting of signals
 *     words.c     texts in complaints: what the user wrote
 */
#ifndef CONFIG_CONFIG_INTERNAL_H
#define CONFIG_CONFIG_INTERNAL_H

#include "base/nearest.h"
#include "base/strbuf.h"
#include "config/config.h"
#include "config/pattern.h"
#include "config/service_config.h"

#include <sys/types.h>

#define CONFIG_FILE_MAX  ((size_t)4 << 20)  /* bytes of a file */
#define CONFIG_LINE_MAX  ((size_t)64 << 10) /* bytes of one line without its end */
#define CONFIG_VALUE_MAX ((size_t)1 << 20)  /* bytes of a value with its continuation lines */
#define CONFIG_KEY_MAX   ((size_t)128)      /* bytes of a key, env.NAME included */

#define CONFIG_SESSIONS_MAX  1024               /* most that max_sessions can be set to */
#define CONFIG_ENV_COUNT_MAX ((size_t)1024)     /* env.NAME of one section */
#define CONFIG_ENV_MAX       ((size_t)1 << 20)  /* bytes of one section's env.NAME */
#define CONFIG_ENV_ALL_MAX   ((size_t)16 << 20) /* bytes of all sessions' environments */
#define CONFIG_ENV_FILES_MAX ((size_t)16 << 20) /* bytes of what all files of env_file assign */
#define CONFIG_ENV_ITEM_MAX  ((size_t)131071)   /* bytes of NAME=VALUE, execve(2) */
#define ENV_ITEM_COST        64 /* bytes one takes beside its text: pointer, allocator's share */

#define CONFIG_ARG_MAX          ((size_t)131071)   /* bytes of one word of an argv, execve(2) */
#define CONFIG_SERVICES_ALL_MAX ((size_t)16 << 20) /* bytes of all services' values */
#define CONFIG_NAMES_MAX        ((size_t)1000)     /* names in one `requires`, `after`, `before` */
#define CONFIG_ORDER_MAX        ((size_t)50000) /* such names of all services, instances counted */
#define CONFIG_FILES_MAX        ((size_t)256)   /* files read for one configuration */
#define CONFIG_FILES_ALL_MAX    ((size_t)16 << 20) /* and their bytes */
#define CONFIG_READ_MAX         ((size_t)64 << 20) /* the same with those of env_file */
#define CONFIG_READS_MAX        10000u /* files and folders, counted as often as they are read */
#define CONFIG_DEPTH_MAX        8u     /* of files that include files */
#define CONFIG_FOLDER_MAX       ((size_t)10000) /* entries of a folder that a pattern looks at */

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

/* ---- what can stand in a file ---- */

enum section_kind {
    SECTION_INIT = 1,
    SECTION_SESSIONS = 2,
    SECTION_SESSION = 4, /* [session:NAME] */
    SECTION_SERVICE = 8, /* [service:NAME] */
    SECTION_INCLUDE = 16,
    SECTION_GATEWAY = 128,

    /* Not sections, but marks on a row of SECTION_SERVICE: */
    SCHEMA_START = 32, /* what it changes takes effect with the next start of the service only */
    SCHEMA_LOAD = 64,  /* of the loading alone: no difference between two configurations */
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

    /* Of [gateway] (gateway.c). */
    VALUE_LISTEN,     /* struct name_list, addresses */
    VALUE_SANDBOX_ID, /* char * */
    VALUE_ORIGIN,     /* char * */

    /* Of services (service_value.c). */
    VALUE_BOOL,   /* bool */
    VALUE_INT,    /* int; the row's min and max are int64_t */
    VALUE_ARGV,   /* char **, NULL-terminated; one allocation */
    VALUE_NAMES,  /* struct name_list, as written */
    VALUE_CHECK,  /* struct check */
    VALUE_SIGNAL, /* int */
    VALUE_CODES,  /* a bit for each of SERVICE_CODES */
    VALUE_UMASK,  /* mode_t */
    VALUE_GROUPS, /* char *, may be empty */
    VALUE_LOG,    /* log and log_file of struct service_config */
    VALUE_LIMIT,  /* limits of struct service_config; the row stands for all limit.NAME */
    VALUE_FILES,  /* no field: env_file, and files of [include] */
};

/* ---- section.c ---- */

/* What kind of section a title is, without brackets, and its NAME (the title itself if it has
 * none). */
int section_find(const char *title, enum section_kind *kind, const char **name, struct error *e);

/* ---- schema.c ---- */

/* One key. A row that is allowed in [session:NAME] has its offset in struct session_config, one of
 * [service:NAME] in struct service_config, any other in struct config. */
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
extern const struct schema_row schema_rows[]; /* [init], [sessions], [session:NAME], [gateway] */
extern const size_t schema_row_count;
extern const struct schema_row service_rows[];
extern const size_t service_row_count;
extern const struct schema_row include_rows[];
extern const size_t include_row_count;

/* The rows among which are those of a section. */
const struct schema_row *schema_of(enum section_kind section, size_t *count);
/* The index of a key's row in schema_of() its section, or -1 with *e telling the nearest key:
 * "unknown key 'a' in [init]; …". title is the section as it stands in the file, without brackets.
 */
int schema_find(enum section_kind section, const char *title, const char *key, struct error *e);

/* The title of the section that a row of schema_rows stands in, a session's under [sessions]. */
const char *schema_title(unsigned sections);

/* The field of a row in c. session is NULL for all but [session:NAME]. */
void *schema_field(const struct schema_row *row, struct config *c, struct session_config *session);
const void *schema_field_const(const struct schema_row *row, const struct config *c,
                               const struct session_config *session);

/* What a key of another supervisor is called here, or NULL. */
const char *service_synonym(const char *key);
/* The index of a key's row in service_rows; the key is there. */
size_t service_row_index(const char *key);

/* ---- value.c ---- */

/* Parse text into the field of a row (not VALUE_ENV, VALUE_LIMIT, VALUE_FILES), replacing what is
 * there. -1 with *e saying
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
/* Put NAME=VALUE where the index-th item is. */
int env_list_replace(struct env_list *l, size_t at, const char *name, const char *value,
                     struct error *e);
/* Index of the assignment to the name that starts name_or_item and ends at '=' or NUL; -1: none.
 * hint is looked at first. */
long env_list_find(const struct env_list *l, const char *name_or_item, size_t hint);
/* Fill an empty list with base, overridden and extended by own. */
int env_list_merge(struct env_list *to, const struct env_list *base, const struct env_list *own,
                   struct error *e);
/* About the memory that the list takes. */
size_t env_list_bytes(const struct env_list *l);
void env_list_free(struct env_list *l);

/* ---- service_value.c ---- */

/* As those of value.c, for the types that only services have. */
int service_value_parse(const struct schema_row *row, const char *text, void *field,
                        struct error *e);
int service_value_copy(const struct schema_row *row, void *to, const void *from, struct error *e);
bool service_value_equal(const struct schema_row *row, const void *a, const void *b);
void service_value_free(const struct schema_row *row, void *field);

/* The RLIMIT_ number of what stands behind "limit.", or -1 with *e naming the nearest. */
int limit_find(const char *name, struct error *e);
/* "1024", "1024:4096", "unlimited", "64M": into limits[resource]. */
int limit_parse(int resource, const char *text, struct service_limit *to, struct error *e);

/* ---- argv.c ---- */

/* Split text into words: blanks and newlines part them; '…' takes everything as it stands, "…" all
 * but \" \\ \$ \`, a backslash elsewhere the byte behind it; a backslash before a newline takes
 * both away. Nothing is expanded: $, %, ~, *, ; and # are bytes. Returns an array that ends with
 * NULL and is one allocation (free() it), or NULL with *e. An empty text gives no words. */
char **argv_split(const char *text, struct error *e);
/* The same of a list: a comma separates words as a blank does, "a, b" too. */
char **argv_split_list(const char *text, struct error *e);
/* One allocation again; NULL without memory. */
char **argv_copy(char *const *argv);
size_t argv_count(char *const *argv);
bool argv_equal(char *const *a, char *const *b); /* both may be NULL */

/* ---- check_value.c ---- */

/* HOST:PORT, [V6]:PORT or :PORT, the host an address. */
int authority_check(const char *text, struct error *e);
int check_parse(const char *text, struct check *to, struct error *e);
int check_copy(struct check *to, const struct check *from, struct error *e);
void check_free(struct check *c);

/* ---- env_file.c ---- */

/* What the text of an env file assigns in the end: "NAME=VALUE" and a NUL for each name, appended
 * to items. -1 with *e: "FILE:LINE: …". */
int env_file_read(const char *file, const char *bytes, size_t n, struct strbuf *items,
                  struct error *e);
/* Put such items, which are spoiled by it, into a list; a name that is there already is replaced.
 * bytes counts those of all files. */
int env_file_take(const char *file, char *items, size_t n, struct env_list *to, size_t *bytes,
                  struct error *e);

/* ---- file.c ---- */

/* Read a regular file whole, at most CONFIG_FILE_MAX bytes. */
int file_read(const char *path, struct strbuf *to, dev_t *dev, ino_t *ino, struct error *e);
/* path as it stands, or relative to the folder of a file. NULL with *e: without memory, or if it
 * holds control characters, which nobody wants in a complaint. */
char *path_beside(const char *file, const char *path, struct error *e);

/* ---- record.c ---- */

/* Where files come from: the file system itself; the same, and what it gave is written to fd; or
 * from there. All zero: the file system. */
enum files_mode { FILES_DIRECT, FILES_RECORD, FILES_REPLAY };
struct files {
    enum files_mode mode;
    int fd;
    off_t at;
    size_t bytes;     /* of files read so far */
    size_t env_bytes; /* of the variables that those of env_file gave */
    unsigned count;   /* of files and folders */
    bool is_broken;   /* the record could not be written */
};

/* It is no record of this configuration. Returns -1. */
int files_broken_off(struct error *e);
/* Put the variables of an env file into a list. -1 with *e, complete with the file. */
int files_env(struct files *f, const char *path, struct env_list *to, struct error *e);
/* As file_read(), and as pattern_expand(). */
int files_read(struct files *f, const char *path, struct strbuf *to, dev_t *dev, ino_t *ino,
               struct error *e);
char **files_match(struct files *f, const char *pattern, struct error *e);
/* load.c: as config_load(). */
struct config *config_load_from(const char *path, struct files *files, char *const *environ_,
                                struct error *e);

/* ---- include.c ---- */

/* A file that is read. */
struct source {
    char *path;
    size_t parent; /* index of the file that includes it, and where; its own for the first */
    unsigned line;
    unsigned depth;
    bool is_optional; /* need not be there */
    bool is_known;    /* the two below are set */
    dev_t dev;
    ino_t ino;
};

struct source_list {
    struct source *items;
    size_t count, room;
    size_t bytes; /* read so far */
    struct files *files;
};

/* Begin with the file that the user named. */
int sources_begin(struct source_list *l, const char *path, struct error *e);
/* What `files = text` in line of the file says: append the files to be read. */
int sources_include(struct source_list *l, size_t parent, unsigned line, const char *text,
                    struct error *e);
/* Read the file with that index. -1 with *e, complete with where it was included. */
int sources_read(struct source_list *l, size_t at, struct strbuf *to, struct error *e);
void sources_free(struct source_list *l);

/* ---- service.c ---- */

/* Defaults into *s, which is all zero. */
int service_init(struct service_config *s, struct error *e);
/* A copy of all but the name. *to is all zero, and is so again after an error. */
int service_copy(struct service_config *to, const struct service_config *from, struct error *e);
void service_free(struct service_config *s);
void *service_field(const struct schema_row *row, struct service_config *s);

/* ---- service_complete.c ---- */

/* A [service:NAME] as it was read. */
struct service_section {
    struct service_config config; /* without a name; each instance gets a copy */
    const char *title;            /* "service:web" */
    const char *file;             /* fit for a complaint */
    const unsigned *lines;        /* of the keys, by index in service_rows; 0: not given */
    size_t bytes;                 /* of its values */
};

/* Look at what the keys of a section say together, and fill in what follows from others. -1 with
 * *e, complete with file and line. */
int service_complete(struct service_section *s, const struct config *c, struct error *e);
/* Append the section's instances to the configuration. */
int service_expand(struct service_section *s, struct config *c, struct error *e);

/* ---- graph.c ---- */

/* Names in requires, after and before -> the instances that they stand for; cycles are refused.
 * sections are those of the services, in their order. */
int graph_resolve(struct config *c, const struct service_section *sections, size_t count,
                  struct error *e);

/* ---- gateway.c ---- */

/* Addresses, in the place of what is there. */
int listen_parse(const char *text, struct name_list *out, struct error *e);
int listen_copy(struct name_list *to, const struct name_list *from, struct error *e);
int sandbox_id_check(const char *text, struct error *e);
int origin_check(const char *text, struct error *e);
/* Look at what the keys say together. has_section: the files have a [gateway]. */
int gateway_complete(struct gateway_config *g, bool has_section, struct error *e);

/* ---- override.c ---- */

/* Apply the overrides in environ_ (may be NULL) to [init], [sessions] and [gateway]. */
int override_apply(struct config *c, char *const *environ_, struct error *e);

/* ---- words.c ---- */

#define SHOWN_SIZE 72

/* What the user wrote, fit for one line: at most 60 bytes of it, anything unprintable as '?'. */
const char *shown(const char *text, size_t n, char buf[SHOWN_SIZE]);

/* The end of a path or name, fit for the start of a complaint. */
const char *shown_file(const char *path);

#endif
