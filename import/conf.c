/* The reader follows configparser.RawConfigParser._read() of Python 3 line by line. */
#include "import/conf.h"

#include "base/strbuf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((size_t)4 << 20) /* of a file */
#define FILES_MAX 1000

struct reader {
    struct conf *conf;
    const char *file;
    unsigned line;
    char *section;     /* of the last header; NULL: none yet */
    size_t key_indent; /* of the line that the present value began in */
    bool has_value;    /* lines can continue it */
    char *key;
    unsigned value_line;
    struct strbuf value;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static void trim(const char **text, size_t *n)
{
    while (*n > 0 && is_blank(**text)) {
        ++*text;
        --*n;
    }
    while (*n > 0 && is_blank((*text)[*n - 1]))
        --*n;
}

static struct conf_setting *find(const struct conf *c, const char *section, const char *key)
{
    for (size_t i = 0; i < c->count; i++) {
        struct conf_setting *s = &c->items[i];
        if (strcmp(s->section, section) == 0 &&
            (key ? s->key && strcmp(s->key, key) == 0 : !s->key))
            return s;
    }
    return NULL;
}

const struct conf_setting *conf_find(const struct conf *c, const char *section, const char *key)
{
    const struct conf_setting *s = find(c, section, key);
    return s || !key ? s : find(c, "DEFAULT", key);
}

/* Takes nothing over: section, key and value are copied. A key that is there gets the new value. */
static int put(struct reader *r, const char *key, const char *value, unsigned line, struct error *e)
{
    struct conf *c = r->conf;
    struct conf_setting *s = find(c, r->section, key);
    if (!s && c->count == c->room) {
        size_t room = c->room ? 2 * c->room : 64;
        struct conf_setting *items = realloc(c->items, room * sizeof *items);
        if (!items)
            return error_set(e, ERR_MEMORY, "out of memory");
        c->items = items;
        c->room = room;
    }
    if (!s) {
        s = &c->items[c->count];
        *s = (struct conf_setting){.section = strdup(r->section), .key = key ? strdup(key) : NULL};
        if (!s->section || (key && !s->key)) {
            free(s->section);
            free(s->key);
            return error_set(e, ERR_MEMORY, "out of memory");
        }
        c->count++;
    } else if (!key) {
        return 0; /* the section goes on */
    }
    char *copy = value ? strdup(value) : NULL;
    if (value && !copy)
        return error_set(e, ERR_MEMORY, "out of memory");
    free(s->value);
    s->value = copy;
    s->file = r->file;
    s->line = line;
    return 0;
}

/* The value that lines may have continued is complete. */
static int end_value(struct reader *r, struct error *e)
{
    int status = 0;
    if (r->has_value) {
        size_t n = r->value.len;
        while (n > 0 && (is_blank(r->value.data[n - 1]) || r->value.data[n - 1] == '\n'))
            n--;
        strbuf_cut(&r->value, n);
        status = put(r, r->key, strbuf_text(&r->value), r->value_line, e);
    }
    free(r->key);
    r->key = NULL;
    r->has_value = false;
    strbuf_clear(&r->value);
    return status;
}

static int begin_section(struct reader *r, const char *name, size_t n, struct error *e)
{
    free(r->section);
    r->section = strndup(name, n);
    if (!r->section)
        return error_set(e, ERR_MEMORY, "out of memory");
    return put(r, NULL, NULL, r->line, e);
}

static int begin_value(struct reader *r, const char *text, size_t n, struct error *e)
{
    size_t end = 0;
    while (end < n && text[end] != '=' && text[end] != ':')
        end++;
    const char *value = text + end + 1;
    size_t key_n = end, value_n = end < n ? n - end - 1 : 0;
    trim(&text, &key_n);
    if (end == n || key_n == 0)
        return error_set(e, ERR_INVALID, "neither '[section]' nor 'key = value'");
    trim(&value, &value_n);
    r->key = strndup(text, key_n);
    if (!r->key || strbuf_add(&r->value, value, value_n) < 0)
        return error_set(e, ERR_MEMORY, "out of memory");
    for (char *p = r->key; *p; p++)
        *p = *p >= 'A' && *p <= 'Z' ? (char)(*p - 'A' + 'a') : *p;
    r->value_line = r->line;
    r->has_value = true;
    return 0;
}

/* Bytes of a line before its comment; *has_comment says whether there is one. */
static size_t without_comment(const char *line, size_t n, bool *has_comment)
{
    for (size_t i = 0; i < n; i++)
        if ((line[i] == ';' || line[i] == '#') && (i == 0 || is_blank(line[i - 1]))) {
            *has_comment = true;
            return i;
        }
    *has_comment = false;
    return n;
}

static int take_line(struct reader *r, const char *line, size_t n, struct error *e)
{
    bool has_comment;
    size_t indent = 0;
    while (indent < n && is_blank(line[indent]))
        indent++;
    const char *text = line;
    size_t text_n = without_comment(line, n, &has_comment);
    trim(&text, &text_n);
    if (text_n == 0) {
        if (r->has_value && !has_comment && strbuf_adds(&r->value, "\n") < 0)
            return error_set(e, ERR_MEMORY, "out of memory");
        return 0;
    }
    if (r->has_value && indent > r->key_indent) {
        if (strbuf_adds(&r->value, "\n") < 0 || strbuf_add(&r->value, text, text_n) < 0)
            return error_set(e, ERR_MEMORY, "out of memory");
        return 0;
    }
    if (end_value(r, e) < 0)
        return -1;
    r->key_indent = indent;
    const char *close = text[0] == '[' ? memrchr(text, ']', text_n) : NULL;
    if (close && close > text + 1)
        return begin_section(r, text + 1, (size_t)(close - text) - 1, e);
    if (!r->section)
        return error_set(e, ERR_INVALID, "text before the first [section]");
    return begin_value(r, text, text_n, e);
}

static int take_file(struct reader *r, FILE *f, struct error *e)
{
    char *line = NULL;
    size_t room = 0, total = 0;
    ssize_t n;
    int status = 0;
    while (status == 0 && (n = getline(&line, &room, f)) >= 0) {
        r->line++;
        total += (size_t)n;
        if (n > 0 && line[n - 1] == '\n')
            n--;
        if (total > BYTES_MAX)
            status = error_set(e, ERR_INVALID, "the file is longer than 4M");
        else if (memchr(line, '\0', (size_t)n))
            status = error_set(e, ERR_INVALID, "a NUL byte");
        else
            status = take_line(r, line, (size_t)n, e);
    }
    free(line);
    if (status == 0 && ferror(f))
        status = error_set_sys(e, errno, "read");
    return status == 0 ? end_value(r, e) : status;
}

static const char *add_file(struct conf *c, const char *path, struct error *e)
{
    char **files = NULL;
    char *copy = strdup(path);
    if (c->file_count == FILES_MAX)
        error_set(e, ERR_LIMIT, "more than %d files", FILES_MAX);
    else if (!copy || !(files = realloc(c->files, (c->file_count + 1) * sizeof *files)))
        error_set(e, ERR_MEMORY, "out of memory");
    if (!files) {
        free(copy);
        return NULL;
    }
    c->files = files;
    return files[c->file_count++] = copy;
}

int conf_read(struct conf *c, const char *path, struct error *e)
{
    struct reader r = {.conf = c, .file = add_file(c, path, e), .value = {.limit = BYTES_MAX}};
    if (!r.file)
        return error_wrap(e, "%s", path);
    FILE *f = fopen(path, "re");
    int status = f ? take_file(&r, f, e) : error_set_sys(e, errno, "%s", path);
    if (status < 0 && r.line)
        error_wrap(e, "%s:%u", path, r.line);
    else if (status < 0 && f)
        error_wrap(e, "%s", path);
    if (f)
        fclose(f);
    free(r.section);
    free(r.key);
    strbuf_free(&r.value);
    return status;
}

void conf_free(struct conf *c)
{
    for (size_t i = 0; i < c->count; i++) {
        free(c->items[i].section);
        free(c->items[i].key);
        free(c->items[i].value);
    }
    for (size_t i = 0; i < c->file_count; i++)
        free(c->files[i]);
    free(c->items);
    free(c->files);
    *c = (struct conf){0};
}
