#include "sessions/cgroup.h"
#include "base/fd.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PREFIX     "sandbox-init."
#define PATH_BYTES 512
#define LATER_MAX                                                                                  \
    256 /* that wait for their last process; of more, the folders stay until the end */
#define TRIES        16 /* of those, at each removal */
#define NAMES_TRIED  1000
#define TRY_MS       500 /* so long the first child may take to end */
#define MOUNTS_BYTES ((size_t)256 * 1024)

static struct {
    int fd;        /* of our folder, locked; -1: none */
    int own_fd;    /* of the cgroup that init is in */
    bool can_fork; /* cgroup_fork() works */
    char name[32];
    char path[PATH_BYTES + 64]; /* of our folder, as /proc/PID/cgroup tells it */
    char later[LATER_MAX][sizeof((struct cgroup *)0)->name];
    size_t later_count;
    void (*prepare)(void *context); /* NULL: it was called */
    void *context;
} all = {.fd = -1, .own_fd = -1};

/* ---- where init is ---- */

/* True if the comma list has the word. */
static bool has_word(const char *list, size_t n, const char *word)
{
    size_t k = strlen(word);
    for (const char *end = list + n; list < end; list += strcspn(list, ",:") + 1)
        if (strncmp(list, word, k) == 0 && (list + k >= end || list[k] == ','))
            return true;
    return false;
}

/* The path of a line "0::PATH" (controller NULL) or "N:CONTROLLERS:PATH" of /proc/PID/cgroup.
 * 0, or -1 with errno. */
static int read_membership(const char *file, const char *controller, char path[PATH_BYTES])
{
    char text[8192], *save = NULL;
    if (fd_read_file(AT_FDCWD, file, text, sizeof text) < 0)
        return -1;
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        const char *list = strchr(l, ':');
        const char *own = list ? strchr(list + 1, ':') : NULL;
        if (!own || strlen(own + 1) >= PATH_BYTES)
            continue;
        size_t n = (size_t)(own - list - 1);
        if (controller ? !has_word(list + 1, n, controller) : strncmp(l, "0::", 3) != 0)
            continue;
        memcpy(path, own + 1, strlen(own + 1) + 1);
        return 0;
    }
    errno = ENOENT;
    return -1;
}

/* "ID PARENT MAJ:MIN ROOT POINT OPTIONS… - TYPE SOURCE SUPER" (proc_pid_mountinfo(5)): the folder
 * of the cgroup `own` below that mount, if it shows it. */
static bool folder_in_mount(char *line, const char *controller, const char *own, char *folder,
                            size_t size)
{
    char *field[5], *save = NULL;
    const char *type = strstr(line, " - "), *super = strrchr(line, ' ');
    if (!type || !super ||
        strncmp(type + 3, controller ? "cgroup " : "cgroup2 ", controller ? 7 : 8) != 0)
        return false;
    if (controller && !has_word(super + 1, strlen(super + 1), controller))
        return false;
    for (int i = 0; i < 5; i++)
        if (!(field[i] = strtok_r(i ? NULL : line, " ", &save)))
            return false;
    const char *root = strcmp(field[3], "/") == 0 ? "" : field[3];
    size_t n = strlen(root);
    if (strncmp(own, root, n) != 0 || (own[n] && own[n] != '/'))
        return false;
    int k = snprintf(folder, size, "%s%s", field[4], own + n);
    return k > 0 && (size_t)k < size;
}

static int open_own(const char *controller, char own[PATH_BYTES], struct error *e)
{
    char folder[PATH_BYTES + 256];
    if (read_membership("/proc/self/cgroup", controller, own) < 0)
        return error_set(e, ERR_STATE, "no cgroup v2");
    char *text = malloc(MOUNTS_BYTES), *save = NULL;
    if (!text)
        return error_set(e, ERR_MEMORY, "cgroups: no memory");
    int fd = -1;
    if (fd_read_file(AT_FDCWD, "/proc/self/mountinfo", text, MOUNTS_BYTES) > 0)
        for (char *l = strtok_r(text, "\n", &save); l && fd < 0; l = strtok_r(NULL, "\n", &save))
            if (folder_in_mount(l, controller, own, folder, sizeof folder))
                fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(text);
    return fd < 0 ? error_set(e, ERR_STATE, "no cgroup v2 is mounted") : fd;
}

int cgroup_open_own(const char *controller, struct error *e)
{
    char own[PATH_BYTES];
    return open_own(controller, own, e);
}

/* ---- our folder ---- */

/* What an init that is gone has left: its lock is free. Its processes may still be there. */
static void remove_dead(int own_fd, const char *name)
{
    CLEANUP_FD int fd = openat(own_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return;
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    for (const struct dirent *d; dir && (d = readdir(dir));)
        if (d->d_type == DT_DIR && d->d_name[0] != '.')
            unlinkat(fd, d->d_name, AT_REMOVEDIR);
    if (dir)
        closedir(dir);
    unlinkat(own_fd, name, AT_REMOVEDIR);
}

static void remove_all_dead(int own_fd)
{
    int copy = openat(own_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    for (const struct dirent *d; dir && (d = readdir(dir));)
        if (strncmp(d->d_name, PREFIX, strlen(PREFIX)) == 0)
            remove_dead(own_fd, d->d_name);
    if (dir)
        closedir(dir);
    else
        fd_close(&copy);
}

static int make_folder(int own_fd, struct error *e)
{
    for (unsigned i = 1; i <= NAMES_TRIED; i++) {
        snprintf(all.name, sizeof all.name, PREFIX "%u", i);
        if (mkdirat(own_fd, all.name, 0755) == 0)
            break;
        if (errno != EEXIST || i == NAMES_TRIED)
            return error_set_sys(e, errno, "cannot make a cgroup");
    }
    CLEANUP_FD int fd = openat(own_fd, all.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int saved = errno;
        unlinkat(own_fd, all.name, AT_REMOVEDIR);
        return error_set_sys(e, saved, "cannot use the cgroup that was made");
    }
    return fd_take(&fd);
}

/* A process may be moved by whoever may write to both cgroup.procs and that of the ancestor that
 * they have in common (cgroups(7)); and only into a cgroup that can hold processes. */
static int check_folder(int own_fd, int fd, struct error *e)
{
    char type[32] = "";
    if (faccessat(own_fd, "cgroup.procs", W_OK, AT_EACCESS) < 0 ||
        faccessat(fd, "cgroup.procs", W_OK, AT_EACCESS) < 0)
        return error_set_sys(e, errno, "cannot move processes between cgroups");
    if (fd_read_file(fd, "cgroup.type", type, sizeof type) < 0 || strncmp(type, "domain", 6) != 0 ||
        strstr(type, "invalid"))
        return error_set(e, ERR_STATE, "its cgroup takes no processes below it");
    return 0;
}

/* What fork(3) does besides is for other threads, of which there are none. */
static pid_t fork_into(int cgroup, struct clone_args args)
{
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = (unsigned)cgroup;
    args.exit_signal = SIGCHLD;
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* Older kernels and filters of system calls do not know it, and a child of an init whose own cgroup
 * was once killed is killed as well. The child has nothing to do, but somebody may stop it before
 * it ends: it is not waited for without a limit. */
static bool can_fork_into_one(void)
{
    struct cgroup c = {.name = "try"};
    int status = -1, pidfd = -1;
    if (mkdirat(all.fd, c.name, 0755) < 0)
        return false;
    CLEANUP_FD int fd = cgroup_open(&c);
    const struct clone_args args = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pidfd};
    pid_t pid = fd < 0 ? -1 : fork_into(fd, args);
    if (pid == 0)
        _exit(0);
    if (pid > 0) {
        struct pollfd end = {.fd = pidfd, .events = POLLIN};
        while (poll(&end, 1, TRY_MS) < 0 && errno == EINTR)
            ;
        if (waitpid(pid, &status, WNOHANG) == 0)
            kill(pid, SIGKILL); /* reaped as any other */
    }
    fd_close(&pidfd);
    cgroup_remove(&c);
    return pid > 0 && status == 0;
}

int cgroups_init(struct error *e)
{
    char own[PATH_BYTES];
    CLEANUP_FD int own_fd = open_own(NULL, own, e);
    if (own_fd < 0)
        return -1;
    remove_all_dead(own_fd);
    CLEANUP_FD int fd = make_folder(own_fd, e);
    if (fd < 0)
        return -1;
    if (check_folder(own_fd, fd, e) < 0) {
        unlinkat(own_fd, all.name, AT_REMOVEDIR);
        return -1;
    }
    snprintf(all.path, sizeof all.path, "%s/%s", strcmp(own, "/") == 0 ? "" : own, all.name);
    all.own_fd = fd_take(&own_fd);
    all.fd = fd_take(&fd);
    all.can_fork = can_fork_into_one();
    return 0;
}

void cgroups_exit(void)
{
    for (size_t i = 0; i < all.later_count; i++)
        unlinkat(all.fd, all.later[i], AT_REMOVEDIR);
    all.later_count = 0;
    if (all.fd >= 0)
        unlinkat(all.own_fd, all.name, AT_REMOVEDIR);
    fd_close(&all.fd);
    fd_close(&all.own_fd);
}

/* ---- one of them ---- */

void cgroups_when_needed(void (*prepare)(void *context), void *context)
{
    all.prepare = prepare;
    all.context = context;
}

void cgroups_needed(void)
{
    void (*prepare)(void *context) = all.prepare;
    all.prepare = NULL;
    if (prepare)
        prepare(all.context);
}

void cgroup_make(struct cgroup *c, const char *name)
{
    *c = (struct cgroup){0};
    cgroups_needed();
    if (all.fd < 0)
        return;
    if (mkdirat(all.fd, name, 0755) == 0)
        snprintf(c->name, sizeof c->name, "%s", name);
    else
        LOG_WRN("cgroup", F_STR("name", name), F_STR("why", strerror(errno)));
}

int cgroup_open(const struct cgroup *c)
{
    return c->name[0] ? openat(all.fd, c->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

/* In a cgroup that was ever killed (cgroup.kill) a child is killed at its birth (seen with Linux
 * 6.18): so only the first is born there. */
int cgroup_open_to_start(struct cgroup *c, bool *is_new)
{
    int fd = cgroup_open(c);
    *is_new = fd >= 0 && all.can_fork && !c->was_used;
    c->was_used = true;
    return fd;
}

pid_t cgroup_fork(int fd)
{
    return fork_into(fd, (struct clone_args){0});
}

void cgroup_join(int fd)
{
    CLEANUP_FD int procs = openat(fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (procs >= 0)
        (void)!write(procs, "0", 1);
}

bool cgroup_has(const struct cgroup *c, pid_t pid)
{
    char file[40], path[PATH_BYTES];
    snprintf(file, sizeof file, "/proc/%d/cgroup", (int)pid);
    if (!c->name[0] || read_membership(file, NULL, path) < 0)
        return false;
    size_t n = strlen(all.path), k = strlen(c->name);
    /* What it has made below itself is its own as well. */
    return strncmp(path, all.path, n) == 0 && path[n] == '/' &&
           strncmp(path + n + 1, c->name, k) == 0 && (!path[n + 1 + k] || path[n + 1 + k] == '/');
}

/* Some of those that had processes in them. */
static void retry(void)
{
    for (size_t turn = 0, i = 0; i < all.later_count && turn < TRIES; turn++) {
        if (unlinkat(all.fd, all.later[i], AT_REMOVEDIR) < 0 && errno == EBUSY)
            i++;
        else
            memmove(all.later[i], all.later[--all.later_count], sizeof all.later[i]);
    }
}

void cgroup_remove(struct cgroup *c)
{
    if (!c->name[0])
        return;
    retry();
    if (unlinkat(all.fd, c->name, AT_REMOVEDIR) < 0 && errno == EBUSY &&
        all.later_count < LATER_MAX)
        memcpy(all.later[all.later_count++], c->name, sizeof c->name);
    c->name[0] = '\0';
}
