#include "import/expand.h"

#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_ 128

/* The program's own variables stand above those of the environment; one that uses a variable has no
 * value yet. */
static const char *variable(const struct expand_names *names, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < 2; i++)
        for (char *const *item = i ? names->environ_ : names->own; item && *item; item++)
            if (strncmp(*item, name, n) == 0 && (*item)[n] == '=')
                return strchr(*item, EXPAND_VARIABLE) ? NULL : *item + n + 1;
    return NULL;
}

/* The text of a name, in buf if it is a number; NULL: there is none. */
static const char *text_of(const struct expand_names *names, const char *name, char *buf,
                           size_t size, bool *is_number)
{
    const struct {
        const char *name;
        const char *text;
        int number;
    } known[] = {{"here", names->here, -1},
                 {"program_name", names->program_name, -1},
                 {"group_name", names->group_name, -1},
                 {"host_node_name", names->host_name, -1},
                 {"process_num", NULL, names->process_num},
                 {"numprocs", NULL, names->numprocs}};
    *is_number = false;
    if (strncmp(name, "ENV_", 4) == 0)
        return variable(names, name + 4);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) != 0)
            continue;
        if (known[i].number < 0)
            return known[i].text;
        *is_number = true;
        snprintf(buf, size, "%d", known[i].number);
        return buf;
    }
    return NULL;
}

/* "02d" behind the name: a width, perhaps with zeros, and one of s, d, i. Returns its length, 0 if
 * it is something else. */
static size_t take_format(const char *p, bool *has_zeros, unsigned *width, bool *wants_number)
{
    const char *start = p;
    *has_zeros = *p == '0';
    for (*width = 0; *p >= '0' && *p <= '9' && *width < 1000; p++)
        *width = *width * 10 + (unsigned)(*p - '0');
    *wants_number = *p == 'd' || *p == 'i';
    return *p == 's' || *wants_number ? (size_t)(p - start) + 1 : 0;
}

/* What stands behind a '%' that is not doubled. *at moves behind it. */
static int fill_in(const struct expand_names *names, const char **at, bool keeps_variables,
                   struct strbuf *to, struct error *e)
{
    char name[NAME_MAX_], number[16];
    bool has_zeros, is_number, wants_number;
    unsigned width;
    const char *close = **at == '(' ? strchr(*at, ')') : NULL;
    size_t n = close ? (size_t)(close - *at) - 1 : 0, format_n;
    if (!close || n >= sizeof name ||
        !(format_n = take_format(close + 1, &has_zeros, &width, &wants_number)))
        return error_set(e, ERR_INVALID,
                         "'%%%.20s' is neither %%(name)s nor %%%% (supervisord refuses it too)",
                         *at);
    memcpy(name, *at + 1, n);
    name[n] = '\0';
    *at = close + 1 + format_n;
    if (strncmp(name, "ENV_", 4) == 0 && env_name_check(name + 4, n - 4) < 0)
        return error_set(e, ERR_INVALID, "'%s' is not a variable's name", name + 4);
    if (keeps_variables && strncmp(name, "ENV_", 4) == 0)
        return strbuf_addf(to, "%c%s%c", EXPAND_VARIABLE, name + 4, EXPAND_VARIABLE_END);
    const char *text = text_of(names, name, number, sizeof number, &is_number);
    if (!text && strncmp(name, "ENV_", 4) == 0)
        return error_set(e, ERR_NOT_FOUND, "the variable %s is not set now", name + 4);
    if (!text || (wants_number && !is_number))
        return error_set(e, ERR_INVALID, "%%(%s) has no meaning here (supervisord refuses it too)",
                         name);
    size_t text_n = strlen(text);
    for (; width > text_n; width--)
        if (strbuf_adds(to, has_zeros && wants_number ? "0" : " ") < 0)
            return -1;
    return strbuf_adds(to, text);
}

int expand(const struct expand_names *names, const char *value, bool keeps_variables,
           struct strbuf *to, struct error *e)
{
    error_set(e, ERR_MEMORY, "out of memory");
    while (*value) {
        size_t n = strcspn(value, "%");
        if (strbuf_add(to, value, n) < 0)
            return -1;
        value += n;
        if (!*value)
            break;
        value++;
        int status = *value == '%' ? strbuf_add(to, value++, 1)
                                   : fill_in(names, &value, keeps_variables, to, e);
        if (status < 0)
            return -1;
    }
    return 0;
}

bool expand_uses(const char *value, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = value; (p = strstr(p, "%(")); p += 2)
        if (strncmp(p + 2, name, n) == 0 && p[2 + n] == ')')
            return true;
    return false;
}
