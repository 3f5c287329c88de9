#include "gateway/helper_remove.h"

#include "base/fd.h"
#include "gateway/helper_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define ROUNDS_MAX 10000 /* walks; a tree of any depth needs one for TREE_DEPTH levels */

struct pass {
    struct removal *removal;
    int top;
    bool is_again;   /* something was moved up, or came while we removed */
    bool has_mounts; /* they stay, and the folders above them */
    uint64_t before;
    unsigned moved;
};

static void note(struct removal *r, const char *path, int error)
{
    r->kept++;
    if (r->error)
        return;
    r->error = error;
    snprintf(r->path, sizeof r->path, "%s", path);
}

/* What stays, with its errno. A folder that was swapped for something else, or the other way round,
 * between two steps is for the next round. */
static void stays(struct pass *p, const char *path, int error)
{
    if (error == ENOTDIR || error == EISDIR || error == ENOTEMPTY || error == EEXIST)
        p->is_again = true;
    else
        note(p->removal, path, error);
}

/* Let its owner write into a folder. */
static bool open_up(int dir)
{
    char link[32];
    struct stat st;
    if (fstat(dir, &st) < 0 || (st.st_mode & 0700) == 0700)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    return chmod(link, (st.st_mode | 0700) & 07777) == 0;
}

static bool unlink_entry(struct pass *p, const struct tree_entry *e, int flags)
{
    struct removal *r = p->removal;
    int rc = unlinkat(e->dir, e->name, flags);
    if (rc < 0 && errno == EACCES && r->is_forced && open_up(e->dir))
        rc = unlinkat(e->dir, e->name, flags);
    if (rc < 0 && errno == ENOENT)
        return true;
    r->removed += rc == 0;
    return rc == 0;
}

static enum tree_step on_entry(void *context, const struct tree_entry *e)
{
    struct pass *p = context;
    if (e->is_mount) {
        p->has_mounts = true;
        if (!p->removal->is_forced)
            note(p->removal, e->path, EBUSY);
        return TREE_NEXT;
    }
    if (S_ISDIR(e->stat.st_mode)) {
        if (p->removal->is_forced && (e->stat.st_mode & 0700) != 0700) {
            CLEANUP_FD int fd =
                openat(e->dir, e->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (fd >= 0)
                open_up(fd);
        }
        return TREE_ENTER;
    }
    if (!unlink_entry(p, e, 0))
        stays(p, e->path, errno);
    return TREE_NEXT;
}

static enum tree_step on_leave(void *context, const struct tree_entry *e)
{
    struct pass *p = context;
    if (!unlink_entry(p, e, AT_REMOVEDIR))
        stays(p, e->path, errno);
    return TREE_NEXT;
}

/* Too deep: it goes to the top, where the next walk finds it. */
static bool move_up(struct pass *p, const struct tree_entry *e)
{
    char name[40];
    snprintf(name, sizeof name, ".sandbox-deep-%d-%u", (int)getpid(), p->moved++);
    return renameat(e->dir, e->name, p->top, name) == 0;
}

static enum tree_step on_error(void *context, const struct tree_entry *e, int error)
{
    struct pass *p = context;
    if (error == ELOOP && move_up(p, e)) {
        p->is_again = true;
        p->removal->removed++; /* progress */
        return TREE_NEXT;
    }
    if (unlink_entry(p, e, AT_REMOVEDIR)) /* empty, though it may not be read */
        return TREE_NEXT;
    stays(p, e->path, error);
    return TREE_NEXT;
}

int remove_below(int fd, struct removal *r)
{
    static const struct tree_visitor visitor = {on_entry, on_leave, on_error};
    struct pass p = {.removal = r, .top = fd};
    for (unsigned i = 0; i < ROUNDS_MAX; i++) {
        int at = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        p.is_again = false;
        p.before = r->removed;
        if (at < 0 || tree_walk(at, &visitor, &p) < 0) {
            note(r, ".", errno);
            break;
        }
        if (!p.is_again || r->removed == p.before)
            break;
        r->error = 0; /* what still stays is told by the next round */
        r->kept = 0;
    }
    if (p.is_again && !r->error && !p.has_mounts)
        note(r, ".", ENOTEMPTY);
    close(fd);
    return r->error ? -1 : 0;
}
