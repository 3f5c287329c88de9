/*
 * Puts a configuration together: defaults from the schema, then the file, then the overrides from
 * the environment, then what sessions inherit from [sessions] (last, so that the order of the
 * sections in the file doesn't matter). It is made whole or not at all. Memory is bounded by the
 * limits in config_internal.h, time by them too: every search is over a bounded list.
 */
#include "config/config_internal.h"

#include "base/fd.h"
#include "base/number.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A section that the file has, and where its keys stand. */
struct seen_section {
    enum section_kind kind;
    char title[80]; /* as in the file, without brackets */
    unsigned line;
    size_t session;                  /* index in config.sessions, for SECTION_SESSION */
    unsigned lines[SCHEMA_ROWS_MAX]; /* 0: not given */
    unsigned *env_lines;             /* of the items of the section's env_list; NULL: none yet */
    size_t env_bytes;
};

struct loader {
    struct config *c;
    struct seen_section *sections;
    size_t count, room;
};

/* ---- life of a configuration ---- */

static struct config *config_new(struct error *e)
{
    struct config *c = calloc(1, sizeof *c);
    if (!c) {
        error_set(e, ERR_MEMORY, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < schema_row_count; i++) {
        const struct schema_row *row = &schema_rows[i];
        if (row->initial && value_parse(row, row->initial, schema_field(row, c, NULL), e) < 0) {
            error_wrap(e, "default of %s", row->key);
            config_free(c);
            return NULL;
        }
    }
    return c;
}

void config_free(struct config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < schema_row_count; i++) {
        const struct schema_row *row = &schema_rows[i];
        value_free(row, schema_field(row, c, NULL));
        for (size_t s = 0; row->sections & SECTION_SESSION && s < c->session_count; s++)
            value_free(row, schema_field(row, c, &c->sessions[s]));
    }
    for (size_t s = 0; s < c->session_count; s++)
        free(c->sessions[s].name);
    free(c->sessions);
    free(c->path);
    free(c);
}

const struct session_config *config_session(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->session_count; i++)
        if (strcmp(c->sessions[i].name, name) == 0)
            return &c->sessions[i];
    return NULL;
}

/* ---- sections ---- */

/* Names of sections, for nearest_word(). */
static const char *section_name(const void *context, size_t i)
{
    static const char *const names[] = {"init", "sessions", "session:NAME", NULL};
    (void)context;
    return names[i];
}

static int unknown_section(const char *title, struct error *e)
{
    char buf[SHOWN_SIZE];
    const char *colon = strchr(title, ':');
    shown(title, strlen(title), buf);
    /* What looks like [session:dev] is compared without its name. */
    const char *nearest = colon ? "session:NAME" : nearest_word(title, section_name, NULL);
    if (nearest)
        return error_set(e, ERR_INVALID, "unknown section [%s]; did you mean [%s]?", buf, nearest);
    return error_set(e, ERR_INVALID,
                     "unknown section [%s]; there are: [init], [sessions], [session:NAME]", buf);
}

static int section_kind_of(const char *title, enum section_kind *kind, struct error *e)
{
    static const char prefix[] = "session:";
    char buf[SHOWN_SIZE];
    if (strcmp(title, "init") == 0) {
        *kind = SECTION_INIT;
    } else if (strcmp(title, "sessions") == 0) {
        *kind = SECTION_SESSIONS;
    } else if (strncmp(title, prefix, sizeof prefix - 1) == 0) {
        const char *name = title + sizeof prefix - 1;
        *kind = SECTION_SESSION;
        if (name_check(name) < 0)
            return error_set(e, ERR_INVALID,
                             "bad session name '%s': a letter or digit, then up to 63 letters, "
                             "digits, '_', '.' or '-'",
                             shown(name, strlen(name), buf));
    } else {
        return unknown_section(title, e);
    }
    return 0;
}

/* One more [session:NAME] in the configuration. */
static int add_session(struct config *c, const char *name, struct error *e)
{
    if (c->session_count >= CONFIG_SESSIONS_MAX)
        return error_set(e, ERR_INVALID, "more than %d sections [session:NAME]",
                         CONFIG_SESSIONS_MAX);
    struct session_config *sessions =
        realloc(c->sessions, (c->session_count + 1) * sizeof *sessions);
    if (sessions)
        c->sessions = sessions;
    char *copy = sessions ? strdup(name) : NULL;
    if (!copy)
        return error_set(e, ERR_MEMORY, "out of memory");
    c->sessions[c->session_count++] = (struct session_config){.name = copy};
    return 0;
}

static int on_section(void *context, const char *title, unsigned line, struct error *e)
{
    struct loader *l = context;
    struct seen_section section = {.line = line, .session = l->c->session_count};
    if (section_kind_of(title, &section.kind, e) < 0)
        return -1;
    for (size_t i = 0; i < l->count; i++) /* case Z7 */
        if (strcmp(l->sections[i].title, title) == 0)
            return error_set(e, ERR_INVALID, "duplicate section [%s]; first given at line %u",
                             title, l->sections[i].line);
    snprintf(section.title, sizeof section.title, "%s", title);
    if (l->count == l->room) {
        size_t room = l->room ? l->room * 2 : 8;
        struct seen_section *sections = realloc(l->sections, room * sizeof *sections);
        if (!sections)
            return error_set(e, ERR_MEMORY, "out of memory");
        l->sections = sections;
        l->room = room;
    }
    if (section.kind == SECTION_SESSION && add_session(l->c, strchr(title, ':') + 1, e) < 0)
        return -1;
    l->sections[l->count++] = section;
    return 0;
}

/* ---- keys ---- */

static int duplicate_key(const struct seen_section *section, const char *key, unsigned first,
                         struct error *e)
{
    return error_set(e, ERR_INVALID, "duplicate key '%s' in [%s]; first given at line %u", key,
                     section->title, first);
}

static int add_env(struct seen_section *section, struct env_list *env, const char *key,
                   const char *value, unsigned line, struct error *e)
{
    const char *name = key + sizeof "env." - 1;
    if (env_name_check(name, strlen(name)) < 0)
        return error_set(e, ERR_INVALID,
                         "%s: '%s' is not a variable's name: letters, digits and '_', "
                         "not a digit first",
                         key, name);
    long first = env_list_find(env, name, 0);
    if (first >= 0)
        return duplicate_key(section, key, section->env_lines[first], e);
    if (!section->env_lines)
        section->env_lines = calloc(CONFIG_ENV_COUNT_MAX, sizeof *section->env_lines);
    if (!section->env_lines)
        return error_set(e, ERR_MEMORY, "out of memory");
    section->env_bytes += strlen(name) + strlen(value) + 2;
    if (section->env_bytes > CONFIG_ENV_MAX)
        return error_set(e, ERR_INVALID, "%s: the variables of one section take more than 1M", key);
    if (env_list_add(env, name, value, e) < 0)
        return error_wrap(e, "%s", key);
    section->env_lines[env->count - 1] = line;
    return 0;
}

static int on_value(void *context, const char *key, const char *value, unsigned line,
                    struct error *e)
{
    struct loader *l = context;
    if (l->count == 0)
        return error_set(e, ERR_INVALID, "'%s' stands before the first section", key);
    struct seen_section *section = &l->sections[l->count - 1];
    struct session_config *session =
        section->kind == SECTION_SESSION ? &l->c->sessions[section->session] : NULL;
    int at = schema_find(section->kind, section->title, key, e);
    if (at < 0)
        return -1;
    const struct schema_row *row = &schema_rows[at];
    void *field = schema_field(row, l->c, session);
    if (row->type == VALUE_ENV)
        return add_env(section, field, key, value, line, e);
    if (section->lines[at] > 0)
        return duplicate_key(section, key, section->lines[at], e);
    section->lines[at] = line;
    if (value_parse(row, value, field, e) < 0)
        return error_wrap(e, "%s", key);
    return 0;
}

/* ---- what sessions inherit ---- */

static int session_inherit(struct config *c, const struct seen_section *section, struct error *e)
{
    struct session_config *session = &c->sessions[section->session];
    for (size_t i = 0; i < schema_row_count; i++) {
        const struct schema_row *row = &schema_rows[i];
        if (!(row->sections & SECTION_SESSION))
            continue;
        void *own = schema_field(row, c, session);
        const void *base = schema_field_const(row, c, NULL);
        if (row->type == VALUE_ENV) {
            struct env_list merged = {0};
            if (env_list_merge(&merged, base, own, e) < 0)
                return -1;
            env_list_free(own);
            *(struct env_list *)own = merged;
        } else if (section->lines[i] == 0 && value_copy(row, own, base, e) < 0) {
            return -1;
        }
    }
    return 0;
}

static int sessions_complete(const struct loader *l, const char *file, struct error *e)
{
    struct config *c = l->c;
    size_t bytes = 0;
    for (size_t i = 0; i < l->count; i++) {
        const struct seen_section *section = &l->sections[i];
        if (section->kind != SECTION_SESSION)
            continue;
        int status = 0;
        if (section->session >= c->max_sessions)
            status = error_set(e, ERR_INVALID, "[%s] is one more than max_sessions (%llu)",
                               section->title, (unsigned long long)c->max_sessions);
        /* Each session gets the defaults' variables as well: bounded before it is done. */
        bytes +=
            env_list_bytes(&c->defaults.env) + env_list_bytes(&c->sessions[section->session].env);
        if (status == 0 && bytes > CONFIG_ENV_ALL_MAX)
            status = error_set(e, ERR_INVALID,
                               "the variables of all sessions together take more than 16M");
        if (status < 0 || session_inherit(c, section, e) < 0)
            return error_wrap(e, "%s:%u", shown_file(file), section->line);
    }
    return 0;
}

/* ---- the whole ---- */

static int loader_run(struct loader *l, const char *file, const char *bytes, size_t n,
                      char *const *environ_, struct error *e)
{
    struct ini_sink sink = {on_section, on_value, l};
    l->c = config_new(e);
    if (!l->c)
        return -1;
    if (file && !(l->c->path = strdup(file)))
        return error_set(e, ERR_MEMORY, "out of memory");
    if (file && ini_read(file, bytes, n, &sink, e) < 0)
        return -1;
    if (override_apply(l->c, environ_, e) < 0)
        return -1;
    return sessions_complete(l, file ? file : "", e);
}

/* file NULL: built-in defaults, nothing to read. */
static struct config *build(const char *file, const char *bytes, size_t n, char *const *environ_,
                            struct error *e)
{
    struct loader l = {0};
    if (loader_run(&l, file, bytes, n, environ_, e) < 0) {
        config_free(l.c);
        l.c = NULL;
    }
    for (size_t i = 0; i < l.count; i++)
        free(l.sections[i].env_lines);
    free(l.sections);
    return l.c;
}

struct config *config_parse(const char *name, const char *bytes, size_t n, char *const *environ_,
                            struct error *e)
{
    return build(name, bytes, n, environ_, e);
}

/* Read a regular file whole. Nothing else is read: a FIFO or device could block or never end. */
static int read_file(const char *path, struct strbuf *to, struct error *e)
{
    struct stat st;
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_sys(e, errno, "%s", shown_file(path));
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERR_INVALID, "%s: not a regular file", shown_file(path));
    to->limit = CONFIG_FILE_MAX + 1;
    for (;;) {
        size_t want = to->limit - to->len < 65536 ? to->limit - to->len : 65536;
        char *room = strbuf_reserve(to, want);
        if (!room)
            return error_set(e, ERR_MEMORY, "%s: out of memory", shown_file(path));
        ssize_t k = read(fd, room, want);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return error_set_sys(e, errno, "%s", shown_file(path));
        if (k == 0)
            return 0;
        to->len += (size_t)k;
        if (to->len > CONFIG_FILE_MAX)
            return error_set(e, ERR_INVALID, "%s: longer than 4M", shown_file(path));
    }
}

struct config *config_load(const char *path, char *const *environ_, struct error *e)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    if (path && read_file(path, &text, e) < 0)
        return NULL;
    return build(path, strbuf_text(&text), text.len, environ_, e);
}
