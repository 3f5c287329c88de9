/*
 * sandbox-gateway: the one program context and the tables of routes that its parts offer. main.c
 * makes it; exchange_context() gives it to every handler.
 */
#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

#include "base/log.h"
#include "gateway/http.h"
#include "gateway/upstream.h"

#include <ev.h>

struct mount_note; /* mount_table.h */
struct files;      /* files.h: the client of the file helper */

#define GATEWAY_LISTEN_MAX 16
#define GATEWAY_TOKEN_MAX  4096 /* bytes */

/* What init tells the gateway on its command line; docs/sandbox.ini.5.md tells the keys. */
struct gateway_options {
    const char *listen[GATEWAY_LISTEN_MAX];
    size_t listen_count;
    const char *workspace;
    const char *sandbox_id;  /* NULL: any */
    const char *cors_origin; /* NULL: none */
    bool is_reset;           /* on_delete = reset; else exit */
    size_t max_body;
    unsigned max_connections;
    uint64_t idle_timeout_ms;
    uint64_t head_timeout_ms, stall_timeout_ms; /* of http.h; 0: its default */
    int control_fd; /* the socket to init; -1: there is none (tests), what needs init answers 502 */
    int token_fd;   /* the token is read from it; -1: auth = none */
    const char *token_file; /* what its file is called, for messages; NULL: not known */
    enum log_level log_level;
    enum log_format log_format;
};

struct gateway {
    struct ev_loop *loop;
    struct gateway_options options;
    struct http_server *http;
    struct upstream *upstream;
    struct mount_note *mounts; /* that this gateway has made */
    struct files *files;
    uint64_t began_ns;
    uint64_t deletes_incomplete; /* sandboxes deleted with something left in the workspace */
    uint64_t last_session_ms;    /* the number of the last made-up session id */
};

/* options.c. Strings are argv's. 0, or -1 with *e set; --help and --version end the program. */
int gateway_options_parse(struct gateway_options *o, int argc, char *const *argv, struct error *e);

/* What a path fits goes to the first table that has it; each ends with method NULL. */
extern const struct route routes_health[];   /* health.c: /health, /metrics, /v1/pool */
extern const struct route routes_sandbox[];  /* route_sandbox.c: create, delete, running */
extern const struct route routes_exec[];     /* route_exec.c */
extern const struct route routes_session[];  /* route_session.c */
extern const struct route routes_process[];  /* route_process.c */
extern const struct route routes_events[];   /* route_events.c: /v1/events */
extern const struct route routes_files[];    /* route_files.c */
extern const struct route routes_archive[];  /* route_archive.c: persist, hydrate */
extern const struct route routes_terminal[]; /* route_terminal.c: pty */
extern const struct route routes_port[];     /* route_port.c: wait, proxy; tunnel, mount */
extern const struct route routes_page[];     /* route_page.c: /, openapi */

#endif
