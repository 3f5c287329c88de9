#include "logger/log_folder.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int log_folder_fail(const struct log_folder *f, const char *name, const char *step, int sys,
                    struct error *e)
{
    return error_set_sys(e, sys, "log %.200s%s%s: %s", f->path, *name ? "/" : "", name, step);
}

/* True if what is open is what stands at the path. */
static bool is_present(const struct log_folder *f)
{
    struct stat now, ours;
    return f->fd >= 0 && stat(f->path, &now) == 0 && fstat(f->fd, &ours) == 0 &&
           now.st_ino == ours.st_ino && now.st_dev == ours.st_dev;
}

int log_folder_open(struct log_folder *f, struct error *e)
{
    if (is_present(f))
        return 0;
    fd_close(&f->fd);
    if (mkdir(f->path, 0700) < 0 && errno != EEXIST)
        return log_folder_fail(f, "", "mkdir", errno, e);
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return f->fd < 0 ? log_folder_fail(f, "", "open", errno, e) : 0;
}

int log_folder_put(struct log_folder *f, const char *name, const char *text, size_t n,
                   struct error *e)
{
    char fresh[128]; /* no ID begins with a dot: nobody else's name */
    snprintf(fresh, sizeof fresh, ".%s.new", name);
    (void)unlinkat(f->fd, fresh, 0);
    CLEANUP_FD int fd =
        openat(f->fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return log_folder_fail(f, name, "create", errno, e);
    const char *step = "write";
    int rc = fd_write_all(fd, text, n);
    if (rc == 0) {
        step = "rename";
        rc = renameat(f->fd, fresh, f->fd, name);
    }
    if (rc == 0)
        return 0;
    int sys = errno;
    (void)unlinkat(f->fd, fresh, 0);
    return log_folder_fail(f, name, step, sys, e);
}
