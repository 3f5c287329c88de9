/* The command line: tables of verbs and options, and the parser that goes by them. */
#ifndef CTL_OPTIONS_H
#define CTL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

struct option {
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* 0: none */
    const char *arg;  /* what the value is called in the help; NULL: a switch */
    const char *help;
};

struct args;

struct verb {
    const char *name;     /* "exec", "session create" */
    const char *synopsis; /* what follows the name in the usage line */
    const char *summary;
    const struct option *options;
    int min_words, max_words; /* positionals; max -1: any number */
    bool takes_argv;          /* `-- ARGV…` */
    bool takes_unset;         /* -NAME is a positional */
    int (*run)(const struct args *a);
};

/* A parsed command line; all pointers lead into argv. */
struct args {
    const struct verb *verb;
    const char *socket; /* -S; NULL: not given */
    bool is_json;
    bool wants_help;
    const char **words;
    int word_count;
    char **argv; /* behind `--`; NULL: no `--` */
    int argv_count;
    struct given {
        const struct option *option;
        const char *value; /* "" for a switch */
    } * given;
    int given_count;
};

/* The options that every verb knows. */
extern const struct option global_options[];

/* Parse; -1 when *a is filled and the verb is to run, otherwise the exit code after help, version
 * or a complaint was printed. args_free() in any case. */
int args_parse(struct args *a, int argc, char **argv);
void args_free(struct args *a);

/* The last value given for an option, or NULL. */
const char *args_get(const struct args *a, const char *option);
bool args_has(const struct args *a, const char *option);

/* Print "sandboxctl VERB: <text>" and where help is. Returns CTL_USAGE. */
int usage_error(const struct verb *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The name nearest to a mistyped one, or NULL if none is near (help.c). */
const char *nearest_name(const char *typed, const char *best, const char *candidate);
/* Of all verbs (""), or of those whose first word is family. */
void help_print(const char *family);
void help_print_verb(const struct verb *v);

#endif
