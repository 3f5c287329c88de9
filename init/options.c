/*
 * The command line. Each option that takes a value is written -x VALUE, -xVALUE, --long VALUE or
 * --long=VALUE, as getopt_long(3) has it; the main command stands behind -- and is not looked at.
 */
#include "init/options.h"
#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage_text[] =
    "usage: sandbox-init [-c FILE] [-e CODE[=CODE]]… [-r SIGNAL:SIGNAL]… [-- MAIN ARGS…]\n"
    "       sandbox-init --check [-c FILE] | --import-supervisord FILE | --version | --help\n"
    "\n"
    "The init of a container that runs code for agents: reaps orphans, runs the main\n"
    "command, owns persistent shell sessions that sandboxctl drives.\n"
    "\n"
    "  -c, --config FILE  read this configuration (sandbox.ini.example lists all keys)\n"
    "  -e, --exit-code CODE=CODE\n"
    "                     where the main command ends with the first, end with the second\n"
    "                     (0 if only one is given); can be repeated\n"
    "  -r, --rewrite SIGNAL:SIGNAL\n"
    "                     pass the second on to the main command in the place of the first\n"
    "                     (0: pass nothing on); can be repeated\n"
    "      --check        check the configuration and the environment's overrides, then exit\n"
    "      --import-supervisord FILE\n"
    "                     print this configuration of supervisord as a sandbox.ini, then exit\n"
    "  -V, --version      print the version\n"
    "  -h, --help         print this text\n"
    "\n"
    "Without a main command it serves until SIGTERM, SIGINT or `sandboxctl shutdown`.\n";

static _Noreturn void usage_error(const char *what, const char *argument, const char *why)
{
    fprintf(stderr, "sandbox-init: %s%s%s%s%s%s\n\n%s", what, argument ? " '" : "",
            argument ? argument : "", argument ? "'" : "", why ? ": " : "", why ? why : "",
            usage_text);
    exit(2);
}

/* The value of the option at argv[*i], if it is the one called brief ("-c", or NULL) or name;
 * *i moves on to a value that is an argument of its own. NULL: another option. */
static const char *value_of(const char *brief, const char *name, int argc, char **argv, int *i)
{
    const char *a = argv[*i];
    size_t n = strlen(name);
    if (strncmp(a, name, n) == 0 && a[n] == '=')
        return a + n + 1;
    if (brief && strncmp(a, brief, 2) == 0 && a[2])
        return a + 2;
    if (strcmp(a, name) != 0 && (!brief || strcmp(a, brief) != 0))
        return NULL;
    if (++*i == argc)
        usage_error("nothing stands behind", a, NULL);
    return argv[*i];
}

/* "143=0"; "143" alone stands for the same, as in tini. */
static void map_exit_code(struct options *o, const char *text)
{
    char from_text[8];
    uint64_t from = 0, to = 0;
    size_t n = strcspn(text, "=");
    snprintf(from_text, sizeof from_text, "%.*s", (int)(n < 8 ? n : 8), text);
    if (n >= sizeof from_text || number_parse_u64(from_text, 255, &from) < 0 ||
        (text[n] && number_parse_u64(text + n + 1, 255, &to) < 0))
        usage_error("-e takes CODE or CODE=CODE, each 0 to 255, not", text, NULL);
    o->exit_codes[from] = (uint8_t)to;
}

static void add_rewrite(struct options *o, const char *text)
{
    struct error e = {0};
    if (signal_rewrite_add(&o->rewrite, text, &e) < 0)
        usage_error("-r", NULL, e.text); /* which names the pair */
}

static void parse_flag(struct options *o, const char *a)
{
    if (strcmp(a, "--check") == 0) {
        o->is_check = true;
    } else if (strcmp(a, "--version") == 0 || strcmp(a, "-V") == 0) {
        puts("sandbox-init " SANDBOX_VERSION);
        exit(0);
    } else if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
        fputs(usage_text, stdout);
        exit(0);
    } else if (a[0] == '-') {
        usage_error("unknown option", a, NULL);
    } else {
        usage_error("a main command stands behind --; unexpected argument", a, NULL);
    }
}

void options_parse(struct options *o, int argc, char **argv)
{
    const char *value;
    *o = (struct options){0};
    for (unsigned i = 0; i < 256; i++)
        o->exit_codes[i] = (uint8_t)i;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            if (i + 1 < argc)
                o->main_argv = &argv[i + 1];
            return;
        }
        if ((value = value_of("-c", "--config", argc, argv, &i)))
            o->config_path = value;
        else if ((value = value_of("-e", "--exit-code", argc, argv, &i)))
            map_exit_code(o, value);
        else if ((value = value_of("-r", "--rewrite", argc, argv, &i)))
            add_rewrite(o, value);
        else if ((value = value_of(NULL, "--import-supervisord", argc, argv, &i)))
            o->supervisord_path = value;
        else
            parse_flag(o, argv[i]);
    }
}
