#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const code_names[] = {
    [ERR_NONE] = "none",
    [ERR_INVALID] = "invalid",
    [ERR_NOT_FOUND] = "not_found",
    [ERR_EXISTS] = "exists",
    [ERR_BUSY] = "busy",
    [ERR_LIMIT] = "limit",
    [ERR_TOO_LARGE] = "too_large",
    [ERR_DENIED] = "denied",
    [ERR_STATE] = "state",
    [ERR_SYSTEM] = "system",
    [ERR_MEMORY] = "memory",
    [ERR_PROTOCOL] = "protocol",
    [ERR_UNAVAILABLE] = "unavailable",
};
_Static_assert(sizeof(code_names) / sizeof(code_names[0]) == ERR_CODE_COUNT, "a name per code");

int error_set(struct error *e, enum error_code code, const char *fmt, ...)
{
    if (!e)
        return -1;
    va_list ap;
    e->code = code;
    e->sys = 0;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    return -1;
}

int error_set_sys(struct error *e, int errnum, const char *fmt, ...)
{
    if (!e)
        return -1;
    va_list ap;
    e->code = errnum == ENOMEM ? ERR_MEMORY : ERR_SYSTEM;
    e->sys = errnum;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used, ": %s", strerror(errnum));
    return -1;
}

int error_wrap(struct error *e, const char *fmt, ...)
{
    if (!e)
        return -1;
    char inner[sizeof e->text];
    memcpy(inner, e->text, sizeof inner);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used, ": %s", inner);
    return -1;
}

const char *error_code_name(enum error_code code)
{
    return (size_t)code < ERR_CODE_COUNT ? code_names[code] : "system";
}

enum error_code error_code_of(const char *name)
{
    for (size_t i = 0; i < ERR_CODE_COUNT; i++)
        if (strcmp(code_names[i], name) == 0)
            return (enum error_code)i;
    return ERR_SYSTEM;
}
