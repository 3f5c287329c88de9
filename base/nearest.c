/* Nothing here allocates; the work is bounded by the length of a word. */
#include "base/nearest.h"

#include <string.h>

#define WORD_MAX 40 /* longer words are nobody's slip */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

static unsigned min2(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Edits (insert, drop, replace, swap two neighbours) from a to b; both at most WORD_MAX long.
 * The usual table, three rows of it at a time. */
static unsigned edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned rows[3][WORD_MAX + 1] = {0};
    for (unsigned j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (unsigned i = 1; i <= na; i++) {
        unsigned *now = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            char x = lower(a[i - 1]), y = lower(b[j - 1]);
            unsigned best = above[j - 1] + (x != y);
            best = min2(best, min2(above[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && lower(a[i - 2]) == y)
                best = min2(best, above2[j - 2] + 1);
            now[j] = best;
        }
    }
    return rows[na % 3][nb];
}

const char *nearest_word(const char *text, const char *(*candidate)(const void *context, size_t i),
                         const void *context)
{
    const char *word, *nearest = NULL;
    size_t n = strlen(text);
    /* A slip touches at most a third of the word. */
    unsigned best = (unsigned)(n / 3 > 1 ? n / 3 : 1) + 1;
    if (best > n)
        best = (unsigned)n; /* and leaves something of it */
    if (n == 0 || n > WORD_MAX)
        return NULL;
    for (size_t i = 0; (word = candidate(context, i)); i++) {
        size_t k = strlen(word);
        unsigned distance = k > WORD_MAX ? best : edit_distance(text, n, word, k);
        if (distance < best) {
            best = distance;
            nearest = word;
        }
    }
    return nearest;
}
