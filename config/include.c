/*
 * Which files are read: the one that the user named, then those that [include] names, in the order
 * in which they come up. A list that is worked off from its front, so nothing recurses; bounded in
 * files, bytes and depth. A file is read once: one that includes itself, or that is included twice,
 * is an error that says where (case Z7).
 */
#include "config/config_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHAIN_PATH 40 /* bytes of each path in a chain */

static int out_of_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory");
}

/* Put where the file was included in front. */
static int fail_at_parent(const struct source_list *l, const struct source *s, struct error *e)
{
    return error_wrap(e, "%s:%u: files", shown_file(l->items[s->parent].path), s->line);
}

/* ---- what is to be read ---- */

/* Append a file and own its path, which may be NULL for want of memory. */
static int add_source(struct source_list *l, struct source source, struct error *e)
{
    int status = 0;
    if (!source.path)
        return out_of_memory(e);
    if (l->count == CONFIG_FILES_MAX) {
        status = error_set(e, ERR_INVALID, "more than %zu files", CONFIG_FILES_MAX);
    } else if (l->count == l->room) {
        size_t room = l->room ? l->room * 2 : 4;
        struct source *items = realloc(l->items, room * sizeof *items);
        if (items) {
            l->items = items;
            l->room = room;
        } else {
            status = out_of_memory(e);
        }
    }
    if (status < 0)
        free(source.path);
    else
        l->items[l->count++] = source;
    return status;
}

int sources_begin(struct source_list *l, const char *path, struct error *e)
{
    return add_source(l, (struct source){.path = strdup(path)}, e);
}

static int add_pattern(struct source_list *l, struct source source, const char *path,
                       struct error *e)
{
    char **paths = files_match(l->files, path, e);
    int status = paths ? 0 : -1;
    for (size_t i = 0; status == 0 && paths[i]; i++) {
        source.path = path_beside("", paths[i], e);
        if (!source.path)
            status = -1;
        else
            status = add_source(l, source, e);
    }
    free(paths);
    return status;
}

/* One word of `files`. */
static int add_word(struct source_list *l, struct source source, const char *word, struct error *e)
{
    char buf[SHOWN_SIZE];
    source.is_optional = word[0] == '-';
    word += source.is_optional;
    if (!word[0])
        return error_set(e, ERR_INVALID, "a path is empty");
    char *path = path_beside(l->items[source.parent].path, word, e);
    if (!path)
        return -1;
    const char *slash = strrchr(word, '/');
    size_t folder_n = slash ? (size_t)(slash - word) : 0;
    int status;
    if (strcspn(word, "*?[") < folder_n)
        status = error_set(e, ERR_INVALID,
                           "'%s': '*', '?' and '[' only have a meaning in the name of a file, not "
                           "of its folder",
                           shown(word, strlen(word), buf));
    else if (is_pattern(word))
        status = add_pattern(l, source, path, e);
    else
        status = add_source(l, (source.path = strdup(path), source), e);
    free(path);
    return status;
}

int sources_include(struct source_list *l, size_t parent, unsigned line, const char *text,
                    struct error *e)
{
    const struct source source = {
        .parent = parent, .line = line, .depth = l->items[parent].depth + 1};
    if (source.depth > CONFIG_DEPTH_MAX)
        return error_set(e, ERR_INVALID, "files include files more than %u deep", CONFIG_DEPTH_MAX);
    char **words = argv_split(text, e);
    int status = words ? 0 : -1;
    for (size_t i = 0; status == 0 && words[i]; i++)
        status = add_word(l, source, words[i], e);
    free(words);
    return status;
}

/* ---- reading ---- */

static size_t add_link(const struct source_list *l, size_t at, char *chain, size_t size)
{
    char buf[SHOWN_SIZE];
    const char *path = l->items[at].path;
    size_t n = strlen(path), from = n > CHAIN_PATH ? n - CHAIN_PATH : 0;
    int k = snprintf(chain, size, "%s%s -> ", from ? "..." : "", shown(path + from, n - from, buf));
    return k > 0 && (size_t)k < size ? (size_t)k : 0;
}

/* The file at `at` is the one at `first`, which has led to it. */
static int fail_cycle(const struct source_list *l, size_t first, size_t at, struct error *e)
{
    char chain[480] = "";
    size_t links[CONFIG_DEPTH_MAX + 2], count = 0, used = 0;
    links[count++] = first;
    for (size_t i = l->items[at].parent; i != first && count < CONFIG_DEPTH_MAX + 2;
         i = l->items[i].parent)
        links[count++] = i;
    used += add_link(l, first, chain, sizeof chain);
    while (count-- > 1)
        used += add_link(l, links[count], chain + used, sizeof chain - used);
    if (add_link(l, first, chain + used, sizeof chain - used) > 0)
        chain[strlen(chain) - 4] = '\0';
    return error_set(e, ERR_INVALID, "a file includes itself: %s", chain);
}

static bool is_ancestor(const struct source_list *l, size_t of, size_t at)
{
    for (;; of = l->items[of].parent) {
        if (of == at)
            return true;
        if (of == 0)
            return false;
    }
}

/* Was the same file read before? */
static int check_again(const struct source_list *l, size_t at, struct error *e)
{
    const struct source *s = &l->items[at];
    for (size_t i = 0; i < at; i++) {
        const struct source *other = &l->items[i];
        if (!other->is_known || other->dev != s->dev || other->ino != s->ino)
            continue;
        if (is_ancestor(l, s->parent, i))
            return fail_cycle(l, i, at, e);
        return error_set(e, ERR_INVALID, "%s is included a second time; first at %s:%u",
                         shown_file(s->path), shown_file(l->items[other->parent].path),
                         other->line);
    }
    return 0;
}

int sources_read(struct source_list *l, size_t at, struct strbuf *to, struct error *e)
{
    struct source *s = &l->items[at];
    struct error own = {0};
    int status = files_read(l->files, s->path, to, &s->dev, &s->ino, &own);
    if (status < 0 && s->is_optional && (own.sys == ENOENT || own.sys == ENOTDIR))
        return 0;
    if (status == 0) {
        s->is_known = true;
        l->bytes += to->len;
        if (l->bytes > CONFIG_FILES_ALL_MAX)
            status = error_set(&own, ERR_INVALID, "all files together are longer than 16M");
        else
            status = check_again(l, at, &own);
    }
    if (status < 0) {
        if (at > 0)
            fail_at_parent(l, s, &own);
        if (e)
            *e = own;
    }
    return status;
}

void sources_free(struct source_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->items[i].path);
    free(l->items);
    *l = (struct source_list){0};
}
