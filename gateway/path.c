#include "gateway/path.h"

#include <string.h>

/* ---- percent-escapes --------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int percent_decode(const char *from, size_t n, bool plus, struct strbuf *to)
{
    for (size_t i = 0; i < n; i++) {
        char c = from[i];
        if (c == '%') {
            int high = i + 2 < n ? hex_digit(from[i + 1]) : -1;
            int low = i + 2 < n ? hex_digit(from[i + 2]) : -1;
            if (high < 0 || low < 0)
                return -1;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (plus && c == '+') {
            c = ' ';
        }
        if (c == '\0' || strbuf_add(to, &c, 1) < 0)
            return -1;
    }
    return 0;
}

/* ---- ids --------------------------------------------------------------------------------- */

#define ID_MAX 128

static bool is_made_of(const char *id, const char *characters)
{
    size_t n = strlen(id);
    return n > 0 && n <= ID_MAX && strspn(id, characters) == n;
}

bool is_sandbox_id(const char *id)
{
    return is_made_of(id, "abcdefghijklmnopqrstuvwxyz234567");
}

bool is_session_id(const char *id)
{
    return is_made_of(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") &&
           !strstr(id, "..");
}

/* ---- paths in the workspace -------------------------------------------------------------- */

/* Go on from the folder in *to ("" is the root) by a path: "." stays, ".." goes up, never above
 * the root. 0, or -2. */
static int go_by(struct strbuf *to, const char *path)
{
    while (*path) {
        size_t n = strcspn(path, "/");
        if (n == 2 && memcmp(path, "..", 2) == 0) {
            const char *slash = to->len ? memrchr(to->data, '/', to->len) : NULL;
            to->len = slash ? (size_t)(slash - to->data) : 0;
        } else if (n > 0 && !(n == 1 && *path == '.')) {
            if (strbuf_add(to, "/", 1) < 0 || strbuf_add(to, path, n) < 0)
                return -2;
        }
        path += n + (path[n] == '/');
    }
    if (to->data)
        to->data[to->len] = '\0';
    return 0;
}

int workspace_resolve(const char *workspace, const char *path, struct strbuf *to)
{
    CLEANUP_STRBUF struct strbuf base = {0};
    strbuf_clear(to);
    if (go_by(&base, workspace) < 0 || (*path != '/' && strbuf_add(to, base.data, base.len) < 0) ||
        go_by(to, path) < 0)
        return -2;
    bool is_inside = to->len >= base.len &&
                     memcmp(strbuf_text(to), strbuf_text(&base), base.len) == 0 &&
                     (to->len == base.len || to->data[base.len] == '/');
    if (!is_inside)
        return -1;
    return to->len == 0 && strbuf_adds(to, "/") < 0 ? -2 : 0;
}
