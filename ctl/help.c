/* Help texts, made from the table of verbs, and the guess at what a mistyped word meant. */
#include "ctl/ctl.h"

#include <stdio.h>
#include <string.h>

#define NAME_MAX_LEN 40

/* Edits from one word to the other: insert, delete, replace, swap neighbours. */
static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    size_t d[NAME_MAX_LEN + 1][NAME_MAX_LEN + 1];
    if (n > NAME_MAX_LEN || m > NAME_MAX_LEN)
        return NAME_MAX_LEN;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

/* How far a candidate may be off; a beginning of at least three letters counts as near. */
static size_t score(const char *typed, const char *candidate)
{
    size_t n = strlen(typed);
    if (n >= 3 && strncmp(typed, candidate, n) == 0)
        return 1;
    return distance(typed, candidate);
}

const char *nearest_name(const char *typed, const char *best, const char *candidate)
{
    size_t bound = strlen(candidate) / 3 + 1;
    size_t s = score(typed, candidate);
    if (s > bound || (best && s >= score(typed, best)))
        return best;
    return candidate;
}

static void print_options(const struct option *o)
{
    for (; o->name; o++) {
        char left[64];
        char letter[8] = "    ";
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->arg ? " " : "",
                 o->arg ? o->arg : "");
        printf("  %-26s %s\n", left, o->help);
    }
}

void help_print(const char *family)
{
    size_t n = strlen(family);
    printf("usage: sandboxctl [-S SOCKET] %s%sVERB [OPTIONS] [ARGUMENTS]\n\n"
           "Drive sandbox-init, the PID 1 of a container that runs code for agents.\n\nverbs:\n",
           family, n ? " " : "");
    for (const struct verb *v = verbs; v->name; v++)
        if (!n || (strncmp(v->name, family, n) == 0 && v->name[n] == ' '))
            printf("  %-16s %s\n", v->name, v->summary);
    printf("\noptions of every verb:\n");
    print_options(global_options);
    printf("  -V, --version              print the version, without a verb\n");
    printf(
        "\nexit codes: 0 done, 1 sandbox-init answered with an error, 2 usage, 3 not reachable;\n"
        "exec, wait and terminal: the command's status, 128 + N if signal N ended it, 124 after a\n"
        "timeout, 123 if it still runs after its soft timeout (wait: --timeout); 125 if it never "
        "ran (127 and 126:\n"
        "its program is missing or cannot be executed); service show: 0 it runs, 3 it does not,\n"
        "4 not known.\n"
        "'sandboxctl VERB --help' tells about one verb.\n");
}

void help_print_verb(const struct verb *v)
{
    printf("usage: sandboxctl %s%s%s\n\n%s\n\noptions:\n", v->name, *v->synopsis ? " " : "",
           v->synopsis, v->summary);
    if (v->options)
        print_options(v->options);
    print_options(global_options);
}
