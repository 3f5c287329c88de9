/*
 * One [program:NAME]: a [service:NAME], or one for each of its processes where they differ by more
 * than their number.
 */
#include "base/number.h"
#include "import/import_internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES          64
#define GRACE_MAX           3600 /* seconds */
#define YEAR                (365ul * 24 * 3600)
#define PROCESSES_MAX       1000
#define RETRIES_DEFAULT     3
#define RETRIES_MAX         10000
#define DAY                 (24ul * 3600)
#define DESCRIPTORS_DEFAULT 1024

struct program {
    struct import *im;
    const struct conf_setting *head;
    const char *section;
    struct expand_names names;
    struct words env; /* [supervisord] environment, and its own above it */
};

static char *value(struct program *p, const char *key)
{
    return import_value(p->im, &p->names, p->section, key);
}

static const struct conf_setting *setting(const struct program *p, const char *key)
{
    return conf_find(&p->im->conf, p->section, key);
}

/* ---- names ---- */

/* A service's name is made of letters, digits, '_', '.' and '-', and is not `main`. */
static void put_name(struct program *p, const char *text)
{
    char name[NAME_BYTES + 1], why[NAME_BYTES + 64];
    size_t n = 0;
    for (; n < NAME_BYTES && text[n]; n++)
        name[n] =
            strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", text[n])
                ? text[n]
                : '-';
    name[n] = '\0';
    if (name_check(name) < 0)
        name[0] = 'x';
    if (strcmp(name, "main") == 0)
        memcpy(name, "main1", sizeof "main1");
    import_put(p->im, "[service:%s]\n", name);
    if (strcmp(name, text) == 0)
        return;
    snprintf(why, sizeof why, "no service can have that name: it is '%s' here", name);
    import_missing(p->im, p->head, why);
}

/* ---- what is run ---- */

static void put_command(struct program *p)
{
    struct words words = {0};
    struct error e = {0};
    char *text = import_text(p->im, &p->names, p->section, "command");
    const struct conf_setting *s = setting(p, "command");
    if (!s)
        import_fault(p->im, p->head, "[%s] has no command", p->section);
    else if (text && (words_split(&words, text, &e) < 0 ||
                      words_print_command(&words, &p->env, &p->im->out, &e) < 0))
        import_fault(p->im, s, "%s", e.text);
    else if (words.count == 0)
        import_fault(p->im, s, "it is empty");
    words_free(&words);
    free(text);
}

static void put_text(struct program *p, const char *key, const char *text)
{
    struct error e;
    if (text && words_print_value(key, text, &p->im->out) < 0 && p->im->e.code == ERR_NONE) {
        error_set(&e, ERR_MEMORY, "out of memory");
        p->im->e = e;
    }
}

static void put_umask(struct program *p)
{
    char *text = value(p, "umask"), *end = NULL;
    const char *mask = text ? text : p->im->umask;
    if (mask) {
        unsigned long n = strtoul(mask, &end, 8);
        if (!*mask || *end || n > 0777)
            import_fault(p->im, text ? setting(p, "umask") : p->head, "'%s' is no umask", mask);
        import_put(p->im, "umask = %03lo\n", n);
    }
    free(text);
}

/* True if the command or the environment looks a variable up. */
static bool uses_variable(const struct program *p, const char *name)
{
    static const char *const keys[] = {"command", "environment"};
    for (size_t i = 0; i < 2; i++)
        if (setting(p, keys[i]) && expand_uses(setting(p, keys[i])->value, name))
            return true;
    return false;
}

static void put_place(struct program *p)
{
    char *directory = value(p, "directory"), *user = value(p, "user");
    char *path = import_path(p->im, directory);
    put_text(p, "cwd", path ? path : p->im->directory);
    if (user && (uses_variable(p, "ENV_HOME") || uses_variable(p, "ENV_USER")))
        import_hint(p->im, setting(p, "user"),
                    "HOME and USER are this user's, unless env.NAME says else");
    if (user || (p->im->user && strcmp(p->im->user, "root") != 0))
        put_text(p, "user", user ? user : p->im->user);
    put_umask(p);
    if (p->im->descriptors > DESCRIPTORS_DEFAULT)
        import_put(p->im, "limit.nofile = %lu\n", p->im->descriptors);
    for (size_t i = 0; i < p->env.count; i++) {
        char key[200];
        const char *item = p->env.items[i];
        size_t n = strcspn(item, "=");
        if (words_has_variable(item)) /* the script exports it */
            continue;
        snprintf(key, sizeof key, "env.%.*s", (int)n, item);
        put_text(p, key, item + n + 1);
    }
    free(directory);
    free(user);
    free(path);
}

/* [supervisord] environment, then the program's: both may use variables, and the second one's
 * values are known to what follows as %(ENV_X)s. */
static void read_environment(struct program *p)
{
    struct error e = {0};
    for (size_t i = 0; i < p->im->env.count; i++)
        words_add_pair(&p->env, p->im->env.items[i], &e);
    char *text = import_text(p->im, &p->names, p->section, "environment");
    if (text && words_add_pairs(&p->env, text, &e) < 0)
        import_fault(p->im, setting(p, "environment"), "%s", e.text);
    p->names.own = p->env.items;
    free(text);
}

/* ---- how often ---- */

/* A start of supervisord has failed when it did not last for startsecs; startretries more are
 * tried, each a second later than the one before. Only that many ends in a row, none of which
 * lasted, fit in the window. */
static void put_retries(struct program *p, bool is_never)
{
    unsigned long seconds = import_number(p->im, &p->names, p->section, "startsecs", 1, DAY);
    unsigned long retries =
        import_number(p->im, &p->names, p->section, "startretries", RETRIES_DEFAULT, RETRIES_MAX);
    unsigned long count = retries > 0 ? retries : 1, window = count * seconds + 1;
    for (unsigned long i = 0, delay = 1; i < count; i++) {
        window += delay;
        delay = 2 * delay < count ? 2 * delay : count;
    }
    if (is_never)
        return;
    import_put(p->im, "restart_max = %lu\nrestart_backoff = %lus\nrestart_window = %lus\n", count,
               count, window < YEAR ? window : YEAR);
    if (retries == 0)
        import_hint(p->im, setting(p, "startretries"), "once more at least");
}

/* The list of exit codes, as it stands; *has_zero says whether 0 is one. */
static void put_codes(struct program *p, const char *text, bool *has_zero)
{
    uint64_t code;
    char *save = NULL, *copy = strdup(text);
    const char *separator = "success_codes = ";
    *has_zero = false;
    for (char *w = copy ? strtok_r(copy, ", \t\n", &save) : NULL; w;
         w = strtok_r(NULL, ", \t\n", &save)) {
        if (number_parse_u64(w, 255, &code) < 0) {
            import_fault(p->im, setting(p, "exitcodes"), "'%s' is no exit code", w);
            break;
        }
        *has_zero = *has_zero || code == 0;
        import_put(p->im, "%s%u", separator, (unsigned)code);
        separator = ", ";
    }
    import_put(p->im, "%s", separator[0] == ',' ? "\n" : "");
    free(copy);
}

static void put_restart(struct program *p)
{
    char *text = value(p, "autorestart"), *codes = value(p, "exitcodes");
    bool is_unexpected = !text || strcasecmp(text, "unexpected") == 0, has_zero = true;
    bool is_never =
        !is_unexpected && !import_flag(p->im, &p->names, p->section, "autorestart", true);
    if (!import_flag(p->im, &p->names, p->section, "autostart", true))
        import_put(p->im, "autostart = no\n");
    if (text && is_unexpected)
        import_put(p->im, "restart = on-failure\n");
    else if (text)
        import_put(p->im, "restart = %s\n", is_never ? "never" : "always");
    if (codes)
        put_codes(p, codes, &has_zero);
    if (is_unexpected && !has_zero)
        import_missing(p->im, setting(p, "exitcodes"), "no equivalent: 0 always is a success");
    put_retries(p, is_never);
    free(text);
    free(codes);
}

static void put_stop(struct program *p)
{
    char *text = value(p, "stopsignal");
    int sig = 0;
    if (text && signal_parse(text, &sig) < 0)
        import_fault(p->im, setting(p, "stopsignal"), "'%s' is no signal", text);
    else if (text)
        put_text(p, "stop_signal", text);
    unsigned long grace = import_number(p->im, &p->names, p->section, "stopwaitsecs", 10, YEAR);
    import_put(p->im, "stop_grace = %lus\n", grace < GRACE_MAX ? grace : GRACE_MAX);
    if (grace > GRACE_MAX)
        import_missing(p->im, setting(p, "stopwaitsecs"), "no equivalent: an hour is the longest");
    free(text);
}

/* ---- one service ---- */

static void put_service(struct program *p, const char *name, unsigned long instances)
{
    long priority;
    const struct conf_setting *process_name = setting(p, "process_name");
    import_put(p->im, "# %s:%u\n", p->head->file, p->head->line);
    put_name(p, name);
    put_command(p);
    if (instances > 1)
        import_put(p->im, "instances = %lu\n", instances);
    put_place(p);
    put_restart(p);
    put_stop(p);
    if (import_priority(p->im, p->section, &priority))
        import_put(p->im, "priority = %ld\n", priority);
    import_log(p->im, &p->names, p->section);
    if (process_name && strcmp(name, p->names.program_name) == 0 &&
        !expand_uses(process_name->value, "program_name"))
        import_hint(p->im, process_name, "a service is called as its section");
    import_other_keys(p->im, p->section);
    p->im->service_count++;
}

/* One of several processes that differ: named as supervisord names it. */
static void put_process(struct program *p, unsigned long number)
{
    p->names.process_num = (int)number;
    words_free(&p->env);
    p->names.own = NULL;
    read_environment(p);
    char *name = value(p, "process_name");
    if (name)
        put_service(p, name, 1);
    free(name);
}

/* True if anything but the name depends on the number. */
static bool differ_by_number(const struct program *p)
{
    for (size_t i = 0; i < p->im->conf.count; i++) {
        const struct conf_setting *s = &p->im->conf.items[i];
        if (s->key && strcmp(s->section, p->section) == 0 && strcmp(s->key, "process_name") != 0 &&
            expand_uses(s->value, "process_num"))
            return true;
    }
    return false;
}

void import_program(struct import *im, const struct conf_setting *head)
{
    struct program p = {.im = im, .head = head, .section = head->section};
    p.names = (struct expand_names){.program_name = head->section + strlen("program:"),
                                    .group_name = head->section + strlen("program:"),
                                    .host_name = im->host_name,
                                    .process_num = -1,
                                    .numprocs = -1,
                                    .environ_ = im->environ_};
    unsigned long count = import_number(im, &p.names, p.section, "numprocs", 1, PROCESSES_MAX);
    unsigned long first = import_number(im, &p.names, p.section, "numprocs_start", 0, 1 << 20);
    const struct conf_setting *name = setting(&p, "process_name");
    p.names.numprocs = (int)count;
    p.names.process_num = (int)first;
    if (count > 1 && (!name || !expand_uses(name->value, "process_num")))
        import_fault(im, name ? name : head,
                     "numprocs = %lu needs a process_name with %%(process_num)d in it", count);
    else if (count > 1 && differ_by_number(&p))
        for (unsigned long i = 0; i < count && im->e.code == ERR_NONE; i++) {
            import_put(im, "%s", i ? "\n" : "");
            put_process(&p, first + i);
        }
    else if (count > 0) {
        read_environment(&p);
        put_service(&p, p.names.program_name, count);
    } else {
        import_hint(im, head, "numprocs = 0: no service");
    }
    words_free(&p.env);
}
