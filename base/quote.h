/* The one function that turns bytes into a shell word. */
#ifndef BASE_QUOTE_H
#define BASE_QUOTE_H

#include "base/strbuf.h"

/* Append n bytes as one single-quoted word of any POSIX shell: every byte but NUL stands for
 * itself, a quote becomes '\''. The caller has refused NUL. Returns 0 or -1 (no memory). */
int quote_sh(struct strbuf *to, const char *bytes, size_t n);

#endif
