/*
 * Files of NAME=VALUE lines, as docker's --env-file and systemd's EnvironmentFile= have them. Empty
 * lines and those that start with '#' or ';' don't count; "export " before a name doesn't either. A
 * value in '…' stands as it is, one in "…" may hold \" \\ \$ \` and \n; a plain one ends at the
 * line's end, without the blanks there, and everything in it is a byte. Nothing is expanded. A
 * quoted value may go over several lines.
 */
#include "config/config_internal.h"

#include "base/hash.h"
#include "base/number.h"

#include <stdint.h>
#include <string.h>

#define SLOTS 2048 /* a power of two, twice CONFIG_ENV_COUNT_MAX at least */

struct env_reader {
    const char *at, *end;
    unsigned line;
    struct strbuf name, value;
    unsigned short slots[SLOTS]; /* of names by their hash: index in the list + 1; 0: none */
};
_Static_assert(SLOTS >= 2 * CONFIG_ENV_COUNT_MAX, "a slot is always free");

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void skip_blanks(struct env_reader *r)
{
    while (r->at < r->end && is_blank(*r->at))
        r->at++;
}

static bool is_at_line_end(const struct env_reader *r)
{
    return r->at == r->end || *r->at == '\n';
}

static void skip_line(struct env_reader *r)
{
    const char *lf = memchr(r->at, '\n', (size_t)(r->end - r->at));
    r->at = lf ? lf : r->end;
}

static int put(struct strbuf *to, const char *bytes, size_t n, struct error *e)
{
    if (n > CONFIG_ENV_ITEM_MAX - to->len)
        return error_set(e, ERR_INVALID, "the value is longer than %zu bytes (execve(2))",
                         CONFIG_ENV_ITEM_MAX);
    if (strbuf_add(to, bytes, n) < 0)
        return error_set(e, ERR_MEMORY, "out of memory");
    return 0;
}

static int take_name(struct env_reader *r, struct error *e)
{
    char buf[SHOWN_SIZE];
    if (r->end - r->at > 7 && memcmp(r->at, "export", 6) == 0 && is_blank(r->at[6])) {
        r->at += 6;
        skip_blanks(r);
    }
    const char *start = r->at, *line_end;
    skip_line(r);
    line_end = r->at;
    const char *equals = memchr(start, '=', (size_t)(line_end - start));
    if (!equals)
        return error_set(e, ERR_INVALID, "'%s' is not NAME=VALUE",
                         shown(start, (size_t)(line_end - start), buf));
    size_t n = (size_t)(equals - start);
    while (n > 0 && is_blank(start[n - 1]))
        n--;
    if (n > CONFIG_KEY_MAX || env_name_check(start, n) < 0)
        return error_set(
            e, ERR_INVALID,
            "'%s' is not a variable's name: letters, digits and '_', not a digit first",
            shown(start, n, buf));
    strbuf_clear(&r->name);
    r->at = equals + 1;
    return put(&r->name, start, n, e);
}

/* The value behind an opening quote, up to its end. */
static int take_quoted(struct env_reader *r, char quote, struct error *e)
{
    unsigned line = r->line;
    for (; r->at < r->end && *r->at != quote; r->at++) {
        char c = *r->at;
        if (c == '\n')
            r->line++;
        if (c == '\\' && quote == '"' && r->at + 1 < r->end && strchr("\"\\$`n", r->at[1])) {
            r->at++;
            c = *r->at == 'n' ? '\n' : *r->at;
        }
        if (put(&r->value, &c, 1, e) < 0)
            return -1;
    }
    if (r->at == r->end) {
        r->line = line;
        return error_set(e, ERR_INVALID, "a quote (%c) is not closed", quote);
    }
    r->at++;
    skip_blanks(r);
    if (!is_at_line_end(r))
        return error_set(e, ERR_INVALID, "text after the closing quote (%c)", quote);
    return 0;
}

static int take_value(struct env_reader *r, struct error *e)
{
    strbuf_clear(&r->value);
    skip_blanks(r);
    if (r->at < r->end && (*r->at == '"' || *r->at == '\''))
        return take_quoted(r, *r->at++, e);
    const char *start = r->at;
    skip_line(r);
    size_t n = (size_t)(r->at - start);
    while (n > 0 && is_blank(start[n - 1]))
        n--;
    return put(&r->value, start, n, e);
}

/* The slot of a name, or the free one that it can have. */
static unsigned short *slot_of(struct env_reader *r, const struct env_list *l, const char *name)
{
    size_t n = strlen(name);
    for (uint64_t hash = hash_add(HASH_START, name, n);; hash++) {
        unsigned short *slot = &r->slots[hash % SLOTS];
        const char *item = *slot && l->items ? l->items[*slot - 1] : NULL;
        if (!item || (strncmp(item, name, n) == 0 && item[n] == '='))
            return slot;
    }
}

/* A name that comes again stands for its last value. */
static int assign(struct env_reader *r, struct env_list *to, struct error *e)
{
    const char *name = strbuf_text(&r->name), *value = strbuf_text(&r->value);
    unsigned short *slot = slot_of(r, to, name);
    if (*slot)
        return env_list_replace(to, *slot - 1u, name, value, e);
    if (env_list_add(to, name, value, e) < 0)
        return -1;
    *slot = (unsigned short)to->count;
    return 0;
}

static int take_line(struct env_reader *r, struct env_list *to, struct error *e)
{
    skip_blanks(r);
    if (is_at_line_end(r))
        return 0;
    if (*r->at == '#' || *r->at == ';') {
        skip_line(r);
        return 0;
    }
    if (take_name(r, e) < 0)
        return -1;
    if (take_value(r, e) < 0)
        return error_wrap(e, "%s", strbuf_text(&r->name));
    return assign(r, to, e);
}

static int check_nul(const char *file, const char *bytes, size_t n, struct error *e)
{
    const char *nul = n > 0 ? memchr(bytes, '\0', n) : NULL;
    unsigned line = 1;
    if (!nul)
        return 0;
    for (const char *p = bytes; p < nul; p++)
        line += *p == '\n';
    return error_set(e, ERR_INVALID, "%s:%u: the line holds a NUL byte", shown_file(file), line);
}

static int parse(const char *file, const char *bytes, size_t n, struct env_list *to,
                 struct error *e)
{
    struct env_reader r = {.at = bytes, .end = bytes + n, .line = 1};
    int status;
    if (n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        r.at += 3;
    status = check_nul(file, bytes, n, e);
    while (status == 0 && r.at < r.end) {
        status = take_line(&r, to, e);
        if (status < 0)
            error_wrap(e, "%s:%u", shown_file(file), r.line);
        else if (r.at < r.end) {
            r.at++; /* the line's end */
            r.line++;
        }
    }
    strbuf_free(&r.name);
    strbuf_free(&r.value);
    return status;
}

int env_file_read(const char *file, const char *bytes, size_t n, struct strbuf *items,
                  struct error *e)
{
    struct env_list list = {0};
    int status = parse(file, bytes, n, &list, e);
    for (size_t i = 0; status == 0 && i < list.count; i++)
        if (strbuf_add(items, list.items[i], strlen(list.items[i]) + 1) < 0)
            status = error_set(e, ERR_MEMORY, "%s: out of memory", shown_file(file));
    env_list_free(&list);
    return status;
}

/* One item. A name is in them once, so only those of earlier files need a look. */
static int take_item(char *item, size_t earlier, struct env_list *to, struct error *e)
{
    char *equals = strchr(item, '=');
    if (!equals || env_name_check(item, (size_t)(equals - item)) < 0)
        return files_broken_off(e);
    long at = earlier > 0 ? env_list_find(to, item, 0) : -1;
    *equals = '\0';
    return at < 0 ? env_list_add(to, item, equals + 1, e)
                  : env_list_replace(to, (size_t)at, item, equals + 1, e);
}

int env_file_take(const char *file, char *items, size_t n, struct env_list *to, size_t *bytes,
                  struct error *e)
{
    size_t earlier = to->count;
    if (n > 0 && items[n - 1] != '\0')
        return files_broken_off(e);
    for (size_t at = 0; at < n;) {
        size_t item_n = strlen(items + at);
        *bytes += item_n + ENV_ITEM_COST;
        if (*bytes > CONFIG_ENV_FILES_MAX)
            return error_set(e, ERR_INVALID,
                             "%s: the variables of all env_file together take more than 16M",
                             shown_file(file));
        if (take_item(items + at, earlier, to, e) < 0)
            return error_wrap(e, "%s", shown_file(file));
        at += item_n + 1;
    }
    return 0;
}
