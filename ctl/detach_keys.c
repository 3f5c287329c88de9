#include "ctl/detach_keys.h"

#include <string.h>
#include <strings.h>

/* The character of "d", "C-]", "^]" or "ctrl-]"; -1: none. */
static int parse_key(const char *word, size_t n)
{
    static const char *const prefixes[] = {"ctrl-", "C-", "^"};
    if (n == 1)
        return (unsigned char)word[0];
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        size_t len = strlen(prefixes[i]);
        if (n != len + 1 || strncasecmp(word, prefixes[i], len) != 0)
            continue;
        char c = word[len];
        if (c >= 'a' && c <= 'z')
            c = (char)(c - 'a' + 'A');
        return c == '?' ? 0x7f : c >= '@' && c <= '_' ? c - '@' : -1;
    }
    return -1;
}

int detach_keys_parse(struct detach_keys *k, const char *text)
{
    static const char separators[] = " ,";
    *k = (struct detach_keys){.count = 0};
    if (strcmp(text, "none") == 0)
        return 0;
    for (text += strspn(text, separators); *text; text += strspn(text, separators)) {
        size_t n = strcspn(text, separators);
        int key = parse_key(text, n);
        if (key < 0 || k->count == DETACH_KEYS_MAX)
            return -1;
        k->keys[k->count++] = (char)key;
        text += n;
    }
    return 0;
}

/* The longest end of what was typed (the held keys and then c) that begins the sequence; *passed is
 * how many of the held ones go on. */
static size_t hold(const struct detach_keys *k, char c, size_t *passed)
{
    char typed[DETACH_KEYS_MAX + 1];
    memcpy(typed, k->keys, k->held);
    typed[k->held] = c;
    for (size_t skip = 0; skip <= k->held; skip++)
        if (memcmp(typed + skip, k->keys, k->held + 1 - skip) == 0) {
            *passed = skip;
            return k->held + 1 - skip;
        }
    *passed = k->held;
    return 0;
}

int detach_keys_take(struct detach_keys *k, const char *bytes, size_t n, char *to, size_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        size_t passed = 0;
        size_t held = k->count ? hold(k, bytes[i], &passed) : 0;
        memcpy(to + *out, k->keys, passed);
        *out += passed;
        if (held == 0)
            to[(*out)++] = bytes[i];
        k->held = held;
        if (held > 0 && held == k->count)
            return 1;
    }
    return 0;
}
