/*
 * What is run for the gateway and for its file helper: the program beside init's own, the options,
 * whose process it is. Nothing secret stands in argv or in the environment: the token's file is
 * opened in the child, and its descriptor is all that the gateway gets.
 */
#include "init/gateway.h"
#include "base/log.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <unistd.h>

#define PROGRAM    "sandbox-gateway"
#define NOBODYS    "61000" /* a user that should own nothing */
#define CONTROL_FD 3
#define TOKEN_FD   4

/* The folder of init's own program, whatever is there now. "": not known. */
static void find_program(char *path, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", path, size - sizeof PROGRAM);
    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (n <= 0 || (size_t)n >= size - sizeof PROGRAM || !slash)
        path[0] = '\0';
    else
        memcpy(slash + 1, PROGRAM, sizeof PROGRAM);
}

static bool may_switch_user(void)
{
    static const cap_value_t needs[] = {CAP_SETUID, CAP_SETGID};
    bool may = true;
    cap_t own = cap_get_proc();
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        cap_flag_value_t has = CAP_CLEAR;
        may = may && own && cap_get_flag(own, needs[i], CAP_EFFECTIVE, &has) == 0 && has == CAP_SET;
    }
    cap_free(own);
    return may;
}

/* ---- words ---- */

static int add_word(struct gateway_plan *p, const char *option, const char *value)
{
    return strbuf_addf(&p->text, "%s%s", option, value) < 0 ? -1 : strbuf_add(&p->text, "", 1);
}

static int add_number(struct gateway_plan *p, const char *option, uint64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    return add_word(p, option, digits);
}

/* From the words to the vector. */
static int set_argv(struct gateway_plan *p)
{
    size_t n = 0;
    const char *end = p->text.data + p->text.len;
    for (const char *w = p->text.data; w < end; w += strlen(w) + 1) {
        if (n + 1 >= GATEWAY_ARGS)
            return -1;
        p->argv[n++] = w;
    }
    p->argv[n] = NULL;
    p->spawn.argv = p->argv;
    return 0;
}

/* Its lines stand in init's log. */
static int add_log(struct gateway_plan *p, const struct config *c)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    int rc = 0;
    if (c->log_format == LOG_JSON)
        rc |= add_word(p, "--log-format=", "json");
    if (c->log_level != LOG_INFO)
        rc |= add_word(p, "--log-level=", levels[c->log_level]);
    return rc;
}

static int add_options(struct gateway_plan *p, const struct gateway_config *k)
{
    int rc = add_number(p, "--control-fd=", CONTROL_FD);
    if (k->token_file) {
        rc |= add_number(p, "--token-fd=", TOKEN_FD);
        rc |= add_word(p, "--token-file=", k->token_file);
    }
    for (size_t i = 0; i < k->listen.count; i++)
        rc |= add_word(p, "--listen=", k->listen.items[i]);
    rc |= add_word(p, "--workspace=", k->workspace);
    rc |= add_word(p, "--on-delete=", k->on_delete == GATEWAY_EXIT ? "exit" : "reset");
    rc |= add_number(p, "--max-body=", k->max_body);
    rc |= add_number(p, "--max-connections=", k->max_connections);
    rc |= add_number(p, "--idle-timeout=", k->idle_timeout_ms);
    if (k->sandbox_id)
        rc |= add_word(p, "--sandbox-id=", k->sandbox_id);
    if (k->cors_origin)
        rc |= add_word(p, "--cors-origin=", k->cors_origin);
    return rc;
}

/* ---- plans ---- */

/* An image need not have the workspace. A program starts in it before any file is asked for, and
 * the sessions' user may not be able to make it. */
static void add_workspace(const struct gateway *g, struct gateway_plan *p)
{
    const struct config *c = g->init->config;
    struct error e = {0};
    user_self(&p->sessions);
    if (c->defaults.user && user_lookup(c->defaults.user, &p->sessions, &e) < 0)
        return;
    p->spawn.make_dir = c->gateway.workspace;
    p->spawn.make_for = &p->sessions;
}

static void begin_plan(const struct gateway *g, struct gateway_plan *p, int fd)
{
    memset(p, 0, sizeof *p);
    p->spawn = spawn_plan_empty();
    find_program(p->program, sizeof p->program);
    p->spawn.program = p->program[0] ? p->program : NULL;
    p->spawn.or_path = true;
    /* Its search path and nothing else: no variable of the container is the gateway's business. */
    const struct env_set *own = &g->init->sessions.own_env;
    for (size_t i = 0; i < own->count; i++)
        if (strncmp(own->items[i], "PATH=", 5) == 0)
            p->envp[0] = own->items[i];
    p->spawn.envp = p->envp;
    p->spawn.cwd = "/";
    p->spawn.stdio[2] = 2; /* what it has to say stands in init's log */
    p->spawn.extra_fd = fd;
    p->spawn.extra_at = CONTROL_FD;
}

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "no memory");
}

int gateway_plan_make(const struct gateway *g, struct gateway_plan *p, int fd, struct error *e)
{
    const struct gateway_config *k = &g->init->config->gateway;
    begin_plan(g, p, fd);
    p->spawn.has_no_privileges = true;
    p->spawn.open_path = k->token_file;
    p->spawn.open_at = TOKEN_FD;
    user_self(&p->user);
    if (k->user || (!g->is_as_init && may_switch_user())) {
        if (user_lookup(k->user ? k->user : NOBODYS, &p->user, e) < 0)
            return -1;
        p->spawn.user = &p->user;
    }
    add_workspace(g, p);
    if (add_word(p, PROGRAM, "") < 0 || add_options(p, k) < 0 || add_log(p, g->init->config) < 0 ||
        set_argv(p) < 0)
        return no_memory(e);
    return 0;
}

int gateway_plan_helper(const struct gateway *g, struct gateway_plan *p, int fd, struct error *e)
{
    const struct config *c = g->init->config;
    begin_plan(g, p, fd);
    user_self(&p->user);
    if (c->defaults.user) { /* as whom sessions run by default: their files are meant */
        if (user_lookup(c->defaults.user, &p->user, e) < 0)
            return -1;
        p->spawn.user = &p->user;
    }
    if (add_word(p, PROGRAM, "") < 0 || add_word(p, "--file-helper", "") < 0 ||
        add_word(p, "--workspace=", c->gateway.workspace) < 0 || set_argv(p) < 0)
        return no_memory(e);
    return 0;
}

void gateway_plan_free(struct gateway_plan *p)
{
    strbuf_free(&p->text);
}
