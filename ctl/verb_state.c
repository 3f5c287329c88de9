/* sandboxctl session fork and save: the state of a session, for another one or for a file. */
#include "ctl/ctl.h"

#include "base/fd.h"
#include "ctl/print.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void print_name(const struct strbuf *result)
{
    printf("%s\n", field_text(result, "name"));
}

int ctl_session_fork(const struct args *a)
{
    struct client_request q;
    client_request_init(&q, "session.fork");
    client_request_add(&q, "name", a->words[0]);
    if (a->word_count > 1)
        client_request_add(&q, "new", a->words[1]);
    int code = request_patience(&q, a);
    if (code) {
        client_request_free(&q);
        return code;
    }
    return call_show(a, &q, print_name);
}

/* Where a saved state goes. A file is there whole or not at all, and only its owner can read it:
 * the environment may hold secrets. */
struct target {
    const char *path;
    struct strbuf part; /* what is written, and renamed at the end; empty: path itself */
    int fd;
};

static int target_open(struct target *t, const char *path)
{
    struct stat st;
    *t = (struct target){.path = path, .fd = STDOUT_FILENO};
    if (strcmp(path, "-") == 0)
        return 0;
    bool is_special = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    if (!is_special && strbuf_addf(&t->part, "%s.part", path) < 0) {
        errno = ENOMEM;
        return -1;
    }
    t->fd = open(is_special ? path : strbuf_text(&t->part),
                 O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return t->fd < 0 ? -1 : 0;
}

/* Keep what was written, or leave nothing. 0, or -1 with errno. */
static int target_close(struct target *t, bool is_whole)
{
    int rc = 0, why = 0;
    if (t->fd > STDERR_FILENO && close(t->fd) < 0)
        rc = -1;
    if (t->part.len && is_whole && rc == 0)
        rc = rename(strbuf_text(&t->part), t->path);
    why = errno;
    if (t->part.len && (!is_whole || rc < 0))
        unlink(strbuf_text(&t->part));
    strbuf_free(&t->part);
    errno = why;
    return rc;
}

static int write_failed(const struct args *a, const char *path)
{
    fprintf(stderr, "sandboxctl %s: %s: %s\n", a->verb->name,
            strcmp(path, "-") == 0 ? "stdout" : path, strerror(errno));
    return CTL_REFUSED;
}

/* Receive the bytes and the result. Returns the exit code; errors are printed. */
static int receive(const struct args *a, struct client *c, struct target *t)
{
    const char *bytes;
    size_t n;
    int channel;
    struct error e = {0};
    while ((channel = client_receive(c, &bytes, &n, &e)) > 0) {
        if (channel == WIRE_ERROR)
            return call_refused(a, bytes, n);
        if (channel == WIRE_STDOUT && fd_write_all(t->fd, bytes, n) < 0)
            return write_failed(a, t->path);
        if (channel != WIRE_RESULT)
            continue;
        CLEANUP_STRBUF struct strbuf result = {0};
        if (a->is_json && strbuf_add(&result, bytes, n) == 0)
            print_record_json(&result);
        return CTL_OK;
    }
    if (channel == 0)
        error_set(&e, ERR_UNAVAILABLE, "sandbox-init closed the connection without an answer");
    return call_failed(a, &e);
}

int ctl_session_save(const struct args *a)
{
    struct client_request q;
    struct target t;
    struct error e = {0};
    if (a->is_json && strcmp(a->words[1], "-") == 0)
        return usage_error(a->verb, "stdout can't take both the state and --json");
    client_request_init(&q, "session.save");
    client_request_add(&q, "name", a->words[0]);
    int bad = request_patience(&q, a);
    struct client *c = bad ? NULL : call_begin(a, &q, &e);
    client_request_free(&q);
    if (bad)
        return bad;
    if (!c)
        return call_failed(a, &e);
    int code = CTL_OK;
    if (target_open(&t, a->words[1]) < 0)
        code = write_failed(a, a->words[1]);
    else
        code = receive(a, c, &t);
    client_free(c);
    if (target_close(&t, code == CTL_OK) < 0 && code == CTL_OK)
        code = write_failed(a, a->words[1]);
    return code;
}
