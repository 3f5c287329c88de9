/*
 * Every section and key of supervisord 4.2 that has no counterpart, with the reason: either it is
 * not needed here, or it is missing.
 */
#include "import/import_internal.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

enum kind {
    TRANSLATED, /* elsewhere */
    UNNEEDED,
    MISSING,
    MISSING_IF_ON, /* "false" and "0" say nothing */
};

struct known {
    const char *name;
    enum kind kind;
    const char *why;
};

#define OWN_LOG   "not needed: init logs to stderr, which the container's engine keeps"
#define FORE      "not needed: init always stays in the foreground"
#define NO_LIMITS "not needed: init raises its own limits as far as it may"
#define WHOLE     "not needed: a stop always reaches the whole tree"
#define NO_EVENTS "no equivalent: init sends no events to programs (`sandboxctl events` shows them)"
#define NO_SYSLOG "no equivalent: output goes to init's own, to a file or nowhere"
#define ONE_LOG   "not needed: both streams of a service are one log"

static const struct known main_keys[] = {
    {"loglevel", TRANSLATED, NULL},
    {"environment", TRANSLATED, NULL},
    {"user", TRANSLATED, NULL},
    {"directory", TRANSLATED, NULL},
    {"umask", TRANSLATED, NULL},
    {"minfds", TRANSLATED, NULL},
    {"minprocs", UNNEEDED, NO_LIMITS},
    {"logfile", UNNEEDED, OWN_LOG},
    {"logfile_maxbytes", UNNEEDED, OWN_LOG},
    {"logfile_backups", UNNEEDED, OWN_LOG},
    {"silent", UNNEEDED, OWN_LOG},
    {"pidfile", UNNEEDED, "not needed: init has the control socket, and no file of its PID"},
    {"nodaemon", UNNEEDED, FORE},
    {"identifier", UNNEEDED, "not needed: the control socket says which init it is"},
    {"nocleanup", UNNEEDED, "not needed: no temporary log files are made"},
    {"childlogdir", UNNEEDED, "not needed: output without a file goes to init's own"},
    {"strip_ansi", MISSING_IF_ON, "no equivalent: output is kept byte for byte"},
    {NULL, UNNEEDED, NULL}};

static const struct known program_keys[] = {
    {"command", TRANSLATED, NULL},
    {"process_name", TRANSLATED, NULL},
    {"numprocs", TRANSLATED, NULL},
    {"numprocs_start", TRANSLATED, NULL},
    {"directory", TRANSLATED, NULL},
    {"umask", TRANSLATED, NULL},
    {"priority", TRANSLATED, NULL},
    {"autostart", TRANSLATED, NULL},
    {"startsecs", TRANSLATED, NULL},
    {"startretries", TRANSLATED, NULL},
    {"autorestart", TRANSLATED, NULL},
    {"exitcodes", TRANSLATED, NULL},
    {"stopsignal", TRANSLATED, NULL},
    {"stopwaitsecs", TRANSLATED, NULL},
    {"user", TRANSLATED, NULL},
    {"environment", TRANSLATED, NULL},
    {"redirect_stderr", TRANSLATED, NULL},
    {"stdout_logfile", TRANSLATED, NULL},
    {"stderr_logfile", TRANSLATED, NULL},
    {"stdout_logfile_maxbytes", TRANSLATED, NULL},
    {"stdout_logfile_backups", TRANSLATED, NULL},
    {"stderr_logfile_maxbytes", UNNEEDED, ONE_LOG},
    {"stderr_logfile_backups", UNNEEDED, ONE_LOG},
    {"stopasgroup", UNNEEDED, WHOLE},
    {"killasgroup", UNNEEDED, WHOLE},
    {"stdout_capture_maxbytes", MISSING_IF_ON, NO_EVENTS},
    {"stderr_capture_maxbytes", MISSING_IF_ON, NO_EVENTS},
    {"stdout_events_enabled", MISSING_IF_ON, NO_EVENTS},
    {"stderr_events_enabled", MISSING_IF_ON, NO_EVENTS},
    {"stdout_syslog", MISSING_IF_ON, NO_SYSLOG},
    {"stderr_syslog", MISSING_IF_ON, NO_SYSLOG},
    {"serverurl", UNNEEDED, "not needed: services find init by sandboxctl"},
    {NULL, UNNEEDED, NULL}};

static const struct known sections[] = {
    {"unix_http_server", UNNEEDED,
     "not needed: init has a control socket of its own ([init] control_socket); root and init's "
     "user may connect"},
    {"inet_http_server", MISSING, "no equivalent: services are not controlled over TCP"},
    {"supervisorctl", UNNEEDED, "not needed: sandboxctl finds the control socket"},
    {"rpcinterface:supervisor", UNNEEDED, "not needed: sandboxctl and its --json"},
    {"rpcinterface:", MISSING, "no equivalent: init has no plug-ins"},
    {"ctlplugin:", MISSING, "no equivalent: sandboxctl has no plug-ins"},
    {"eventlistener:", MISSING,
     "no equivalent: init speaks no protocol with its services (`sandboxctl events` shows what "
     "happens; `on_fatal = stop` ends the container)"},
    {"fcgi-program:", MISSING,
     "no equivalent: init hands no socket over; let the program listen itself"},
    {"group:", UNNEEDED, "not needed: a command of sandboxctl takes several names"},
    {"program:", TRANSLATED, NULL},
    {"DEFAULT", TRANSLATED, NULL},
};

static bool is_off(const char *value)
{
    static const char *const words[] = {"false", "no", "off", "0", "0KB", "0MB"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(value, words[i]) == 0)
            return true;
    return false;
}

static const struct known *find(const struct known *keys, const char *name)
{
    for (; keys->name; keys++)
        if (strcmp(keys->name, name) == 0)
            return keys;
    return NULL;
}

/* For nearest_word(). */
static const char *name_of(const void *context, size_t i)
{
    return ((const struct known *)context)[i].name;
}

/* supervisord passes over it in silence; it may be a slip that was never noticed. */
static void tell_unknown(struct import *im, const struct conf_setting *s, const struct known *keys)
{
    char why[160];
    const char *nearest = nearest_word(s->key, name_of, keys);
    snprintf(why, sizeof why, "supervisord 4.2 does not know it either%s%s%s",
             nearest ? "; was '" : "", nearest ? nearest : "", nearest ? "' meant?" : "");
    import_missing(im, s, why);
}

void import_other_keys(struct import *im, const char *section)
{
    const struct known *keys = strcmp(section, "supervisord") == 0 ? main_keys : program_keys;
    for (size_t i = 0; i < im->conf.count; i++) {
        const struct conf_setting *s = &im->conf.items[i];
        if (!s->key || strcmp(s->section, section) != 0)
            continue;
        const struct known *k = find(keys, s->key);
        if (!k)
            tell_unknown(im, s, keys);
        else if (k->kind == UNNEEDED)
            import_hint(im, s, k->why);
        else if (k->kind == MISSING || (k->kind == MISSING_IF_ON && !is_off(s->value)))
            import_missing(im, s, k->why);
    }
}

bool import_other_section(struct import *im, const struct conf_setting *head)
{
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        const struct known *k = &sections[i];
        size_t n = strlen(k->name);
        bool is_prefix = k->name[n - 1] == ':';
        if (strncmp(head->section, k->name, is_prefix ? n : n + 1) != 0)
            continue;
        if (k->kind == MISSING)
            import_missing(im, head, k->why);
        else if (k->kind == UNNEEDED)
            import_hint(im, head, k->why);
        return k->kind != TRANSLATED || !is_prefix;
    }
    import_hint(im, head, "not needed: supervisord 4.2 does not know it either");
    return true;
}
