/*
 * Files of NAME=VALUE lines, as docker's --env-file and systemd's EnvironmentFile= have them. Empty
 * lines and those that start with '#' or ';' don't count; "export " before a name doesn't either. A
 * value in '…' stands as it is, one in "…" may hold \" \\ \$ \` and \n; a plain one ends at the
 * line's end, without the blanks there, and everything in it is a byte. Nothing is expanded. A
 * quoted value may go over several lines.
 */
#include "config/config_internal.h"

#include "base/number.h"

#include <string.h>

struct env_reader {
    const char *at, *end;
    unsigned line;
    struct strbuf name, value;
};

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

/* A name that comes again stands for its last value. */
static int assign(struct env_list *to, const char *name, const char *value, struct error *e)
{
    long at = env_list_find(to, name, 0);
    if (at < 0)
        return env_list_add(to, name, value, e);
    return env_list_replace(to, (size_t)at, name, value, e);
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
    return assign(to, strbuf_text(&r->name), strbuf_text(&r->value), e);
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

int env_file_parse(const char *file, const char *bytes, size_t n, struct env_list *to,
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
