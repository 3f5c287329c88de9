/*
 * The whole of a translation: read the files, write what each section means, check the result, and
 * sum up.
 */
#include "import/import.h"

#include "base/number.h"
#include "config/config.h"
#include "config/pattern.h"
#include "import/import_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUT_MAX    ((size_t)4 << 20) /* what sandbox-init reads */
#define SHOWN_MAX  100               /* bytes of a value in a comment */
#define MAIN_TITLE "supervisord"

static void no_memory(struct import *im)
{
    if (im->e.code == ERR_NONE)
        error_set(&im->e, ERR_MEMORY, "out of memory (the result may have 4M)");
}

void import_put(struct import *im, const char *fmt, ...)
{
    char line[8192];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line || strbuf_add(&im->out, line, (size_t)n) < 0)
        no_memory(im);
}

/* "FILE:LINE: key = value", its newlines as blanks and its end cut. */
static void put_setting(struct strbuf *to, const struct conf_setting *s)
{
    strbuf_addf(to, "%s:%u: ", s->file, s->line);
    if (!s->key) {
        strbuf_addf(to, "[%s]", s->section);
        return;
    }
    strbuf_addf(to, "%s = ", s->key);
    size_t n = strlen(s->value);
    for (size_t i = 0; i < n && i < SHOWN_MAX; i++)
        strbuf_add(to, (unsigned char)s->value[i] < 0x20 ? " " : s->value + i, 1);
    if (n > SHOWN_MAX)
        strbuf_adds(to, "...");
}

void import_hint(struct import *im, const struct conf_setting *s, const char *why)
{
    strbuf_adds(&im->out, "# ");
    put_setting(&im->out, s);
    import_put(im, ": %s\n", why);
}

void import_missing(struct import *im, const struct conf_setting *s, const char *why)
{
    struct strbuf line = {0};
    import_hint(im, s, why);
    strbuf_adds(&line, "  ");
    put_setting(&line, s);
    strbuf_addf(&line, ": %s\n", why);
    /* Each process of a program says it again. */
    if (!strstr(strbuf_text(&im->missing), strbuf_text(&line))) {
        strbuf_adds(&im->missing, strbuf_text(&line));
        im->missing_count++;
    }
    strbuf_free(&line);
}

void import_fault(struct import *im, const struct conf_setting *s, const char *fmt, ...)
{
    char why[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    if (im->e.code == ERR_NONE)
        error_set(&im->e, ERR_INVALID, "%s:%u: %s%s%s", s->file, s->line, s->key ? s->key : "",
                  s->key ? ": " : "", why);
}

/* ---- values ---- */

/* The folder of a file, absolute. */
static void import_folder(const struct import *im, const char *file, char *buf, size_t size)
{
    const char *slash = strrchr(file, '/');
    int n = slash ? (int)(slash - file) : 0;
    if (file[0] == '/')
        snprintf(buf, size, "%.*s", n ? n : 1, file);
    else
        snprintf(buf, size, "%s%s%.*s", im->folder, n ? "/" : "", n, file);
}

static char *value_of(struct import *im, struct expand_names *names, const char *section,
                      const char *key, bool keeps_variables)
{
    char here[4200];
    struct error e = {0};
    struct strbuf text = {0};
    const struct conf_setting *s = conf_find(&im->conf, section, key);
    if (!s)
        return NULL;
    import_folder(im, s->file, here, sizeof here);
    names->here = here;
    int status = expand(names, s->value, keeps_variables, &text, &e);
    names->here = NULL;
    if (status == 0) {
        char *copy = strdup(strbuf_text(&text));
        strbuf_free(&text);
        if (!copy)
            no_memory(im);
        return copy;
    }
    strbuf_free(&text);
    if (e.code == ERR_NOT_FOUND) {
        import_missing(im, s, e.text);
    } else {
        import_fault(im, s, "%s", e.text);
    }
    return NULL;
}

char *import_value(struct import *im, struct expand_names *names, const char *section,
                   const char *key)
{
    return value_of(im, names, section, key, false);
}

char *import_text(struct import *im, struct expand_names *names, const char *section,
                  const char *key)
{
    return value_of(im, names, section, key, true);
}

char *import_path(struct import *im, const char *path)
{
    char *whole = NULL;
    if (!path)
        return NULL;
    const char *base = im->directory ? im->directory : im->folder;
    if (asprintf(&whole, "%s%s%s", path[0] == '/' ? "" : base, path[0] == '/' ? "" : "/", path) < 0)
        no_memory(im);
    return whole;
}

bool import_flag(struct import *im, struct expand_names *names, const char *section,
                 const char *key, bool initial)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
    char *text = import_value(im, names, section, key);
    bool is_known = !text, flag = initial;
    for (size_t i = 0; text && i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(text, words[i]) == 0) {
            is_known = true;
            flag = i % 2;
        }
    if (!is_known)
        import_fault(im, conf_find(&im->conf, section, key), "'%s' is neither true nor false",
                     text);
    free(text);
    return flag;
}

unsigned long import_number(struct import *im, struct expand_names *names, const char *section,
                            const char *key, unsigned long initial, unsigned long max)
{
    uint64_t n = initial;
    char *text = import_value(im, names, section, key);
    if (text && number_parse_u64(text, max, &n) < 0)
        import_fault(im, conf_find(&im->conf, section, key),
                     "'%s' is not a whole number from 0 to %lu", text, max);
    free(text);
    return (unsigned long)n;
}

/* ---- files ---- */

static struct expand_names common_names(struct import *im)
{
    return (struct expand_names){
        .host_name = im->host_name, .process_num = -1, .numprocs = -1, .environ_ = im->environ_};
}

static void read_pattern(struct import *im, const struct conf_setting *files, const char *pattern)
{
    char base[4200], why[256];
    char *path = NULL;
    import_folder(im, files->file, base, sizeof base);
    if (asprintf(&path, "%s%s%s", pattern[0] == '/' ? "" : base, pattern[0] == '/' ? "" : "/",
                 pattern) < 0) {
        no_memory(im);
        return;
    }
    char **found = pattern_expand(path, &im->e);
    if (found && !found[0]) {
        snprintf(why, sizeof why, "no file fits '%.200s'", pattern);
        import_hint(im, files, why);
    }
    for (size_t i = 0; found && found[i] && im->e.code == ERR_NONE; i++)
        conf_read(&im->conf, found[i], &im->e);
    free(found);
    free(path);
}

/* Included files are read behind the main one, and include none themselves. */
static void read_files(struct import *im, const char *path)
{
    char *save = NULL;
    struct expand_names names = common_names(im);
    if (conf_read(&im->conf, path, &im->e) < 0)
        return;
    char *text = import_value(im, &names, "include", "files");
    struct conf_setting files = {0};
    if (text) { /* a copy: an included file may say [include] files as well */
        files = *conf_find(&im->conf, "include", "files");
        files.value = strdup(text);
    }
    if (text && !files.value)
        no_memory(im);
    for (char *word = files.value ? strtok_r(text, " \t\r\n", &save) : NULL; word;
         word = strtok_r(NULL, " \t\r\n", &save))
        read_pattern(im, &files, word);
    free(files.value);
    free(text);
    if (im->e.code == ERR_NONE && !conf_find(&im->conf, MAIN_TITLE, NULL))
        error_set(&im->e, ERR_INVALID,
                  "%s: there is no [supervisord] section: not a file of supervisord, or one that "
                  "another includes (give that one)",
                  path);
}

/* ---- [supervisord] ---- */

static void put_log_level(struct import *im, const char *level)
{
    static const char *const levels[][2] = {
        {"critical", "error"}, {"crit", "error"},   {"error", "error"}, {"erro", "error"},
        {"warn", "warn"},      {"warning", "warn"}, {"info", "info"},   {"debug", "debug"},
        {"debg", "debug"},     {"trace", "debug"},  {"trac", "debug"},  {"blather", "debug"},
        {"blat", "debug"}};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (strcasecmp(level, levels[i][0]) == 0) {
            import_put(im, "log_level = %s\n", levels[i][1]);
            return;
        }
    import_fault(im, conf_find(&im->conf, MAIN_TITLE, "loglevel"), "'%s' is no log level", level);
}

static void read_main_section(struct import *im)
{
    struct expand_names names = common_names(im);
    char *environment = import_text(im, &names, MAIN_TITLE, "environment");
    char *level = import_value(im, &names, MAIN_TITLE, "loglevel");
    char *directory = NULL;
    struct error e = {0};
    im->user = import_value(im, &names, MAIN_TITLE, "user");
    bool is_daemon = !import_flag(im, &names, MAIN_TITLE, "nodaemon", false);
    if (is_daemon) {
        directory = import_value(im, &names, MAIN_TITLE, "directory");
        im->umask = import_value(im, &names, MAIN_TITLE, "umask");
    }
    im->directory = import_path(im, directory);
    im->descriptors = import_number(im, &names, MAIN_TITLE, "minfds", 0, 1ul << 30);
    if (environment && words_add_pairs(&im->env, environment, &e) < 0)
        import_fault(im, conf_find(&im->conf, MAIN_TITLE, "environment"), "%s", e.text);
    import_put(im, "[init]\n");
    if (level)
        put_log_level(im, level);
    import_other_keys(im, MAIN_TITLE);
    for (size_t i = 0; i < 2 && !is_daemon; i++) {
        const struct conf_setting *s = conf_find(&im->conf, MAIN_TITLE, i ? "umask" : "directory");
        if (s)
            import_hint(im, s, "not needed: supervisord heeds it as a daemon only");
    }
    free(environment);
    free(level);
    free(directory);
}

/* ---- the whole ---- */

static void translate(struct import *im, const char *path)
{
    import_put(im, "# Made by sandbox-init --import-supervisord %s\n", path);
    read_files(im, path);
    if (im->e.code != ERR_NONE)
        return;
    read_main_section(im);
    for (size_t i = 0; i < im->conf.count; i++) {
        struct conf_setting *s = &im->conf.items[i];
        if (s->key || strcmp(s->section, MAIN_TITLE) == 0 || strcmp(s->section, "include") == 0)
            continue;
        import_put(im, "\n");
        if (!import_other_section(im, s))
            import_program(im, s);
    }
}

/* 0: as good as it says; 1: a fault. */
static int finish(struct import *im, const char *path)
{
    struct error e = {0};
    if (im->e.code != ERR_NONE) {
        fprintf(stderr, "sandbox-init: %s\n", im->e.text);
        /* An empty file would be a valid one, of a container without services. */
        puts("[this is no configuration: --import-supervisord has failed]");
        return 1;
    }
    if (fwrite(strbuf_text(&im->out), 1, im->out.len, stdout) != im->out.len ||
        fflush(stdout) != 0) {
        fprintf(stderr, "sandbox-init: stdout: %s\n", strerror(errno));
        return 1;
    }
    fprintf(stderr, "sandbox-init: %s: %u service%s; %u setting%s no equivalent%s\n%s", path,
            im->service_count, im->service_count == 1 ? "" : "s", im->missing_count,
            im->missing_count == 1 ? " has" : "s have", im->missing_count ? ":" : "",
            strbuf_text(&im->missing));
    struct config *c = config_parse("result", strbuf_text(&im->out), im->out.len, NULL, &e);
    if (!c)
        fprintf(stderr, "sandbox-init: the result needs an edit: %s\n", e.text);
    config_free(c);
    return c ? 0 : 1;
}

int import_supervisord(const char *path, char *const *environ_)
{
    struct import im = {.environ_ = environ_, .out = {.limit = OUT_MAX}};
    if (gethostname(im.host_name, sizeof im.host_name - 1) < 0)
        im.host_name[0] = '\0';
    if (!getcwd(im.folder, sizeof im.folder))
        error_set_sys(&im.e, errno, "the folder that this runs in");
    if (im.e.code == ERR_NONE)
        translate(&im, path);
    int status = finish(&im, path);
    conf_free(&im.conf);
    words_free(&im.env);
    strbuf_free(&im.out);
    strbuf_free(&im.missing);
    free(im.user);
    free(im.directory);
    free(im.umask);
    return status;
}
