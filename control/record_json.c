/*
 * Nothing here knows a verb: JSON is made from what the record says about itself (control/wire.h),
 * so that a key which init gains later is shown by an older client too.
 */
#include "control/record_json.h"

#include "base/json.h"
#include "control/record.h"

#include <string.h>

static bool is_json_literal(const char *s)
{
    if (strcmp(s, "true") == 0 || strcmp(s, "false") == 0 || strcmp(s, "null") == 0)
        return true;
    size_t n = strlen(s);
    return n > 0 && strspn(s, "0123456789.eE+-") == n && s[0] != '+' && s[0] != '.' &&
           s[n - 1] >= '0' && s[n - 1] <= '9';
}

static int add_value(struct strbuf *to, const struct field *f)
{
    return f->is_literal && is_json_literal(f->value) ? strbuf_adds(to, f->value)
                                                      : json_add_string(to, f->value, f->value_len);
}

/* Whether a field with this key stands before offset end. */
static bool was_seen(const char *bytes, size_t end, const struct field *f)
{
    struct field g;
    size_t at = 0;
    while (at < end && record_next(bytes, end, &at, &g) > 0)
        if (field_is_same(f, &g))
            return true;
    return false;
}

/* All elements of the list that begins with f; `at` is behind f. */
static int add_list(struct strbuf *to, const char *bytes, size_t n, size_t at,
                    const struct field *f)
{
    struct field g;
    int rc = strbuf_adds(to, "[") | add_value(to, f);
    while (rc == 0 && record_next(bytes, n, &at, &g) > 0)
        if (field_is_same(f, &g))
            rc = strbuf_adds(to, ",") | add_value(to, &g);
    return rc | strbuf_adds(to, "]");
}

int record_to_json(struct strbuf *to, const char *bytes, size_t n)
{
    struct field f, previous = {0};
    size_t at = 0, start = 0;
    int rc = 0;
    const char *comma = "";
    for (; rc == 0 && record_next(bytes, n, &at, &f) > 0; start = at) {
        bool is_known = start > 0 && (field_is_same(&f, &previous) || was_seen(bytes, start, &f));
        previous = f;
        if (is_known)
            continue;
        rc = strbuf_adds(to, comma) |
             json_add_string(to, f.key, field_is_list(&f) ? f.key_len - 2 : f.key_len) |
             strbuf_adds(to, ":");
        rc |= field_is_list(&f) ? add_list(to, bytes, n, at, &f) : add_value(to, &f);
        comma = ",";
    }
    return rc ? -1 : 0;
}
