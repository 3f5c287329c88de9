#include "base/hash.h"

#include <string.h>

/* Multiply and fold, eight bytes at a time: a text of 16 MB takes a few milliseconds. Odd constants
 * with bits everywhere; the fold brings the high bits, which know all, down to the low ones. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
    hash ^= hash >> 32;
    hash *= UINT64_C(0xc4ceb9fe1a85ec53);
    return hash ^ hash >> 29;
}

uint64_t hash_add(uint64_t hash, const void *bytes, size_t n)
{
    const char *p = bytes;
    uint64_t word;
    size_t left = n;
    for (; left >= sizeof word; left -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        hash = mix(hash, word);
    }
    word = 0;
    if (left > 0)
        memcpy(&word, p, left);
    return mix(mix(hash, word), n);
}
