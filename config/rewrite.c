/*
 * Rewriting of signals: "TERM:QUIT, HUP:0". Each signal is rewritten once at most, so that the
 * order of the pairs says nothing; pairs are no chain.
 */
#include "config/config_internal.h"

#include "base/number.h"

#include <signal.h>
#include <string.h>

#define SIGNAL_WORD_MAX 16

/* The signal that the n bytes at text name, blanks around them left out; -1 if none. "0" is 0. */
static int parse_signal(const char *text, size_t n)
{
    char word[SIGNAL_WORD_MAX + 1];
    int sig = 0;
    for (; n > 0 && text[0] == ' '; n--)
        text++;
    while (n > 0 && text[n - 1] == ' ')
        n--;
    if (n == 0 || n > SIGNAL_WORD_MAX)
        return -1;
    memcpy(word, text, n);
    word[n] = '\0';
    if (strcmp(word, "0") == 0)
        return 0;
    /* Those below SIGRTMIN are the C library's own (nptl(7)). */
    if (signal_parse(word, &sig) < 0 || (sig > SIGSYS && sig < SIGRTMIN))
        return -1;
    return sig;
}

static int add_pair(struct signal_rewrite *r, const char *text, size_t n, struct error *e)
{
    char buf[SHOWN_SIZE], name[16];
    const char *colon = memchr(text, ':', n);
    shown(text, n, buf);
    if (!colon)
        return error_set(e, ERR_INVALID, "'%s' is not SIGNAL:SIGNAL, such as TERM:QUIT", buf);
    int from = parse_signal(text, (size_t)(colon - text));
    int to = parse_signal(colon + 1, n - (size_t)(colon + 1 - text));
    if (from <= 0 || to < 0)
        return error_set(e, ERR_INVALID,
                         "'%s': there is no such signal %s the colon (a name or number, 1 to 31 "
                         "or %d to %d; 0 behind the colon: none)",
                         buf, from <= 0 ? "before" : "behind", SIGRTMIN, SIGRTMAX);
    if (from == SIGKILL || from == SIGSTOP || from == SIGCHLD)
        return error_set(e, ERR_INVALID, "'%s': %s is never passed on", buf,
                         signal_name(from, name, sizeof name));
    if (r->to[from] != 0)
        return error_set(e, ERR_INVALID, "'%s': %s is rewritten already", buf,
                         signal_name(from, name, sizeof name));
    r->to[from] = to ? (uint8_t)to : REWRITE_DROP;
    return 0;
}

int signal_rewrite_add(struct signal_rewrite *r, const char *text, struct error *e)
{
    for (;;) {
        size_t n = strcspn(text, ",");
        if (add_pair(r, text, n, e) < 0)
            return -1;
        if (!text[n])
            return 0;
        text += n + 1;
    }
}
