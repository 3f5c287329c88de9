/*
 * The keys that detach from a terminal: a sequence of characters, typed one after another. What
 * could still become the sequence is held back.
 */
#ifndef CTL_DETACH_KEYS_H
#define CTL_DETACH_KEYS_H

#include <stddef.h>

#define DETACH_KEYS_MAX     16
#define DETACH_KEYS_DEFAULT "C-] d"

struct detach_keys {
    char keys[DETACH_KEYS_MAX];
    size_t count; /* 0: none */
    size_t held;  /* so many of them were typed */
};

/* Read a sequence: single characters or C-X, ^X, ctrl-X, separated by blanks or commas
 * ("C-] d", "ctrl-p,ctrl-q"); "" or "none": no keys. 0, or -1: it is not one. */
int detach_keys_parse(struct detach_keys *k, const char *text);

/* Take n typed bytes; what goes on to the terminal is put into to (which holds DETACH_KEYS_MAX
 * more than n) and counted in *out. 1 if the sequence is complete (what is typed behind it is
 * dropped), 0 otherwise. */
int detach_keys_take(struct detach_keys *k, const char *bytes, size_t n, char *to, size_t *out);

#endif
