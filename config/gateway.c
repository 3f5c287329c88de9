/*
 * [gateway]: the types of value that only this section has, and what its keys mean together. What
 * would open the container to whoever can reach a port is a complaint about the file, never a
 * default: TCP needs a token, or somebody who writes that it needs none.
 */
#include "config/config_internal.h"

#include <stdlib.h>
#include <string.h>

#define LISTEN_MAX   16
#define ID_MAX       128
#define ORIGIN_MAX   255
#define SOCKET_BYTES 107 /* sun_path without its NUL, unix(7) */
#define UNIX_PREFIX  "unix:"
#define LOCALHOST    "localhost:"

static bool is_unix(const char *address)
{
    return strncmp(address, UNIX_PREFIX, sizeof UNIX_PREFIX - 1) == 0;
}

/* ---- listen ---- */

static int check_unix(const char *address, struct error *e)
{
    char buf[SHOWN_SIZE];
    const char *path = address + sizeof UNIX_PREFIX - 1;
    shown(address, strlen(address), buf);
    if (path[0] != '/')
        return error_set(e, ERR_INVALID, "'%s' is not unix: and an absolute path", buf);
    if (strlen(path) > SOCKET_BYTES)
        return error_set(e, ERR_INVALID, "'%s': the path is %zu bytes long (%d are possible)", buf,
                         strlen(path), SOCKET_BYTES);
    return 0;
}

/* One address; localhost becomes a number, in its place. */
static int take_address(char *address, struct error *e)
{
    char buf[SHOWN_SIZE];
    for (const char *p = address; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return error_set(e, ERR_INVALID, "'%s' holds a control character",
                             shown(address, strlen(address), buf));
    if (is_unix(address))
        return check_unix(address, e);
    if (strncmp(address, LOCALHOST, sizeof LOCALHOST - 1) == 0)
        memcpy(address, "127.0.0.1", sizeof LOCALHOST - 2); /* as long as the word */
    return authority_check(address, e);
}

int listen_parse(const char *text, struct name_list *out, struct error *e)
{
    char buf[SHOWN_SIZE];
    char **items = argv_split_list(text, e);
    if (!items)
        return -1;
    size_t count = argv_count(items);
    int status = 0;
    if (count == 0 || count > LISTEN_MAX)
        status = error_set(e, ERR_INVALID, "%zu addresses (1 to %d)", count, LISTEN_MAX);
    for (size_t i = 0; status == 0 && i < count; i++) {
        status = take_address(items[i], e);
        for (size_t k = 0; status == 0 && k < i; k++)
            if (strcmp(items[i], items[k]) == 0)
                status = error_set(e, ERR_INVALID, "'%s' stands there twice",
                                   shown(items[i], strlen(items[i]), buf));
    }
    if (status < 0) {
        free(items);
        return -1;
    }
    free(out->items);
    *out = (struct name_list){items, count};
    return 0;
}

int listen_copy(struct name_list *to, const struct name_list *from, struct error *e)
{
    char **items = from->items ? argv_copy(from->items) : NULL;
    if (from->items && !items)
        return error_set(e, ERR_MEMORY, "out of memory");
    *to = (struct name_list){items, from->count};
    return 0;
}

/* ---- texts ---- */

int sandbox_id_check(const char *text, struct error *e)
{
    char buf[SHOWN_SIZE];
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz234567");
    if (n == 0 || n > ID_MAX || text[n])
        return error_set(e, ERR_INVALID, "'%s' is not a sandbox's id: 1 to %d of a-z and 2-7",
                         shown(text, strlen(text), buf), ID_MAX);
    return 0;
}

/* It goes into a header as it is. */
int origin_check(const char *text, struct error *e)
{
    char buf[SHOWN_SIZE];
    const char *host = strstr(text, "://");
    bool is_fine = host && host != text && host[3] && strlen(text) <= ORIGIN_MAX;
    for (const char *p = text; is_fine && *p; p++)
        is_fine = *p > ' ' && *p <= '~' && *p != ',';
    if (strcmp(text, "*") == 0 || (is_fine && !strchr(host + 3, '/')))
        return 0;
    return error_set(e, ERR_INVALID,
                     "'%s' is not an origin such as https://app.example.com (no path), or *",
                     shown(text, strlen(text), buf));
}

/* ---- the whole ---- */

static const char *first_tcp(const struct name_list *listen)
{
    for (size_t i = 0; i < listen->count; i++)
        if (!is_unix(listen->items[i]))
            return listen->items[i];
    return NULL;
}

/* "/workspace/" is "/workspace": paths are compared with it as texts. */
static int complete_workspace(char *path, struct error *e)
{
    char buf[SHOWN_SIZE];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    for (const char *p = path; p; p = strchr(p + 1, '/')) {
        size_t k = strcspn(p + 1, "/");
        if (n > 1 && (k == 0 || (k == 1 && p[1] == '.') || (k == 2 && p[1] == '.' && p[2] == '.')))
            return error_set(e, ERR_INVALID, "workspace: '%s' holds an empty part, '.' or '..'",
                             shown(path, n, buf));
    }
    return 0;
}

int gateway_complete(struct gateway_config *g, bool has_section, struct error *e)
{
    if (complete_workspace(g->workspace, e) < 0)
        return -1;
    if (g->auth == GATEWAY_AUTH_NONE && g->token_file)
        return error_set(e, ERR_INVALID,
                         "auth: none, and there is a token_file; take one of the two away");
    if (g->listen.count == 0)
        return has_section ? error_set(e, ERR_INVALID,
                                       "[gateway] has no address; give it one, such as "
                                       "listen = 127.0.0.1:3000")
                           : 0;
    const char *tcp = first_tcp(&g->listen);
    if (tcp && !g->token_file && g->auth == GATEWAY_AUTH_TOKEN)
        return error_set(e, ERR_INVALID,
                         "listen: who reaches %.60s could run anything here; set token_file = FILE "
                         "(a file with one line, the token), or write auth = none",
                         tcp);
    return 0;
}
