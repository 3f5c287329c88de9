#include "sessions/env.h"
#include "base/number.h"
#include "base/quote.h"

#include <stdlib.h>
#include <string.h>

static const char *const nothing[] = {NULL};

static size_t name_length(const char *assignment)
{
    return strcspn(assignment, "=");
}

static size_t find(const struct env_set *s, const char *name, size_t len)
{
    for (size_t i = 0; i < s->count; i++)
        if (strncmp(s->items[i], name, len) == 0 && s->items[i][len] == '=')
            return i;
    return s->count;
}

int env_put(struct env_set *s, const char *assignment, struct error *e)
{
    size_t len = name_length(assignment);
    if (len == 0 || assignment[len] != '=')
        return error_set(e, ERR_INVALID, "env '%.64s': want NAME=VALUE", assignment);
    if (s->count + 2 > s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        char **items = realloc(s->items, cap * sizeof *items);
        if (!items)
            return error_set(e, ERR_MEMORY, "env: no memory");
        s->items = items;
        s->cap = cap;
    }
    char *copy = strdup(assignment);
    if (!copy)
        return error_set(e, ERR_MEMORY, "env: no memory");
    size_t at = find(s, assignment, len);
    if (at < s->count) {
        free(s->items[at]);
    } else {
        s->count++;
        s->items[s->count] = NULL;
    }
    s->items[at] = copy;
    return 0;
}

void env_unset(struct env_set *s, const char *name)
{
    size_t at = find(s, name, strlen(name));
    if (at == s->count)
        return;
    free(s->items[at]);
    memmove(&s->items[at], &s->items[at + 1], (s->count - at) * sizeof *s->items);
    s->count--;
}

const char *env_get(const struct env_set *s, const char *name)
{
    size_t len = strlen(name), at = find(s, name, len);
    return at < s->count ? s->items[at] + len + 1 : NULL;
}

int env_copy(struct env_set *to, const struct env_set *from, struct error *e)
{
    for (size_t i = 0; i < from->count; i++)
        if (env_put(to, from->items[i], e) < 0)
            return -1;
    return 0;
}

const char *const *env_vector(const struct env_set *s)
{
    return s->items ? (const char *const *)(const void *)s->items : nothing;
}

size_t env_bytes(const struct env_set *s)
{
    size_t n = 0;
    for (size_t i = 0; s && i < s->count; i++)
        n += strlen(s->items[i]) + 1 + sizeof s->items[i];
    return n;
}

void env_free(struct env_set *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->items[i]);
    free(s->items);
    *s = (struct env_set){0};
}

int env_add_exports(struct strbuf *to, const struct env_set *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const char *item = s->items[i];
        size_t len = name_length(item);
        if (env_name_check(item, len) < 0)
            continue;
        if (strbuf_adds(to, "export ") < 0 || strbuf_add(to, item, len + 1) < 0 ||
            quote_sh(to, item + len + 1, strlen(item + len + 1)) < 0 || strbuf_adds(to, "\n") < 0)
            return -1;
    }
    return 0;
}

int env_check(const char *assignment, struct error *e)
{
    size_t len = name_length(assignment);
    if (assignment[len] != '=')
        return error_set(e, ERR_INVALID, "env '%.64s': want NAME=VALUE", assignment);
    if (env_name_check(assignment, len) < 0)
        return error_set(e, ERR_INVALID,
                         "env name '%.*s': want letters, digits and _, not starting with a digit",
                         len > 64 ? 64 : (int)len, assignment);
    return 0;
}
