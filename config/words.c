/*
 * Words in complaints: what the user wrote, made fit for one line of a log or terminal. Nothing
 * here allocates; the work is bounded by the lengths below.
 */
#include "config/config_internal.h"

#include "base/json.h"

#include <string.h>

#define SHOWN_MAX 60 /* bytes of the user's text; leaves room for "..." */
#define FILE_MAX  200

const char *shown(const char *text, size_t n, char buf[SHOWN_SIZE])
{
    size_t from = 0, to = 0;
    while (from < n) {
        size_t k = utf8_sequence(text + from, n - from);
        if (to + (k ? k : 1) > SHOWN_MAX)
            break;
        unsigned char c = (unsigned char)text[from];
        /* U+0080 to U+009F are control characters too (C2 80 to C2 9F). */
        bool is_c1 = k == 2 && c == 0xc2 && (unsigned char)text[from + 1] < 0xa0;
        if (k == 0 || c < 0x20 || c == 0x7f || is_c1) {
            buf[to++] = '?';
        } else {
            memcpy(buf + to, text + from, k);
            to += k;
        }
        from += k ? k : 1;
    }
    memcpy(buf + to, from < n ? "..." : "", from < n ? 4 : 1);
    return buf;
}

const char *shown_file(const char *path)
{
    size_t n = strlen(path);
    return n > FILE_MAX ? path + n - FILE_MAX : path;
}
