/* What config_diff() tells of two texts, one "kind section key;" after the other, or a complaint.
 */
#ifndef TESTS_UNIT_CONFIG_TOLD_H
#define TESTS_UNIT_CONFIG_TOLD_H

#include "config/config.h"

#include <stdio.h>
#include <string.h>

static char told[4096];

static void on_tell(void *context, enum change_kind kind, const char *section, const char *key)
{
    static const char *const kinds[] = {
        "key",           "added",           "removed",        "changed",
        "service added", "service removed", "service changed"};
    (void)context;
    size_t n = strlen(told);
    snprintf(told + n, sizeof told - n, "%s %s %s;", kinds[kind], section, key);
}

static const char *diff(const char *old_text, const char *new_text)
{
    struct error err = {0};
    struct config *a = config_parse("a", old_text, strlen(old_text), NULL, &err);
    struct config *b = config_parse("b", new_text, strlen(new_text), NULL, &err);
    snprintf(told, sizeof told, "%.400s", a && b ? "" : err.text);
    if (a && b)
        config_diff(a, b, on_tell, NULL);
    config_free(a);
    config_free(b);
    return told;
}

#endif
