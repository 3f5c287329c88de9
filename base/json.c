#include "base/json.h"

size_t utf8_sequence(const char *bytes, size_t n)
{
    const unsigned char *s = (const unsigned char *)bytes;
    if (s[0] < 0x80)
        return 1;
    size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || n < len)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return len;
}

bool utf8_is_valid(const char *bytes, size_t n)
{
    while (n > 0) {
        size_t k = utf8_sequence(bytes, n);
        if (k == 0)
            return false;
        bytes += k;
        n -= k;
    }
    return true;
}

static int add_escaped(struct strbuf *to, char c)
{
    switch (c) {
    case '"':
        return strbuf_adds(to, "\\\"");
    case '\\':
        return strbuf_adds(to, "\\\\");
    case '\n':
        return strbuf_adds(to, "\\n");
    case '\r':
        return strbuf_adds(to, "\\r");
    case '\t':
        return strbuf_adds(to, "\\t");
    default:
        return strbuf_addf(to, "\\u%04x", (unsigned char)c);
    }
}

/* Bytes at the beginning that stand in a JSON string as they are. */
static size_t plain_bytes(const char *bytes, size_t n)
{
    size_t at = 0;
    while (at < n) {
        unsigned char c = (unsigned char)bytes[at];
        if (c < 0x20 || c == '"' || c == '\\')
            break;
        size_t k = c < 0x80 ? 1 : utf8_sequence(bytes + at, n - at);
        if (k == 0)
            break;
        at += k;
    }
    return at;
}

int json_add_string(struct strbuf *to, const char *bytes, size_t n)
{
    int rc = strbuf_adds(to, "\"");
    while (n > 0 && rc == 0) {
        size_t k = plain_bytes(bytes, n);
        if (k > 0) {
            rc = strbuf_add(to, bytes, k);
        } else {
            k = 1;
            rc = (unsigned char)*bytes < 0x80 ? add_escaped(to, *bytes)
                                              : strbuf_adds(to, "\xef\xbf\xbd");
        }
        bytes += k;
        n -= k;
    }
    return rc < 0 ? -1 : strbuf_adds(to, "\"");
}
