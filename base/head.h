/* The head of a text: what is shown of one that may be long. */
#ifndef BASE_HEAD_H
#define BASE_HEAD_H

#include <stddef.h>

/* Copy text into buf with its NUL, whole if it fits into size bytes; otherwise the longest head
 * that leaves room for "…" behind it and cuts no UTF-8 character. size is at least 8. Returns the
 * length without the NUL. */
size_t head_copy(char *buf, size_t size, const char *text);

#endif
