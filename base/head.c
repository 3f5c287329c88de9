#include "base/head.h"

#include <string.h>

size_t head_copy(char *buf, size_t size, const char *text)
{
    static const char more[] = "…";
    size_t n = strnlen(text, size);
    if (n < size) {
        memcpy(buf, text, n + 1);
        return n;
    }
    n = size - sizeof more;
    for (int i = 0; i < 3 && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; i++)
        n--;
    memcpy(buf, text, n);
    memcpy(buf + n, more, sizeof more);
    return n + sizeof more - 1;
}
