/*
 * op=put: a file's new content, all of it or none. It is collected in a file that has no name (or,
 * where the file system has no such files, a temporary one beside the target) and put in place when
 * the gateway says END; a gateway or client that goes away before leaves nothing behind.
 *
 * In place by rename, so that readers see the old content or the new; the mode and owner are those
 * of the old file. By writing into the old file where a rename would break something: a second hard
 * link, another owner that we may not give it to, attributes (ACLs), a mounted file, a folder that
 * may not be written to.
 */
#include "gateway/helper_worker.h"

#include "base/clock.h"
#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SWEEP_MAX 10000 /* names of a folder that are looked at for left over ones */

/* A temporary file has this bit from its first name on until it is in its place. It does nothing on
 * a file (inode(7)), so nobody else sets it, and somebody's own file of such a name is told from
 * ours. */
#define MARK S_ISVTX

struct put {
    struct worker *w;
    const char *path;
    struct place place;
    bool is_new;
    bool is_rename; /* the content has to go into the old file otherwise */
    struct stat old;
    int old_fd; /* for writing; -1: none, or a program that runs */
    int temporary;
    char name[40]; /* of the temporary file in the target's folder; "": it has none */
};

/* ".sandbox-put-PID-TIME-COUNT": those below are read by the same form. */
static void temporary_name(char name[40])
{
    static unsigned count;
    snprintf(name, 40, ".sandbox-put-%d-%x-%x", (int)getpid(), (unsigned)clock_mono_ns(), count++);
}

bool is_put_name(const char *name)
{
    static const char begin[] = ".sandbox-put-";
    if (strncmp(name, begin, sizeof begin - 1) != 0)
        return false;
    name += sizeof begin - 1;
    for (int part = 0; part < 3; part++) {
        size_t n = strspn(name, part == 0 ? "0123456789" : "0123456789abcdef");
        if (n == 0 || n > 10 || name[n] != (part < 2 ? '-' : '\0'))
            return false;
        name += n + 1;
    }
    return true;
}

bool is_put_temporary(const char *name, const struct stat *st)
{
    return S_ISREG(st->st_mode) && (st->st_mode & MARK) && is_put_name(name);
}

/* A worker holds a lock on its file as long as it lives: one without is left over. */
bool put_sweep(int dir, const char *name)
{
    struct stat st, now;
    if (fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) < 0 || !is_put_temporary(name, &now))
        return false;
    CLEANUP_FD int fd =
        openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return true;
    if (fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_dev == st.st_dev &&
        now.st_ino == st.st_ino && is_put_temporary(name, &now))
        unlinkat(dir, name, 0);
    return true;
}

static void sweep_folder(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    if (!d) {
        fd_close(&fd);
        return;
    }
    for (unsigned i = 0; i < SWEEP_MAX && (entry = readdir(d)); i++)
        if (is_put_name(entry->d_name))
            (void)put_sweep(fd, entry->d_name);
    closedir(d);
}

/* A new file with p's temporary name, locked. -1 with errno: EAGAIN if another worker was quicker
 * to take it for left over. */
static int open_named(struct put *p)
{
    struct stat st;
    int fd = openat(p->place.dir, p->name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC,
                    0666 | MARK);
    if (fd < 0)
        return -1;
    bool is_taken = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    if (!is_taken && fstat(fd, &st) == 0 && st.st_nlink > 0)
        return fd;
    unlinkat(p->place.dir, p->name, 0);
    close(fd);
    errno = EAGAIN;
    return -1;
}

/* ---- what is there ------------------------------------------------------------------------- */

/* Access control lists and the like, which a new file would not have. */
static bool has_attributes(int fd)
{
    char names[4096];
    ssize_t n = flistxattr(fd, names, sizeof names);
    if (n < 0)
        return errno == ERANGE;
    for (const char *at = names; at < names + n; at += strlen(at) + 1)
        if (strcmp(at, "security.selinux") != 0)
            return true;
    return false;
}

/* Look at the old file. 0, or -1 with errno. */
static int look(struct put *p)
{
    p->old_fd = -1;
    if (place_is_root(&p->place)) {
        errno = EISDIR;
        return -1;
    }
    p->is_new = fstatat(p->place.dir, p->place.name, &p->old, AT_SYMLINK_NOFOLLOW) < 0;
    p->is_rename = true;
    if (p->is_new)
        return errno == ENOENT ? 0 : -1;
    if (!S_ISREG(p->old.st_mode)) {
        errno = S_ISDIR(p->old.st_mode) ? EISDIR : S_ISLNK(p->old.st_mode) ? EAGAIN : ENXIO;
        return -1;
    }
    /* What may not be written to is not replaced either. */
    p->old_fd = openat(p->place.dir, p->place.name,
                       O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (p->old_fd < 0)
        return errno == ETXTBSY ? 0 : -1;
    if (fstat(p->old_fd, &p->old) < 0)
        return -1;
    p->is_rename = p->old.st_nlink == 1 && !has_attributes(p->old_fd);
    return 0;
}

/* ---- the temporary file --------------------------------------------------------------------- */

/* A file to collect the content in: beside the target if it can take its name, else anywhere. */
static int open_temporary(struct put *p)
{
    if (p->is_rename) {
        p->temporary = openat(p->place.dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
        if (p->temporary >= 0) {
            (void)flock(p->temporary, LOCK_EX | LOCK_NB); /* for when it gets a name */
            return 0;
        }
        sweep_folder(p->place.dir);
        temporary_name(p->name);
        p->temporary = open_named(p);
        if (p->temporary >= 0)
            return 0;
        p->name[0] = '\0';
        if (p->is_new || p->old_fd < 0 || (errno != EACCES && errno != EPERM && errno != EROFS))
            return -1;
        p->is_rename = false;
    }
    p->temporary = openat(p->w->root.fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (p->temporary < 0)
        p->temporary = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (p->temporary < 0)
        p->temporary = memfd_create("put", MFD_CLOEXEC);
    return p->temporary < 0 ? -1 : 0;
}

/* Set the mark, or take it away. */
static int mark(const struct put *p, mode_t with)
{
    struct stat st = p->old;
    if (p->is_new && fstat(p->temporary, &st) < 0)
        return -1;
    return fchmod(p->temporary, (st.st_mode & (p->is_new ? 0777 : 01777)) | with);
}

/* Mode and owner of the old file for the new one. False: it cannot have them. */
static bool inherit(struct put *p)
{
    struct stat st;
    if (p->is_new)
        return true;
    if (fstat(p->temporary, &st) < 0)
        return false;
    if ((st.st_uid != p->old.st_uid || st.st_gid != p->old.st_gid) &&
        fchown(p->temporary, p->old.st_uid, p->old.st_gid) < 0)
        return false;
    return mark(p, p->name[0] ? MARK : 0) == 0;
}

/* Give the file without a name one. */
static int name_temporary(struct put *p, const char *name)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", p->temporary);
    return linkat(AT_FDCWD, link, p->place.dir, name, AT_SYMLINK_FOLLOW);
}

/* Without /proc the content has to be copied into a file with a name. */
static int copy_all(int from, int to)
{
    off_t at = 0;
    if (ftruncate(to, 0) < 0)
        return -1;
    for (;;) {
        static char block[65536];
        ssize_t n = pread(from, block, sizeof block, at);
        if (n == 0)
            return 0;
        if ((n < 0 && errno != EINTR) || (n > 0 && fd_write_all(to, block, (size_t)n) < 0))
            return -1;
        at += n > 0 ? n : 0;
    }
}

static int name_by_copy(struct put *p)
{
    int fd = open_named(p);
    if (fd < 0)
        return -1;
    if (copy_all(p->temporary, fd) < 0) {
        unlinkat(p->place.dir, p->name, 0);
        close(fd);
        return -1;
    }
    close(p->temporary);
    p->temporary = fd;
    return inherit(p) ? 0 : -1;
}

/* ---- in place -------------------------------------------------------------------------------- */

static int put_into_old(struct put *p)
{
    if (p->old_fd >= 0)
        return copy_all(p->temporary, p->old_fd);
    errno = ETXTBSY;
    return -1;
}

static int put_by_rename(struct put *p)
{
    if (!p->name[0]) {
        if (p->is_new && name_temporary(p, p->place.name) == 0)
            return 0;
        temporary_name(p->name);
        (void)mark(p, MARK); /* before anybody can see it */
        if (name_temporary(p, p->name) < 0 && name_by_copy(p) < 0) {
            p->name[0] = '\0';
            return -1;
        }
    }
    if (renameat(p->place.dir, p->name, p->place.dir, p->place.name) == 0) {
        p->name[0] = '\0';
        return mark(p, 0); /* not before: who is killed in between leaves no file of that name */
    }
    /* EBUSY: something is mounted on the file */
    return errno == EBUSY && p->old_fd >= 0 ? put_into_old(p) : -1;
}

static int receive_body(struct put *p, struct error *e)
{
    ssize_t n;
    while ((n = worker_receive(p->w, e)) > 0)
        if (fd_write_all(p->temporary, p->w->packet, (size_t)n) < 0)
            return worker_fail(p->w, "write", p->path, e);
    return (int)n;
}

static int put(struct put *p, struct error *e)
{
    if (look(p) < 0 || open_temporary(p) < 0)
        return worker_fail(p->w, "open", p->path, e);
    if (receive_body(p, e) < 0)
        return -1;
    int rc = p->is_rename && inherit(p) ? put_by_rename(p) : put_into_old(p);
    return rc < 0 ? worker_fail(p->w, "write", p->path, e) : 0;
}

int worker_put(struct worker *w, struct error *e)
{
    static struct put p;
    p.w = w;
    p.path = worker_argument(w, "path");
    p.temporary = p.old_fd = -1;
    if (!p.path)
        return error_set(e, ERR_PROTOCOL, "put: no path");
    if (place_find(&w->root, p.path, RESOLVE_LAST | RESOLVE_MAKE, &p.place) < 0)
        return worker_fail(w, "open", p.path, e);
    int rc = put(&p, e);
    if (p.name[0])
        unlinkat(p.place.dir, p.name, 0);
    if (rc < 0)
        place_unmake(&p.place);
    place_close(&p.place);
    fd_close(&p.temporary);
    fd_close(&p.old_fd);
    return rc;
}
