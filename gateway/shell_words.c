#include "gateway/shell_words.h"

#include "base/quote.h"

#include <string.h>

static bool is_plain(const char *word, size_t n)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "@%_+=:,./-";
    return n > 0 && strspn(word, plain) == n;
}

int shell_words(const char *argv, size_t n, struct strbuf *to)
{
    for (size_t at = 0; at < n;) {
        const char *word = argv + at;
        size_t length = strlen(word);
        if (at > 0 && strbuf_adds(to, " ") < 0)
            return -1;
        if ((is_plain(word, length) ? strbuf_add(to, word, length) : quote_sh(to, word, length)) <
            0)
            return -1;
        at += length + 1;
    }
    return 0;
}

/* Builtins of bash, dash and ash that have no program of the same name with the same effect. */
static const char *const builtins[] = {
    ".",       ":",       "alias",   "bg",       "bind",      "break",    "builtin", "caller",
    "cd",      "command", "compgen", "complete", "compopt",   "continue", "declare", "dirs",
    "disown",  "enable",  "eval",    "exec",     "exit",      "export",   "fc",      "fg",
    "getopts", "hash",    "help",    "history",  "jobs",      "let",      "local",   "logout",
    "mapfile", "popd",    "pushd",   "read",     "readarray", "readonly", "return",  "set",
    "shift",   "shopt",   "source",  "suspend",  "times",     "trap",     "type",    "typeset",
    "ulimit",  "umask",   "unalias", "unset",    "wait",
};

static bool is_assignment(const char *word)
{
    static const char name[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    size_t n = strspn(word, name);
    return n > 0 && word[n] == '=' && !(word[0] >= '0' && word[0] <= '9') &&
           is_plain(word, strlen(word));
}

bool needs_shell(const char *word)
{
    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
        if (strcmp(builtins[i], word) == 0)
            return true;
    return is_assignment(word);
}
