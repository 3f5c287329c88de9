/*
 * From bytes to (section, key, value, line), through libinih.
 *
 * The packaged library cuts values at " ;", folds indented lines into several values, splits lines
 * at 200 bytes, stops at NUL and gives no line number. So it only ever sees short lines that this
 * reader makes: "[#3]" for the third section and "name = #7" for the seventh value. What stands
 * behind the numbers is kept here, byte for byte, in one slot for the section and one for the
 * value: the library calls the handler before it asks for the next line, and on_library_value()
 * checks section, name and number, so a line that it loses, cuts or doubles is an error.
 *
 * The format: comments are whole lines that start with '#' or ';', perhaps after blanks. A section
 * or key starts at the beginning of its line. An indented line continues the value above it: a
 * newline and its text, without the indentation that the first such line has, so that a script
 * keeps its shape. Blanks at the ends of lines don't count. Empty lines inside a continued value
 * stay. Nothing else in a value has a meaning: no quotes, no '%', no escapes.
 */
#include "config/config_internal.h"

#include "base/strbuf.h"

#include <ini.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY_LINE_MAX (CONFIG_KEY_MAX + 32) /* bytes of a line made for the library */

struct line {
    const char *text; /* without CR, LF and blanks at its end */
    size_t n;
    size_t indent; /* leading blanks */
};

enum scan { SCAN_LINE, SCAN_END, SCAN_BAD };

struct reader {
    const char *file;
    const char *bytes;
    size_t n;
    size_t at;       /* where the next line starts */
    unsigned number; /* of the last line scanned, from 1 */

    /* The two slots. */
    unsigned section_id; /* 0 before the first section */
    unsigned value_id;
    unsigned value_line;
    char key[CONFIG_KEY_MAX + 1];
    struct strbuf value;

    unsigned delivered; /* values that came back from the library */
    const struct ini_sink *sink;
    bool has_failed; /* *e is set; nothing more is read */
    struct error *e;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* ---- lines ---- */

/* Scan the line at r->at and step behind it. SCAN_BAD: *why says what is wrong with it. */
static enum scan scan_line(struct reader *r, struct line *line, const char **why)
{
    if (r->at >= r->n)
        return SCAN_END;
    const char *start = r->bytes + r->at;
    const char *lf = memchr(start, '\n', r->n - r->at);
    size_t n = r->n - r->at;
    if (lf)
        n = (size_t)(lf - start);
    r->at += lf ? n + 1 : n;
    r->number++;
    if (n > 0 && start[n - 1] == '\r') /* case Z8 */
        n--;
    if (n > CONFIG_LINE_MAX) {
        *why = "the line is longer than 64K";
        return SCAN_BAD;
    }
    if (memchr(start, '\0', n)) {
        *why = "the line holds a NUL byte";
        return SCAN_BAD;
    }
    while (n > 0 && is_blank(start[n - 1]))
        n--;
    size_t indent = 0;
    while (indent < n && is_blank(start[indent]))
        indent++;
    *line = (struct line){.text = start, .n = n, .indent = indent};
    return SCAN_LINE;
}

/* Nothing on it, or a comment (cases Z2, Z5: comments are whole lines only). */
static bool line_is_comment(const struct line *line)
{
    return line->n > line->indent &&
           (line->text[line->indent] == '#' || line->text[line->indent] == ';');
}

static bool line_is_empty(const struct line *line)
{
    return line->n == line->indent;
}

/* ---- failing ---- */

static int fail(struct reader *r, unsigned line)
{
    r->has_failed = true;
    return error_wrap(r->e, "%s:%u", r->file, line);
}

static int fail_text(struct reader *r, unsigned line, const char *why)
{
    error_set(r->e, ERR_INVALID, "%s", why);
    return fail(r, line);
}

static int value_append(struct reader *r, const char *text, size_t n)
{
    if (n > CONFIG_VALUE_MAX - r->value.len) {
        error_set(r->e, ERR_INVALID, "the value of '%s' is longer than 1M", r->key);
        return fail(r, r->number);
    }
    if (strbuf_add(&r->value, text, n) < 0) {
        error_set(r->e, ERR_MEMORY, "out of memory");
        return fail(r, r->number);
    }
    return 0;
}

/* ---- sections and keys ---- */

static int read_section(struct reader *r, const struct line *line)
{
    char name[CONFIG_KEY_MAX + 1];
    const char *end = memchr(line->text, ']', line->n);
    if (!end)
        return fail_text(r, r->number, "the section's ']' is missing");
    if ((size_t)(end - line->text) + 1 != line->n)
        return fail_text(r, r->number, "text after the section's ']'");
    size_t n = line->n - 2;
    if (n > CONFIG_KEY_MAX)
        return fail_text(r, r->number, "the section's name is longer than 128 bytes");
    memcpy(name, line->text + 1, n);
    name[n] = '\0';
    r->section_id++;
    if (r->sink->on_section(r->sink->context, name, r->number, r->e) < 0)
        return fail(r, r->number);
    return 0;
}

/* The library splits at ':' too and takes some bytes for comments, so only letters, digits,
 * '_', '.' and '-' ever get there. */
static bool is_key_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

static int read_key(struct reader *r, const struct line *line, const char *equals)
{
    char buf[SHOWN_SIZE];
    size_t n = (size_t)(equals - line->text);
    while (n > 0 && is_blank(line->text[n - 1]))
        n--;
    if (n == 0)
        return fail_text(r, r->number, "no key before the '='");
    if (n > CONFIG_KEY_MAX)
        return fail_text(r, r->number, "the key is longer than 128 bytes");
    for (size_t i = 0; i < n; i++) {
        if (is_key_byte(line->text[i]))
            continue;
        error_set(r->e, ERR_INVALID,
                  "bad key '%s': only letters, digits, '_', '.' and '-' make a key",
                  shown(line->text, n, buf));
        return fail(r, r->number);
    }
    memcpy(r->key, line->text, n);
    r->key[n] = '\0';
    return 0;
}

/* How much of a continuation line is indentation: as much as the first one has, or all its blanks
 * where they are fewer or others. */
static size_t indent_to_drop(const struct line *first, const struct line *line)
{
    if (line->indent >= first->indent && memcmp(first->text, line->text, first->indent) == 0)
        return first->indent;
    return line->indent;
}

/* Join the indented lines that follow to the value. The first line that is not one of them stays
 * to be read, a bad one too: its complaint has to wait until the value above was looked at. */
static int read_continuation(struct reader *r)
{
    struct line line, first = {0};
    const char *why;
    size_t empty_lines = 0;
    for (;;) {
        size_t at = r->at;
        unsigned number = r->number;
        enum scan scan = scan_line(r, &line, &why);
        if (scan == SCAN_LINE && line_is_comment(&line))
            continue;
        if (scan == SCAN_LINE && line_is_empty(&line)) {
            empty_lines++;
            continue;
        }
        if (scan != SCAN_LINE || line.indent == 0) {
            r->at = at;
            r->number = number;
            return 0;
        }
        if (!first.text)
            first = line;
        /* "key =" with its text on the lines below starts without an empty line. */
        size_t newlines = r->value.len > 0 ? empty_lines + 1 : 0;
        for (; newlines > 0; newlines--)
            if (value_append(r, "\n", 1) < 0)
                return -1;
        size_t skip = indent_to_drop(&first, &line);
        if (value_append(r, line.text + skip, line.n - skip) < 0)
            return -1;
        empty_lines = 0;
    }
}

static int read_value(struct reader *r, const struct line *line)
{
    const char *equals = memchr(line->text, '=', line->n);
    if (!equals)
        return fail_text(r, r->number, "neither 'key = value' nor '[section]'");
    if (read_key(r, line, equals) < 0)
        return -1;
    const char *text = equals + 1, *end = line->text + line->n;
    while (text < end && is_blank(*text))
        text++;
    r->value_id++;
    r->value_line = r->number;
    strbuf_clear(&r->value);
    if (value_append(r, text, (size_t)(end - text)) < 0)
        return -1;
    return read_continuation(r);
}

/* ---- the library's two callbacks ---- */

/* An fgets() for libinih: the next section or value as a line of ours, NULL at the end. */
static char *on_library_read(char *to, int size, void *stream)
{
    struct reader *r = stream;
    struct line line;
    const char *why = NULL;
    enum scan scan = SCAN_END;
    int n;
    if (r->has_failed)
        return NULL;
    do
        scan = scan_line(r, &line, &why);
    while (scan == SCAN_LINE && (line_is_empty(&line) || line_is_comment(&line)));
    if (scan == SCAN_END)
        return NULL;
    if (scan == SCAN_BAD) {
        fail_text(r, r->number, why);
        return NULL;
    }
    if (line.indent > 0) {
        fail_text(r, r->number, "an indented line continues a value, and there is none above");
        return NULL;
    }
    if (size < (int)LIBRARY_LINE_MAX) {
        r->has_failed = true;
        error_set(r->e, ERR_SYSTEM, "%s: the ini library takes only %d bytes a line", r->file,
                  size);
        return NULL;
    }
    if (line.text[0] == '[') {
        if (read_section(r, &line) < 0)
            return NULL;
        n = snprintf(to, (size_t)size, "[#%u]\n", r->section_id);
    } else {
        if (read_value(r, &line) < 0)
            return NULL;
        n = snprintf(to, (size_t)size, "%s = #%u\n", r->key, r->value_id);
    }
    return n > 0 && n < size ? to : NULL; /* a NULL here shows as a value not delivered */
}

/* True if text is "#id", or for id 0 the empty string (no section yet). */
static bool is_slot(const char *text, unsigned id)
{
    char want[16] = "";
    if (id > 0)
        snprintf(want, sizeof want, "#%u", id);
    return text && strcmp(text, want) == 0;
}

/* Non-zero to go on; the library counts a zero as an error at its own line number. */
static int on_library_value(void *user, const char *section, const char *name, const char *value)
{
    struct reader *r = user;
    if (r->has_failed)
        return 0;
    r->delivered++;
    if (!is_slot(section, r->section_id) || !is_slot(value, r->value_id) ||
        r->delivered != r->value_id || !name || strcmp(name, r->key) != 0) {
        error_set(r->e, ERR_SYSTEM, "the ini library gave back another line than it got");
        fail(r, r->value_line);
        return 0;
    }
    if (r->sink->on_value(r->sink->context, r->key, strbuf_text(&r->value), r->value_line, r->e) <
        0) {
        fail(r, r->value_line);
        return 0;
    }
    return 1;
}

int ini_read(const char *file, const char *bytes, size_t n, const struct ini_sink *sink,
             struct error *e)
{
    struct error ignored = {0};
    struct reader r = {
        .file = shown_file(file),
        .bytes = bytes,
        .n = n,
        .value = {.limit = CONFIG_VALUE_MAX},
        .sink = sink,
        .e = e ? e : &ignored,
    };
    if (n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) /* case Z8 */
        r.at = 3;
    int status = ini_parse_stream(on_library_read, &r, on_library_value, &r);
    if (!r.has_failed && status == -2) {
        r.has_failed = true;
        error_set(r.e, ERR_MEMORY, "%s: out of memory", r.file);
    } else if (!r.has_failed && (status != 0 || r.delivered != r.value_id || r.at < r.n)) {
        r.has_failed = true;
        error_set(r.e, ERR_SYSTEM, "%s: the ini library lost a line near line %u", r.file,
                  r.number);
    }
    strbuf_free(&r.value);
    return r.has_failed ? -1 : 0;
}
