#include "gateway/json_body.h"

#include "gateway/path.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *json_body_parse(const char *bytes, size_t n)
{
    static const size_t flags =
        JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL;
    return n ? json_loadb(bytes, n, flags, NULL) : NULL;
}

/* ---- String() ---------------------------------------------------------------------------- */

/* The fewest decimal digits that are read back as this number, and where its point stands: the
 * value is 0.DIGITS times ten to the power of the result. */
static int shortest_digits(double value, char digits[24])
{
    char text[40];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (strtod(text, NULL) == value)
            break;
    }
    size_t n = 0;
    char *at = text;
    for (; *at != 'e'; at++)
        if (*at != '.')
            digits[n++] = *at;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    return atoi(at + 1) + 1;
}

/* ECMA-262, Number::toString. */
int number_to_text(double value, struct strbuf *to)
{
    char digits[24];
    if (value == 0.)
        return strbuf_adds(to, "0");
    int point = shortest_digits(fabs(value), digits), n = (int)strlen(digits);
    const char *sign = value < 0 ? "-" : "";
    if (n <= point && point <= 21)
        return strbuf_addf(to, "%s%s%.*s", sign, digits, point - n, "00000000000000000000");
    if (0 < point && point <= 21)
        return strbuf_addf(to, "%s%.*s.%s", sign, point, digits, digits + point);
    if (-6 < point && point <= 0)
        return strbuf_addf(to, "%s0.%.*s%s", sign, -point, "000000", digits);
    return strbuf_addf(to, "%s%c%s%se%+d", sign, digits[0], n > 1 ? "." : "", digits + 1,
                       point - 1);
}

static int add_scalar(const json_t *value, struct strbuf *to)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return strbuf_add(to, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
    case JSON_REAL:
        return number_to_text(json_number_value(value), to);
    case JSON_TRUE:
        return strbuf_adds(to, "true");
    case JSON_FALSE:
        return strbuf_adds(to, "false");
    case JSON_NULL:
        return strbuf_adds(to, "null");
    case JSON_OBJECT:
        return strbuf_adds(to, "[object Object]");
    case JSON_ARRAY:
        break;
    }
    return 0;
}

#define DEPTH_MAX 2048 /* what jansson reads */

/* An array is its elements with commas between, and null is nothing there. */
static int add_array(const json_t *array, struct strbuf *to)
{
    struct {
        const json_t *array;
        size_t next;
    } stack[DEPTH_MAX];
    size_t depth = 1;
    int rc = 0;
    stack[0].array = array;
    stack[0].next = 0;
    while (depth > 0 && rc == 0) {
        size_t i = stack[depth - 1].next++;
        const json_t *item = json_array_get(stack[depth - 1].array, i);
        if (!item) {
            depth--;
            continue;
        }
        if (i > 0)
            rc = strbuf_adds(to, ",");
        if (json_is_array(item) && depth < DEPTH_MAX) {
            stack[depth].array = item;
            stack[depth++].next = 0;
        } else if (rc == 0 && !json_is_null(item)) {
            rc = add_scalar(item, to);
        }
    }
    return rc;
}

int json_to_text(const json_t *value, struct strbuf *to)
{
    return json_is_array(value) ? add_array(value, to) : add_scalar(value, to);
}

/* ---- what nobody knows ------------------------------------------------------------------- */

#define UNKNOWN_MAX 8

static bool is_among(const char *key, const char *const *known)
{
    while (*known && strcmp(*known, key) != 0)
        known++;
    return *known != NULL;
}

void json_add_unknown(const json_t *object, const char *const *known, struct strbuf *to)
{
    const char *key;
    json_t *value;
    unsigned count = 0;
    json_object_foreach((json_t *)object, key, value)
    {
        if (is_among(key, known))
            continue;
        if (++count > UNKNOWN_MAX) {
            (void)strbuf_adds(to, ", ...");
            return;
        }
        (void)strbuf_addf(to, "%s%.40s", to->len > 0 ? ", " : "", key);
    }
}

/* ---- cwd --------------------------------------------------------------------------------- */

int json_cwd(const json_t *cwd, const char *workspace, struct strbuf *to, const char **why)
{
    if (!cwd || json_is_null(cwd))
        return 0;
    if (!json_is_string(cwd)) {
        *why = "cwd must be a string";
        return 400;
    }
    if (strlen(json_string_value(cwd)) != json_string_length(cwd)) {
        *why = "cwd must not contain NUL characters";
        return 400;
    }
    int rc = workspace_resolve(workspace, json_string_value(cwd), to);
    if (rc == 0)
        return 0;
    strbuf_clear(to);
    if (rc == -1 && strbuf_addf(to, "cwd must resolve to a location within %s", workspace) == 0) {
        *why = strbuf_text(to);
        return 403;
    }
    *why = "no memory for the request";
    return 503;
}
