/* The names of sections: [init], [session:NAME] and so on, and complaints about others. */
#include "config/config_internal.h"

#include "base/number.h"

#include <string.h>

static const struct section_name {
    enum section_kind kind;
    const char *title;
    const char *prefix; /* of those with a NAME; else NULL */
    const char *noun;
} names[] = {
    {SECTION_INIT, "init", NULL, NULL},
    {SECTION_SESSIONS, "sessions", NULL, NULL},
    {SECTION_SESSION, "session:NAME", "session:", "session"},
    {SECTION_SERVICE, "service:NAME", "service:", "service"},
    {SECTION_INCLUDE, "include", NULL, NULL},
    {SECTION_GATEWAY, "gateway", NULL, NULL},
};
#define NAMES (sizeof names / sizeof names[0])

/* For nearest_word(). */
static const char *title_of(const void *context, size_t i)
{
    (void)context;
    return i < NAMES ? names[i].title : NULL;
}

static const char *noun_of(const void *context, size_t i)
{
    static const char *const nouns[] = {"session", "service", NULL};
    (void)context;
    return nouns[i];
}

static int unknown_section(const char *title, struct error *e)
{
    char buf[SHOWN_SIZE], noun[CONFIG_KEY_MAX + 1];
    size_t n = strcspn(title, ":");
    const char *nearest;
    shown(title, strlen(title), buf);
    if (n < sizeof noun && title[n]) {
        /* What looks like [session:dev] is compared without its name. */
        memcpy(noun, title, n);
        noun[n] = '\0';
        nearest = nearest_word(noun, noun_of, NULL);
        nearest = nearest && strcmp(nearest, "session") == 0 ? "session:NAME" : "service:NAME";
    } else {
        nearest = nearest_word(title, title_of, NULL);
        if (!nearest && nearest_word(title, noun_of, NULL))
            nearest = "service:NAME"; /* [session] is near to [sessions] */
    }
    if (nearest)
        return error_set(e, ERR_INVALID, "unknown section [%s]; did you mean [%s]?", buf, nearest);
    return error_set(e, ERR_INVALID,
                     "unknown section [%s]; there are: [init], [sessions], [session:NAME], "
                     "[service:NAME], [include], [gateway]",
                     buf);
}

int section_find(const char *title, enum section_kind *kind, const char **name, struct error *e)
{
    char buf[SHOWN_SIZE];
    for (size_t i = 0; i < NAMES; i++) {
        size_t n = names[i].prefix ? strlen(names[i].prefix) : 0;
        if (n == 0 ? strcmp(title, names[i].title) != 0 : strncmp(title, names[i].prefix, n) != 0)
            continue;
        *kind = names[i].kind;
        *name = title + n;
        if (n > 0 && name_check(*name) < 0)
            return error_set(e, ERR_INVALID,
                             "bad %s name '%s': a letter or digit, then up to 63 letters, digits, "
                             "'_', '.' or '-'",
                             names[i].noun, shown(*name, strlen(*name), buf));
        if (*kind == SECTION_SERVICE && strcmp(*name, SERVICE_MAIN) == 0)
            return error_set(e, ERR_INVALID,
                             "a service can't be named '%s': so 'after' and 'before' call the main "
                             "command",
                             SERVICE_MAIN);
        return 0;
    }
    return unknown_section(title, e);
}
