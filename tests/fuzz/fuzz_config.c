/*
 * libFuzzer target for the ini parser (init-test 49). An input is a file; what stands behind its
 * first 0xff byte is an environment, one variable a line, or behind a second 0xff an env file.
 * Checked beyond crashes and leaks: a failure has a complaint of one line with file and line, a
 * success obeys the ranges, has an order and doesn't differ from itself.
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

static void check_argv(char *const *argv)
{
    if (argv && (!argv[0] || !argv[0][0]))
        abort();
}

static void check_names(const struct config *c, const struct name_list *names)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->items[i], SERVICE_MAIN) != 0 && !config_service(c, names->items[i]))
            abort();
    if (argv_count(names->items) != names->count)
        abort();
}

static void check_check(const struct check *k)
{
    if ((k->kind == CHECK_NONE) != (k->text == NULL) ||
        ((k->kind == CHECK_TCP || k->kind == CHECK_HTTP) &&
         (!k->target || k->port < 1 || k->port > 65535)) ||
        (k->kind == CHECK_HTTP && (!k->http_host || k->http_path[0] != '/')) ||
        (k->kind == CHECK_FD && (k->fd < 3 || k->fd > 255)) ||
        (k->kind == CHECK_COMMAND && !k->argv))
        abort();
    check_argv(k->argv);
}

static void check_service(const struct config *c, const struct service_config *s)
{
    if (!s->argv == !s->script || s->stop_signal < 1 ||
        s->restart_delay_ms > s->restart_backoff_ms ||
        (s->log == SERVICE_LOG_FILE && s->log_file[0] != '/') || s->nice < -20 || s->nice > 19 ||
        !service_config_equal(s, s) || !service_config_same_process(s, s) || !s->file || !s->line)
        abort();
    check_argv(s->argv);
    check_argv(s->pre_start);
    check_argv(s->stop_command);
    check_argv(s->post_stop);
    check_check(&s->ready);
    check_check(&s->health);
    check_names(c, &s->requires);
    check_names(c, &s->after);
    check_names(c, &s->before);
}

static void check_success(const struct config *c)
{
    if (c->service_count > SERVICES_MAX)
        abort();
    for (size_t i = 0; i < c->service_count; i++)
        check_service(c, &c->services[i]);
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

static void check_complaint(const struct error *e)
{
    size_t n = strlen(e->text);
    bool has_place = strncmp(e->text, "environment: ", 13) == 0;
    const char *colon = strchr(e->text, ':');
    has_place = has_place || (colon && colon[1] >= '1' && colon[1] <= '9');
    /* A file that it names may not be there. */
    bool is_file = strstr(e->text, "files: ") || strstr(e->text, "env_file: ");
    if ((e->code != ERR_INVALID && !(e->code == ERR_SYSTEM && is_file)) || !has_place || n == 0 ||
        n >= sizeof e->text - 1 || strpbrk(e->text, "\n\r\t\x1b"))
        abort();
}

/* The third part as an env file. */
static void check_env_file(const char *bytes, size_t n)
{
    struct env_list list = {0};
    struct strbuf items = {0};
    struct error e = {0};
    size_t assigned = 0;
    if (env_file_read("F", bytes, n, &items, &e) < 0)
        check_complaint(&e);
    else if (env_file_take("F", items.data, items.len, &list, &assigned, &e) < 0 &&
             assigned <= CONFIG_ENV_FILES_MAX)
        abort();
    strbuf_free(&items);
    for (size_t i = 0; i < list.count; i++)
        if (!strchr(list.items[i], '=') || env_list_find(&list, list.items[i], i) != (long)i)
            abort();
    env_list_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct error e = {0};
    char *items[VARIABLES + 1] = {NULL};
    const uint8_t *mark = n ? memchr(data, 0xff, n) : NULL;
    size_t file_n = mark ? (size_t)(mark - data) : n;
    char *text = mark ? strndup((const char *)mark + 1, n - file_n - 1) : NULL;
    const uint8_t *mark2 = mark ? memchr(mark + 1, 0xff, n - file_n - 1) : NULL;
    if (mark2)
        check_env_file((const char *)mark2 + 1, n - (size_t)(mark2 + 1 - data));
    if (text)
        split(text, items);
    struct config *a = config_parse("F", (const char *)data, file_n, items, &e);
    struct config *b = config_parse("F", (const char *)data, file_n, items, &e);
    if (!a != !b)
        abort();
    if (a) {
        check_success(a);
        config_diff(a, b, on_tell, NULL);
    } else {
        check_complaint(&e);
    }
    config_free(a);
    config_free(b);
    free(text);
    return 0;
}
