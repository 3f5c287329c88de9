/* An argv as text for a shell, as the contract has it run. */
#ifndef GATEWAY_SHELL_WORDS_H
#define GATEWAY_SHELL_WORDS_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

/* Append argv (n bytes: strings that end in NUL, one after the other) as words: what has no meaning
 * to a shell stands as it is, the rest in single quotes. 0 or -1 (no memory). */
int shell_words(const char *argv, size_t n, struct strbuf *to);

/* True for what only a shell can run: `cd`, `exit`, `export`, …, and NAME=VALUE. */
bool needs_shell(const char *word);

#endif
