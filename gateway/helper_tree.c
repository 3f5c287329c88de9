#include "gateway/helper_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct level {
    DIR *d;
    size_t path_len; /* of the folder's own path, its slash included */
};

struct walk {
    const struct tree_visitor *visitor;
    void *context;
    struct level *levels; /* TREE_DEPTH */
    unsigned depth;       /* levels in use */
    struct strbuf path;   /* of the entry */
};

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* statx(2) since it tells mount points; false: gone meanwhile. */
static bool look(struct tree_entry *e)
{
    struct statx x;
    if (statx(e->dir, e->name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &x) == 0)
        e->is_mount = (x.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
    return fstatat(e->dir, e->name, &e->stat, AT_SYMLINK_NOFOLLOW) == 0;
}

static int push(struct walk *w, int fd)
{
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int saved = errno;
        if (fd >= 0)
            close(fd);
        errno = saved;
        return -1;
    }
    w->levels[w->depth++] = (struct level){d, w->path.len};
    return 0;
}

static int enter(struct walk *w, const struct tree_entry *e)
{
    if (w->depth == TREE_DEPTH) {
        errno = ELOOP;
        return -1;
    }
    int fd = openat(e->dir, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (strbuf_adds(&w->path, "/") < 0) {
        close(fd);
        errno = ENOMEM;
        return -1;
    }
    return push(w, fd);
}

/* The folder at the top of the stack is done: tell its entry in the one above. */
static enum tree_step leave(struct walk *w)
{
    closedir(w->levels[--w->depth].d);
    if (w->depth == 0)
        return TREE_STOP;
    size_t begin = w->levels[w->depth - 1].path_len;
    w->path.len = w->levels[w->depth].path_len - 1; /* without its slash */
    w->path.data[w->path.len] = '\0';
    struct tree_entry e = {.dir = dirfd(w->levels[w->depth - 1].d),
                           .name = w->path.data + begin,
                           .path = w->path.data,
                           .depth = w->depth};
    return w->visitor->on_leave ? w->visitor->on_leave(w->context, &e) : TREE_NEXT;
}

/* The next entry of the folder at the top. */
static enum tree_step visit(struct walk *w, const char *name)
{
    struct level *top = &w->levels[w->depth - 1];
    w->path.len = top->path_len;
    if (strbuf_adds(&w->path, name) < 0)
        return TREE_STOP;
    struct tree_entry e = {.dir = dirfd(top->d),
                           .name = w->path.data + top->path_len,
                           .path = w->path.data,
                           .depth = w->depth};
    if (!look(&e))
        return TREE_NEXT;
    enum tree_step step = w->visitor->on_entry(w->context, &e);
    if (step != TREE_ENTER || !S_ISDIR(e.stat.st_mode))
        return step;
    if (enter(w, &e) == 0 || errno == ENOENT)
        return TREE_NEXT;
    return w->visitor->on_error(w->context, &e, errno);
}

int tree_walk(int fd, const struct tree_visitor *v, void *context)
{
    struct walk w = {.visitor = v, .context = context};
    int rc = 0;
    w.levels = calloc(TREE_DEPTH, sizeof *w.levels);
    if (!w.levels || push(&w, fd) < 0) {
        free(w.levels);
        return -1;
    }
    while (w.depth > 0 && rc == 0) {
        errno = 0;
        const struct dirent *entry = readdir(w.levels[w.depth - 1].d);
        if (entry && is_dots(entry->d_name))
            continue;
        enum tree_step step = entry ? visit(&w, entry->d_name) : leave(&w);
        rc = w.depth > 0 && step == TREE_STOP;
    }
    while (w.depth > 0)
        closedir(w.levels[--w.depth].d);
    free(w.levels);
    strbuf_free(&w.path);
    return rc;
}
