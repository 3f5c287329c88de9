/*
 * libFuzzer target for the ini parser. An input is a file; what stands behind its first 0xff byte
 * is an environment, one variable a line. Checked beyond crashes and leaks: a failure has a
 * complaint of one line, a success obeys the ranges and doesn't differ from itself.
 */
#include "config/config_internal.h"

#include <stdlib.h>
#include <string.h>

#define VARIABLES 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void on_tell(void *context, enum change_kind kind, const char *section, const char *key)
{
    (void)context;
    (void)kind;
    (void)section;
    (void)key;
    abort(); /* one text read twice makes no difference */
}

/* Split text into lines and point to them; the pointers end with NULL. */
static void split(char *text, char **items)
{
    size_t count = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line && count < VARIABLES;
         line = strtok_r(NULL, "\n", &rest))
        items[count++] = line;
    items[count] = NULL;
}

static void check_success(const struct config *c)
{
    for (size_t i = 0; i < c->session_count; i++) {
        const struct session_config *s = &c->sessions[i];
        if (config_session(c, s->name) != s || s->env.count < c->defaults.env.count)
            abort();
        for (size_t k = 0; k < s->env.count; k++)
            if (!strchr(s->env.items[k], '='))
                abort();
    }
    if (c->session_count > c->max_sessions || (c->defaults.cwd && c->defaults.cwd[0] != '/') ||
        (c->control_socket && strlen(c->control_socket) > 107) || c->log_level > LOG_DEBUG)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct error e = {0};
    char *items[VARIABLES + 1] = {NULL};
    const uint8_t *mark = n ? memchr(data, 0xff, n) : NULL;
    size_t file_n = mark ? (size_t)(mark - data) : n;
    char *text = mark ? strndup((const char *)mark + 1, n - file_n - 1) : NULL;
    if (text)
        split(text, items);
    struct config *a = config_parse("F", (const char *)data, file_n, items, &e);
    struct config *b = config_parse("F", (const char *)data, file_n, items, &e);
    if (!a != !b)
        abort();
    if (a) {
        check_success(a);
        config_diff(a, b, on_tell, NULL);
    } else if (e.code != ERR_INVALID || !e.text[0] || strpbrk(e.text, "\n\r\t\x1b")) {
        abort();
    }
    config_free(a);
    config_free(b);
    free(text);
    return 0;
}
