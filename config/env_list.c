/*
 * A list of NAME=VALUE assignments, each name once, in the order in which names first came.
 * Bounded in count, in bytes and per item, so that whatever a file says, a session's environment
 * can be handed to execve(2).
 */
#include "config/config_internal.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the name at the start of "NAME=VALUE" or "NAME". */
static size_t name_length(const char *item)
{
    return strcspn(item, "=");
}

/* Make room for one more item. */
static int env_list_grow(struct env_list *l, struct error *e)
{
    /* The room is the next power of two from 8, so it need not be kept. */
    bool is_full = l->count == 0 || (l->count >= 8 && (l->count & (l->count - 1)) == 0);
    if (!is_full)
        return 0;
    size_t room = l->count < 8 ? 8 : l->count * 2;
    char **items = realloc(l->items, room * sizeof *items);
    if (!items)
        return error_set(e, ERR_MEMORY, "out of memory");
    l->items = items;
    return 0;
}

/* Append an item and own it; on failure it is freed. */
static int env_list_take(struct env_list *l, char *item, struct error *e)
{
    if (!item)
        return error_set(e, ERR_MEMORY, "out of memory");
    if (env_list_grow(l, e) < 0) {
        free(item);
        return -1;
    }
    l->items[l->count++] = item;
    return 0;
}

/* "NAME=VALUE" on the heap, or NULL with *e. */
static char *item_new(const char *name, const char *value, struct error *e)
{
    size_t name_n = strlen(name), value_n = strlen(value), n;
    if (__builtin_add_overflow(name_n + 1, value_n, &n) || n > CONFIG_ENV_ITEM_MAX) {
        error_set(e, ERR_INVALID,
                  "the value is %zu bytes long; name and value can have %zu (execve(2))", value_n,
                  CONFIG_ENV_ITEM_MAX);
        return NULL;
    }
    char *item = malloc(n + 1);
    if (!item) {
        error_set(e, ERR_MEMORY, "out of memory");
        return NULL;
    }
    memcpy(item, name, name_n);
    item[name_n] = '=';
    memcpy(item + name_n + 1, value, value_n);
    item[n] = '\0';
    return item;
}

int env_list_add(struct env_list *l, const char *name, const char *value, struct error *e)
{
    if (l->count >= CONFIG_ENV_COUNT_MAX)
        return error_set(e, ERR_INVALID, "more than %zu variables in one section",
                         CONFIG_ENV_COUNT_MAX);
    char *item = item_new(name, value, e);
    return item ? env_list_take(l, item, e) : -1;
}

int env_list_replace(struct env_list *l, size_t at, const char *name, const char *value,
                     struct error *e)
{
    char *item = item_new(name, value, e);
    if (!item)
        return -1;
    free(l->items[at]);
    l->items[at] = item;
    return 0;
}

long env_list_find(const struct env_list *l, const char *name_or_item, size_t hint)
{
    size_t n = name_length(name_or_item);
    for (size_t i = 0; i <= l->count; i++) {
        /* Two lists compared mostly have the same order: look there first. */
        size_t at = i == 0 ? hint : i - 1;
        if (at < l->count && strncmp(l->items[at], name_or_item, n) == 0 && l->items[at][n] == '=')
            return (long)at;
    }
    return -1;
}

int env_list_merge(struct env_list *to, const struct env_list *base, const struct env_list *own,
                   struct error *e)
{
    for (size_t i = 0; i < base->count; i++) {
        long over = env_list_find(own, base->items[i], 0);
        if (env_list_take(to, strdup(over < 0 ? base->items[i] : own->items[over]), e) < 0)
            goto fail;
    }
    for (size_t i = 0; i < own->count; i++)
        if (env_list_find(base, own->items[i], 0) < 0 &&
            env_list_take(to, strdup(own->items[i]), e) < 0)
            goto fail;
    return 0;
fail:
    env_list_free(to);
    return -1;
}

size_t env_list_bytes(const struct env_list *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->count; i++)
        n += strlen(l->items[i]) + ENV_ITEM_COST;
    return n;
}

void env_list_free(struct env_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->items[i]);
    free(l->items);
    *l = (struct env_list){0};
}
