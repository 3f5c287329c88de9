/*
 * Patterns of file names, in the last part of a path only, so that one folder is looked at and not
 * a tree. The matcher goes back to the last '*' alone, which is enough and never takes more than
 * length times length steps.
 */
#include "config/config_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool is_pattern(const char *text)
{
    return strpbrk(text, "*?[") != NULL;
}

/* The set behind a '[': whether c is in it, and *end behind its ']'. Without a ']' it is no set:
 * false, and *end NULL. */
static bool set_holds(const char *set, unsigned char c, const char **end)
{
    bool is_negated = *set == '!' || *set == '^', holds = false;
    const char *p = set + is_negated, *first = p;
    for (; *p && (*p != ']' || p == first); p++) {
        unsigned char from = (unsigned char)*p, to = from;
        if (p[1] == '-' && p[2] && p[2] != ']') {
            to = (unsigned char)p[2];
            p += 2;
        }
        holds = holds || (from <= c && c <= to);
    }
    *end = *p ? p + 1 : NULL;
    return *p && holds != is_negated;
}

/* One character of the name and what stands at the pattern; NULL if they don't fit, else behind
 * it. */
static const char *fit_one(const char *pattern, char c)
{
    const char *end;
    if (*pattern == '?')
        return pattern + 1;
    if (*pattern == '[') {
        bool holds = set_holds(pattern + 1, (unsigned char)c, &end);
        if (end)
            return holds ? end : NULL;
    }
    return *pattern == c ? pattern + 1 : NULL;
}

bool pattern_fits(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    if (name[0] == '.' && pattern[0] != '.')
        return false;
    while (*name) {
        const char *next;
        if (*pattern == '*') {
            star = ++pattern;
            from = name;
        } else if ((next = fit_one(pattern, *name))) {
            pattern = next;
            name++;
        } else if (star) {
            pattern = star;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

/* ---- a folder ---- */

/* Append FOLDER/NAME and a NUL for each entry that fits; -1 with *e. */
static int collect(DIR *dir, const char *folder, size_t folder_n, const char *pattern,
                   struct strbuf *to, struct error *e)
{
    size_t looked_at = 0;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (++looked_at > CONFIG_FOLDER_MAX)
            return error_set(e, ERR_INVALID, "%.*s has more than %zu entries",
                             (int)(folder_n < 200 ? folder_n : 200), folder, CONFIG_FOLDER_MAX);
        if (!pattern_fits(pattern, entry->d_name))
            continue;
        if (strbuf_add(to, folder, folder_n) < 0 ||
            strbuf_add(to, entry->d_name, strlen(entry->d_name) + 1) < 0)
            return error_set(e, ERR_MEMORY, "out of memory");
        if (to->len > CONFIG_FILE_MAX)
            return error_set(e, ERR_INVALID, "%.*s: the paths are longer than 4M together",
                             (int)(folder_n < 200 ? folder_n : 200), folder);
    }
    return 0;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **pattern_sort(const char *texts, size_t n, struct error *e)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += texts[i] == '\0';
    const char **items = calloc(count + 1, sizeof *items);
    char **argv = NULL;
    for (size_t i = 0; items && i < count; i++) {
        items[i] = texts;
        texts += strlen(texts) + 1;
    }
    if (items) {
        qsort(items, count, sizeof *items, compare_texts);
        argv = argv_copy((char *const *)items);
    }
    free(items);
    if (!argv)
        error_set(e, ERR_MEMORY, "out of memory");
    return argv;
}

int pattern_list(const char *path, struct strbuf *to, struct error *e)
{
    const char *slash = strrchr(path, '/');
    size_t folder_n = slash ? (size_t)(slash - path) + 1 : 0;
    char folder[4096] = ".";
    if (folder_n >= sizeof folder)
        return error_set(e, ERR_INVALID, "%s: the path is too long", shown_file(path));
    if (slash) {
        memcpy(folder, path, folder_n);
        folder[folder_n] = '\0';
    }
    DIR *dir = opendir(folder);
    if (!dir && errno != ENOENT && errno != ENOTDIR)
        return error_set_sys(e, errno, "%s", shown_file(folder));
    int status = dir ? collect(dir, path, folder_n, path + folder_n, to, e) : 0;
    if (dir)
        closedir(dir);
    return status;
}

char **pattern_expand(const char *path, struct error *e)
{
    CLEANUP_STRBUF struct strbuf texts = {0};
    return pattern_list(path, &texts, e) < 0 ? NULL : pattern_sort(texts.data, texts.len, e);
}
