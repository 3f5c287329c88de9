/*
 * Where output goes. supervisord has a file for each stream; a service has one log for both.
 */
#include "import/import_internal.h"

#include <stdlib.h>
#include <string.h>

#define SIZE_DEFAULT  ((unsigned long)50 << 20)
#define SIZE_MIN      4096
#define SIZE_MAX_G    64
#define BACKUPS       10
#define BACKUPS_MAX   1000
#define SUFFIX_LENGTH 2

enum target { TO_AUTO, TO_NOWHERE, TO_INIT, TO_FILE, TO_SYSLOG };

static enum target target_of(const char *text)
{
    static const char *const own[] = {"/dev/stdout",     "/dev/stderr",    "/dev/fd/1",
                                      "/dev/fd/2",       "/proc/1/fd/1",   "/proc/1/fd/2",
                                      "/proc/self/fd/1", "/proc/self/fd/2"};
    if (!text || strcasecmp(text, "auto") == 0)
        return TO_AUTO;
    if (strcasecmp(text, "none") == 0 || strcasecmp(text, "off") == 0 ||
        strcmp(text, "/dev/null") == 0)
        return TO_NOWHERE;
    if (strcasecmp(text, "syslog") == 0)
        return TO_SYSLOG;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(text, own[i]) == 0)
            return TO_INIT;
    return TO_FILE;
}

struct streams {
    struct import *im;
    struct expand_names *names;
    const char *section;
    char *path[2]; /* of stdout and stderr */
    enum target to[2];
};

static const struct conf_setting *setting(const struct streams *s, const char *key)
{
    return conf_find(&s->im->conf, s->section, key);
}

/* "50MB", "1024": bytes. */
static unsigned long long size_value(struct streams *s, const char *key)
{
    static const char *const suffixes[] = {"kb", "mb", "gb"};
    char *text = import_value(s->im, s->names, s->section, key), *end;
    unsigned long long n = SIZE_DEFAULT;
    if (!text)
        return n;
    n = strtoull(text, &end, 10);
    bool is_good = end != text && text[0] != '-' && n < (1ull << 32);
    for (unsigned i = 0; i < 3; i++)
        if (strcasecmp(end, suffixes[i]) == 0) {
            n <<= 10 * (i + 1);
            end += SUFFIX_LENGTH;
        }
    if (!is_good || *end)
        import_fault(s->im, setting(s, key), "'%s' is no size such as 50MB", text);
    free(text);
    return n;
}

static void put_file(struct streams *s, int stream)
{
    static const char *const sizes[] = {"stdout_logfile_maxbytes", "stderr_logfile_maxbytes"};
    static const char *const backups[] = {"stdout_logfile_backups", "stderr_logfile_backups"};
    unsigned long long size = size_value(s, sizes[stream]);
    unsigned long keep =
        import_number(s->im, s->names, s->section, backups[stream], BACKUPS, 1000000);
    char *path = import_path(s->im, s->path[stream]);
    import_put(s->im, "log = file:%s\n", path ? path : "");
    if (size == 0 || size >> 30 >= SIZE_MAX_G)
        import_put(s->im, "log_max_size = %dG\n", SIZE_MAX_G);
    else if (size % (1u << 20) == 0)
        import_put(s->im, "log_max_size = %lluM\n", size >> 20);
    else
        import_put(s->im, "log_max_size = %llu\n", size < SIZE_MIN ? SIZE_MIN : size);
    import_put(s->im, "log_keep = %lu\n", keep < BACKUPS_MAX ? keep : BACKUPS_MAX);
    free(path);
}

static bool is_same(const struct streams *s)
{
    bool is_init[2];
    for (int i = 0; i < 2; i++)
        is_init[i] = s->to[i] == TO_AUTO || s->to[i] == TO_INIT;
    if (is_init[0] && is_init[1])
        return true;
    return s->to[0] == s->to[1] && (s->to[0] != TO_FILE || strcmp(s->path[0], s->path[1]) == 0);
}

/* A stream that does not go where its setting says, since the other one has the service's log. */
static void tell_other(struct streams *s, int stream)
{
    static const char *const keys[] = {"stdout_logfile", "stderr_logfile"};
    if (s->to[stream] != TO_AUTO && setting(s, keys[stream]))
        import_missing(s->im, setting(s, keys[stream]),
                       "no equivalent: both streams of a service are one log");
}

void import_log(struct import *im, struct expand_names *names, const char *section)
{
    struct streams s = {.im = im, .names = names, .section = section};
    bool is_one = import_flag(im, names, section, "redirect_stderr", false);
    s.path[0] = import_value(im, names, section, "stdout_logfile");
    s.path[1] = is_one ? NULL : import_value(im, names, section, "stderr_logfile");
    s.to[0] = target_of(s.path[0]);
    s.to[1] = is_one ? s.to[0] : target_of(s.path[1]);
    /* The log is stdout's, unless only stderr's is kept. */
    int stream = s.to[0] != TO_FILE && s.to[0] != TO_INIT && s.to[1] == TO_FILE && !is_one;
    if (s.to[stream] == TO_FILE)
        put_file(&s, stream);
    else if (s.to[0] == TO_NOWHERE && s.to[1] == TO_NOWHERE)
        import_put(im, "log = none\n");
    for (int i = 0; i < 2; i++)
        if (s.to[i] == TO_SYSLOG && !(i == 1 && is_one))
            import_missing(im, setting(&s, i ? "stderr_logfile" : "stdout_logfile"),
                           "no equivalent: output goes to init's own, to a file or nowhere");
    if (!is_one && !is_same(&s) && s.to[!stream] != TO_SYSLOG)
        tell_other(&s, !stream);
    free(s.path[0]);
    free(s.path[1]);
}
