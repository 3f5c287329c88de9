/* The known name that a mistyped word was probably meant to be. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

/* The candidate that is nearest to text (case does not count), or NULL if none looks like a slip
 * of it. candidate(context, i) returns NULL behind the last one. */
const char *nearest_word(const char *text, const char *(*candidate)(const void *context, size_t i),
                         const void *context);

#endif
