/*
 * The schema of [service:NAME]: as schema.c, with the offsets in struct service_config. The
 * defaults are those of somebody who comes from supervisord: a service that fails is started again,
 * one that has ended well is not, and five failures in a minute are enough.
 */
#include "config/config_internal.h"

#include <string.h>

#define SECOND ((uint64_t)1000)
#define HOUR   (3600 * SECOND)
#define DAY    (24 * HOUR)
#define YEAR   (365 * DAY)
#define K      ((uint64_t)1024)
#define G      (1024 * 1024 * K)

#define PATH_BYTES 4095 /* PATH_MAX without its NUL */
#define ARGS_BYTES CONFIG_ARG_MAX
#define LIST_BYTES (64 * K)

#define SIGNED(n)       ((uint64_t)(n)) /* of VALUE_INT */
#define SERVICE(member) offsetof(struct service_config, member)
#define LIVE            SECTION_SERVICE
#define START           (SECTION_SERVICE | SCHEMA_START)
#define LOAD            (SECTION_SERVICE | SCHEMA_LOAD)

static const char *const type_words[] = {
    [SERVICE_SIMPLE] = "simple", [SERVICE_ONESHOT] = "oneshot", [SERVICE_NOTIFY] = "notify", NULL};
static const char *const restart_words[] = {[RESTART_ALWAYS] = "always",
                                            [RESTART_ON_FAILURE] = "on-failure",
                                            [RESTART_NEVER] = "never",
                                            NULL};
static const char *const fatal_words[] = {[FATAL_IGNORE] = "ignore", [FATAL_STOP] = "stop", NULL};
static const char *const stdin_words[] = {[STDIN_NULL] = "null", [STDIN_INHERIT] = "inherit", NULL};
static const char *const timestamp_words[] = {
    [TIMESTAMP_NONE] = "none", [TIMESTAMP_ISO] = "iso", NULL};

/* clang-format off */
const struct schema_row service_rows[] = {
    {"command",         START, VALUE_ARGV,     SERVICE(argv),               1, ARGS_BYTES, NULL,         NULL},
    {"script",          START, VALUE_TEXT,     SERVICE(script),             1, ARGS_BYTES, NULL,         NULL},
    {"type",            START, VALUE_WORD,     SERVICE(type),               0, 0,          "simple",     type_words},
    {"autostart",       LIVE,  VALUE_BOOL,     SERVICE(autostart),          0, 0,          "yes",        NULL},
    {"instances",       LOAD,  VALUE_COUNT,    SERVICE(instances),          1, 1000,       "1",          NULL},

    {"restart",         LIVE,  VALUE_WORD,     SERVICE(restart),            0, 0,          "on-failure", restart_words},
    {"restart_delay",   LIVE,  VALUE_DURATION, SERVICE(restart_delay_ms),   0, DAY,        "1s",         NULL},
    {"restart_backoff", LIVE,  VALUE_DURATION, SERVICE(restart_backoff_ms), 0, DAY,        "1m",         NULL},
    {"restart_max",     LIVE,  VALUE_COUNT,    SERVICE(restart_max),        0, 100000,     "5",          NULL},
    {"restart_window",  LIVE,  VALUE_DURATION, SERVICE(restart_window_ms),  1, YEAR,       "1m",         NULL},
    {"success_codes",   LIVE,  VALUE_CODES,    SERVICE(success_codes),      1, LIST_BYTES, "0",          NULL},
    {"on_fatal",        LIVE,  VALUE_WORD,     SERVICE(on_fatal),           0, 0,          "ignore",     fatal_words},

    {"requires",        LIVE,  VALUE_NAMES,    SERVICE(requires),           1, LIST_BYTES, NULL,         NULL},
    {"after",           LIVE,  VALUE_NAMES,    SERVICE(after),              1, LIST_BYTES, NULL,         NULL},
    {"before",          LIVE,  VALUE_NAMES,    SERVICE(before),             1, LIST_BYTES, NULL,         NULL},
    {"priority",        LIVE,  VALUE_INT,      SERVICE(priority),           SIGNED(-100000), 100000, "0",        NULL},

    {"ready",           LIVE,  VALUE_CHECK,    SERVICE(ready),              1, ARGS_BYTES, NULL,         NULL},
    {"ready_timeout",   LIVE,  VALUE_DURATION, SERVICE(ready_timeout_ms),   0, YEAR,       "1m",         NULL},
    {"health",          LIVE,  VALUE_CHECK,    SERVICE(health),             1, ARGS_BYTES, NULL,         NULL},
    {"health_interval", LIVE,  VALUE_DURATION, SERVICE(health_interval_ms), 100, DAY,      "10s",        NULL},
    {"health_retries",  LIVE,  VALUE_COUNT,    SERVICE(health_retries),     1, 1000,       "3",          NULL},

    {"stop_signal",     LIVE,  VALUE_SIGNAL,   SERVICE(stop_signal),        0, 0,          "TERM",       NULL},
    {"stop_grace",      LIVE,  VALUE_DURATION, SERVICE(stop_grace_ms),      0, HOUR,       NULL,         NULL},
    {"stop_command",    LIVE,  VALUE_ARGV,     SERVICE(stop_command),       1, ARGS_BYTES, NULL,         NULL},
    {"reload_signal",   LIVE,  VALUE_SIGNAL,   SERVICE(reload_signal),      0, 0,          NULL,         NULL},
    {"pre_start",       LIVE,  VALUE_ARGV,     SERVICE(pre_start),          1, ARGS_BYTES, NULL,         NULL},
    {"post_stop",       LIVE,  VALUE_ARGV,     SERVICE(post_stop),          1, ARGS_BYTES, NULL,         NULL},

    {"user",            START, VALUE_USER,     SERVICE(user),               1, 256,        NULL,         NULL},
    {"group",           START, VALUE_USER,     SERVICE(group),              1, 256,        NULL,         NULL},
    {"groups",          START, VALUE_GROUPS,   SERVICE(groups),             0, LIST_BYTES, NULL,         NULL},
    {"cwd",             START, VALUE_PATH,     SERVICE(cwd),                1, PATH_BYTES, NULL,         NULL},
    {"env.NAME",        START, VALUE_ENV,      SERVICE(env),                0, 0,          NULL,         NULL},
    {"env_file",        LOAD,  VALUE_FILES,    0,                           1, LIST_BYTES, NULL,         NULL},
    {"umask",           START, VALUE_UMASK,    SERVICE(umask),              0, 0,          NULL,         NULL},
    {"nice",            START, VALUE_INT,      SERVICE(nice),               SIGNED(-20), 19, NULL,         NULL},
    {"oom_score_adj",   START, VALUE_INT,      SERVICE(oom_score_adj),      SIGNED(-1000), 1000, NULL,        NULL},
    {"limit.NAME",      START, VALUE_LIMIT,    SERVICE(limits),             0, 0,          NULL,         NULL},
    {"stdin",           START, VALUE_WORD,     SERVICE(stdin_from),         0, 0,          "null",       stdin_words},

    {"log",             LIVE,  VALUE_LOG,      SERVICE(log),                1, PATH_BYTES + 5, "inherit", NULL},
    {"log_max_size",    LIVE,  VALUE_SIZE,     SERVICE(log_max_size),       4 * K, 64 * G, "10M",        NULL},
    {"log_keep",        LIVE,  VALUE_COUNT,    SERVICE(log_keep),           0, 1000,       "4",          NULL},
    {"log_timestamp",   LIVE,  VALUE_WORD,     SERVICE(log_timestamp),      0, 0,          "none",       timestamp_words},
    {"log_prefix",      LIVE,  VALUE_BOOL,     SERVICE(log_prefix),         0, 0,          "no",         NULL},
};
const size_t service_row_count = sizeof service_rows / sizeof service_rows[0];
_Static_assert(sizeof service_rows / sizeof service_rows[0] <= SCHEMA_ROWS_MAX, "too many keys");

const struct schema_row include_rows[] = {
    {"files", SECTION_INCLUDE, VALUE_FILES, 0, 1, LIST_BYTES, NULL, NULL},
};
const size_t include_row_count = sizeof include_rows / sizeof include_rows[0];
/* clang-format on */

/* What people write who come from supervisord, systemd or docker-compose, where the nearest of our
 * keys would be a wrong one. */
static const struct synonym {
    const char *key, *ours;
} synonyms[] = {
    {"autorestart", "restart"},
    {"startretries", "restart_max"},
    {"exitcodes", "success_codes"},
    {"stopwaitsecs", "stop_grace"},
    {"stop_grace_period", "stop_grace"},
    {"directory", "cwd"},
    {"working_dir", "cwd"},
    {"env", "env.NAME"},
    {"environment", "env.NAME"},
    {"limit", "limit.NAME"},
    {"numprocs", "instances"},
    {"stdout_logfile", "log"},
    {"stderr_logfile", "log"},
    {"stdout_logfile_maxbytes", "log_max_size"},
    {"stdout_logfile_backups", "log_keep"},
    {"depends_on", "requires"},
    {"healthcheck", "health"},
    {"entrypoint", "command"},
    {"ulimits", "limit.NAME"},
    {"ExecStart", "command"},
    {"ExecStartPre", "pre_start"},
    {"ExecStop", "stop_command"},
    {"ExecStopPost", "post_stop"},
    {"ExecReload", "reload_signal"},
    {"KillSignal", "stop_signal"},
    {"TimeoutStopSec", "stop_grace"},
    {"TimeoutStartSec", "ready_timeout"},
    {"RestartSec", "restart_delay"},
    {"StartLimitBurst", "restart_max"},
    {"StartLimitIntervalSec", "restart_window"},
    {"SuccessExitStatus", "success_codes"},
    {"WorkingDirectory", "cwd"},
    {"Environment", "env.NAME"},
    {"EnvironmentFile", "env_file"},
    {"SupplementaryGroups", "groups"},
    {"LimitNOFILE", "limit.nofile"},
};

const char *service_synonym(const char *key)
{
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++)
        if (strcmp(synonyms[i].key, key) == 0)
            return synonyms[i].ours;
    return NULL;
}

size_t service_row_index(const char *key)
{
    size_t i = 0;
    while (i + 1 < service_row_count && strcmp(service_rows[i].key, key) != 0)
        i++;
    return i;
}

const char *service_type_name(enum service_type t)
{
    return type_words[t];
}
