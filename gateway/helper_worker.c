/*
 * The helper's two loops: the helper itself takes connections and forks, at most WORKERS_MAX at a
 * time (then the next waits in the socket); a worker reads its request and does it.
 */
#include "gateway/helper_worker.h"

#include "base/fd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS_MAX 64

static const struct operation {
    const char *name;
    int (*run)(struct worker *w, struct error *e);
} operations[] = {
    {"open", worker_open},       {"put", worker_put},         {"stat", worker_stat},
    {"list", worker_list},       {"mkdir", worker_mkdir},     {"rename", worker_rename},
    {"delete", worker_delete},   {"empty", worker_empty},     {"watch", worker_watch},
    {"archive", worker_archive}, {"extract", worker_extract},
};

/* ---- what the operations use --------------------------------------------------------------- */

const char *worker_argument(const struct worker *w, const char *key)
{
    return record_get(w->request, w->n, key);
}

bool worker_flag(const struct worker *w, const char *key)
{
    const char *text = worker_argument(w, key);
    return text && strcmp(text, "1") == 0;
}

int worker_send(struct worker *w, char channel, const void *bytes, size_t n, struct error *e)
{
    return helper_send(w->sock, channel, bytes, n, -1) == 0
               ? 0
               : error_set_sys(e, errno, "answer to the gateway");
}

int worker_send_record(struct worker *w, char channel, struct record *r, int fd, struct error *e)
{
    int rc = r->is_broken ? error_set(e, ERR_MEMORY, "no memory for an answer") : 0;
    if (rc == 0 && helper_send(w->sock, channel, r->bytes.data, r->bytes.len, fd) < 0)
        rc = error_set_sys(e, errno, "answer to the gateway");
    record_free(r);
    return rc;
}

ssize_t worker_receive(struct worker *w, struct error *e)
{
    int fd;
    for (;;) {
        ssize_t n = helper_receive(w->sock, w->packet, &fd);
        fd_close(&fd);
        if (n < 0)
            return error_set_sys(e, errno, "receive from the gateway");
        if (n == 0)
            return error_set(e, ERR_UNAVAILABLE, "the gateway called it off");
        if (w->packet[0] == HELPER_END)
            return 0;
        if (w->packet[0] != HELPER_DATA)
            return error_set(e, ERR_PROTOCOL, "a packet out of order");
        if (n == 1)
            continue;
        memmove(w->packet, w->packet + 1, (size_t)n - 1);
        return n - 1;
    }
}

int worker_fail(const struct worker *w, const char *what, const char *path, struct error *e)
{
    int sys = errno;
    const char *folder = strcmp(w->workspace, "/") == 0 ? "" : w->workspace;
    if (sys == EISDIR) /* clients know this text */
        error_set(e, ERR_SYSTEM, "EISDIR: illegal operation on a directory, %s '%s%s%s'", what,
                  folder, *path ? "/" : "", path);
    else if (sys == ENXIO)
        error_set(e, ERR_SYSTEM, "%s %s/%s: not a regular file", what, folder, path);
    else if (sys == EXDEV)
        error_set(e, ERR_DENIED, "path must resolve to a location within %s", w->workspace);
    else
        error_set_sys(e, sys, "%s %s%s%s", what, folder, *path ? "/" : "", path);
    e->sys = sys;
    return -1;
}

static const char *file_type_name(mode_t mode)
{
    return S_ISREG(mode)    ? "file"
           : S_ISDIR(mode)  ? "directory"
           : S_ISLNK(mode)  ? "symlink"
           : S_ISFIFO(mode) ? "fifo"
           : S_ISSOCK(mode) ? "socket"
           : S_ISCHR(mode)  ? "char_device"
                            : "block_device";
}

void file_record(struct record *r, const struct stat *st, int dir, const char *name)
{
    char target[PATH_MAX];
    record_str(r, "type", file_type_name(st->st_mode));
    record_int(r, "size", st->st_size);
    record_int(r, "mode", st->st_mode & 07777);
    record_int(r, "mtime_ns", st->st_mtim.tv_sec * 1000000000LL + st->st_mtim.tv_nsec);
    record_int(r, "uid", st->st_uid);
    record_int(r, "gid", st->st_gid);
    record_int(r, "links", (int64_t)st->st_nlink);
    if (!S_ISLNK(st->st_mode))
        return;
    ssize_t n = readlinkat(dir, name, target, sizeof target);
    if (n >= 0)
        record_bytes(r, "target", target, (size_t)n);
}

/* ---- a worker ------------------------------------------------------------------------------ */

static int run_operation(struct worker *w, struct error *e)
{
    const char *op = worker_argument(w, "op");
    for (size_t i = 0; op && i < sizeof operations / sizeof operations[0]; i++) {
        if (strcmp(operations[i].name, op) != 0)
            continue;
        w->has_no_workspace = root_open(&w->root, w->workspace) < 0;
        if (w->has_no_workspace)
            return error_set_sys(e, errno, "workspace %s", w->workspace);
        return operations[i].run(w, e);
    }
    return error_set(e, ERR_PROTOCOL, "no such operation");
}

static void tell_error(int sock, const struct error *e, bool is_of_workspace)
{
    struct record r = {0};
    record_int(&r, "errno", e->sys);
    record_str(&r, "message", e->text);
    if (is_of_workspace)
        record_str(&r, "workspace", "1");
    if (!r.is_broken)
        helper_send(sock, HELPER_ERROR, r.bytes.data, r.bytes.len, -1);
    record_free(&r);
}

static void worker_main(int sock, const char *workspace)
{
    static struct worker w; /* large, and zero */
    struct error e = {0};
    int fd;
    w.sock = sock;
    w.workspace = workspace;
    w.root.fd = -1;
    ssize_t n = helper_receive(sock, w.packet, &fd);
    fd_close(&fd);
    if (n <= 0)
        return;
    w.n = (size_t)n - 1;
    memcpy(w.request, w.packet + 1, w.n);
    if (w.packet[0] != HELPER_REQUEST || !helper_is_record(w.request, w.n))
        error_set(&e, ERR_PROTOCOL, "a malformed request");
    else if (run_operation(&w, &e) == 0 && w.result.is_broken)
        error_set(&e, ERR_MEMORY, "no memory for the answer");
    if (e.code == ERR_NONE)
        helper_send(sock, HELPER_END, w.result.bytes.data, w.result.bytes.len, -1);
    else
        tell_error(sock, &e, w.has_no_workspace);
}

/* ---- the helper ---------------------------------------------------------------------------- */

static void on_child(int sig)
{
    (void)sig; /* ends the poll */
}

static unsigned reap(unsigned workers)
{
    while (workers > 0 && waitpid(-1, NULL, WNOHANG) > 0)
        workers--;
    return workers;
}

/* True if a worker was started. */
static bool start_worker(int helper, int sock, const char *workspace)
{
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t none;
        close(helper);
        signal(SIGCHLD, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        worker_main(sock, workspace);
        _exit(0);
    }
    if (pid < 0) {
        struct error e = {0};
        error_set_sys(&e, errno, "start a worker of the file helper");
        tell_error(sock, &e, false);
    }
    return pid > 0;
}

/* Take one connection. False: the gateway is gone. */
static bool take(int sock, const char *workspace, unsigned *workers)
{
    char packet[HELPER_PACKET_MAX];
    CLEANUP_FD int fd = -1;
    ssize_t n = helper_receive(sock, packet, &fd);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EPROTO))
        return false;
    if (n == 1 && packet[0] == HELPER_CONNECTION && fd >= 0 && start_worker(sock, fd, workspace))
        ++*workers;
    return true;
}

static int file_helper_run(int sock, const char *workspace)
{
    sigset_t blocked, open_mask;
    struct sigaction on_end = {.sa_handler = on_child};
    unsigned workers = 0;
    /* What the sessions' user runs may kill this process, but not look into it. */
    prctl(PR_SET_DUMPABLE, 0);
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGCHLD, &on_end, NULL);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &open_mask);
    sigdelset(&open_mask, SIGCHLD);
    if (fd_set_nonblock(sock) < 0)
        return 1;
    for (;;) {
        struct pollfd p = {sock, POLLIN, 0};
        workers = reap(workers);
        int rc = ppoll(&p, workers < WORKERS_MAX, NULL, &open_mask);
        if (rc < 0 && errno != EINTR)
            return 1;
        if (rc > 0 && !take(sock, workspace, &workers))
            return 0;
    }
}

int file_helper_main(int argc, char *const *argv)
{
    static const char option[] = "--workspace=";
    if (argc != 3 || strncmp(argv[2], option, sizeof option - 1) != 0) {
        fprintf(stderr, "sandbox-gateway: usage: --file-helper --workspace=DIR\n");
        return 2;
    }
    return file_helper_run(3, argv[2] + sizeof option - 1);
}
