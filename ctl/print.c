/* Showing records. Nothing here knows a verb. */
#include "ctl/print.h"

#include "base/base64.h"
#include "base/json.h"
#include "control/record_json.h"
#include "ctl/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON -------------------------------------------------------------------------------- */

static int add_base64(struct strbuf *to, const char *bytes, size_t n)
{
    char *at = strbuf_reserve(to, BASE64_SIZE(n));
    if (!at)
        return -1;
    to->len += base64_encode(at, bytes, n);
    return 0;
}

int json_add_output(struct strbuf *to, const char *key, const char *bytes, size_t n)
{
    if (utf8_is_valid(bytes, n))
        return strbuf_addf(to, "\"%s\":", key) | json_add_string(to, bytes, n);
    return strbuf_addf(to, "\"%s_base64\":\"", key) | add_base64(to, bytes, n) |
           strbuf_adds(to, "\"");
}

static void print_object(const struct strbuf *record, const char *end)
{
    CLEANUP_STRBUF struct strbuf json = {0};
    if (record_to_json(&json, strbuf_text(record), record->len) == 0)
        printf("{%s}%s", strbuf_text(&json), end);
    else
        fprintf(stderr, "sandboxctl: no memory for the answer\n");
}

void print_record_json(const struct strbuf *record)
{
    print_object(record, "\n");
}

void print_rows_json(const struct answer *answer)
{
    printf("[");
    for (size_t i = 0; i < answer->row_count; i++) {
        printf(i > 0 ? ",\n " : "");
        print_object(&answer->rows[i], "");
    }
    printf("]\n");
}

void print_error_json(const struct error *e)
{
    CLEANUP_STRBUF struct strbuf message = {0};
    if (json_add_string(&message, e->text, strlen(e->text)) == 0)
        printf("{\"error\":{\"code\":\"%s\",\"errno\":%d,\"message\":%s}}\n",
               error_code_name(e->code), e->sys, strbuf_text(&message));
}

int json_add_with_rows(struct strbuf *to, const struct answer *answer, const char *key)
{
    int rc = strbuf_adds(to, "{") |
             record_to_json(to, strbuf_text(&answer->result), answer->result.len) |
             strbuf_addf(to, ",\"%s\":[", key);
    for (size_t i = 0; i < answer->row_count; i++) {
        const struct strbuf *row = &answer->rows[i];
        rc |= strbuf_adds(to, i ? ",{" : "{") | record_to_json(to, strbuf_text(row), row->len) |
              strbuf_adds(to, "}");
    }
    return rc | strbuf_adds(to, "]}");
}

/* ---- text -------------------------------------------------------------------------------- */

const char *field_text(const struct strbuf *record, const char *key)
{
    const char *value = record_get(strbuf_text(record), record->len, key);
    return value ? value : "";
}

/* A value from a sandbox may hold terminal escapes: show them, don't send them. */
static void add_safe(struct strbuf *to, const char *value)
{
    for (const unsigned char *p = (const unsigned char *)value; *p; p++) {
        if (*p == '\n')
            strbuf_adds(to, "\\n");
        else if (*p == '\t')
            strbuf_adds(to, "\\t");
        else if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0))
            strbuf_addf(to, "\\x%02x", *p);
        else
            strbuf_add(to, p, 1);
    }
}

/* One value, safe for a terminal, without a newline. */
static void print_value(const char *value)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    add_safe(&text, value);
    fputs(strbuf_text(&text), stdout);
}

void print_started(const struct strbuf *result)
{
    printf("%s %s\n", field_text(result, "id"), field_text(result, "pid"));
}

void print_message(const char *verb, const char *text)
{
    CLEANUP_STRBUF struct strbuf safe = {0};
    add_safe(&safe, text);
    output_say("sandboxctl%s%s: %s\n", *verb ? " " : "", verb, strbuf_text(&safe));
}

/* 4.2 -> "4.2s", 4000 -> "1h06m" */
static void add_seconds(struct strbuf *to, const char *value)
{
    double s = strtod(value, NULL);
    unsigned long whole = s > 0 ? (unsigned long)s : 0;
    if (s < 60)
        strbuf_addf(to, "%.1fs", s);
    else if (whole < 3600)
        strbuf_addf(to, "%lum%02lus", whole / 60, whole % 60);
    else if (whole < 86400)
        strbuf_addf(to, "%luh%02lum", whole / 3600, whole / 60 % 60);
    else
        strbuf_addf(to, "%lud%02luh", whole / 86400, whole / 3600 % 24);
}

static bool is_seconds(const char *key)
{
    size_t n = strlen(key);
    return n > 2 && strcmp(key + n - 2, "_s") == 0;
}

static void add_cell(struct strbuf *to, const struct strbuf *row, const char *key)
{
    const char *value = field_text(row, key);
    bool is_no_pid = strcmp(key, "pid") == 0 && strcmp(value, "0") == 0;
    if (!*value || is_no_pid)
        strbuf_adds(to, "-");
    else if (is_seconds(key))
        add_seconds(to, value);
    else
        add_safe(to, value);
}

/* Columns of a terminal that a text takes, if every character takes one. */
static size_t width_of(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void print_cells(struct strbuf *cells, const size_t *widths, size_t count)
{
    for (size_t c = 0; c < count; c++) {
        const char *text = strbuf_text(&cells[c]);
        size_t width = width_of(text);
        fputs(text, stdout);
        if (c + 1 < count)
            printf("%*s", (int)(widths[c] - width + 2), "");
        strbuf_free(&cells[c]);
    }
    printf("\n");
}

#define COLUMNS_MAX 16

static void fill_cells(struct strbuf *cells, const struct column *columns, size_t count,
                       const struct strbuf *row, const char *indent_key, const char *indent_by)
{
    memset(cells, 0, COLUMNS_MAX * sizeof *cells);
    for (size_t c = 0; c < count; c++) {
        if (!row) {
            strbuf_adds(&cells[c], columns[c].heading);
            continue;
        }
        if (indent_key && strcmp(columns[c].key, indent_key) == 0) {
            unsigned long depth = strtoul(field_text(row, indent_by), NULL, 10);
            strbuf_addf(&cells[c], "%*s", (int)(depth < 40 ? 2 * depth : 80), "");
        }
        add_cell(&cells[c], row, columns[c].key);
    }
}

void print_table(const struct column *columns, const struct answer *answer, const char *indent_key,
                 const char *indent_by)
{
    struct strbuf cells[COLUMNS_MAX];
    size_t widths[COLUMNS_MAX] = {0};
    size_t count = 0;
    while (count < COLUMNS_MAX && columns[count].heading)
        count++;
    for (size_t i = 0; i <= answer->row_count; i++) { /* 0: the headings */
        const struct strbuf *row = i > 0 ? &answer->rows[i - 1] : NULL;
        fill_cells(cells, columns, count, row, indent_key, indent_by);
        for (size_t c = 0; c < count; c++) {
            size_t width = width_of(strbuf_text(&cells[c]));
            widths[c] = width > widths[c] ? width : widths[c];
            strbuf_free(&cells[c]);
        }
    }
    for (size_t i = 0; i <= answer->row_count; i++) {
        const struct strbuf *row = i > 0 ? &answer->rows[i - 1] : NULL;
        fill_cells(cells, columns, count, row, indent_key, indent_by);
        print_cells(cells, widths, count);
    }
}

void print_lines(const struct strbuf *record)
{
    struct field f, previous = {0};
    size_t at = 0;
    while (record_next(strbuf_text(record), record->len, &at, &f) > 0) {
        size_t n = field_is_list(&f) ? f.key_len - 2 : f.key_len;
        if (!field_is_list(&f))
            printf("%.*s: ", (int)n, f.key);
        else if (!previous.key || !field_is_same(&f, &previous))
            printf("%.*s:\n  ", (int)n, f.key);
        else
            printf("  ");
        print_value(f.value);
        printf("\n");
        previous = f;
    }
}
