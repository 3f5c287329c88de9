/*
 * The text of one value and its typed field: parse, copy, compare, free. The types that only
 * services have are in service_value.c. A value is parsed whole before the field is touched.
 * Complaints name the range, in the unit in which it is written.
 */
#include "config/config_internal.h"

#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(enum log_level) == sizeof(unsigned) &&
                   sizeof(enum log_format) == sizeof(unsigned) &&
                   sizeof(enum idle_action) == sizeof(unsigned) &&
                   sizeof(enum gateway_auth) == sizeof(unsigned) &&
                   sizeof(enum gateway_delete) == sizeof(unsigned) &&
                   sizeof(enum service_type) == sizeof(unsigned),
               "VALUE_WORD writes enums as unsigned");

/* ---- numbers ---- */

static const char *format_size(uint64_t bytes, char *buf, size_t size)
{
    static const char units[] = "KMG";
    size_t unit = 0;
    for (; bytes > 0 && bytes % 1024 == 0 && unit < 3; unit++)
        bytes /= 1024;
    snprintf(buf, size, "%llu%.1s", (unsigned long long)bytes, unit ? &units[unit - 1] : "");
    return buf;
}

static const char *format_number(enum value_type type, uint64_t n, char *buf, size_t size)
{
    if (type == VALUE_DURATION)
        return number_format_duration(n, buf, size);
    if (type == VALUE_SIZE)
        return format_size(n, buf, size);
    snprintf(buf, size, "%llu", (unsigned long long)n);
    return buf;
}

static int parse_number(const struct schema_row *row, const char *text, uint64_t *out,
                        struct error *e)
{
    char buf[SHOWN_SIZE], min[32], max[32];
    uint64_t n = 0;
    int status;
    const char *what;
    if (row->type == VALUE_DURATION) {
        status = number_parse_duration_ms(text, &n);
        what = "a duration such as 500ms, 5s, 10m or 1h";
    } else if (row->type == VALUE_SIZE) {
        status = number_parse_size(text, &n);
        what = "a size such as 65536, 64K, 10M or 1G";
    } else {
        status = number_parse_u64(text, UINT64_MAX, &n);
        what = "a whole number";
    }
    shown(text, strlen(text), buf);
    format_number(row->type, row->min, min, sizeof min);
    format_number(row->type, row->max, max, sizeof max);
    if (status < 0)
        return error_set(e, ERR_INVALID, "'%s' is not %s (%s to %s)", buf, what, min, max);
    if (n < row->min || n > row->max)
        return error_set(e, ERR_INVALID, "'%s' is out of range (%s to %s)", buf, min, max);
    *out = n;
    return 0;
}

/* ---- words ---- */

static const char *word_of_row(const void *context, size_t i)
{
    const struct schema_row *row = context;
    return row->words[i];
}

static int parse_word(const struct schema_row *row, const char *text, unsigned *out,
                      struct error *e)
{
    char buf[SHOWN_SIZE], list[64] = "";
    size_t used = 0;
    for (unsigned i = 0; row->words[i]; i++) {
        if (strcmp(row->words[i], text) == 0) {
            *out = i;
            return 0;
        }
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                     row->words[i]);
    }
    shown(text, strlen(text), buf);
    const char *nearest = nearest_word(text, word_of_row, row);
    return error_set(e, ERR_INVALID, "'%s' is not one of %s%s%s%s", buf, list,
                     nearest ? "; did you mean '" : "", nearest ? nearest : "",
                     nearest ? "'?" : "");
}

/* ---- texts ---- */

/* An absolute path, or a user's name or number; in both no control characters (a continuation
 * line that was not meant as one lands here), in a user no blanks either. Or any text. */
static int check_text(const struct schema_row *row, const char *text, struct error *e)
{
    char buf[SHOWN_SIZE];
    size_t n = strlen(text);
    if (row->type == VALUE_SANDBOX_ID || row->type == VALUE_ORIGIN)
        return row->type == VALUE_ORIGIN ? origin_check(text, e) : sandbox_id_check(text, e);
    shown(text, n, buf);
    if (n < row->min || n > row->max)
        return error_set(e, ERR_INVALID, "'%s' is %zu bytes long (%llu to %llu are possible)", buf,
                         n, (unsigned long long)row->min, (unsigned long long)row->max);
    for (size_t i = 0; i < n && row->type != VALUE_TEXT; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            return error_set(e, ERR_INVALID, "'%s' holds a %s", buf,
                             c == '\n' ? "newline (from an indented line below it)"
                                       : "control character");
        if (c == ' ' && row->type == VALUE_USER)
            return error_set(e, ERR_INVALID, "'%s' holds a blank", buf);
    }
    if (row->type == VALUE_PATH && text[0] != '/')
        return error_set(e, ERR_INVALID, "'%s' is not an absolute path", buf);
    return 0;
}

static int parse_rewrite(const char *text, struct signal_rewrite *out, struct error *e)
{
    struct signal_rewrite r = {0};
    if (signal_rewrite_add(&r, text, e) < 0)
        return -1;
    *out = r;
    return 0;
}

/* ---- all types ---- */

int value_parse(const struct schema_row *row, const char *text, void *field, struct error *e)
{
    if (text[0] == '\0' && row->type != VALUE_GROUPS)
        return error_set(e, ERR_INVALID, "the value is empty");
    switch (row->type) {
    case VALUE_PATH:
    case VALUE_USER:
    case VALUE_TEXT:
    case VALUE_SANDBOX_ID:
    case VALUE_ORIGIN:
        if (check_text(row, text, e) < 0)
            return -1;
        char *copy = strdup(text);
        if (!copy)
            return error_set(e, ERR_MEMORY, "out of memory");
        value_free(row, field);
        *(char **)field = copy;
        return 0;
    case VALUE_DURATION:
    case VALUE_SIZE:
    case VALUE_COUNT:
        return parse_number(row, text, field, e);
    case VALUE_WORD:
        return parse_word(row, text, field, e);
    case VALUE_REWRITE:
        return parse_rewrite(text, field, e);
    case VALUE_LISTEN:
        return listen_parse(text, field, e);
    case VALUE_ENV:
        break;
    default:
        return service_value_parse(row, text, field, e);
    }
    return error_set(e, ERR_INVALID, "not a single value");
}

int value_copy(const struct schema_row *row, void *to, const void *from, struct error *e)
{
    switch (row->type) {
    case VALUE_PATH:
    case VALUE_USER:
    case VALUE_TEXT:
    case VALUE_SANDBOX_ID:
    case VALUE_ORIGIN: {
        const char *text = *(char *const *)from;
        char *copy = text ? strdup(text) : NULL;
        if (text && !copy)
            return error_set(e, ERR_MEMORY, "out of memory");
        *(char **)to = copy;
        return 0;
    }
    case VALUE_DURATION:
    case VALUE_SIZE:
    case VALUE_COUNT:
        memcpy(to, from, sizeof(uint64_t));
        return 0;
    case VALUE_WORD:
        memcpy(to, from, sizeof(unsigned));
        return 0;
    case VALUE_REWRITE:
        memcpy(to, from, sizeof(struct signal_rewrite));
        return 0;
    case VALUE_LISTEN:
        return listen_copy(to, from, e);
    case VALUE_ENV:
        return env_list_merge(to, from, &(const struct env_list){0}, e);
    default:
        return service_value_copy(row, to, from, e);
    }
}

static bool env_lists_equal(const struct env_list *a, const struct env_list *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        long at = env_list_find(b, a->items[i], i);
        if (at < 0 || strcmp(a->items[i], b->items[at]) != 0)
            return false;
    }
    return true;
}

bool value_equal(const struct schema_row *row, const void *a, const void *b)
{
    switch (row->type) {
    case VALUE_PATH:
    case VALUE_USER:
    case VALUE_TEXT:
    case VALUE_SANDBOX_ID:
    case VALUE_ORIGIN: {
        const char *x = *(char *const *)a, *y = *(char *const *)b;
        return x && y ? strcmp(x, y) == 0 : x == y;
    }
    case VALUE_DURATION:
    case VALUE_SIZE:
    case VALUE_COUNT:
        return memcmp(a, b, sizeof(uint64_t)) == 0;
    case VALUE_WORD:
        return memcmp(a, b, sizeof(unsigned)) == 0;
    case VALUE_REWRITE:
        return memcmp(a, b, sizeof(struct signal_rewrite)) == 0;
    case VALUE_LISTEN:
        return argv_equal(((const struct name_list *)a)->items,
                          ((const struct name_list *)b)->items);
    case VALUE_ENV:
        return env_lists_equal(a, b);
    default:
        return service_value_equal(row, a, b);
    }
}

void value_free(const struct schema_row *row, void *field)
{
    switch (row->type) {
    case VALUE_PATH:
    case VALUE_USER:
    case VALUE_TEXT:
    case VALUE_SANDBOX_ID:
    case VALUE_ORIGIN:
        free(*(char **)field);
        *(char **)field = NULL;
        break;
    case VALUE_ENV:
        env_list_free(field);
        break;
    case VALUE_LISTEN:
        free(((struct name_list *)field)->items);
        *(struct name_list *)field = (struct name_list){0};
        break;
    case VALUE_DURATION:
    case VALUE_SIZE:
    case VALUE_COUNT:
    case VALUE_WORD:
    case VALUE_REWRITE:
        break;
    default:
        service_value_free(row, field);
        break;
    }
}
