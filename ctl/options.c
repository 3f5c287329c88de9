/*
 * Parsing the command line like git does: global options, a verb, then options and positionals in
 * any order; --opt=value and --opt value; -s NAME and -sNAME; `--` ends the options.
 */
#include "ctl/ctl.h"
#include "ctl/hints.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELP "help"

const struct option global_options[] = {
    {"socket", 'S', "SOCKET",
     "the control socket (default: $SANDBOX_SOCKET, else the first found)"},
    {"json", 0, NULL, "print JSON"},
    {HELP, 'h', NULL, "show this help"},
    {0},
};

int usage_error(const struct verb *v, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "sandboxctl%s%s: ", v ? " " : "", v ? v->name : "");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry 'sandboxctl %s%s--help'.\n", v ? v->name : "", v ? " " : "");
    return CTL_USAGE;
}

/* ---- options ----------------------------------------------------------------------------- */

static const struct option *find_in(const struct option *table, const char *name, size_t n)
{
    for (; table && table->name; table++)
        if (strlen(table->name) == n && strncmp(table->name, name, n) == 0)
            return table;
    return NULL;
}

static const struct option *find_letter(const struct option *table, char letter)
{
    for (; table && table->name; table++)
        if (table->letter == letter)
            return table;
    return NULL;
}

static int unknown_option(const struct args *a, const char *typed, size_t n)
{
    char name[64];
    const char *best = NULL;
    snprintf(name, sizeof name, "%.*s", (int)n, typed);
    const struct option *tables[] = {a->verb ? a->verb->options : NULL, global_options};
    for (size_t t = 0; t < 2; t++)
        for (const struct option *o = tables[t]; o && o->name; o++)
            best = nearest_name(name, best, o->name);
    if (best)
        return usage_error(a->verb, "unknown option '--%s'; did you mean '--%s'?", name, best);
    return usage_error(a->verb, "unknown option '--%s'", name);
}

/* Record an option with its value. -1: go on; otherwise an exit code. */
static int take_option(struct args *a, const struct option *o, const char *value)
{
    if (strcmp(o->name, "socket") == 0)
        a->socket = value;
    else if (strcmp(o->name, "json") == 0)
        a->is_json = true;
    else if (strcmp(o->name, HELP) == 0)
        a->wants_help = true;
    else
        a->given[a->given_count++] = (struct given){o, value ? value : ""};
    return -1;
}

static int take_long(struct args *a, char **argv, int argc, int *i)
{
    const char *name = argv[*i] + 2;
    const char *sign = strchr(name, '=');
    size_t n = sign ? (size_t)(sign - name) : strlen(name);
    const struct option *o = find_in(a->verb ? a->verb->options : NULL, name, n);
    if (!o)
        o = find_in(global_options, name, n);
    if (!o)
        return unknown_option(a, name, n);
    if (!o->arg && sign)
        return usage_error(a->verb, "--%s takes no value", o->name);
    if (!o->arg)
        return take_option(a, o, NULL);
    if (!sign && *i + 1 >= argc)
        return usage_error(a->verb, "--%s needs a value: %s", o->name, o->arg);
    return take_option(a, o, sign ? sign + 1 : argv[++*i]);
}

static int unknown_letter(const struct args *a, char letter)
{
    const char *hint = hint_letter(a->verb ? a->verb->name : NULL, letter);
    bool takes_text = a->verb && a->verb->takes_argv;
    return usage_error(a->verb, "unknown option '-%c'%s%s%s", letter, hint ? "; here it is " : "",
                       hint ? hint : "",
                       takes_text ? "; a text that begins with '-' comes from stdin ('-') or -f"
                                  : "");
}

/* One or more letters: -f, -sNAME, -s NAME. */
static int take_letters(struct args *a, char **argv, int argc, int *i)
{
    const char *p = argv[*i] + 1;
    for (; *p; p++) {
        const struct option *o = find_letter(a->verb ? a->verb->options : NULL, *p);
        if (!o)
            o = find_letter(global_options, *p);
        if (!o)
            return unknown_letter(a, *p);
        if (!o->arg) {
            take_option(a, o, NULL);
            continue;
        }
        if (!p[1] && *i + 1 >= argc)
            return usage_error(a->verb, "-%c needs a value: %s", *p, o->arg);
        return take_option(a, o, p[1] ? p + 1 : argv[++*i]);
    }
    return -1;
}

/* ---- the verb ---------------------------------------------------------------------------- */

/* Of verbs of two words the first one alone may be mistyped. */
static const char *nearest_family(const char *typed, const char *best)
{
    static char family[16];
    for (const struct verb *v = verbs; v->name; v++) {
        char head[sizeof family];
        snprintf(head, sizeof head, "%.*s", (int)strcspn(v->name, " "), v->name);
        if (strchr(v->name, ' ') && nearest_name(typed, best, head) == head) {
            memcpy(family, head, sizeof family);
            best = family;
        }
    }
    return best;
}

static int unknown_verb(const char *typed)
{
    const char *hint = hint_verb(typed), *best = NULL;
    for (const struct verb *v = verbs; v->name; v++)
        best = nearest_name(typed, best, v->name);
    if (!strchr(typed, ' '))
        best = nearest_family(typed, best);
    best = hint ? hint : best;
    if (best)
        return usage_error(NULL, "'%s' is not a verb; did you mean '%s'?", typed, best);
    return usage_error(NULL, "'%s' is not a verb", typed);
}

/* Find the verb of one or two words. 1 found, 0 the first of two words, -1 unknown. */
static int find_verb(struct args *a, const char *name)
{
    size_t n = strlen(name);
    int rc = -1;
    for (const struct verb *v = verbs; v->name; v++) {
        if (strcmp(v->name, name) == 0) {
            a->verb = v;
            return 1;
        }
        if (strncmp(v->name, name, n) == 0 && v->name[n] == ' ')
            rc = 0;
    }
    return rc;
}

/* A word before the verb is complete. -1: go on; otherwise an exit code. */
static int take_verb_word(struct args *a, char *name, size_t size, const char *word)
{
    size_t used = strlen(name);
    snprintf(name + used, size - used, "%s%s", used ? " " : "", word);
    return find_verb(a, name) < 0 ? unknown_verb(name) : -1;
}

/* `terminal` is a verb, and `terminal list` is another. */
static bool is_longer_verb(const struct args *a, const char *name, const char *word)
{
    size_t n = strlen(name);
    if (a->word_count > 0)
        return false;
    for (const struct verb *v = verbs; v->name; v++)
        if (strncmp(v->name, name, n) == 0 && v->name[n] == ' ' &&
            strcmp(v->name + n + 1, word) == 0)
            return true;
    return false;
}

/* ---- the line ---------------------------------------------------------------------------- */

static bool is_unset_word(const struct args *a, const char *arg)
{
    return a->verb && a->verb->takes_unset && arg[0] == '-' && arg[1] && arg[1] != '-';
}

static int parse_one(struct args *a, char *name, size_t size, char **argv, int argc, int *i)
{
    const char *arg = argv[*i];
    bool is_word = arg[0] != '-' || !arg[1] || is_unset_word(a, arg);
    if ((strcmp(arg, "--version") == 0 || strcmp(arg, "-V") == 0) && !a->verb) {
        printf("sandboxctl " SANDBOX_VERSION "\n");
        return CTL_OK;
    }
    if (is_word && !a->verb && !name[0] && strcmp(arg, HELP) == 0) {
        a->wants_help = true; /* `help VERB` */
        return -1;
    }
    if (is_word && (!a->verb || is_longer_verb(a, name, arg)))
        return take_verb_word(a, name, size, arg);
    if (is_word) {
        a->words[a->word_count++] = arg;
        return -1;
    }
    return arg[1] == '-' ? take_long(a, argv, argc, i) : take_letters(a, argv, argc, i);
}

static int check_words(const struct args *a)
{
    const struct verb *v = a->verb;
    int max = v->max_words;
    if (a->argv && !v->takes_argv)
        return usage_error(v, "no '--' here");
    if (v->takes_argv && !a->argv && a->word_count > 1)
        return usage_error(v,
                           "one TEXT expected, %d words given; quote it, or put -- before an argv",
                           a->word_count);
    if (max >= 0 && a->word_count > max)
        return usage_error(v, "unexpected argument '%s'", a->words[max]);
    if (a->word_count < v->min_words)
        return usage_error(v, "too few arguments; usage: sandboxctl %s %s", v->name, v->synopsis);
    return -1;
}

int args_parse(struct args *a, int argc, char **argv)
{
    char name[128] = "";
    size_t slots = (size_t)argc + 1, letters = 0;
    for (int i = 1; i < argc; i++) /* -abc may be three options */
        letters += strlen(argv[i]) < 16 ? strlen(argv[i]) : 16;
    memset(a, 0, sizeof *a);
    a->words = calloc(slots, sizeof *a->words);
    a->given = calloc(slots + letters, sizeof *a->given);
    if (!a->words || !a->given)
        return usage_error(NULL, "no memory");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            a->argv = argv + i + 1;
            a->argv_count = argc - i - 1;
            break;
        }
        int rc = parse_one(a, name, sizeof name, argv, argc, &i);
        if (rc >= 0)
            return rc;
    }
    if (a->wants_help || (!a->verb && !name[0])) {
        if (a->verb)
            help_print_verb(a->verb);
        else
            help_print(name);
        return a->wants_help ? CTL_OK : CTL_USAGE;
    }
    if (!a->verb)
        return usage_error(NULL, "'%s' needs a second word, such as '%s list'", name, name);
    return check_words(a);
}

void args_free(struct args *a)
{
    free(a->words);
    free(a->given);
    memset(a, 0, sizeof *a);
}

const char *args_get(const struct args *a, const char *option)
{
    const char *value = NULL;
    for (int i = 0; i < a->given_count; i++)
        if (strcmp(a->given[i].option->name, option) == 0)
            value = a->given[i].value;
    return value;
}

bool args_has(const struct args *a, const char *option)
{
    return args_get(a, option) != NULL;
}
