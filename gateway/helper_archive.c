/*
 * op=archive: the workspace as a tar, sent as it is made. What cannot be read is found by a first
 * walk, before anything is sent, so that it is an answer and not a broken stream.
 */
#include "gateway/helper_worker.h"

#include "base/fd.h"
#include "gateway/helper_tar.h"
#include "gateway/helper_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <unistd.h>

struct archive {
    struct worker *w;
    bool is_check; /* the first walk */
    struct error *e;
    size_t used;        /* bytes in w->packet that are not sent yet */
    struct strbuf path; /* of the member */
};

/* ---- output ---------------------------------------------------------------------------------- */

static int flush(struct archive *a)
{
    if (a->used == 0)
        return 0;
    int rc = worker_send(a->w, HELPER_DATA, a->w->packet, a->used, a->e);
    a->used = 0;
    return rc;
}

static int put_bytes(struct archive *a, const char *bytes, size_t n)
{
    while (n > 0) {
        size_t room = HELPER_DATA_MAX - a->used, part = n < room ? n : room;
        memcpy(a->w->packet + a->used, bytes, part);
        a->used += part;
        bytes += part;
        n -= part;
        if (a->used == HELPER_DATA_MAX && flush(a) < 0)
            return -1;
    }
    return 0;
}

static int put_zeros(struct archive *a, uint64_t n)
{
    static const char zeros[4096];
    for (; n > 0; n -= n < sizeof zeros ? n : sizeof zeros)
        if (put_bytes(a, zeros, n < sizeof zeros ? n : sizeof zeros) < 0)
            return -1;
    return 0;
}

static int put_member(struct archive *a, const struct stat *st, const char *target)
{
    CLEANUP_STRBUF struct strbuf header = {0};
    if (tar_add_member(&header, a->path.data, st, target) < 0)
        return error_set(a->e, ERR_MEMORY, "tar: no memory");
    return put_bytes(a, header.data, header.len);
}

/* ---- members --------------------------------------------------------------------------------- */

/* As GNU tar tells it; its exit status is 2. */
static int cannot(struct archive *a, const char *what, int error)
{
    error_set(a->e, ERR_SYSTEM,
              "tar: %s: Cannot %s: %s\ntar: Exiting with failure status due to previous errors\n",
              strbuf_text(&a->path), what, strerror(error));
    a->e->sys = error;
    return -1;
}

/* The length that the header told, whatever the file does meanwhile. */
static int put_content(struct archive *a, int fd, uint64_t size)
{
    uint64_t left = size;
    while (left > 0) {
        size_t room = HELPER_DATA_MAX - a->used, part = left < room ? (size_t)left : room;
        ssize_t n = read(fd, a->w->packet + a->used, part);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cannot(a, "read", errno);
        if (n == 0)
            break;
        a->used += (size_t)n;
        left -= (uint64_t)n;
        if (a->used == HELPER_DATA_MAX && flush(a) < 0)
            return -1;
    }
    return put_zeros(a, left + (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

static int put_file(struct archive *a, const struct tree_entry *t)
{
    struct stat st;
    if (a->is_check)
        return faccessat(t->dir, t->name, R_OK, 0) < 0 && errno != ENOENT ? cannot(a, "open", errno)
                                                                          : 0;
    CLEANUP_FD int fd =
        openat(t->dir, t->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ELOOP))
        return 0; /* gone, or another thing now */
    if (fd < 0 || fstat(fd, &st) < 0)
        return cannot(a, "open", errno);
    if (!S_ISREG(st.st_mode))
        return 0;
    return put_member(a, &st, NULL) < 0 ? -1 : put_content(a, fd, (uint64_t)st.st_size);
}

static int put_link(struct archive *a, const struct tree_entry *t)
{
    char target[PATH_MAX];
    if (a->is_check)
        return 0;
    ssize_t n = readlinkat(t->dir, t->name, target, sizeof target - 1);
    if (n <= 0)
        return 0;
    target[n] = '\0';
    return put_member(a, &t->stat, target);
}

/* True if a pattern takes it out, as `tar --exclude ./PATTERN` does: '*' crosses slashes. */
static bool is_excluded(const struct archive *a)
{
    struct field f;
    size_t at = 0;
    while (record_next(a->w->request, a->w->n, &at, &f) > 0)
        if (field_is(&f, "exclude") && fnmatch(f.value, a->path.data, FNM_LEADING_DIR) == 0)
            return true;
    return false;
}

static int set_path(struct archive *a, const char *path)
{
    strbuf_clear(&a->path);
    if (strbuf_adds(&a->path, "./") < 0 || strbuf_adds(&a->path, path) < 0)
        return error_set(a->e, ERR_MEMORY, "tar: no memory");
    return 0;
}

static enum tree_step on_entry(void *context, const struct tree_entry *t)
{
    struct archive *a = context;
    if (set_path(a, t->path) < 0)
        return TREE_STOP;
    if (is_excluded(a) || is_put_temporary(t->name, &t->stat))
        return TREE_NEXT;
    int rc = 0;
    if (S_ISDIR(t->stat.st_mode)) {
        if (!a->is_check)
            rc = strbuf_adds(&a->path, "/") < 0 ? error_set(a->e, ERR_MEMORY, "tar: no memory")
                                                : put_member(a, &t->stat, NULL);
        return rc < 0 ? TREE_STOP : TREE_ENTER;
    }
    if (S_ISREG(t->stat.st_mode))
        rc = put_file(a, t);
    else if (S_ISLNK(t->stat.st_mode))
        rc = put_link(a, t);
    return rc < 0 ? TREE_STOP : TREE_NEXT; /* FIFOs, sockets and devices are left out */
}

static enum tree_step on_error(void *context, const struct tree_entry *t, int error)
{
    struct archive *a = context;
    if (set_path(a, t->path) < 0)
        return TREE_STOP;
    if (error != ELOOP)
        cannot(a, "open", error);
    else /* the text has room for the beginning of such a path only */
        error_set(a->e, ERR_SYSTEM,
                  "tar: %.200s…: deeper than %d folders: move or remove it, or leave it out with "
                  "?excludes=\n",
                  strbuf_text(&a->path), TREE_DEPTH);
    return TREE_STOP;
}

static int walk(struct archive *a, bool is_check)
{
    static const struct tree_visitor visitor = {on_entry, NULL, on_error};
    int fd = openat(a->w->root.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    a->is_check = is_check;
    if (set_path(a, "") < 0)
        return -1;
    if (fd < 0 || fstat(fd, &st) < 0) {
        int saved = errno;
        fd_close(&fd);
        return cannot(a, "open", saved);
    }
    if (!is_check && put_member(a, &st, NULL) < 0) {
        close(fd);
        return -1;
    }
    int rc = tree_walk(fd, &visitor, a);
    if (rc < 0)
        cannot(a, "read", errno);
    else if (rc > 0 && a->e->code == ERR_NONE)
        error_set(a->e, ERR_MEMORY, "tar: no memory");
    return rc == 0 ? 0 : -1;
}

int worker_archive(struct worker *w, struct error *e)
{
    struct archive a = {.w = w, .e = e};
    struct record begin = {0};
    int rc = walk(&a, true);
    if (rc == 0)
        rc = worker_send_record(w, HELPER_BEGIN, &begin, -1, e);
    if (rc == 0)
        rc = walk(&a, false);
    if (rc == 0)
        rc = put_zeros(&a, 2 * TAR_BLOCK);
    if (rc == 0)
        rc = flush(&a);
    strbuf_free(&a.path);
    return rc;
}
