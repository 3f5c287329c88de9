/*
 * Puts a configuration together: defaults from the schema, then the files, then the overrides from
 * the environment, then what sessions inherit from [sessions] and what services say of each other
 * (last, so that the order of the sections doesn't matter). It is made whole or not at all. Memory
 * is bounded by the limits in config_internal.h, time by them too: every search is over a bounded
 * list.
 */
#include "config/config_internal.h"

#include "base/number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_COST 64 /* bytes a value takes beside its text */

/* A section that a file has, and where its keys stand. */
struct seen_section {
    enum section_kind kind;
    char title[80]; /* as in the file, without brackets */
    size_t source;  /* the file, and where in it */
    unsigned line;
    size_t index; /* of its session in config.sessions, of its service in loader.services */
    unsigned lines[SCHEMA_ROWS_MAX]; /* 0: not given */
    unsigned limit_lines[SERVICE_RLIMIT_MAX];
    unsigned *env_lines; /* of the items of the section's env_list; NULL: none yet */
    size_t env_bytes;
    struct env_list file_env; /* of env_file */
};

struct loader {
    struct config *c;
    struct source_list sources;
    size_t source;    /* which of them is read now */
    bool has_section; /* it has had one */
    struct seen_section *sections;
    size_t count, room;
    struct service_section *services;
    size_t service_count;
};

static int out_of_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory");
}

static const char *file_of(const struct loader *l, const struct seen_section *section)
{
    return shown_file(l->sources.items[section->source].path);
}

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
    for (size_t s = 0; s < c->service_count; s++)
        service_free(&c->services[s]);
    free(c->services);
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
        return out_of_memory(e);
    c->sessions[c->session_count++] = (struct session_config){.name = copy};
    return 0;
}

/* One more [service:NAME], with defaults. */
static int add_service(struct loader *l, unsigned line, struct error *e)
{
    if (l->service_count >= SERVICES_MAX)
        return error_set(e, ERR_INVALID, "more than %d sections [service:NAME]", SERVICES_MAX);
    struct service_section *services =
        realloc(l->services, (l->service_count + 1) * sizeof *services);
    if (!services)
        return out_of_memory(e);
    l->services = services;
    struct service_section *s = &services[l->service_count++];
    *s = (struct service_section){.config.line = line};
    s->config.file = strdup(l->sources.items[l->source].path);
    return s->config.file ? service_init(&s->config, e) : out_of_memory(e);
}

/* Case Z7. Every file may have an [include] of its own. */
static int check_section_again(const struct loader *l, const struct seen_section *section,
                               struct error *e)
{
    for (size_t i = 0; i < l->count; i++) {
        const struct seen_section *first = &l->sections[i];
        bool is_same_file = first->source == section->source;
        if (strcmp(first->title, section->title) != 0 ||
            (section->kind == SECTION_INCLUDE && !is_same_file))
            continue;
        if (is_same_file)
            return error_set(e, ERR_INVALID, "duplicate section [%s]; first given at line %u",
                             section->title, first->line);
        return error_set(e, ERR_INVALID, "duplicate section [%s]; first given at %s:%u",
                         section->title, file_of(l, first), first->line);
    }
    return 0;
}

static int on_section(void *context, const char *title, unsigned line, struct error *e)
{
    struct loader *l = context;
    struct seen_section section = {.line = line, .source = l->source};
    const char *name;
    if (section_find(title, &section.kind, &name, e) < 0)
        return -1;
    snprintf(section.title, sizeof section.title, "%s", title);
    if (check_section_again(l, &section, e) < 0)
        return -1;
    if (l->count == l->room) {
        size_t room = l->room ? l->room * 2 : 8;
        struct seen_section *sections = realloc(l->sections, room * sizeof *sections);
        if (!sections)
            return out_of_memory(e);
        l->sections = sections;
        l->room = room;
    }
    section.index = section.kind == SECTION_SERVICE ? l->service_count : l->c->session_count;
    if (section.kind == SECTION_SESSION && add_session(l->c, name, e) < 0)
        return -1;
    if (section.kind == SECTION_SERVICE && add_service(l, line, e) < 0)
        return -1;
    l->sections[l->count++] = section;
    l->has_section = true;
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
        return out_of_memory(e);
    section->env_bytes += strlen(name) + strlen(value) + 2;
    if (section->env_bytes > CONFIG_ENV_MAX)
        return error_set(e, ERR_INVALID, "%s: the variables of one section take more than 1M", key);
    if (env_list_add(env, name, value, e) < 0)
        return error_wrap(e, "%s", key);
    section->env_lines[env->count - 1] = line;
    return 0;
}

static int add_limit(struct seen_section *section, struct service_config *s, const char *key,
                     const char *value, unsigned line, struct error *e)
{
    int resource = limit_find(key + sizeof "limit." - 1, e);
    if (resource < 0)
        return error_wrap(e, "%s", key);
    if (section->limit_lines[resource] > 0)
        return duplicate_key(section, key, section->limit_lines[resource], e);
    section->limit_lines[resource] = line;
    if (!value[0])
        return error_set(e, ERR_INVALID, "%s: the value is empty", key);
    if (limit_parse(resource, value, &s->limits[resource], e) < 0)
        return error_wrap(e, "%s", key);
    return 0;
}

/* The variables of one file; '-' before its path: it need not be there. */
static int read_env_file(const struct loader *l, const char *word, struct env_list *to,
                         struct error *e)
{
    bool is_optional = word[0] == '-';
    char *path = path_beside(l->sources.items[l->source].path, word + is_optional, e);
    if (!path)
        return -1;
    struct error own = {0};
    int status = files_env(l->sources.files, path, to, &own);
    if (status < 0 && is_optional && own.sys == ENOENT)
        status = 0;
    free(path);
    if (status < 0 && e)
        *e = own;
    return status;
}

static int read_env_files(const struct loader *l, const char *value, struct env_list *to,
                          struct error *e)
{
    char **words = argv_split(value, e);
    int status = words ? 0 : -1;
    for (size_t i = 0; status == 0 && words[i]; i++)
        status = read_env_file(l, words[i], to, e);
    free(words);
    return status;
}

static void *field_of(struct loader *l, const struct seen_section *section,
                      const struct schema_row *row)
{
    if (section->kind == SECTION_SERVICE)
        return service_field(row, &l->services[section->index].config);
    return schema_field(row, l->c,
                        section->kind == SECTION_SESSION ? &l->c->sessions[section->index] : NULL);
}

/* A key that comes once in its section. */
static int set_value(struct loader *l, struct seen_section *section, const struct schema_row *row,
                     const char *value, unsigned line, struct error *e)
{
    if (row->type != VALUE_FILES)
        return value_parse(row, value, field_of(l, section, row), e);
    if (!value[0])
        return error_set(e, ERR_INVALID, "the value is empty");
    if (strlen(value) > row->max)
        return error_set(e, ERR_INVALID, "the value is %zu bytes long (%llu are possible)",
                         strlen(value), (unsigned long long)row->max);
    if (section->kind == SECTION_INCLUDE)
        return sources_include(&l->sources, l->source, line, value, e);
    return read_env_files(l, value, &section->file_env, e);
}

static int on_value(void *context, const char *key, const char *value, unsigned line,
                    struct error *e)
{
    struct loader *l = context;
    if (!l->has_section)
        return error_set(e, ERR_INVALID, "'%s' stands before the first section", key);
    struct seen_section *section = &l->sections[l->count - 1];
    size_t count;
    const struct schema_row *rows = schema_of(section->kind, &count);
    int at = schema_find(section->kind, section->title, key, e);
    if (at < 0)
        return -1;
    if (section->kind == SECTION_SERVICE)
        l->services[section->index].bytes += strlen(value) + VALUE_COST;
    if (rows[at].type == VALUE_ENV)
        return add_env(section, field_of(l, section, &rows[at]), key, value, line, e);
    if (rows[at].type == VALUE_LIMIT)
        return add_limit(section, &l->services[section->index].config, key, value, line, e);
    if (section->lines[at] > 0)
        return duplicate_key(section, key, section->lines[at], e);
    section->lines[at] = line;
    if (set_value(l, section, &rows[at], value, line, e) < 0)
        return error_wrap(e, "%s", key);
    return 0;
}

/* ---- what sessions inherit ---- */

static int session_inherit(struct config *c, const struct seen_section *section, struct error *e)
{
    struct session_config *session = &c->sessions[section->index];
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

static int sessions_complete(const struct loader *l, struct error *e)
{
    struct config *c = l->c;
    size_t bytes = 0;
    for (size_t i = 0; i < l->count; i++) {
        const struct seen_section *section = &l->sections[i];
        if (section->kind != SECTION_SESSION)
            continue;
        int status = 0;
        if (section->index >= c->max_sessions)
            status = error_set(e, ERR_INVALID, "[%s] is one more than max_sessions (%llu)",
                               section->title, (unsigned long long)c->max_sessions);
        /* Each session gets the defaults' variables as well: bounded before it is done. */
        bytes +=
            env_list_bytes(&c->defaults.env) + env_list_bytes(&c->sessions[section->index].env);
        if (status == 0 && bytes > CONFIG_ENV_ALL_MAX)
            status = error_set(e, ERR_INVALID,
                               "the variables of all sessions together take more than 16M");
        if (status < 0 || session_inherit(c, section, e) < 0)
            return error_wrap(e, "%s:%u", file_of(l, section), section->line);
    }
    return 0;
}

/* ---- services ---- */

/* env.NAME over env_file. */
static int merge_env(struct seen_section *section, struct service_section *s, struct error *e)
{
    struct env_list merged = {0};
    if (section->file_env.count == 0)
        return 0;
    if (env_list_merge(&merged, &section->file_env, &s->config.env, e) < 0)
        return -1;
    s->bytes += env_list_bytes(&section->file_env);
    env_list_free(&s->config.env);
    s->config.env = merged;
    return 0;
}

static int service_section_complete(struct loader *l, struct seen_section *section, uint64_t *bytes,
                                    struct error *e)
{
    struct service_section *s = &l->services[section->index];
    s->title = section->title;
    s->file = file_of(l, section);
    s->lines = section->lines;
    if (merge_env(section, s, e) < 0 || service_complete(s, l->c, e) < 0)
        return -1;
    *bytes += s->bytes * s->config.instances;
    if (*bytes > CONFIG_SERVICES_ALL_MAX) {
        error_set(e, ERR_INVALID, "the values of all services together take more than 16M");
        return error_wrap(e, "%s:%u", s->file, section->line);
    }
    return service_expand(s, l->c, e);
}

static int services_complete(struct loader *l, struct error *e)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->sections[i].kind == SECTION_SERVICE &&
            service_section_complete(l, &l->sections[i], &bytes, e) < 0)
            return -1;
    return graph_resolve(l->c, l->services, l->service_count, e);
}

/* ---- the gateway ---- */

static int complete_gateway(struct loader *l, struct error *e)
{
    struct gateway_config *g = &l->c->gateway;
    const struct seen_section *section = NULL;
    for (size_t i = 0; i < l->count; i++)
        if (l->sections[i].kind == SECTION_GATEWAY)
            section = &l->sections[i];
    if (gateway_complete(g, section, e) == 0)
        return 0;
    if (!section)
        return error_wrap(e, "environment");
    unsigned line = section->lines[schema_find(SECTION_GATEWAY, "gateway", "listen", NULL)];
    return error_wrap(e, "%s:%u", file_of(l, section), line ? line : section->line);
}

/* ---- the whole ---- */

static int read_source(struct loader *l, size_t at, const char *bytes, size_t n, struct error *e)
{
    const struct ini_sink sink = {on_section, on_value, l};
    l->source = at;
    l->has_section = false;
    return ini_read(l->sources.items[at].path, bytes, n, &sink, e);
}

/* The first file's bytes may be given; all others are read. */
static int read_all(struct loader *l, const char *bytes, size_t n, struct error *e)
{
    if (bytes && read_source(l, 0, bytes, n, e) < 0)
        return -1;
    for (size_t i = bytes != NULL; i < l->sources.count; i++) {
        CLEANUP_STRBUF struct strbuf text = {0};
        if (sources_read(&l->sources, i, &text, e) < 0 ||
            read_source(l, i, strbuf_text(&text), text.len, e) < 0)
            return -1;
    }
    return 0;
}

static int loader_run(struct loader *l, const char *file, const char *bytes, size_t n,
                      char *const *environ_, struct error *e)
{
    l->c = config_new(e);
    if (!l->c)
        return -1;
    if (file && !(l->c->path = strdup(file)))
        return out_of_memory(e);
    if (file && (sources_begin(&l->sources, file, e) < 0 || read_all(l, bytes, n, e) < 0))
        return -1;
    if (override_apply(l->c, environ_, e) < 0)
        return -1;
    if (sessions_complete(l, e) < 0 || complete_gateway(l, e) < 0)
        return -1;
    return services_complete(l, e);
}

static void loader_free(struct loader *l)
{
    for (size_t i = 0; i < l->count; i++) {
        free(l->sections[i].env_lines);
        env_list_free(&l->sections[i].file_env);
    }
    free(l->sections);
    for (size_t i = 0; i < l->service_count; i++)
        service_free(&l->services[i].config);
    free(l->services);
    sources_free(&l->sources);
}

/* file NULL: built-in defaults, nothing to read. bytes NULL: they are read from the file. */
static struct config *build(const char *file, const char *bytes, size_t n, struct files *files,
                            char *const *environ_, struct error *e)
{
    struct loader l = {.sources.files = files};
    struct error own = {0};
    if (loader_run(&l, file, bytes, n, environ_, &own) < 0) {
        config_free(l.c);
        l.c = NULL;
        if (e)
            *e = own;
    }
    loader_free(&l);
    return l.c;
}

struct config *config_parse(const char *name, const char *bytes, size_t n, char *const *environ_,
                            struct error *e)
{
    struct files direct = {0};
    return build(name, bytes, n, &direct, environ_, e);
}

struct config *config_load_from(const char *path, struct files *files, char *const *environ_,
                                struct error *e)
{
    return build(path, NULL, 0, files, environ_, e);
}

struct config *config_load(const char *path, char *const *environ_, struct error *e)
{
    struct files direct = {0};
    return config_load_from(path, &direct, environ_, e);
}
