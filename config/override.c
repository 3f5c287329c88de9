/*
 * Overrides from the environment: SANDBOX_INIT_STOP_GRACE stands above stop_grace in [init],
 * SANDBOX_SESSIONS_CWD above cwd in [sessions], SANDBOX_GATEWAY_LISTEN above listen in [gateway].
 * The key is in upper case. A variable under one of these prefixes that names no key is an error,
 * since it is a slip that would go unnoticed; every other SANDBOX_* belongs to somebody else. If a
 * name comes twice, the first counts, as with getenv(3).
 */
#include "config/config_internal.h"

#include <stdio.h>
#include <string.h>

#define VARIABLE_MAX (CONFIG_KEY_MAX + 32)

static const struct prefix {
    const char *text;
    enum section_kind section;
} prefixes[] = {
    {"SANDBOX_INIT_", SECTION_INIT},
    {"SANDBOX_SESSIONS_", SECTION_SESSIONS},
    {"SANDBOX_GATEWAY_", SECTION_GATEWAY},
};
#define PREFIXES (sizeof prefixes / sizeof prefixes[0])
_Static_assert(SCHEMA_ROWS_MAX <= 64, "one bit a row");

/* The key of a row in upper case, in buf (>= CONFIG_KEY_MAX). */
static const char *upper_key(const struct schema_row *row, char *buf)
{
    size_t n = 0;
    for (const char *p = row->key; *p && n + 1 < CONFIG_KEY_MAX; p++)
        buf[n++] = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
    buf[n] = '\0';
    return buf;
}

static bool can_override(const struct schema_row *row, enum section_kind section)
{
    return row->sections & section && row->type != VALUE_ENV;
}

/* The row of the n bytes behind a prefix, or NULL. */
static const struct schema_row *find_row(enum section_kind section, const char *name, size_t n)
{
    char upper[CONFIG_KEY_MAX];
    for (size_t i = 0; i < schema_row_count; i++)
        if (can_override(&schema_rows[i], section) &&
            strlen(upper_key(&schema_rows[i], upper)) == n && memcmp(upper, name, n) == 0)
            return &schema_rows[i];
    return NULL;
}

/* For nearest_word(), which doesn't look at the case. */
static const char *overridable_key(const void *context, size_t i)
{
    const struct prefix *prefix = context;
    for (size_t row = 0; row < schema_row_count; row++)
        if (can_override(&schema_rows[row], prefix->section) && i-- == 0)
            return schema_rows[row].key;
    return NULL;
}

/* True for what Kubernetes sets in every container when a Service is called "sandbox-init":
 * SANDBOX_INIT_SERVICE_HOST, SANDBOX_INIT_PORT_80_TCP, … Nobody's slip, so no error. */
static bool is_service_variable(const char *key, size_t n)
{
    static const char *const starts[] = {"SERVICE_HOST", "SERVICE_PORT", "PORT"};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        size_t k = strlen(starts[i]);
        if (n >= k && memcmp(key, starts[i], k) == 0 && (n == k || key[k] == '_'))
            return true;
    }
    return false;
}

static int unknown_variable(const struct prefix *prefix, const char *variable, size_t n,
                            struct error *e)
{
    char name[VARIABLE_MAX], upper[CONFIG_KEY_MAX], buf[SHOWN_SIZE];
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name), variable);
    const char *key = name + strlen(prefix->text);
    const char *nearest = nearest_word(key, overridable_key, prefix);
    shown(variable, n, buf);
    for (size_t i = 0; i < PREFIXES; i++) {
        const struct schema_row *row = find_row(prefixes[i].section, key, strlen(key));
        if (row)
            return error_set(e, ERR_INVALID, "environment: %s: no such key; did you mean '%s%s'?",
                             buf, prefixes[i].text, upper_key(row, upper));
    }
    for (size_t i = 0; nearest && i < schema_row_count; i++)
        if (schema_rows[i].key == nearest)
            return error_set(e, ERR_INVALID, "environment: %s: no such key; did you mean '%s%s'?",
                             buf, prefix->text, upper_key(&schema_rows[i], upper));
    return error_set(e, ERR_INVALID, "environment: %s: no key of [%s] that can be overridden", buf,
                     schema_title(prefix->section));
}

/* One "K=V" under a prefix. *given has a bit for each row that was set already. */
static int apply_one(struct config *c, const struct prefix *prefix, const char *item,
                     uint64_t *given, struct error *e)
{
    const char *equals = strchr(item, '=');
    if (!equals)
        return 0; /* not an assignment; execve(2) allows it */
    const char *key = item + strlen(prefix->text);
    const struct schema_row *row = find_row(prefix->section, key, (size_t)(equals - key));
    if (!row && is_service_variable(key, (size_t)(equals - key)))
        return 0;
    if (!row)
        return unknown_variable(prefix, item, (size_t)(equals - item), e);
    uint64_t bit = (uint64_t)1 << (row - schema_rows);
    if (*given & bit)
        return 0;
    *given |= bit;
    if (value_parse(row, equals + 1, schema_field(row, c, NULL), e) < 0)
        return error_wrap(e, "environment: %.*s", (int)(equals - item), item);
    return 0;
}

int override_apply(struct config *c, char *const *environ_, struct error *e)
{
    uint64_t given = 0;
    for (; environ_ && *environ_; environ_++)
        for (size_t i = 0; i < PREFIXES; i++)
            if (strncmp(*environ_, prefixes[i].text, strlen(prefixes[i].text)) == 0 &&
                apply_one(c, &prefixes[i], *environ_, &given, e) < 0)
                return -1;
    return 0;
}
