/* What a call of exec or start asks for. */
#include "init/verb.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

int verb_get_argv(const struct request *r, const char ***argv, struct error *e)
{
    struct field f;
    size_t at = 0, n = 0;
    *argv = NULL;
    while (record_next(r->args.data, r->args.len, &at, &f) > 0)
        n += field_is(&f, "arg");
    if (n == 0)
        return r->has_text ? 0
                           : error_set(e, ERR_INVALID, "%s: neither a text nor an argv", r->verb);
    if (r->has_text)
        return error_set(e, ERR_INVALID, "%s: both a text and an argv", r->verb);
    *argv = calloc(n + 1, sizeof **argv);
    if (!*argv)
        return error_set(e, ERR_MEMORY, "%s: no memory", r->verb);
    n = 0;
    at = 0;
    while (record_next(r->args.data, r->args.len, &at, &f) > 0)
        if (field_is(&f, "arg"))
            (*argv)[n++] = f.value;
    return 0;
}

/* What makes another call of it. Limits, and how its client looks on, do not. */
static bool is_told_apart_by(const struct field *f)
{
    return field_is(f, "session") || field_is(f, "cwd") || field_is(f, "env") ||
           field_is(f, "arg") || field_is(f, "stdin");
}

uint64_t verb_call_number(const struct request *r)
{
    struct field f;
    size_t at = 0;
    uint64_t n = hash_add(HASH_START, r->verb, strlen(r->verb));
    while (record_next(r->args.data, r->args.len, &at, &f) > 0) {
        if (!is_told_apart_by(&f))
            continue;
        n = hash_add(n, f.key, f.key_len);
        n = hash_add(n, f.value, f.value_len);
    }
    return r->has_text ? hash_add(n, r->text.data, r->text.len) : n;
}
