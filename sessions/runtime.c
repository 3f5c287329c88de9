#include "sessions/runtime.h"
#include "base/fd.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder named s1, p7 or x3: made by an init. */
static bool is_workdir_name(const char *name)
{
    if (name[0] != 's' && name[0] != 'p' && name[0] != 'x')
        return false;
    return name[1] != '\0' && name[1 + strspn(name + 1, "0123456789")] == '\0';
}

/* What users may put into a folder of theirs is removed as well, within these bounds: this runs on
 * the loop. */
#define REMOVE_DEPTH 8
#define REMOVE_MAX   10000

static void empty_folder(int fd, unsigned depth, unsigned *budget);

/* Remove whatever has this name. */
static void remove_entry(int parent, const char *name, unsigned depth, unsigned *budget)
{
    if (*budget == 0 || unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return;
    --*budget;
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || depth == 0)
        return;
    (void)!fchmodat(parent, name, 0700, AT_SYMLINK_NOFOLLOW);
    CLEANUP_FD int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    empty_folder(fd, depth - 1, budget);
    unlinkat(parent, name, AT_REMOVEDIR);
}

static void empty_folder(int fd, unsigned depth, unsigned *budget)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d) {
        fd_close(&copy);
        return;
    }
    for (struct dirent *n; *budget > 0 && (n = readdir(d));)
        if (strcmp(n->d_name, ".") != 0 && strcmp(n->d_name, "..") != 0)
            remove_entry(fd, n->d_name, depth, budget);
    closedir(d);
}

static void remove_name(int parent, const char *name)
{
    unsigned budget = REMOVE_MAX;
    remove_entry(parent, name, REMOVE_DEPTH, &budget);
}

static void remove_leftovers(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_nlink == 2)
        return; /* only "." and the entry in its parent: no folder is in it (not so on btrfs: 1) */
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d) {
        fd_close(&copy);
        return;
    }
    for (struct dirent *n; (n = readdir(d));)
        if (is_workdir_name(n->d_name))
            remove_name(fd, n->d_name);
    closedir(d);
}

int runtime_open(struct runtime *r, const char *path, struct error *e)
{
    struct stat st;
    *r = (struct runtime){.fd = -1};
    if (strlen(path) >= sizeof r->path)
        return error_set(e, ERR_INVALID, "runtime folder %s: path too long", path);
    /* The path stands unquoted in the orders to the shells. */
    if (path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-")])
        return error_set(e, ERR_INVALID,
                         "runtime folder %s: only letters, digits and _./+- can "
                         "stand in its path",
                         path);
    if (mkdir(path, 0711) < 0 && errno != EEXIST)
        return error_set_sys(e, errno, "runtime folder %s", path);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_sys(e, errno, "runtime folder %s", path);
    if (st.st_uid != geteuid())
        return error_set(e, ERR_DENIED, "runtime folder %s: belongs to uid %u, not to init's %u",
                         path, (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & 0777) != 0711 && fchmod(fd, 0711) < 0)
        return error_set_sys(e, errno, "runtime folder %s: chmod 0711", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(e, ERR_BUSY, "runtime folder %s: another sandbox-init uses it", path);
    remove_leftovers(fd);
    snprintf(r->path, sizeof r->path, "%s", path);
    r->fd = fd_take(&fd);
    return 0;
}

void runtime_close(struct runtime *r)
{
    if (r->fd >= 0)
        remove_leftovers(r->fd);
    fd_close(&r->fd);
}

int workdir_open(struct workdir *w, const struct runtime *r, const char *name, struct error *e)
{
    *w = (struct workdir){.fd = -1};
    if (r->fd < 0)
        return error_set(e, ERR_STATE, "no writable runtime folder (set runtime_dir in [init])");
    snprintf(w->name, sizeof w->name, "%s", name);
    snprintf(w->path, sizeof w->path, "%s/%s", r->path, name);
    remove_name(r->fd, name);
    if (mkdirat(r->fd, name, 0711) < 0)
        return error_set_sys(e, errno, "%s", w->path);
    w->fd = openat(r->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (w->fd < 0)
        return error_set_sys(e, errno, "%s", w->path);
    /* The umask may have taken the x bits that let the session's user pass. */
    if (fchmod(w->fd, 0711) < 0)
        return error_set_sys(e, errno, "%s: chmod", w->path);
    return 0;
}

void workdir_close(struct workdir *w, const struct runtime *r)
{
    if (w->fd < 0)
        return;
    unsigned budget = REMOVE_MAX;
    empty_folder(w->fd, REMOVE_DEPTH, &budget);
    fd_close(&w->fd);
    if (r->fd >= 0)
        unlinkat(r->fd, w->name, AT_REMOVEDIR);
}

bool workdir_has(const struct workdir *w, const char *name, int fd)
{
    struct stat ours, there;
    return fd >= 0 && fstat(fd, &ours) == 0 &&
           fstatat(w->fd, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

static int give_to(int fd, const struct workdir *w, const char *name, const struct user *owner,
                   struct error *e)
{
    char user[96];
    if (!owner || owner->uid == geteuid())
        return 0;
    if (fchown(fd, owner->uid, owner->gid) < 0)
        return error_set_sys(e, errno,
                             "%s/%s: chown to user %s (init needs CAP_CHOWN for other users)",
                             w->path, name, user_text(owner, user, sizeof user));
    return 0;
}

int workdir_file(const struct workdir *w, const char *name, const struct user *owner,
                 struct error *e)
{
    remove_name(w->fd, name);
    CLEANUP_FD int fd =
        openat(w->fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set_sys(e, errno, "%s/%s", w->path, name);
    if (give_to(fd, w, name, owner, e) < 0)
        return -1;
    return fd_take(&fd);
}

int workdir_fifo(const struct workdir *w, const char *name, const struct user *owner,
                 struct error *e)
{
    struct stat st;
    remove_name(w->fd, name);
    if (mkfifoat(w->fd, name, 0600) < 0)
        return error_set_sys(e, errno, "%s/%s: mkfifo", w->path, name);
    CLEANUP_FD int fd = openat(w->fd, name, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_sys(e, errno, "%s/%s", w->path, name);
    if (!S_ISFIFO(st.st_mode))
        return error_set(e, ERR_STATE, "%s/%s: not a FIFO any more", w->path, name);
    if (give_to(fd, w, name, owner, e) < 0)
        return -1;
    return fd_take(&fd);
}

int workdir_fifo_reader(const struct workdir *w, const char *name, struct error *e)
{
    struct stat st;
    CLEANUP_FD int fd = openat(w->fd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_sys(e, errno, "%s/%s", w->path, name);
    if (!S_ISFIFO(st.st_mode))
        return error_set(e, ERR_STATE, "%s/%s: not a FIFO any more", w->path, name);
    return fd_take(&fd);
}

int workdir_fill(const struct workdir *w, int fd, const char *name, const void *bytes, size_t n,
                 struct error *e)
{
    struct stat st;
    /* Cut to its new length, not to nothing: blocks that are freed have to be allocated again. */
    if (fstat(fd, &st) < 0 || (st.st_size > (off_t)n && ftruncate(fd, (off_t)n) < 0) ||
        lseek(fd, 0, SEEK_SET) < 0 || fd_write_all(fd, bytes, n) < 0)
        return error_set_sys(e, errno, "write %zu bytes to %s/%s", n, w->path, name);
    return 0;
}
