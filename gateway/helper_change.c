/* Operations that change names: mkdir, rename, delete, empty. */
#include "gateway/helper_worker.h"

#include "base/fd.h"
#include "gateway/helper_remove.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The workspace itself is neither renamed nor deleted. */
static int find(struct worker *w, const char *what, const char *path, unsigned flags,
                struct place *p, struct error *e)
{
    if (place_find(&w->root, path, flags, p) < 0)
        return worker_fail(w, what, path, e);
    if (!place_is_root(p))
        return 0;
    place_close(p);
    error_set(e, ERR_INVALID, "%s %s: this is the workspace itself", what, w->workspace);
    e->sys = EINVAL;
    return -1;
}

int worker_mkdir(struct worker *w, struct error *e)
{
    const char *path = worker_argument(w, "path");
    struct place p;
    struct stat st;
    if (!path)
        return error_set(e, ERR_PROTOCOL, "mkdir: no path");
    if (place_find(&w->root, path, RESOLVE_LAST | RESOLVE_MAKE, &p) < 0)
        return worker_fail(w, "mkdir", path, e);
    bool is_made = !place_is_root(&p) && mkdirat(p.dir, p.name, 0777) == 0;
    int rc = 0;
    if (!is_made && !place_is_root(&p)) {
        int error = errno;
        if (error != EEXIST || fstatat(p.dir, p.name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISDIR(st.st_mode)) {
            errno = error;
            rc = worker_fail(w, "mkdir", path, e);
        }
    }
    record_bool(&w->result, "made", is_made);
    if (rc < 0)
        place_unmake(&p);
    place_close(&p);
    return rc;
}

int worker_rename(struct worker *w, struct error *e)
{
    const char *path = worker_argument(w, "path"), *to = worker_argument(w, "to");
    struct place from, target;
    if (!path || !to)
        return error_set(e, ERR_PROTOCOL, "rename: no path");
    if (find(w, "rename", path, 0, &from, e) < 0)
        return -1;
    if (find(w, "rename to", to, RESOLVE_MAKE, &target, e) < 0) {
        place_close(&from);
        return -1;
    }
    unsigned flags = worker_flag(w, "keep") ? RENAME_NOREPLACE : 0;
    int rc = renameat2(from.dir, from.name, target.dir, target.name, flags);
    if (rc < 0 && errno == EXDEV) { /* between two mounts; our own EXDEV means something else */
        error_set_sys(e, EXDEV, "rename %s to %s", path, to);
        e->sys = EBUSY;
    } else if (rc < 0) {
        worker_fail(w, "rename", path, e);
    }
    if (rc < 0)
        place_unmake(&target);
    place_close(&from);
    place_close(&target);
    return rc;
}

static int delete_folder(struct worker *w, const struct place *p, const char *path, struct error *e)
{
    if (unlinkat(p->dir, p->name, AT_REMOVEDIR) == 0)
        return 0;
    if ((errno != ENOTEMPTY && errno != EEXIST) || !worker_flag(w, "recursive"))
        return worker_fail(w, "delete", path, e);
    int fd = openat(p->dir, p->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return worker_fail(w, "delete", path, e);
    struct removal r = {0};
    if (remove_below(fd, &r) < 0) {
        errno = r.error;
        CLEANUP_STRBUF struct strbuf full = {0};
        if (strbuf_addf(&full, "%s/%s", path, r.path) < 0)
            return worker_fail(w, "delete", path, e);
        errno = r.error;
        return worker_fail(w, "delete", full.data, e);
    }
    return unlinkat(p->dir, p->name, AT_REMOVEDIR) == 0 ? 0 : worker_fail(w, "delete", path, e);
}

int worker_delete(struct worker *w, struct error *e)
{
    const char *path = worker_argument(w, "path");
    struct place p;
    if (!path)
        return error_set(e, ERR_PROTOCOL, "delete: no path");
    if (find(w, "delete", path, 0, &p, e) < 0)
        return -1;
    struct stat st;
    int rc = fstatat(p.dir, p.name, &st, AT_SYMLINK_NOFOLLOW);
    if (rc == 0 && S_ISDIR(st.st_mode))
        rc = delete_folder(w, &p, path, e);
    else if (rc < 0 || unlinkat(p.dir, p.name, 0) < 0)
        rc = worker_fail(w, "delete", path, e);
    place_close(&p);
    return rc;
}

int worker_empty(struct worker *w, struct error *e)
{
    struct removal r = {.is_forced = true};
    int fd = openat(w->root.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return worker_fail(w, "empty", "", e);
    int rc = remove_below(fd, &r);
    record_int(&w->result, "removed", (int64_t)r.removed);
    if (rc < 0) {
        errno = r.error;
        worker_fail(w, "delete", r.path, e);
        if (r.kept > 1)
            error_wrap(e, "%llu entries stay, the first", (unsigned long long)r.kept);
    }
    return rc;
}
