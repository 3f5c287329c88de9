#include "gateway/helper_root.h"

#include "base/fd.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINKS_MAX  40  /* as in the kernel: path_resolution(7) */
#define SWAPS_MAX  200 /* times that a name may change under our hands before we give up */
#define PATH_LIMIT ((size_t)64 * 1024)

/* ---- the workspace ----------------------------------------------------------------------- */

/* mkdir -p of an absolute path. */
static int make_path(const char *path)
{
    char text[PATH_MAX];
    if (snprintf(text, sizeof text, "%s", path) >= (int)sizeof text) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *p = text + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(text, 0777) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
            return -1;
        *p = '/';
    }
    return mkdir(text, 0777);
}

int root_open(struct root *r, const char *workspace)
{
    r->path = workspace;
    r->has_no_openat2 = false;
    r->real[0] = '\0';
    r->fd = open(workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (r->fd < 0 && errno == ENOENT) {
        bool is_made = make_path(workspace) == 0;
        errno = ENOENT; /* why it is not there, not why it cannot be made */
        if (is_made)
            r->fd = open(workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    struct stat st; /* a descriptor of a folder that may not be entered can be had, too */
    if (r->fd >= 0 && fstatat(r->fd, ".", &st, AT_SYMLINK_NOFOLLOW) < 0) {
        int saved = errno;
        fd_close(&r->fd);
        errno = saved;
    }
    return r->fd < 0 ? -1 : 0;
}

/* Where the workspace really is, asked for when the first absolute link is met. */
static const char *real_path(struct root *r)
{
    char link[32];
    if (r->real[0])
        return r->real;
    snprintf(link, sizeof link, "/proc/self/fd/%d", r->fd);
    ssize_t n = readlink(link, r->real, sizeof r->real - 1);
    r->real[n > 0 ? n : 0] = '\0';
    return r->real[0] ? r->real : r->path;
}

/* What is left of an absolute path below a folder; NULL if it is not below it. */
static const char *below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    if (strcmp(folder, "/") == 0)
        return path + 1;
    if (strncmp(path, folder, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NULL;
    return path + n + strspn(path + n, "/");
}

/* ---- the walk ---------------------------------------------------------------------------- */

struct walk {
    struct root *root;
    struct place *place; /* for the folders that are made */
    unsigned flags;
    int dir;            /* the folder that we are in */
    struct strbuf here; /* its path from the root: names, each with a slash behind it */
    struct strbuf rest; /* what is still to be resolved */
    unsigned links, swaps;
};

static int fail(int error)
{
    errno = error;
    return -1;
}

static int go_to_root(struct walk *w)
{
    strbuf_clear(&w->here);
    fd_close(&w->dir);
    w->dir = openat(w->root->fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return w->dir < 0 ? -1 : 0;
}

static int enter(struct walk *w, const char *name)
{
    int fd = openat(w->dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    fd_close(&w->dir);
    w->dir = fd;
    return strbuf_adds(&w->here, name) < 0 || strbuf_adds(&w->here, "/") < 0 ? fail(ENOMEM) : 0;
}

/* "..": the names but the last are walked anew, since asking the kernel for ".." could lead out of
 * a folder that was moved meanwhile. */
static int go_up(struct walk *w)
{
    if (w->here.len == 0)
        return fail(EXDEV);
    CLEANUP_STRBUF struct strbuf path = {0};
    size_t n = w->here.len - 1;
    while (n > 0 && w->here.data[n - 1] != '/')
        n--;
    if (strbuf_add(&path, w->here.data, n) < 0)
        return fail(ENOMEM);
    if (go_to_root(w) < 0)
        return -1;
    char *save = NULL;
    for (char *name = path.data ? strtok_r(path.data, "/", &save) : NULL; name;
         name = strtok_r(NULL, "/", &save))
        if (enter(w, name) < 0)
            return fail(EAGAIN); /* swapped on the way: nowhere to go on from */
    return 0;
}

/* Put a link's text before what is left to be resolved. */
static int follow(struct walk *w, const char *name)
{
    char text[PATH_MAX];
    ssize_t n = readlinkat(w->dir, name, text, sizeof text - 1);
    if (n < 0)
        return -1; /* EINVAL: no link any more */
    if (n == (ssize_t)sizeof text - 1)
        return fail(ENAMETOOLONG);
    text[n] = '\0';
    if (++w->links > LINKS_MAX)
        return fail(ELOOP);
    const char *to = text;
    if (text[0] == '/') {
        to = below(text, w->root->path);
        if (!to)
            to = below(text, real_path(w->root));
        if (!to)
            return fail(EXDEV);
        if (go_to_root(w) < 0)
            return -1;
    }
    struct strbuf rest = {.limit = PATH_LIMIT};
    if (strbuf_adds(&rest, to) < 0 || strbuf_adds(&rest, "/") < 0 ||
        strbuf_add(&rest, w->rest.data, w->rest.len) < 0) {
        strbuf_free(&rest);
        return fail(ENAMETOOLONG);
    }
    strbuf_free(&w->rest);
    w->rest = rest;
    return 0;
}

/* Take the next name off the rest: 1, 0 at the end, -1 with errno. */
static int next_name(struct walk *w, char name[NAME_MAX + 1], bool *is_last)
{
    const char *text = strbuf_text(&w->rest);
    size_t begin = strspn(text, "/"), n = strcspn(text + begin, "/");
    if (n == 0)
        return 0;
    if (n > NAME_MAX)
        return fail(ENAMETOOLONG);
    memcpy(name, text + begin, n);
    name[n] = '\0';
    size_t used = begin + n + strspn(text + begin + n, "/");
    *is_last = text[used] == '\0';
    strbuf_drop(&w->rest, used);
    return 1;
}

static void note_made(struct walk *w, const char *name)
{
    struct place *p = w->place;
    if (p->made_count == PLACE_MADE_MAX)
        return;
    int dir = openat(w->dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return;
    p->made[p->made_count].dir = dir;
    snprintf(p->made[p->made_count++].name, sizeof p->made[0].name, "%s", name);
}

static int make_folder(struct walk *w, const char *name)
{
    if (!(w->flags & RESOLVE_MAKE))
        return fail(ENOENT);
    if (mkdirat(w->dir, name, 0777) == 0)
        note_made(w, name);
    else if (errno != EEXIST)
        return -1;
    return enter(w, name);
}

/* What a step says. */
enum { STEP_ON, STEP_FOUND, STEP_AGAIN /* the name is no longer what it was a moment ago */ };

static int again_if(int rc, int error)
{
    return rc < 0 && errno == error ? STEP_AGAIN : rc;
}

static int step_into(struct walk *w, const char *name)
{
    return again_if(again_if(enter(w, name), ENOTDIR), ELOOP);
}

/* STEP_… or -1 with errno. */
static int step(struct walk *w, const char *name, bool is_last)
{
    struct stat st;
    if (strcmp(name, ".") == 0)
        return STEP_ON;
    if (strcmp(name, "..") == 0)
        return go_up(w);
    if (fstatat(w->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return -1;
        return is_last ? STEP_FOUND : make_folder(w, name);
    }
    if (S_ISLNK(st.st_mode) && (!is_last || (w->flags & RESOLVE_LAST)))
        return again_if(follow(w, name), EINVAL);
    if (is_last)
        return STEP_FOUND;
    return S_ISDIR(st.st_mode) ? step_into(w, name) : fail(ENOTDIR);
}

static int walk_steps(struct walk *w)
{
    bool is_last = false;
    for (;;) {
        int rc = next_name(w, w->place->name, &is_last);
        if (rc < 0)
            return -1;
        if (rc == 0) { /* ended with "." or "..", or is the workspace itself */
            strcpy(w->place->name, ".");
            return 0;
        }
        do
            rc = step(w, w->place->name, is_last);
        while (rc == STEP_AGAIN && ++w->swaps < SWAPS_MAX);
        if (rc == STEP_AGAIN)
            return fail(EAGAIN);
        if (rc != STEP_ON)
            return rc == STEP_FOUND ? 0 : -1;
    }
}

static int walk_to(struct root *r, const char *path, unsigned flags, struct place *to)
{
    struct walk w = {.root = r, .place = to, .flags = flags, .dir = -1};
    w.rest.limit = PATH_LIMIT;
    int rc = strbuf_adds(&w.rest, path) < 0 ? fail(ENAMETOOLONG) : go_to_root(&w);
    if (rc == 0)
        rc = walk_steps(&w);
    if (rc == 0)
        to->dir = fd_take(&w.dir);
    int saved = errno;
    fd_close(&w.dir);
    strbuf_free(&w.here);
    strbuf_free(&w.rest);
    errno = saved;
    return rc;
}

/* ---- the short way ----------------------------------------------------------------------- */

static int open_beneath(struct root *r, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, r->fd, path, &how, sizeof how);
}

/* 0 found, 1 the walk must tell, -1 with errno. */
static int find_quickly(struct root *r, const char *path, unsigned flags, struct place *to)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = slash ? (size_t)(slash - path) : 0;
    struct stat st;
    if (r->has_no_openat2 || !*name || strlen(name) > NAME_MAX || n >= sizeof folder ||
        strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 1;
    memcpy(folder, path, n);
    folder[n] = '\0';
    int dir = open_beneath(r, n ? folder : ".");
    if (dir < 0) {
        r->has_no_openat2 = errno == ENOSYS || errno == EPERM;
        return errno == EACCES || errno == ENOTDIR || (errno == ENOENT && !(flags & RESOLVE_MAKE))
                   ? -1
                   : 1;
    }
    if ((flags & RESOLVE_LAST) && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(st.st_mode)) {
        close(dir);
        return 1;
    }
    to->dir = dir;
    snprintf(to->name, sizeof to->name, "%s", name);
    return 0;
}

int place_find(struct root *r, const char *path, unsigned flags, struct place *to)
{
    to->dir = -1;
    to->made_count = 0;
    int rc = find_quickly(r, path, flags, to);
    if (rc == 1)
        rc = walk_to(r, path, flags, to);
    if (rc < 0)
        place_unmake(to);
    return rc;
}

void place_close(struct place *p)
{
    int saved = errno;
    fd_close(&p->dir);
    for (unsigned i = 0; i < p->made_count; i++)
        close(p->made[i].dir);
    p->made_count = 0;
    errno = saved;
}

void place_unmake(struct place *p)
{
    int saved = errno;
    while (p->made_count > 0) {
        p->made_count--;
        unlinkat(p->made[p->made_count].dir, p->made[p->made_count].name, AT_REMOVEDIR);
        close(p->made[p->made_count].dir);
    }
    errno = saved;
}

bool place_is_root(const struct place *p)
{
    return strcmp(p->name, ".") == 0;
}

/* ---- opening ----------------------------------------------------------------------------- */

/* Opening a FIFO or a device does something to it, so they are told apart before. */
static int open_at(const struct place *p, int how)
{
    struct stat st;
    if (fstatat(p->dir, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !(how & O_PATH) &&
        !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
        return fail(ENXIO);
    return openat(p->dir, p->name, how | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

int root_openat(struct root *r, const char *path, unsigned flags, int how)
{
    int fd = -1;
    for (int i = 0; fd < 0 && i < SWAPS_MAX; i++) {
        struct place p;
        if (place_find(r, path, flags, &p) < 0)
            return -1;
        fd = open_at(&p, how);
        place_close(&p);
        if (fd < 0 && errno != ELOOP)
            return -1;
    }
    return fd;
}
