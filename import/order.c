/*
 * Priorities. supervisord starts group after group, each program that is in no group being one of
 * its own, and in a group program after program, the smaller number first, without waiting. Here
 * services have one number: that of the program, or, where a group has one, its rank among all.
 */
#include "import/import_internal.h"

#include <stdlib.h>
#include <string.h>

struct rank {
    long group, program;
};

static long own_priority(struct import *im, const char *section)
{
    struct expand_names names = {.environ_ = im->environ_, .process_num = -1, .numprocs = -1};
    const struct conf_setting *s = conf_find(&im->conf, section, "priority");
    const char *text = s ? s->value : NULL;
    if (text && text[0] == '-') /* what import_number() does not take */
        return -(long)strtoul(text + 1, NULL, 10);
    return (long)import_number(im, &names, section, "priority", PRIORITY_DEFAULT, 100000);
}

/* True if a list of names parted by commas holds one. */
static bool list_holds(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; *p; p += strcspn(p, ", \t\r\n")) {
        p += strspn(p, ", \t\r\n");
        if (strncmp(p, name, n) == 0 && (!p[n] || strchr(", \t\r\n", p[n])))
            return true;
    }
    return false;
}

static struct rank rank_of(struct import *im, const char *section)
{
    struct rank r = {.program = own_priority(im, section)};
    r.group = r.program;
    for (size_t i = 0; i < im->conf.count; i++) {
        const struct conf_setting *s = &im->conf.items[i];
        if (s->key && strcmp(s->key, "programs") == 0 && strncmp(s->section, "group:", 6) == 0 &&
            list_holds(s->value, section + strlen("program:")))
            r.group = own_priority(im, s->section);
    }
    return r;
}

static bool comes_before(struct rank a, struct rank b)
{
    return a.group != b.group ? a.group < b.group : a.program < b.program;
}

bool import_priority(struct import *im, const char *section, long *priority)
{
    bool has_any = false, has_group = false;
    struct rank own = rank_of(im, section);
    long before = 1;
    for (size_t i = 0; i < im->conf.count; i++) {
        const struct conf_setting *s = &im->conf.items[i];
        bool is_priority = s->key && strcmp(s->key, "priority") == 0;
        has_any = has_any || (is_priority && strncmp(s->section, "program:", 8) == 0);
        has_group = has_group || (is_priority && strncmp(s->section, "group:", 6) == 0);
        if (!s->key && strncmp(s->section, "program:", 8) == 0)
            before += comes_before(rank_of(im, s->section), own);
    }
    *priority = has_group ? before : own.program;
    return has_any || has_group;
}
