/* A number that tells byte strings apart: for comparing what was asked before with what is asked
 * now without keeping it. No defence against somebody who looks for two strings of one number. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(0x9e3779b97f4a7c15)

/* The number so far, with n more bytes. Where one string ends counts: "ab" then "c" is another
 * number than "a" then "bc". */
uint64_t hash_add(uint64_t hash, const void *bytes, size_t n);

#endif
