/* Standard base64 (RFC 4648, section 4). */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include <stddef.h>

#define BASE64_SIZE(n) (((n) + 2) / 3 * 4) /* characters for n bytes, padding included */

/* Write n bytes as one line of BASE64_SIZE(n) characters, without a NUL. Returns their number. */
size_t base64_encode(char *to, const char *bytes, size_t n);

#endif
