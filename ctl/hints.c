#include "ctl/hints.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *typed, *verb;
} verb_hints[] = {
    {"ls", "ps"},
    {"list", "ps"},
    {"top", "ps"},
    {"run", "exec"},
    {"stop", "kill"},
    {"rm", "kill"},
    {"attach", "terminal attach"},
    {"shell", "terminal"},
    {"info", "status"},
    {"poweroff", "shutdown"},
    {"halt", "shutdown"},
    {"session rm", "session delete"},
    {"session remove", "session delete"},
    {"session kill", "session delete"},
    {"session stop", "session delete"},
    {"session new", "session create"},
    {"session add", "session create"},
    {"session ls", "session list"},
    {"session restart", "session reset"},
    {"session status", "session show"},
    {"service kill", "service signal"},
    {"service ls", "service list"},
    {"service log", "service logs"},
    {"terminal ls", "terminal list"},
    {"terminal rm", "terminal kill"},
};

static const struct {
    const char *verb;
    char letter;
    const char *option;
} letter_hints[] = {
    {"kill", '9', "--signal KILL"}, {"kill", '1', "--signal HUP"},
    {"kill", 's', "--signal SIG"},  {"kill", 'K', "--signal KILL"},
    {"kill", 'T', "--signal TERM"}, {"kill", 'H', "--signal HUP"},
    {"kill", 'I', "--signal INT"},  {"exec", 'd', "--detach"},
    {"exec", 'w', "--cwd DIR"},     {"exec", 'i', "--stdin, or for a terminal the verb 'terminal'"},
    {"start", 'w', "--cwd DIR"},    {"terminal", 'w', "--cwd DIR"},
};

const char *hint_verb(const char *typed)
{
    for (size_t i = 0; i < sizeof verb_hints / sizeof *verb_hints; i++)
        if (strcmp(verb_hints[i].typed, typed) == 0)
            return verb_hints[i].verb;
    return NULL;
}

const char *hint_letter(const char *verb, char letter)
{
    for (size_t i = 0; verb && i < sizeof letter_hints / sizeof *letter_hints; i++)
        if (letter_hints[i].letter == letter && strcmp(letter_hints[i].verb, verb) == 0)
            return letter_hints[i].option;
    return NULL;
}
