#include "logger/text_file.h"
#include "base/fd.h"
#include "logger/rotation.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODE 0640 /* of a new file: others in the container need not read it */

static int fail(const struct text_file *f, const char *step, int sys, struct error *e)
{
    return error_set_sys(e, sys, "log %.200s: %s", f->path, step);
}

void text_file_close(struct text_file *f)
{
    fd_close(&f->fd);
    list_remove(&f->use_link);
}

/* ---- opening ---- */

static int refuse(const struct text_file *f, const char *what, struct error *e)
{
    return error_set(e, ERR_STATE, "log %.200s: %s; lines are not written to it", f->path, what);
}

static int explain(const struct text_file *f, int sys, struct error *e)
{
    if (sys == ELOOP)
        return refuse(f, "is a symbolic link", e);
    if (sys == ENOENT)
        return error_set(e, ERR_SYSTEM, "log %.200s: open: its folder does not exist; make it",
                         f->path);
    if (sys == EACCES || sys == EPERM) {
        (void)fail(f, "open", sys, e);
        size_t n = strlen(e->text);
        snprintf(e->text + n, sizeof e->text - n, " as uid %d, the owner of its folder",
                 (int)geteuid());
        return -1;
    }
    return fail(f, "open", sys, e);
}

static int open_file(struct text_file *f, struct error *e)
{
    struct stat st;
    const int flags = O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    CLEANUP_FD int fd = open(f->path, flags | O_CREAT, MODE);
    if (fd < 0)
        return errno == EISDIR ? refuse(f, "is no plain file", e) : explain(f, errno, e);
    if (fstat(fd, &st) < 0)
        return fail(f, "stat", errno, e);
    if (!S_ISREG(st.st_mode))
        return refuse(f, "is no plain file", e);
    if (st.st_nlink > 1)
        return refuse(f, "has another name too (a hard link)", e);
    bool is_known = st.st_ino == f->place.inode && st.st_dev == f->place.device;
    f->has_tail = f->has_tail && (uint64_t)st.st_size > (is_known ? f->place.size : 0);
    f->tail_from = is_known ? f->place.size : 0;
    f->place = (struct logger_place){st.st_dev, st.st_ino, (uint64_t)st.st_size};
    f->fd = fd_take(&fd);
    f->on_written(f); /* the next writer is to know this file, though nothing was written to it */
    return 0;
}

int text_file_begin(struct text_file *f, struct error *e)
{
    f->has_tail = f->place.inode != 0;
    return f->fd < 0 ? open_file(f, e) : 0;
}

/* Is it still there, and as long as we left it? */
static int check(struct text_file *f, struct error *e)
{
    struct stat st;
    if (f->fd < 0 || lstat(f->path, &st) < 0 || st.st_ino != f->place.inode ||
        st.st_dev != f->place.device) {
        text_file_close(f);
        if (open_file(f, e) < 0)
            return -1;
    } else {
        f->place.size = (uint64_t)st.st_size;
    }
    return 0;
}

/* ---- writing ---- */

/* What a killed writer has written of these lines and could not tell of any more. */
static size_t find_written(struct text_file *f, const char *lines, size_t n)
{
    uint64_t size = f->place.size - f->tail_from;
    if (!f->has_tail)
        return 0;
    f->has_tail = false;
    char *tail = size > 0 && size <= n ? malloc((size_t)size) : NULL;
    size_t k = tail && pread(f->fd, tail, (size_t)size, (off_t)f->tail_from) == (ssize_t)size &&
                       memcmp(tail, lines, (size_t)size) == 0
                   ? (size_t)size
                   : 0;
    free(tail);
    f->end += k;
    f->is_mid_line = k && lines[k - 1] != '\n';
    if (k && !f->is_mid_line)
        f->on_written(f);
    return k;
}

/* All of it or nothing. */
static int write_piece(struct text_file *f, const char *bytes, size_t n, struct error *e)
{
    ssize_t k = write(f->fd, bytes, n);
    if (k != (ssize_t)n) {
        int sys = k < 0 ? errno : ENOSPC;
        if (k > 0)
            (void)!ftruncate(f->fd, (off_t)f->place.size);
        return fail(f, "write", sys, e);
    }
    f->place.size += n;
    return 0;
}

/* The lines that go into the present file; 0: it is full. */
static size_t piece(const struct text_file *f, const char *lines, size_t n)
{
    uint64_t room = f->max_size > f->place.size ? f->max_size - f->place.size : 0;
    if (n <= room)
        return n;
    const char *end = memrchr(lines, '\n', (size_t)room);
    if (!end && (f->place.size == 0 || f->is_mid_line)) /* a line that no file could hold */
        end = memchr(lines, '\n', n);
    return end ? (size_t)(end - lines) + 1 : 0;
}

/* A file that can't be put aside is gone on with: better too long than lines lost. */
static int rotate(struct text_file *f, struct error *e)
{
    char failed[PATH_MAX + 16];
    const char *step;
    if (rotation_shift(AT_FDCWD, f->path, f->keep, &step, failed, sizeof failed) < 0) {
        snprintf(f->note, sizeof f->note, "log %.120s: %s: %s; it grows on", failed, step,
                 strerror(errno));
        return 0;
    }
    f->note[0] = '\0';
    text_file_close(f);
    return open_file(f, e);
}

int text_file_append(struct text_file *f, const char *lines, size_t n, struct error *e)
{
    if (check(f, e) < 0)
        return -1;
    size_t done = find_written(f, lines, n);
    while (done < n) {
        size_t k = piece(f, lines + done, n - done);
        if (k == 0) {
            if (rotate(f, e) < 0)
                return -1;
            k = piece(f, lines + done, n - done);
        }
        if (k == 0) /* it could not be put aside */
            k = n - done;
        if (write_piece(f, lines + done, k, e) < 0)
            return -1;
        f->is_mid_line = false;
        f->end += k;
        done += k;
        f->on_written(f);
    }
    return 0;
}
