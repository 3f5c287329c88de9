/*
 * The types of value that only services have: words of an argv, names, signals, exit codes, a mask,
 * limits, where a log goes. As in value.c, a value is parsed whole before its field is touched.
 */
#include "config/config_internal.h"

#include "base/number.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define LIST_SEPARATORS " \t\n,"

/* ---- numbers ---- */

static int parse_int(const struct schema_row *row, const char *text, int *out, struct error *e)
{
    char buf[SHOWN_SIZE];
    uint64_t n = 0;
    bool is_negative = text[0] == '-';
    long long min = (long long)row->min, max = (long long)row->max;
    int status = number_parse_u64(text + is_negative, INT32_MAX, &n);
    long long value = is_negative ? -(long long)n : (long long)n;
    shown(text, strlen(text), buf);
    if (status < 0)
        return error_set(e, ERR_INVALID, "'%s' is not a whole number (%lld to %lld)", buf, min,
                         max);
    if (value < min || value > max)
        return error_set(e, ERR_INVALID, "'%s' is out of range (%lld to %lld)", buf, min, max);
    *out = (int)value;
    return 0;
}

static int parse_bool(const char *text, bool *out, struct error *e)
{
    char buf[SHOWN_SIZE];
    bool is_yes = strcmp(text, "yes") == 0 || strcmp(text, "true") == 0;
    if (!is_yes && strcmp(text, "no") != 0 && strcmp(text, "false") != 0)
        return error_set(e, ERR_INVALID, "'%s' is neither yes nor no",
                         shown(text, strlen(text), buf));
    *out = is_yes;
    return 0;
}

static int parse_umask(const char *text, mode_t *out, struct error *e)
{
    char buf[SHOWN_SIZE];
    size_t n = strspn(text, "01234567");
    if (text[n] || n == 0 || n > 4 || (n == 4 && text[0] != '0'))
        return error_set(e, ERR_INVALID, "'%s' is not an octal mask (000 to 777, such as 022)",
                         shown(text, strlen(text), buf));
    mode_t mask = 0;
    for (size_t i = 0; i < n; i++)
        mask = mask * 8 + (mode_t)(text[i] - '0');
    *out = mask;
    return 0;
}

static int parse_signal(const char *text, int *out, struct error *e)
{
    char buf[SHOWN_SIZE];
    int sig;
    if (signal_parse(text, &sig) < 0) {
        const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
        const char *nearest = nearest_word(name, signal_word, NULL);
        return error_set(e, ERR_INVALID,
                         "'%s' is not a signal such as TERM, SIGHUP, 15 or RTMIN+3%s%s%s",
                         shown(text, strlen(text), buf), nearest ? "; did you mean '" : "",
                         nearest ? nearest : "", nearest ? "'?" : "");
    }
    *out = sig;
    return 0;
}

static bool is_separator(char c)
{
    return c != '\0' && strchr(LIST_SEPARATORS, c);
}

/* The next item of a list at *at, copied to item (>= size bytes, what is longer is cut). False at
 * the end. */
static bool next_item(const char **at, char *item, size_t size)
{
    *at += strspn(*at, LIST_SEPARATORS);
    size_t n = strcspn(*at, LIST_SEPARATORS), kept = n < size ? n : size - 1;
    memcpy(item, *at, kept);
    item[kept] = '\0';
    *at += n;
    return n > 0;
}

static int parse_codes(const char *text, uint8_t *out, struct error *e)
{
    char item[CONFIG_KEY_MAX], buf[SHOWN_SIZE];
    uint8_t codes[SERVICE_CODES / 8] = {1}; /* 0 is always one */
    while (next_item(&text, item, sizeof item)) {
        uint64_t code;
        if (number_parse_u64(item, SERVICE_CODES - 1, &code) < 0)
            return error_set(e, ERR_INVALID, "'%s' is not an exit code (0 to 255)",
                             shown(item, strlen(item), buf));
        codes[code / 8] |= (uint8_t)(1u << code % 8);
    }
    memcpy(out, codes, sizeof codes);
    return 0;
}

/* ---- words ---- */

static int parse_argv(const char *text, char ***out, struct error *e)
{
    char **argv = argv_split(text, e);
    if (!argv)
        return -1;
    if (!argv[0] || !argv[0][0]) {
        free(argv);
        return error_set(e, ERR_INVALID, "the program's name is empty");
    }
    free(*out);
    *out = argv;
    return 0;
}

static int check_service_name(const char *name, struct error *e)
{
    char buf[SHOWN_SIZE], base[SERVICE_NAME_MAX + 1];
    const char *at = strchr(name, '@');
    uint64_t instance = 1;
    size_t n = at ? (size_t)(at - name) : strlen(name);
    bool fits = n < sizeof base;
    memcpy(base, name, fits ? n : 0);
    base[fits ? n : 0] = '\0';
    if (name_check(base) < 0 || (at && number_parse_u64(at + 1, SERVICES_MAX, &instance) < 0) ||
        instance == 0)
        return error_set(e, ERR_INVALID,
                         "'%s' is not a service's name: a letter or digit, then up to 63 letters, "
                         "digits, '_', '.' or '-'",
                         shown(name, strlen(name), buf));
    return 0;
}

static int parse_names(const char *text, struct name_list *out, struct error *e)
{
    char **items = argv_split_list(text, e);
    if (!items)
        return -1;
    size_t count = argv_count(items);
    int status = 0;
    for (size_t i = 0; i < count && status == 0; i++)
        status = check_service_name(items[i], e);
    if (count == 0)
        status = error_set(e, ERR_INVALID, "there is no name in it");
    if (status == 0 && count > CONFIG_NAMES_MAX)
        status = error_set(e, ERR_INVALID, "more than %zu names", CONFIG_NAMES_MAX);
    if (status < 0) {
        free(items);
        return -1;
    }
    free(out->items);
    *out = (struct name_list){items, count};
    return 0;
}

/* ---- texts ---- */

static int parse_groups(const char *text, char **out, struct error *e)
{
    char buf[SHOWN_SIZE];
    for (const char *p = text; *p; p++)
        if (((unsigned char)*p < 0x20 && !is_separator(*p)) || *p == 0x7f)
            return error_set(e, ERR_INVALID, "'%s' holds a control character",
                             shown(text, strlen(text), buf));
    char *copy = strdup(text);
    if (!copy)
        return error_set(e, ERR_MEMORY, "out of memory");
    for (char *p = copy; *p; p++)
        *p = is_separator(*p) ? ' ' : *p;
    free(*out);
    *out = copy;
    return 0;
}

static struct service_config *service_of_log(void *field)
{
    return (struct service_config *)(void *)((char *)field - offsetof(struct service_config, log));
}

static int parse_log(const char *text, struct service_config *s, struct error *e)
{
    static const struct schema_row path_row = {
        .key = "log", .type = VALUE_PATH, .min = 1, .max = 4095};
    char buf[SHOWN_SIZE];
    enum service_log_kind kind = SERVICE_LOG_FILE;
    if (strcmp(text, "inherit") == 0)
        kind = SERVICE_LOG_INHERIT;
    else if (strcmp(text, "none") == 0)
        kind = SERVICE_LOG_NONE;
    else if (strncmp(text, "file:", 5) != 0)
        return error_set(e, ERR_INVALID, "'%s' is not one of inherit, none, file:PATH%s",
                         shown(text, strlen(text), buf),
                         text[0] == '/' ? "; a path stands behind file:" : "");
    if (kind == SERVICE_LOG_FILE && value_parse(&path_row, text + 5, &s->log_file, e) < 0)
        return -1;
    s->log = kind;
    return 0;
}

/* ---- limits ---- */

static const struct limit_kind {
    const char *name;
    bool is_size; /* bytes */
} limit_kinds[SERVICE_RLIMIT_MAX] = {
    [RLIMIT_CPU] = {"cpu", false},          [RLIMIT_FSIZE] = {"fsize", true},
    [RLIMIT_DATA] = {"data", true},         [RLIMIT_STACK] = {"stack", true},
    [RLIMIT_CORE] = {"core", true},         [RLIMIT_RSS] = {"rss", true},
    [RLIMIT_NPROC] = {"nproc", false},      [RLIMIT_NOFILE] = {"nofile", false},
    [RLIMIT_MEMLOCK] = {"memlock", true},   [RLIMIT_AS] = {"as", true},
    [RLIMIT_LOCKS] = {"locks", false},      [RLIMIT_SIGPENDING] = {"sigpending", false},
    [RLIMIT_MSGQUEUE] = {"msgqueue", true}, [RLIMIT_NICE] = {"nice", false},
    [RLIMIT_RTPRIO] = {"rtprio", false},    [RLIMIT_RTTIME] = {"rttime", false},
};

static const char *limit_name(const void *context, size_t i)
{
    (void)context;
    return i < SERVICE_RLIMIT_MAX ? limit_kinds[i].name : NULL;
}

int limit_find(const char *name, struct error *e)
{
    char buf[SHOWN_SIZE];
    for (int i = 0; i < SERVICE_RLIMIT_MAX; i++)
        if (strcmp(limit_kinds[i].name, name) == 0)
            return i;
    shown(name, strlen(name), buf);
    const char *nearest = nearest_word(name, limit_name, NULL);
    if (nearest)
        return error_set(e, ERR_INVALID, "unknown limit '%s'; did you mean 'limit.%s'?", buf,
                         nearest);
    return error_set(e, ERR_INVALID,
                     "unknown limit '%s'; there are: as, core, cpu, data, fsize, locks, memlock, "
                     "msgqueue, nice, nofile, nproc, rss, rtprio, rttime, sigpending, stack",
                     buf);
}

static int parse_bound(const struct limit_kind *kind, const char *text, uint64_t *out,
                       struct error *e)
{
    char buf[SHOWN_SIZE];
    int status;
    if (strcmp(text, "unlimited") == 0) {
        *out = UINT64_MAX;
        return 0;
    }
    if (kind->is_size)
        status = number_parse_size(text, out);
    else
        status = number_parse_u64(text, INT64_MAX, out);
    if (status < 0)
        return error_set(e, ERR_INVALID,
                         "'%s' is not a limit: %s or 'unlimited', perhaps two of "
                         "them as SOFT:HARD",
                         shown(text, strlen(text), buf),
                         kind->is_size ? "a size such as 64M" : "a whole number");
    return 0;
}

int limit_parse(int resource, const char *text, struct service_limit *to, struct error *e)
{
    char first[64], buf[SHOWN_SIZE];
    const struct limit_kind *kind = &limit_kinds[resource];
    struct service_limit limit = {.is_set = true};
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    if (n >= sizeof first)
        return error_set(e, ERR_INVALID, "'%s' is not a limit", shown(text, strlen(text), buf));
    memcpy(first, text, n);
    first[n] = '\0';
    if (parse_bound(kind, first, &limit.soft, e) < 0)
        return -1;
    limit.hard = limit.soft;
    if (colon && parse_bound(kind, colon + 1, &limit.hard, e) < 0)
        return -1;
    if (limit.soft > limit.hard)
        return error_set(e, ERR_INVALID, "'%s': the soft limit is above the hard one",
                         shown(text, strlen(text), buf));
    *to = limit;
    return 0;
}

/* ---- all of them ---- */

static int check_length(const struct schema_row *row, const char *text, struct error *e)
{
    size_t n = strlen(text);
    if (row->max == 0 || row->type == VALUE_INT || n <= row->max)
        return 0;
    return error_set(e, ERR_INVALID, "the value is %zu bytes long (%llu are possible)", n,
                     (unsigned long long)row->max);
}

int service_value_parse(const struct schema_row *row, const char *text, void *field,
                        struct error *e)
{
    if (check_length(row, text, e) < 0)
        return -1;
    switch (row->type) {
    case VALUE_BOOL:
        return parse_bool(text, field, e);
    case VALUE_INT:
        return parse_int(row, text, field, e);
    case VALUE_ARGV:
        return parse_argv(text, field, e);
    case VALUE_NAMES:
        return parse_names(text, field, e);
    case VALUE_CHECK:
        return check_parse(text, field, e);
    case VALUE_SIGNAL:
        return parse_signal(text, field, e);
    case VALUE_CODES:
        return parse_codes(text, field, e);
    case VALUE_UMASK:
        return parse_umask(text, field, e);
    case VALUE_GROUPS:
        return parse_groups(text, field, e);
    case VALUE_LOG:
        return parse_log(text, service_of_log(field), e);
    default:
        return error_set(e, ERR_INVALID, "not a single value");
    }
}

static int copy_argv(char ***to, char *const *from, struct error *e)
{
    *to = from ? argv_copy(from) : NULL;
    return from && !*to ? error_set(e, ERR_MEMORY, "out of memory") : 0;
}

static int copy_text(char **to, const char *from, struct error *e)
{
    *to = from ? strdup(from) : NULL;
    return from && !*to ? error_set(e, ERR_MEMORY, "out of memory") : 0;
}

static int copy_names(struct name_list *to, const struct name_list *from, struct error *e)
{
    to->count = from->count;
    return copy_argv(&to->items, from->items, e);
}

static int copy_log(struct service_config *to, const struct service_config *from, struct error *e)
{
    to->log = from->log;
    return copy_text(&to->log_file, from->log_file, e);
}

/* Bytes of a type that owns nothing. */
static size_t plain_size(enum value_type type)
{
    switch (type) {
    case VALUE_BOOL:
        return sizeof(bool);
    case VALUE_INT:
    case VALUE_SIGNAL:
        return sizeof(int);
    case VALUE_CODES:
        return SERVICE_CODES / 8;
    case VALUE_UMASK:
        return sizeof(mode_t);
    default:
        return 0;
    }
}

int service_value_copy(const struct schema_row *row, void *to, const void *from, struct error *e)
{
    switch (row->type) {
    case VALUE_ARGV:
        return copy_argv(to, *(char *const *const *)from, e);
    case VALUE_NAMES:
        return copy_names(to, from, e);
    case VALUE_CHECK:
        return check_copy(to, from, e);
    case VALUE_GROUPS:
        return copy_text(to, *(char *const *)from, e);
    case VALUE_LOG:
        return copy_log(service_of_log(to), service_of_log((void *)from), e);
    case VALUE_LIMIT:
        memcpy(to, from, SERVICE_RLIMIT_MAX * sizeof(struct service_limit));
        return 0;
    default:
        memcpy(to, from, plain_size(row->type));
        return 0;
    }
}

static bool texts_equal(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool limits_equal(const struct service_limit *a, const struct service_limit *b)
{
    for (size_t i = 0; i < SERVICE_RLIMIT_MAX; i++)
        if (a[i].is_set != b[i].is_set || a[i].soft != b[i].soft || a[i].hard != b[i].hard)
            return false;
    return true;
}

bool service_value_equal(const struct schema_row *row, const void *a, const void *b)
{
    switch (row->type) {
    case VALUE_ARGV:
        return argv_equal(*(char *const *const *)a, *(char *const *const *)b);
    case VALUE_NAMES: {
        const struct name_list *x = a, *y = b;
        return x->count == y->count && argv_equal(x->items, y->items);
    }
    case VALUE_CHECK: {
        const struct check *x = a, *y = b;
        return x->kind == y->kind && texts_equal(x->text, y->text);
    }
    case VALUE_GROUPS:
        return texts_equal(*(char *const *)a, *(char *const *)b);
    case VALUE_LOG: {
        const struct service_config *x = service_of_log((void *)a), *y = service_of_log((void *)b);
        return x->log == y->log &&
               (x->log != SERVICE_LOG_FILE || texts_equal(x->log_file, y->log_file));
    }
    case VALUE_LIMIT:
        return limits_equal(a, b);
    default:
        return memcmp(a, b, plain_size(row->type)) == 0;
    }
}

void service_value_free(const struct schema_row *row, void *field)
{
    switch (row->type) {
    case VALUE_ARGV:
    case VALUE_GROUPS:
        free(*(void **)field);
        *(void **)field = NULL;
        break;
    case VALUE_NAMES: {
        struct name_list *names = field;
        free(names->items);
        *names = (struct name_list){0};
        break;
    }
    case VALUE_CHECK:
        check_free(field);
        break;
    case VALUE_LOG: {
        struct service_config *s = service_of_log(field);
        free(s->log_file);
        s->log_file = NULL;
        break;
    }
    default:
        break;
    }
}
