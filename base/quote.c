#include "base/quote.h"

#include <string.h>

int quote_sh(struct strbuf *to, const char *bytes, size_t n)
{
    if (strbuf_add(to, "'", 1) < 0)
        return -1;
    while (n > 0) {
        const char *quote = memchr(bytes, '\'', n);
        size_t run = quote ? (size_t)(quote - bytes) : n;
        if (strbuf_add(to, bytes, run) < 0)
            return -1;
        bytes += run;
        n -= run;
        if (quote) {
            if (strbuf_adds(to, "'\\''") < 0)
                return -1;
            bytes++;
            n--;
        }
    }
    return strbuf_add(to, "'", 1);
}
