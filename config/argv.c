/*
 * Shell-like quoting: a text -> the words of an argv. It quotes as sh(1) does and expands nothing,
 * so a line that works in a shell without $, globs and redirections means the same here. An argv is
 * one block of memory, the pointers first, so that it is freed and bounded as one.
 */
#include "config/config_internal.h"

#include <stdlib.h>
#include <string.h>

/* Where the words go: counted and measured in a first pass (to NULL), written in a second one. */
struct words {
    const char *at;
    char *to;
    size_t bytes; /* NULs included */
    size_t count;
    char **items; /* NULL in the first pass */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

static void put(struct words *w, char c)
{
    if (w->to)
        w->to[w->bytes] = c;
    w->bytes++;
}

/* The text behind an opening quote; steps behind the closing one. */
static int take_single(struct words *w, struct error *e)
{
    for (; *w->at && *w->at != '\''; w->at++)
        put(w, *w->at);
    if (!*w->at)
        return error_set(e, ERR_INVALID, "a single quote (') is not closed");
    w->at++;
    return 0;
}

static int take_double(struct words *w, struct error *e)
{
    for (; *w->at && *w->at != '"'; w->at++) {
        if (*w->at == '\\' && w->at[1] == '\n') {
            w->at++;
            continue;
        }
        if (*w->at == '\\' && w->at[1] && strchr("\"\\$`", w->at[1]))
            w->at++;
        put(w, *w->at);
    }
    if (!*w->at)
        return error_set(e, ERR_INVALID, "a double quote (\") is not closed");
    w->at++;
    return 0;
}

static int take_escaped(struct words *w, struct error *e)
{
    char c = *w->at;
    if (!c)
        return error_set(e, ERR_INVALID, "a backslash stands at the end, with nothing to quote");
    w->at++;
    if (c != '\n')
        put(w, c);
    return 0;
}

static int take_word(struct words *w, struct error *e)
{
    size_t start = w->bytes;
    if (w->items)
        w->items[w->count] = w->to + start;
    while (*w->at && !is_blank(*w->at)) {
        char c = *w->at++;
        int status = 0;
        if (c == '\'')
            status = take_single(w, e);
        else if (c == '"')
            status = take_double(w, e);
        else if (c == '\\')
            status = take_escaped(w, e);
        else
            put(w, c);
        if (status < 0)
            return -1;
    }
    if (w->bytes - start > CONFIG_ARG_MAX)
        return error_set(e, ERR_INVALID, "a word is longer than %zu bytes (execve(2))",
                         CONFIG_ARG_MAX);
    put(w, '\0');
    w->count++;
    return 0;
}

/* Blanks between words, and line ends that a backslash takes away. */
static void skip_blanks(struct words *w)
{
    for (;;) {
        if (is_blank(*w->at))
            w->at++;
        else if (w->at[0] == '\\' && w->at[1] == '\n')
            w->at += 2;
        else
            return;
    }
}

static int take_words(struct words *w, struct error *e)
{
    for (skip_blanks(w); *w->at; skip_blanks(w))
        if (take_word(w, e) < 0)
            return -1;
    return 0;
}

char **argv_split(const char *text, struct error *e)
{
    struct words first = {.at = text};
    if (take_words(&first, e) < 0)
        return NULL;
    char **argv = malloc((first.count + 1) * sizeof *argv + first.bytes);
    if (!argv) {
        error_set(e, ERR_MEMORY, "out of memory");
        return NULL;
    }
    struct words second = {.at = text, .to = (char *)(argv + first.count + 1), .items = argv};
    take_words(&second, NULL);
    argv[first.count] = NULL;
    return argv;
}

char **argv_split_list(const char *text, struct error *e)
{
    char *plain = strdup(text);
    if (!plain) {
        error_set(e, ERR_MEMORY, "out of memory");
        return NULL;
    }
    for (char *p = plain; *p; p++)
        *p = *p == ',' ? ' ' : *p;
    char **words = argv_split(plain, e);
    free(plain);
    return words;
}

size_t argv_count(char *const *argv)
{
    size_t n = 0;
    while (argv && argv[n])
        n++;
    return n;
}

char **argv_copy(char *const *argv)
{
    size_t count = argv_count(argv), bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(argv[i]) + 1;
    char **copy = malloc((count + 1) * sizeof *copy + bytes);
    if (!copy)
        return NULL;
    char *to = (char *)(copy + count + 1);
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(argv[i]) + 1;
        copy[i] = memcpy(to, argv[i], n);
        to += n;
    }
    copy[count] = NULL;
    return copy;
}

bool argv_equal(char *const *a, char *const *b)
{
    if (!a || !b)
        return a == b;
    size_t n = argv_count(a);
    if (n != argv_count(b))
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(a[i], b[i]) != 0)
            return false;
    return true;
}
