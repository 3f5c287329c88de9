/*
 * sandbox.ini, and the files that it includes -> one typed, validated, immutable value. Strict: an
 * unknown section or key, a duplicate, a bad value or text outside a section is an error with
 * file:line and the nearest known name. A configuration is made whole or not at all; a reload makes
 * a second one and compares (config_diff). sandbox.ini.example lists every key with its default.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "base/error.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct service_config;

enum idle_action { IDLE_STOP, IDLE_LOG };
enum leftovers { LEFTOVERS_KEEP, LEFTOVERS_KILL };
enum gateway_auth { GATEWAY_AUTH_TOKEN, GATEWAY_AUTH_NONE };
enum gateway_delete { GATEWAY_RESET, GATEWAY_EXIT };

/* Words in the order of the file. Owned by the configuration. */
struct name_list {
    char **items; /* one allocation */
    size_t count;
};

/* Environment assignments in the order of the file. Owned by the configuration. */
struct env_list {
    char **items; /* "NAME=VALUE" */
    size_t count;
};

/* What the main command gets in the place of a signal that is passed on to it. */
struct signal_rewrite {
    uint8_t to[65]; /* by number; 0: as it came, REWRITE_DROP: nothing */
};
#define REWRITE_DROP 255

/* Settings of one session; in struct config also the defaults for all. NULL strings: not set. */
struct session_config {
    char *name; /* NULL in the defaults */
    char *shell;
    char *cwd;
    char *user;
    char *setup;         /* a text that each fresh shell of the session runs first */
    struct env_list env; /* in [session:NAME]: those of [sessions], overridden and extended */
    uint64_t command_timeout_ms;      /* 0: none; so the three below */
    uint64_t command_idle_timeout_ms; /* without output */
    uint64_t command_cpu_timeout_ms;
    uint64_t command_soft_timeout_ms; /* then its client gets the id, and it goes on */
    uint64_t kill_grace_ms;
    uint64_t queue_limit;        /* waiters of one session */
    uint64_t output_keep;        /* bytes kept of one command's or process's output */
    uint64_t output_limit;       /* bytes of each stream that an exec hands on; 0: all */
    uint64_t output_keep_age_ms; /* and for how long; 0: no limit */
};

/* [gateway]. NULL strings: not set. */
struct gateway_config {
    struct name_list listen; /* HOST:PORT, [V6]:PORT, :PORT, unix:PATH; none: no gateway is run */
    char *token_file;
    enum gateway_auth auth;
    char *workspace;
    char *sandbox_id;  /* NULL: any */
    uint64_t max_body; /* bytes of a request's body */
    uint64_t max_connections;
    uint64_t idle_timeout_ms; /* of a connection between requests */
    char *cors_origin;
    enum gateway_delete on_delete; /* what deleting the sandbox does */
    char *user; /* whose the gateway's process is; NULL: nobody else's, where init may choose */
};

struct config {
    char *path; /* of the file; NULL: built-in defaults */

    /* [init] */
    char *runtime_dir;    /* NULL: the first writable default */
    char *control_socket; /* NULL: control.sock in the runtime folder */
    uint64_t stop_grace_ms;
    enum log_level log_level;
    enum log_format log_format;
    uint64_t idle_timeout_ms; /* 0: off */
    enum idle_action idle_action;
    uint64_t text_limit; /* bytes of one command text */
    uint64_t max_connections;
    uint64_t client_stall_ms;
    char *log_dir; /* where the logs of processes are written; NULL: nowhere */
    uint64_t log_file_size;
    uint64_t log_files;       /* older ones kept of each log */
    uint64_t log_file_age_ms; /* 0: no limit */
    uint64_t log_keep;        /* ended processes whose files stay */
    uint64_t events_keep;     /* bytes of events kept for `sandboxctl events` */
    struct signal_rewrite rewrite;

    /* [sessions] */
    struct session_config defaults;
    uint64_t max_sessions;
    uint64_t max_processes;   /* live ones, of all sessions */
    uint64_t max_terminals;   /* of those */
    uint64_t process_keep;    /* ended processes that stay listed */
    enum leftovers leftovers; /* what becomes of those that outlive their process */
    uint64_t command_keep;    /* ended commands that the same call can still join */

    struct gateway_config gateway;

    /* [session:NAME], in the order of the file; each complete (defaults filled in) */
    struct session_config *sessions;
    size_t session_count;

    /* [service:NAME] (config/service_config.h), in the order of the files. */
    struct service_config *services;
    size_t service_count;
};

/* Read path (NULL: defaults only), then apply overrides SANDBOX_INIT_KEY, SANDBOX_SESSIONS_KEY
 * and SANDBOX_GATEWAY_KEY from environ_ (a NULL-terminated "K=V" vector, may be NULL; other
 * SANDBOX_* are left alone). Returns NULL with the first complaint in *e: "FILE:LINE: …", or
 * "environment: SANDBOX_INIT_STOP_GRACE: …". */
struct config *config_load(const char *path, char *const *environ_, struct error *e);

/* config_load() in two steps, for who must not wait for a file system. A process of its own reads
 * the files and writes what it finds to fd, a file in memory: 0, or -1 if that fails. Then fd alone
 * is read: the result is what config_load() would have found there. */
int config_record(const char *path, int fd);
struct config *config_replay(const char *path, int fd, char *const *environ_, struct error *e);
/* The file or folder that the process waits for now, if it waits for one. */
bool config_record_waits(int fd, char *path, size_t size);

/* As config_load() from bytes in memory; name stands for the file in messages. Used by tests and
 * the fuzz target. */
struct config *config_parse(const char *name, const char *bytes, size_t n, char *const *environ_,
                            struct error *e);

void config_free(struct config *c);

/* What differs between two configurations, told once for each difference in a fixed order.
 * kind: CHANGE_KEY with section "init", "sessions" or "gateway" and the key; CHANGE_SESSION_* with
 * the session's name as key, CHANGE_SERVICE_* with the service's. */
enum change_kind {
    CHANGE_KEY,
    CHANGE_SESSION_ADDED,
    CHANGE_SESSION_REMOVED,
    CHANGE_SESSION_CHANGED,
    CHANGE_SERVICE_ADDED,
    CHANGE_SERVICE_REMOVED,
    CHANGE_SERVICE_CHANGED
};
void config_diff(const struct config *old, const struct config *new_,
                 void (*tell)(void *context, enum change_kind kind, const char *section,
                              const char *key),
                 void *context);

/* Add the pairs of "TERM:QUIT, HUP:0" (0: not passed on). -1 with *e saying what is wrong with the
 * text; *r may have some of them then. */
int signal_rewrite_add(struct signal_rewrite *r, const char *text, struct error *e);

/* The [session:NAME] of that name, or NULL. */
const struct session_config *config_session(const struct config *c, const char *name);

#endif
