/*
 * The schema: one row a key. It drives parsing, the overrides from the environment, the diff of a
 * reload and the suggestion for a key that doesn't exist; that of services is in service_schema.c.
 * A new key is a field in config.h, a row here and a line in sandbox.ini.example; a test compares
 * the three.
 */
#include "config/config_internal.h"

#include <stdio.h>
#include <string.h>

#define SECOND ((uint64_t)1000)
#define HOUR   (3600 * SECOND)
#define YEAR   (365 * (24 * HOUR))
#define K      ((uint64_t)1024)
#define M      (1024 * K)
#define G      (1024 * M)

#define PATH_BYTES   4095 /* PATH_MAX without its NUL */
#define SOCKET_BYTES 107  /* sun_path without its NUL, unix(7) */

#define INIT(member)    offsetof(struct config, member)
#define SESSION(member) offsetof(struct session_config, member)
#define GATEWAY(member) offsetof(struct config, gateway.member)
#define BOTH            (SECTION_SESSIONS | SECTION_SESSION)

static const char *const level_words[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug", NULL};
static const char *const format_words[] = {[LOG_TEXT] = "text", [LOG_JSON] = "json", NULL};
static const char *const action_words[] = {[IDLE_STOP] = "stop", [IDLE_LOG] = "log", NULL};

static const char *const auth_words[] = {
    [GATEWAY_AUTH_TOKEN] = "token", [GATEWAY_AUTH_NONE] = "none", NULL};
static const char *const delete_words[] = {
    [GATEWAY_RESET] = "reset", [GATEWAY_EXIT] = "exit", NULL};

static const char *const leftover_words[] = {
    [LEFTOVERS_KEEP] = "keep", [LEFTOVERS_KILL] = "kill", NULL};

/* clang-format off */
const struct schema_row schema_rows[] = {
    {"runtime_dir",     SECTION_INIT, VALUE_PATH,     INIT(runtime_dir),     1, PATH_BYTES,   NULL,   NULL},
    {"control_socket",  SECTION_INIT, VALUE_PATH,     INIT(control_socket),  1, SOCKET_BYTES, NULL,   NULL},
    {"stop_grace",      SECTION_INIT, VALUE_DURATION, INIT(stop_grace_ms),   0, HOUR,         "8s",   NULL},
    {"log_level",       SECTION_INIT, VALUE_WORD,     INIT(log_level),       0, 0,            "info", level_words},
    {"log_format",      SECTION_INIT, VALUE_WORD,     INIT(log_format),      0, 0,            "text", format_words},
    {"idle_timeout",    SECTION_INIT, VALUE_DURATION, INIT(idle_timeout_ms), 0, YEAR,         "0",    NULL},
    {"idle_action",     SECTION_INIT, VALUE_WORD,     INIT(idle_action),     0, 0,            "stop", action_words},
    {"text_limit",      SECTION_INIT, VALUE_SIZE,     INIT(text_limit),      K, 64 * M,       "16M",  NULL},
    {"max_connections", SECTION_INIT, VALUE_COUNT,    INIT(max_connections), 1, 10000,        "256",  NULL},
    {"client_stall",    SECTION_INIT, VALUE_DURATION, INIT(client_stall_ms), 100, 24 * HOUR,  "30s",  NULL},
    {"log_dir",         SECTION_INIT, VALUE_PATH,     INIT(log_dir),         1, PATH_BYTES,   NULL,   NULL},
    {"log_file_size",   SECTION_INIT, VALUE_SIZE,     INIT(log_file_size),   4 * K, 64 * G,   "10M",  NULL},
    {"log_files",       SECTION_INIT, VALUE_COUNT,    INIT(log_files),       0, 1000,         "4",    NULL},
    {"log_keep",        SECTION_INIT, VALUE_COUNT,    INIT(log_keep),        1, 100000,       "1000", NULL},
    {"log_file_age",    SECTION_INIT, VALUE_DURATION, INIT(log_file_age_ms), 0, YEAR,         "0",    NULL},
    {"events_keep",     SECTION_INIT, VALUE_SIZE,     INIT(events_keep),     4 * K, 64 * M,   "256K", NULL},
    {"rewrite",         SECTION_INIT, VALUE_REWRITE,  INIT(rewrite),         0, 0,            NULL,   NULL},

    {"shell",           BOTH, VALUE_PATH,     SESSION(shell),              1, PATH_BYTES, NULL,  NULL},
    {"cwd",             BOTH, VALUE_PATH,     SESSION(cwd),                1, PATH_BYTES, NULL,  NULL},
    {"user",            BOTH, VALUE_USER,     SESSION(user),               1, 256,        NULL,  NULL},
    {"setup",           BOTH, VALUE_TEXT,     SESSION(setup),              1, 512 * K,    NULL,  NULL},
    {"env.NAME",        BOTH, VALUE_ENV,      SESSION(env),                0, 0,          NULL,  NULL},
    {"command_timeout", BOTH, VALUE_DURATION, SESSION(command_timeout_ms), 0, YEAR,       "0",   NULL},
    {"command_idle_timeout", BOTH, VALUE_DURATION, SESSION(command_idle_timeout_ms), 0, YEAR, "0", NULL},
    {"command_cpu_timeout",  BOTH, VALUE_DURATION, SESSION(command_cpu_timeout_ms),  0, YEAR, "0", NULL},
    {"command_soft_timeout", BOTH, VALUE_DURATION, SESSION(command_soft_timeout_ms), 0, YEAR, "0", NULL},
    {"kill_grace",      BOTH, VALUE_DURATION, SESSION(kill_grace_ms),      0, HOUR,       "5s",  NULL},
    {"queue_limit",     BOTH, VALUE_COUNT,    SESSION(queue_limit),        0, 10000,      "64",  NULL},
    {"output_keep",     BOTH, VALUE_SIZE,     SESSION(output_keep),        4 * K, G,      "1M",  NULL},
    {"output_limit",    BOTH, VALUE_SIZE,     SESSION(output_limit),       0, G,          "0",   NULL},
    {"output_keep_age", BOTH, VALUE_DURATION, SESSION(output_keep_age_ms), 0, YEAR,       "0",   NULL},

    {"max_sessions",  SECTION_SESSIONS, VALUE_COUNT, INIT(max_sessions),  1, CONFIG_SESSIONS_MAX, "64",  NULL},
    {"max_processes", SECTION_SESSIONS, VALUE_COUNT, INIT(max_processes), 1, 100000,              "512", NULL},
    {"max_terminals", SECTION_SESSIONS, VALUE_COUNT, INIT(max_terminals), 0, 10000,               "64",  NULL},
    {"process_keep",  SECTION_SESSIONS, VALUE_COUNT, INIT(process_keep),  0, 10000,               "100", NULL},
    {"leftovers",     SECTION_SESSIONS, VALUE_WORD,  INIT(leftovers),     0, 0,                   "keep", leftover_words},
    {"command_keep",  SECTION_SESSIONS, VALUE_COUNT, INIT(command_keep),  0, 10000,               "100", NULL},

    {"listen",          SECTION_GATEWAY, VALUE_LISTEN,     GATEWAY(listen),          0, 0,           NULL,         NULL},
    {"token_file",      SECTION_GATEWAY, VALUE_PATH,       GATEWAY(token_file),      1, PATH_BYTES,  NULL,         NULL},
    {"auth",            SECTION_GATEWAY, VALUE_WORD,       GATEWAY(auth),            0, 0,           "token",      auth_words},
    {"workspace",       SECTION_GATEWAY, VALUE_PATH,       GATEWAY(workspace),       1, PATH_BYTES,  "/workspace", NULL},
    {"sandbox_id",      SECTION_GATEWAY, VALUE_SANDBOX_ID, GATEWAY(sandbox_id),      0, 0,           NULL,         NULL},
    {"max_body",        SECTION_GATEWAY, VALUE_SIZE,       GATEWAY(max_body),        K, G,           "32M",        NULL},
    {"max_connections", SECTION_GATEWAY, VALUE_COUNT,      GATEWAY(max_connections), 1, 10000,       "1024",       NULL},
    {"idle_timeout",    SECTION_GATEWAY, VALUE_DURATION,   GATEWAY(idle_timeout_ms), SECOND, 24 * HOUR, "75s",     NULL},
    {"cors_origin",     SECTION_GATEWAY, VALUE_ORIGIN,     GATEWAY(cors_origin),     0, 0,           NULL,         NULL},
    {"on_delete",       SECTION_GATEWAY, VALUE_WORD,       GATEWAY(on_delete),       0, 0,           "reset",      delete_words},
    {"user",            SECTION_GATEWAY, VALUE_USER,       GATEWAY(user),            1, 256,         NULL,         NULL},
};
/* clang-format on */
const size_t schema_row_count = sizeof(schema_rows) / sizeof(schema_rows[0]);
_Static_assert(sizeof(schema_rows) / sizeof(schema_rows[0]) <= SCHEMA_ROWS_MAX, "too many keys");

/* env.NAME stands for every key that starts so, and limit.NAME. */
static bool row_matches(const struct schema_row *row, const char *key)
{
    if (row->type == VALUE_ENV)
        return strncmp(key, "env.", 4) == 0;
    if (row->type == VALUE_LIMIT)
        return strncmp(key, "limit.", 6) == 0;
    return strcmp(row->key, key) == 0;
}

const struct schema_row *schema_of(enum section_kind section, size_t *count)
{
    *count = schema_row_count;
    if (section == SECTION_SERVICE)
        *count = service_row_count;
    else if (section == SECTION_INCLUDE)
        *count = include_row_count;
    return section == SECTION_SERVICE   ? service_rows
           : section == SECTION_INCLUDE ? include_rows
                                        : schema_rows;
}

/* The i-th key of the section kind that context points to, for nearest_word(). */
static const char *key_of_section(const void *context, size_t i)
{
    const enum section_kind *section = context;
    size_t count;
    const struct schema_row *rows = schema_of(*section, &count);
    for (size_t row = 0; row < count; row++)
        if (rows[row].sections & *section && i-- == 0)
            return rows[row].key;
    return NULL;
}

const char *schema_title(unsigned sections)
{
    return sections & SECTION_INIT ? "init" : sections & SECTION_GATEWAY ? "gateway" : "sessions";
}

/* The section in which a key is known, or NULL. */
static const char *home_of(const char *key)
{
    for (size_t i = 0; i < schema_row_count; i++)
        if (row_matches(&schema_rows[i], key))
            return schema_title(schema_rows[i].sections);
    for (size_t i = 0; i < service_row_count; i++)
        if (row_matches(&service_rows[i], key))
            return "service:NAME";
    for (size_t i = 0; i < include_row_count; i++)
        if (row_matches(&include_rows[i], key))
            return "include";
    return NULL;
}

/* "…; did you mean 'stop_grace'?", or where the key belongs, or all that there is. */
static int unknown_key(enum section_kind section, const char *title, const char *key,
                       struct error *e)
{
    char key_buf[SHOWN_SIZE], title_buf[SHOWN_SIZE];
    shown(key, strlen(key), key_buf);
    shown(title, strlen(title), title_buf);
    const char *nearest = nearest_word(key, key_of_section, &section);
    const char *synonym = section == SECTION_SERVICE ? service_synonym(key) : NULL;
    if (synonym)
        return error_set(e, ERR_INVALID, "unknown key '%s' in [%s]; here it is '%s'", key_buf,
                         title_buf, synonym);
    const char *home = home_of(key);
    if (home)
        return error_set(e, ERR_INVALID, "unknown key '%s' in [%s]; it belongs in [%s]", key_buf,
                         title_buf, home);
    if (nearest)
        return error_set(e, ERR_INVALID, "unknown key '%s' in [%s]; did you mean '%s'?", key_buf,
                         title_buf, nearest);
    if (section == SECTION_SERVICE) /* too many for one line */
        return error_set(e, ERR_INVALID, "unknown key '%s' in [%s]; sandbox.ini(5) lists all",
                         key_buf, title_buf);
    char known[384] = "";
    size_t used = 0;
    for (size_t i = 0; (nearest = key_of_section(&section, i)) && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", nearest);
    return error_set(e, ERR_INVALID, "unknown key '%s' in [%s]; there are: %s", key_buf, title_buf,
                     known);
}

int schema_find(enum section_kind section, const char *title, const char *key, struct error *e)
{
    size_t count;
    const struct schema_row *rows = schema_of(section, &count);
    for (size_t i = 0; i < count; i++)
        if (rows[i].sections & section && row_matches(&rows[i], key))
            return (int)i;
    return unknown_key(section, title, key, e);
}

const void *schema_field_const(const struct schema_row *row, const struct config *c,
                               const struct session_config *session)
{
    const char *base = (const char *)c;
    if (row->sections & SECTION_SESSION)
        base = (const char *)(session ? session : &c->defaults);
    return base + row->offset;
}

void *schema_field(const struct schema_row *row, struct config *c, struct session_config *session)
{
    char *base = (char *)c;
    if (row->sections & SECTION_SESSION)
        base = (char *)(session ? session : &c->defaults);
    return base + row->offset;
}
