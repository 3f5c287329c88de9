/*
 * The command line of sandbox-init.
 */
#ifndef INIT_OPTIONS_H
#define INIT_OPTIONS_H

#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *config_path;      /* as given; NULL: none */
    const char *supervisord_path; /* a file to translate instead of running; NULL: none */
    bool is_check;
    char **main_argv;              /* what stands behind --; NULL: none */
    uint8_t exit_codes[256];       /* the container's code for each of the main command's */
    struct signal_rewrite rewrite; /* stands above the file's */
};

/* Fill *o from the command line; strings and main_argv are borrowed from argv. A bad one ends the
 * program here with a complaint and the usage text (status 2), --help and --version with 0. */
void options_parse(struct options *o, int argc, char **argv);

#endif
