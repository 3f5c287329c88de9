/* sandboxctl status, reload, shutdown; and what the shell's completion asks. */
#include "ctl/ctl.h"

#include "control/paths.h"
#include "ctl/print.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define GONE_CHECK_MS 20

static int simple_call(const struct args *a, const char *wire)
{
    struct client_request q;
    client_request_init(&q, wire);
    return call_show(a, &q, print_lines);
}

int ctl_status(const struct args *a)
{
    return simple_call(a, "status");
}

int ctl_reload(const struct args *a)
{
    return simple_call(a, "reload");
}

/* ---- shutdown ---------------------------------------------------------------------------- */

/* Whether somebody still listens at path. */
static bool is_listening(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    bool is_there =
        connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN;
    close(fd);
    return is_there;
}

/* The answer comes when the stop has begun; the end is when nobody listens any more. */
int ctl_shutdown(const struct args *a)
{
    struct client_request q;
    struct answer answer;
    struct error e;
    char buf[PATHS_MAX];
    client_request_init(&q, "shutdown");
    if (request_duration(&q, a, "grace", "grace_ms")) {
        client_request_free(&q);
        return CTL_USAGE;
    }
    const char *path = call_socket(a, buf, sizeof buf, &e);
    int code = call(a, &q, &answer);
    if (code != CTL_OK)
        return code;
    if (a->is_json)
        print_record_json(&answer.result);
    answer_free(&answer);
    fflush(stdout);
    while (path && is_listening(path))
        nanosleep(&(struct timespec){.tv_nsec = GONE_CHECK_MS * 1000000L}, NULL);
    return CTL_OK;
}

/* ---- completion -------------------------------------------------------------------------- */

static void print_option_names(const struct option *o)
{
    for (; o && o->name; o++) {
        printf("--%s\n", o->name);
        if (o->letter)
            printf("-%c\n", o->letter);
    }
}

/* One key of each row; nothing at all when init can't be asked. */
static int print_names(const char *wire, const char *kind, const char *key)
{
    struct args a = {0};
    struct client_request q;
    struct answer answer;
    if (!freopen("/dev/null", "w", stderr))
        return CTL_REFUSED;
    client_request_init(&q, wire);
    if (kind)
        client_request_add(&q, "kind", kind);
    int code = call(&a, &q, &answer);
    if (code != CTL_OK)
        return code;
    for (size_t i = 0; i < answer.row_count; i++)
        printf("%s\n", field_text(&answer.rows[i], key));
    answer_free(&answer);
    return CTL_OK;
}

int complete(int argc, char **argv)
{
    const char *kind = argc > 0 ? argv[0] : "";
    char name[128];
    if (strcmp(kind, "sessions") == 0)
        return print_names("session.list", NULL, "name");
    if (strcmp(kind, "ids") == 0)
        return print_names("ps", NULL, "id");
    if (strcmp(kind, "strays") == 0)
        return print_names("ps", "stray", "pid");
    if (strcmp(kind, "terminals") == 0)
        return print_names("ps", "terminal", "id");
    if (strcmp(kind, "services") == 0)
        return print_names("service.list", NULL, "name");
    if (strcmp(kind, "verbs") == 0)
        for (const struct verb *v = verbs; v->name; v++)
            printf("%s\n", v->name);
    if (strcmp(kind, "options") == 0) {
        snprintf(name, sizeof name, "%s%s%s", argc > 1 ? argv[1] : "", argc > 2 ? " " : "",
                 argc > 2 ? argv[2] : "");
        for (const struct verb *v = verbs; v->name; v++)
            if (strcmp(v->name, name) == 0)
                print_option_names(v->options);
        print_option_names(global_options);
        if (argc == 1)
            printf("--version\n-V\n");
    }
    return CTL_OK;
}
