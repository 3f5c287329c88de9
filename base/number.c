#include "base/number.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_DURATION_MS ((uint64_t)365 * 24 * 3600 * 1000)
#define MAX_SIZE        ((uint64_t)1 << 40)

/* Digits at *text up to a limit; moves *text behind them. At least one digit. */
static int take_digits(const char **text, uint64_t max, uint64_t *out)
{
    const char *p = *text;
    uint64_t v = 0;
    if (*p < '0' || *p > '9')
        return -1;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, digit, &v) || v > max)
            return -1;
    }
    *text = p;
    *out = v;
    return 0;
}

int number_parse_u64(const char *text, uint64_t max, uint64_t *out)
{
    uint64_t v;
    if (take_digits(&text, max, &v) < 0 || *text)
        return -1;
    *out = v;
    return 0;
}

int number_parse_duration_ms(const char *text, uint64_t *out)
{
    uint64_t whole, fraction = 0, scale = 1, unit_ms;
    if (strcmp(text, "0") == 0) {
        *out = 0;
        return 0;
    }
    if (take_digits(&text, MAX_DURATION_MS, &whole) < 0)
        return -1;
    if (*text == '.') {
        const char *start = ++text;
        if (take_digits(&text, 999999, &fraction) < 0)
            return -1;
        for (const char *p = start; p < text; p++)
            scale *= 10;
    }
    if (strcmp(text, "ms") == 0)
        unit_ms = 1;
    else if (strcmp(text, "s") == 0)
        unit_ms = 1000;
    else if (strcmp(text, "m") == 0)
        unit_ms = 60 * 1000;
    else if (strcmp(text, "h") == 0)
        unit_ms = 3600 * 1000;
    else
        return -1;
    uint64_t ms;
    if (__builtin_mul_overflow(whole, unit_ms, &ms) || ms > MAX_DURATION_MS)
        return -1;
    /* A fraction below a millisecond must not turn into the 0 that means "none". */
    uint64_t part = fraction * unit_ms / scale;
    if (ms + part > MAX_DURATION_MS || (fraction > 0 && ms + part == 0))
        return -1;
    *out = ms + part;
    return 0;
}

int number_parse_size(const char *text, uint64_t *out)
{
    uint64_t v, factor = 1;
    if (take_digits(&text, MAX_SIZE, &v) < 0)
        return -1;
    if (*text == 'K')
        factor = 1024;
    else if (*text == 'M')
        factor = 1024 * 1024;
    else if (*text == 'G')
        factor = 1024 * 1024 * 1024;
    if (factor > 1)
        text++;
    if (*text || __builtin_mul_overflow(v, factor, &v) || v > MAX_SIZE)
        return -1;
    *out = v;
    return 0;
}

const char *number_format_duration(uint64_t ms, char *buf, size_t size)
{
    if (ms == 0)
        snprintf(buf, size, "0");
    else if (ms % 3600000 == 0)
        snprintf(buf, size, "%lluh", (unsigned long long)(ms / 3600000));
    else if (ms % 60000 == 0)
        snprintf(buf, size, "%llum", (unsigned long long)(ms / 60000));
    else if (ms % 1000 == 0)
        snprintf(buf, size, "%llus", (unsigned long long)(ms / 1000));
    else
        snprintf(buf, size, "%llums", (unsigned long long)ms);
    return buf;
}

static const char *const signal_names[] = {
    [SIGHUP] = "HUP",   [SIGINT] = "INT",       [SIGQUIT] = "QUIT", [SIGILL] = "ILL",
    [SIGTRAP] = "TRAP", [SIGABRT] = "ABRT",     [SIGBUS] = "BUS",   [SIGFPE] = "FPE",
    [SIGKILL] = "KILL", [SIGUSR1] = "USR1",     [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",
    [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM",     [SIGTERM] = "TERM", [SIGSTKFLT] = "STKFLT",
    [SIGCHLD] = "CHLD", [SIGCONT] = "CONT",     [SIGSTOP] = "STOP", [SIGTSTP] = "TSTP",
    [SIGTTIN] = "TTIN", [SIGTTOU] = "TTOU",     [SIGURG] = "URG",   [SIGXCPU] = "XCPU",
    [SIGXFSZ] = "XFSZ", [SIGVTALRM] = "VTALRM", [SIGPROF] = "PROF", [SIGWINCH] = "WINCH",
    [SIGIO] = "IO",     [SIGPWR] = "PWR",       [SIGSYS] = "SYS",
};
#define SIGNAL_NAMES (sizeof(signal_names) / sizeof(signal_names[0]))

int signal_parse(const char *text, int *out)
{
    uint64_t v;
    if (number_parse_u64(text, (uint64_t)SIGRTMAX, &v) == 0) {
        if (v == 0)
            return -1;
        *out = (int)v;
        return 0;
    }
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 1; i < SIGNAL_NAMES; i++) {
        if (signal_names[i] && strcasecmp(text, signal_names[i]) == 0) {
            *out = (int)i;
            return 0;
        }
    }
    if (strncasecmp(text, "RTMIN", 5) == 0) {
        uint64_t offset = 0;
        text += 5;
        if (*text == '+' &&
            number_parse_u64(text + 1, (uint64_t)(SIGRTMAX - SIGRTMIN), &offset) < 0)
            return -1;
        if (*text && *text != '+')
            return -1;
        *out = SIGRTMIN + (int)offset;
        return 0;
    }
    return -1;
}

const char *signal_word(const void *unused, size_t i)
{
    (void)unused;
    for (size_t n = 1; n < SIGNAL_NAMES; n++)
        if (signal_names[n] && i-- == 0)
            return signal_names[n];
    return NULL;
}

const char *signal_name(int sig, char *buf, size_t size)
{
    if (sig > 0 && (size_t)sig < SIGNAL_NAMES && signal_names[sig])
        snprintf(buf, size, "SIG%s", signal_names[sig]);
    else if (sig >= SIGRTMIN && sig <= SIGRTMAX)
        snprintf(buf, size, "SIGRTMIN+%d", sig - SIGRTMIN);
    else
        snprintf(buf, size, "SIG%d", sig);
    return buf;
}

static int is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

int name_check(const char *name)
{
    size_t n = strlen(name);
    if (n < 1 || n > 64 || !is_alnum(name[0]))
        return -1;
    for (size_t i = 1; i < n; i++)
        if (!is_alnum(name[i]) && name[i] != '_' && name[i] != '.' && name[i] != '-')
            return -1;
    return 0;
}

int env_name_check(const char *name, size_t len)
{
    if (len == 0 || (name[0] >= '0' && name[0] <= '9'))
        return -1;
    for (size_t i = 0; i < len; i++)
        if (!is_alnum(name[i]) && name[i] != '_')
            return -1;
    return 0;
}
