/*
 * op=watch: what happens below a folder, by inotify(7), until the gateway hangs up. Every folder
 * has a watch of its own; a folder that appears gets one and is looked through, since things may
 * have been made in it before: so a creation may be told twice, and is never missed. What is lost
 * (the kernel's queue ran over, no watch could be had) is told as "overflow".
 *
 * A write is told as "modify" when the file is closed, not for each write(2).
 */
#include "gateway/helper_worker.h"

#include "base/fd.h"
#include "gateway/helper_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define WATCHES_MAX 16384
#define MASK                                                                                       \
    (IN_CREATE | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |            \
     IN_ONLYDIR | IN_EXCL_UNLINK)

/* A watched folder. Watch descriptors grow and are not used again, so the list is sorted by them.
 */
struct watched {
    int wd;
    char *path; /* from the folder that the client named, "" or with a slash at its end */
};

struct watch {
    struct worker *w;
    struct error *e;
    const char *top; /* path of the folder; held open it would never be gone for inotify(7) */
    int inotify;
    struct watched *list;
    size_t count, cap;
    bool is_told;    /* that there are too many folders */
    uint32_t cookie; /* of a move whose other half is awaited; 0: none */
    char *from;
    bool from_is_folder;
};

/* ---- telling -----------------------------------------------------------------------------------
 */

static int tell(struct watch *v, const char *kind, const char *path, const char *to, bool is_folder)
{
    struct record row = {0};
    record_str(&row, "kind", kind);
    if (path)
        record_str(&row, "path", path);
    if (to)
        record_str(&row, "to", to);
    if (path)
        record_bool(&row, "directory", is_folder);
    return worker_send_record(v->w, HELPER_ROW, &row, -1, v->e);
}

static int tell_overflow(struct watch *v)
{
    return tell(v, "overflow", NULL, NULL, false);
}

/* ---- folders -----------------------------------------------------------------------------------
 */

static struct watched *find(struct watch *v, int wd)
{
    size_t low = 0, high = v->count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (v->list[mid].wd < wd)
            low = mid + 1;
        else
            high = mid;
    }
    return low < v->count && v->list[low].wd == wd ? &v->list[low] : NULL;
}

static void forget(struct watch *v, struct watched *entry)
{
    free(entry->path);
    size_t i = (size_t)(entry - v->list);
    memmove(entry, entry + 1, (--v->count - i) * sizeof *entry);
}

/* Remember wd for a path, which becomes the list's. 1: known already under this path. */
static int remember(struct watch *v, int wd, char *path)
{
    struct watched *known = find(v, wd);
    if (known) {
        int rc = strcmp(known->path, path) == 0;
        free(known->path);
        known->path = path;
        return rc;
    }
    if (v->count == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 64;
        struct watched *list = realloc(v->list, cap * sizeof *list);
        if (!list) {
            free(path);
            return -1;
        }
        v->list = list;
        v->cap = cap;
    }
    size_t i = v->count++;
    for (; i > 0 && v->list[i - 1].wd > wd; i--)
        v->list[i] = v->list[i - 1];
    v->list[i] = (struct watched){wd, path};
    return 0;
}

/* Watch a folder by its descriptor: the path cannot be swapped under us. */
static int add(struct watch *v, int dir, const char *name, char *path, uint32_t mask)
{
    char link[32];
    int wd = -1, error = ENOMEM;
    CLEANUP_FD int fd =
        openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && path && v->count < WATCHES_MAX) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        wd = inotify_add_watch(v->inotify, link, mask);
        error = errno;
    } else if (fd < 0) {
        error = errno;
    }
    if (wd >= 0)
        return remember(v, wd, path);
    free(path);
    if (error == ENOENT || error == ENOTDIR || error == ELOOP || v->is_told)
        return 0;
    v->is_told = true;
    return tell_overflow(v);
}

static char *join(const char *folder, const char *name, const char *end)
{
    char *text = NULL;
    return asprintf(&text, "%s%s%s", folder, name, end) < 0 ? NULL : text;
}

struct scan {
    struct watch *v;
    const char *path; /* of the folder that is scanned */
    bool is_told;     /* entries are news */
    int rc;
};

static enum tree_step on_entry(void *context, const struct tree_entry *t)
{
    struct scan *s = context;
    bool is_folder = S_ISDIR(t->stat.st_mode);
    if (is_put_temporary(t->name, &t->stat))
        return TREE_NEXT;
    char *path = join(s->path, t->path, "");
    if (!path)
        return TREE_STOP;
    if (s->is_told)
        s->rc = tell(s->v, "create", path, NULL, is_folder);
    free(path);
    if (s->rc == 0 && is_folder &&
        add(s->v, t->dir, t->name, join(s->path, t->path, "/"), MASK) < 0)
        s->rc = -1;
    return s->rc < 0 ? TREE_STOP : TREE_ENTER;
}

static enum tree_step on_error(void *context, const struct tree_entry *t, int error)
{
    (void)context;
    (void)t;
    (void)error; /* what may not be read is not watched */
    return TREE_NEXT;
}

/* A path from the top as one from the workspace. */
static char *full_path(const struct watch *v, const char *path)
{
    return join(v->top, *v->top && *path ? "/" : "", path);
}

/* Watch all folders below a folder (its path from the top, "" or with a slash at its end). */
static int scan(struct watch *v, const char *path, bool is_told)
{
    static const struct tree_visitor visitor = {on_entry, NULL, on_error};
    struct scan s = {v, path, is_told, 0};
    char *full = full_path(v, path);
    int fd = full ? root_openat(&v->w->root, full, RESOLVE_LAST, O_RDONLY | O_DIRECTORY) : -1;
    free(full);
    if (fd < 0)
        return 0; /* gone again */
    tree_walk(fd, &visitor, &s);
    return s.rc;
}

/* ---- events ------------------------------------------------------------------------------------
 */

/* A watched folder and those below it have another path, or (NULL) are not below the top any more.
 */
static int move_folders(struct watch *v, const char *from, const char *to)
{
    size_t n = strlen(from);
    for (size_t i = v->count; i-- > 0;) {
        struct watched *w = &v->list[i];
        if (strncmp(w->path, from, n) != 0 || w->path[n] != '/')
            continue;
        if (to) {
            char *path = join(to, w->path + n, "");
            if (!path)
                return error_set(v->e, ERR_MEMORY, "watch: no memory");
            free(w->path);
            w->path = path;
        } else {
            inotify_rm_watch(v->inotify, w->wd);
            forget(v, w);
        }
    }
    return 0;
}

/* The other half of a move did not come: it went out of the tree. */
static int end_move(struct watch *v)
{
    int rc = 0;
    if (v->cookie && v->from) {
        rc = tell(v, "delete", v->from, NULL, v->from_is_folder);
        if (rc == 0 && v->from_is_folder)
            rc = move_folders(v, v->from, NULL);
    }
    free(v->from);
    v->from = NULL;
    v->cookie = 0;
    return rc;
}

/* A folder that has appeared: its path from the workspace, and from the top with a slash. */
static int watch_folder(struct watch *v, const char *full, const char *folder)
{
    struct place p;
    if (place_find(&v->w->root, full, 0, &p) < 0)
        return 0; /* gone again */
    int rc = add(v, p.dir, p.name, strdup(folder), MASK);
    place_close(&p);
    return rc < 0 ? -1 : scan(v, folder, true);
}

static int on_created(struct watch *v, const char *path, bool is_folder)
{
    if (tell(v, "create", path, NULL, is_folder) < 0)
        return -1;
    if (!is_folder)
        return 0;
    char *folder = join(path, "", "/"), *full = full_path(v, path);
    int rc = folder && full ? watch_folder(v, full, folder)
                            : error_set(v->e, ERR_MEMORY, "watch: no memory");
    free(folder);
    free(full);
    return rc;
}

static int on_moved_to(struct watch *v, const char *path, uint32_t cookie, bool is_folder)
{
    if (v->cookie != cookie || !v->from)
        return on_created(v, path, is_folder);
    int rc = tell(v, "move", v->from, path, is_folder);
    if (rc == 0 && is_folder)
        rc = move_folders(v, v->from, path);
    free(v->from);
    v->from = NULL;
    v->cookie = 0;
    return rc;
}

/* A file that was opened without a name (O_TMPFILE) is told as "#INODE", which nobody can find. */
static bool is_nameless(const struct watch *v, const char *name, const char *path)
{
    struct place p;
    struct stat st;
    if (name[0] != '#' || name[1 + strspn(name + 1, "0123456789")])
        return false;
    char *full = full_path(v, path);
    bool is_there = full && place_find(&v->w->root, full, 0, &p) == 0;
    free(full);
    if (!is_there)
        return true;
    is_there = fstatat(p.dir, p.name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    place_close(&p);
    return !is_there;
}

static int on_name(struct watch *v, const struct inotify_event *i, const char *path)
{
    bool is_folder = (i->mask & IN_ISDIR) != 0;
    if (i->mask & IN_MOVED_TO)
        return on_moved_to(v, path, i->cookie, is_folder);
    if (i->mask & IN_CREATE)
        return on_created(v, path, is_folder);
    if (i->mask & IN_DELETE)
        return tell(v, "delete", path, NULL, is_folder);
    if (i->mask & IN_MOVED_FROM) {
        v->from = strdup(path);
        v->from_is_folder = is_folder;
        v->cookie = i->cookie;
        return 0;
    }
    if (i->mask & IN_CLOSE_WRITE)
        return tell(v, "modify", path, NULL, is_folder);
    return i->mask & IN_ATTRIB && !is_nameless(v, i->name, path)
               ? tell(v, "attributes", path, NULL, is_folder)
               : 0;
}

static int on_event(struct watch *v, const struct inotify_event *i)
{
    if (i->mask & IN_Q_OVERFLOW)
        return end_move(v) < 0 || tell_overflow(v) < 0 ? -1 : scan(v, "", false);
    struct watched *w = find(v, i->wd);
    if (w && (i->mask & (IN_IGNORED | IN_MOVE_SELF))) {
        bool is_top = !*w->path;
        if (i->mask & IN_IGNORED)
            forget(v, w);
        return is_top ? error_set(v->e, ERR_NOT_FOUND, "watch: the folder is gone") : 0;
    }
    if (!w || i->len == 0 || (!(i->mask & IN_ISDIR) && is_put_name(i->name)))
        return 0;
    /* A move without its other half comes to its end first: what has moved out of the tree tells
     * nothing any more. */
    if (!(i->mask & IN_MOVED_TO) || i->cookie != v->cookie) {
        if (end_move(v) < 0)
            return -1;
        w = find(v, i->wd);
        if (!w)
            return 0;
    }
    char *path = join(w->path, i->name, "");
    int rc = path ? on_name(v, i, path) : error_set(v->e, ERR_MEMORY, "watch: no memory");
    free(path);
    return rc;
}

static int read_events(struct watch *v)
{
    _Alignas(struct inotify_event) char block[16384];
    ssize_t n = read(v->inotify, block, sizeof block);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : error_set_sys(v->e, errno, "inotify");
    for (const char *at = block; at < block + n;) {
        const struct inotify_event *i = (const struct inotify_event *)(const void *)at;
        if (on_event(v, i) < 0)
            return -1;
        at += sizeof *i + i->len;
    }
    return 0;
}

/* Until the gateway hangs up. A first half of a move without its second waits 100 ms. */
static int follow(struct watch *v)
{
    for (;;) {
        struct pollfd p[2] = {{v->inotify, POLLIN, 0}, {v->w->sock, POLLRDHUP, 0}};
        int rc = poll(p, 2, v->cookie ? 100 : -1);
        if (rc < 0 && errno != EINTR)
            return error_set_sys(v->e, errno, "poll");
        if (rc > 0 && p[1].revents)
            return 0;
        if ((rc > 0 ? read_events(v) : end_move(v)) < 0)
            return -1;
    }
}

int worker_watch(struct worker *w, struct error *e)
{
    const char *path = worker_argument(w, "path");
    struct watch v = {.w = w, .e = e};
    struct record begin = {0};
    if (!path)
        return error_set(e, ERR_PROTOCOL, "watch: no path");
    v.top = path;
    CLEANUP_FD int fd = root_openat(&w->root, path, RESOLVE_LAST, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return worker_fail(w, "watch", path, e);
    v.inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (v.inotify < 0)
        return worker_fail(w, "watch", path, e);
    int rc = add(&v, fd, ".", strdup(""), MASK | IN_MOVE_SELF);
    fd_close(&fd);
    if (rc == 0)
        rc = scan(&v, "", false);
    if (rc == 0)
        rc = worker_send_record(w, HELPER_BEGIN, &begin, -1, e);
    if (rc == 0)
        rc = v.count > 0 ? follow(&v)
                         : error_set(e, ERR_LIMIT, "watch %s: no watch could be had", path);
    free(v.from);
    while (v.count > 0)
        forget(&v, &v.list[v.count - 1]);
    free(v.list);
    close(v.inotify);
    return rc;
}
