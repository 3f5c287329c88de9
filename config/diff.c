/*
 * What a reload changes: keys of [init] in the order of the schema, keys of [sessions] likewise
 * (each env.NAME by itself) and of [gateway], then sessions that went or changed in their old
 * order, then new ones; services likewise. A session's settings are complete, so a changed default
 * shows at every session that inherits it. Nothing is allocated.
 */
#include "config/config_internal.h"

#include <stdio.h>
#include <string.h>

struct listener {
    void (*tell)(void *context, enum change_kind kind, const char *section, const char *key);
    void *context;
};

static void tell_env(const struct listener *to, const char *item)
{
    char key[CONFIG_KEY_MAX + 1];
    snprintf(key, sizeof key, "env.%.*s", (int)strcspn(item, "="), item);
    to->tell(to->context, CHANGE_KEY, "sessions", key);
}

static void diff_env(const struct env_list *old, const struct env_list *new_,
                     const struct listener *to)
{
    for (size_t i = 0; i < old->count; i++) {
        long at = env_list_find(new_, old->items[i], i);
        if (at < 0 || strcmp(old->items[i], new_->items[at]) != 0)
            tell_env(to, old->items[i]);
    }
    for (size_t i = 0; i < new_->count; i++)
        if (env_list_find(old, new_->items[i], i) < 0)
            tell_env(to, new_->items[i]);
}

static void diff_keys(const struct config *old, const struct config *new_,
                      const struct listener *to)
{
    for (size_t i = 0; i < schema_row_count; i++) {
        const struct schema_row *row = &schema_rows[i];
        const void *a = schema_field_const(row, old, NULL);
        const void *b = schema_field_const(row, new_, NULL);
        if (row->type == VALUE_ENV)
            diff_env(a, b, to);
        else if (!value_equal(row, a, b))
            to->tell(to->context, CHANGE_KEY, schema_title(row->sections), row->key);
    }
}

static bool sessions_equal(const struct config *old, const struct session_config *a,
                           const struct config *new_, const struct session_config *b)
{
    for (size_t i = 0; i < schema_row_count; i++) {
        const struct schema_row *row = &schema_rows[i];
        if (row->sections & SECTION_SESSION &&
            !value_equal(row, schema_field_const(row, old, a), schema_field_const(row, new_, b)))
            return false;
    }
    return true;
}

static void tell_session(const struct listener *to, enum change_kind kind, const char *name)
{
    char section[80];
    snprintf(section, sizeof section, "session:%s", name);
    to->tell(to->context, kind, section, name);
}

static void tell_service(const struct listener *to, enum change_kind kind, const char *name)
{
    char section[SERVICE_NAME_MAX + 16];
    snprintf(section, sizeof section, "service:%s", name);
    to->tell(to->context, kind, section, name);
}

/* The service of that name in a configuration. Two of them mostly have the same order, so hint is
 * looked at first. */
static const struct service_config *find_service(const struct config *c, const char *name,
                                                 size_t hint)
{
    if (hint < c->service_count && strcmp(c->services[hint].name, name) == 0)
        return &c->services[hint];
    return config_service(c, name);
}

static void diff_services(const struct config *old, const struct config *new_,
                          const struct listener *to)
{
    for (size_t i = 0; i < old->service_count; i++) {
        const struct service_config *a = &old->services[i];
        const struct service_config *b = find_service(new_, a->name, i);
        if (!b)
            tell_service(to, CHANGE_SERVICE_REMOVED, a->name);
        else if (!service_config_equal(a, b))
            tell_service(to, CHANGE_SERVICE_CHANGED, a->name);
    }
    for (size_t i = 0; i < new_->service_count; i++)
        if (!find_service(old, new_->services[i].name, i))
            tell_service(to, CHANGE_SERVICE_ADDED, new_->services[i].name);
}

void config_diff(const struct config *old, const struct config *new_,
                 void (*tell)(void *context, enum change_kind kind, const char *section,
                              const char *key),
                 void *context)
{
    const struct listener to = {tell, context};
    diff_keys(old, new_, &to);
    for (size_t i = 0; i < old->session_count; i++) {
        const struct session_config *a = &old->sessions[i];
        const struct session_config *b = config_session(new_, a->name);
        if (!b)
            tell_session(&to, CHANGE_SESSION_REMOVED, a->name);
        else if (!sessions_equal(old, a, new_, b))
            tell_session(&to, CHANGE_SESSION_CHANGED, a->name);
    }
    for (size_t i = 0; i < new_->session_count; i++)
        if (!config_session(old, new_->sessions[i].name))
            tell_session(&to, CHANGE_SESSION_ADDED, new_->sessions[i].name);
    diff_services(old, new_, &to);
}
