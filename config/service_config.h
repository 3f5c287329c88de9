/*
 * One [service:NAME] of the ini, complete and checked: what is run, in which order, how it is
 * watched, stopped and logged. With `instances = N` a section gives N of these, named NAME@1 to
 * NAME@N; NAME then stands for all of them wherever a service is named. Owned by struct config,
 * immutable.
 */
#ifndef CONFIG_SERVICE_CONFIG_H
#define CONFIG_SERVICE_CONFIG_H

#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SERVICE_NAME_MAX   71     /* NAME of at most 64, '@' and the number of an instance */
#define SERVICES_MAX       1000   /* instances counted */
#define SERVICE_MAIN       "main" /* the main command, as `after` and `before` name it */
#define SERVICE_RLIMIT_MAX 16     /* kinds of RLIMIT_, getrlimit(2) */
#define SERVICE_CODES      256

enum service_type {
    SERVICE_SIMPLE,  /* ready when it runs, or when its `ready` says so */
    SERVICE_ONESHOT, /* ready when it has ended with success */
    SERVICE_NOTIFY   /* ready when it says so: sd_notify(3) or s6's notification descriptor */
};
enum service_restart { RESTART_ALWAYS, RESTART_ON_FAILURE, RESTART_NEVER };
enum service_fatal { FATAL_IGNORE, FATAL_STOP };
enum service_stdin { STDIN_NULL, STDIN_INHERIT };
enum service_log_kind { SERVICE_LOG_INHERIT, SERVICE_LOG_FILE, SERVICE_LOG_NONE };
enum service_timestamp { TIMESTAMP_NONE, TIMESTAMP_ISO };

enum check_kind {
    CHECK_NONE,
    CHECK_TCP,  /* tcp:PORT or tcp:HOST:PORT, HOST an address: a connection is accepted */
    CHECK_UNIX, /* unix:PATH */
    CHECK_HTTP, /* http:URL or http://HOST[:PORT][/PATH]: answers with 2xx or 3xx */
    CHECK_FD,   /* fd:N: the service writes a newline to its descriptor N (s6); only in `ready` */
    CHECK_FILE, /* file:PATH: exists */
    CHECK_COMMAND, /* command:ARGV: ends with 0 */
};

/* How `ready` and `health` find out. */
struct check {
    enum check_kind kind;
    char *text;                  /* as written, for messages; NULL: CHECK_NONE */
    char *target;                /* HOST (an address, default 127.0.0.1) or absolute path */
    char *http_path, *http_host; /* of CHECK_HTTP: "/x?y", and what Host: says */
    unsigned port;
    int fd;      /* 3 … 255 */
    char **argv; /* NULL-terminated */
};

struct service_limit {
    bool is_set;
    uint64_t soft, hard; /* UINT64_MAX: unlimited */
};

struct service_config {
    char *name;
    unsigned instance;  /* from 1; 0: there is only one. The service finds it in SERVICE_INSTANCE */
    uint64_t instances; /* of the section; 1: there is only one */
    unsigned line;      /* of its section, and in which file */
    char *file;

    /* What is run: one of the two. */
    char **argv;  /* NULL-terminated */
    char *script; /* several lines, run by /bin/sh */
    enum service_type type;
    bool autostart;

    /* How often. */
    enum service_restart restart;
    uint64_t restart_delay_ms;
    uint64_t restart_backoff_ms; /* the delay doubles up to this */
    uint64_t restart_max;        /* so many within the window, then it is fatal; 0: no limit */
    uint64_t restart_window_ms;
    uint8_t success_codes[SERVICE_CODES / 8]; /* a bit each; 0 is always one */
    enum service_fatal on_fatal;

    /* Order. requires: starts after it is ready, stops before it, and does not start without it.
     * after and before: order alone, if both start. */
    struct name_list requires, after, before; /* NAME@N are already told apart */

    struct check ready;
    uint64_t ready_timeout_ms;
    bool has_ready_timeout; /* written: then a oneshot must be done within it */
    struct check health;
    uint64_t health_interval_ms;
    uint64_t health_retries; /* failures in a row, then it is restarted */

    int stop_signal, reload_signal;                /* reload_signal 0: none */
    uint64_t stop_grace_ms;                        /* not given: that of [init] */
    char **stop_command, **pre_start, **post_stop; /* argv; NULL: none */

    char *user;   /* as of user_lookup(); NULL: init's own */
    char *group;  /* NULL: the user's */
    char *groups; /* blank-separated supplementary ones; NULL: the user's; "": none */
    char *cwd;
    struct env_list env; /* env.NAME over env_file */
    mode_t umask;        /* (mode_t)-1: init's */
    bool has_nice, has_oom_score_adj;
    int nice, oom_score_adj;
    struct service_limit limits[SERVICE_RLIMIT_MAX]; /* by RLIMIT_ number */
    enum service_stdin stdin_from;

    enum service_log_kind log;
    char *log_file; /* of SERVICE_LOG_FILE, absolute */
    uint64_t log_max_size;
    uint64_t log_keep; /* older files */
    enum service_timestamp log_timestamp;
    bool log_prefix; /* "NAME: " before each line of an inherited log */
    int priority;    /* the smaller one starts first where nothing else says so */
};

/* The service of that name, or NULL. */
const struct service_config *config_service(const struct config *c, const char *name);
/* True if both would run the same program in the same way: a reload leaves the service alone. */
bool service_config_equal(const struct service_config *a, const struct service_config *b);
/* True if the two differ at most in what a running service can be told without a new start (log
 * settings, restart policy, health, stop and reload settings, order). */
bool service_config_same_process(const struct service_config *a, const struct service_config *b);
const char *service_type_name(enum service_type t);

#endif
