/*
 * Patterns of file names: '*', '?' and sets, in the last part of a path only. glob(3) would bring
 * the C library's user database and resolver into the static file.
 */
#ifndef CONFIG_PATTERN_H
#define CONFIG_PATTERN_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stdbool.h>

/* True if text holds '*', '?' or '['. */
bool is_pattern(const char *text);
/* True if a pattern of '*', '?' and '[a-z]', '[!a-z]' fits a name. A name that starts with a dot
 * only fits a pattern that does. */
bool pattern_fits(const char *pattern, const char *name);
/* The paths FOLDER/NAME of those entries of the folder of a path whose names fit the last part of
 * it, sorted by bytes; one allocation, NULL-terminated. A folder that isn't there has none. NULL
 * with *e. */
char **pattern_expand(const char *path, struct error *e);
/* Its two halves: append the paths, each with a NUL behind it, in any order (0, or -1 with *e); and
 * sort n bytes of such, of which the last is a NUL. */
int pattern_list(const char *path, struct strbuf *to, struct error *e);
char **pattern_sort(const char *texts, size_t n, struct error *e);

#endif
