/*
 * op=extract: a tar that the gateway sends, over what is in the workspace. libarchive reads it (tar
 * only, no compression); where a member goes is our own matter:
 *
 *   - a leading slash is dropped, as GNU tar does; a member with ".." is refused
 *   - the folders above a member are resolved inside the workspace (helper_root.h), so no symlink,
 *     of this archive or of before, leads out; the member itself never goes through a symlink: what
 *     is there is removed first
 *   - hard links only to what is in the workspace; devices, FIFOs and sockets are refused
 *   - files belong to the sessions' user; modes are those of the archive without setuid and setgid
 *
 * A member that fails is noted and the others go on; modes and times of folders come at the end.
 * libarchive runs in the C locale, where it hands names on byte for byte.
 */
#include "gateway/helper_worker.h"

#include "base/fd.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBLEMS_MAX 400                        /* bytes of what is told about members */
#define FOLDERS_MAX  ((size_t)16 * 1024 * 1024) /* bytes of folders to be finished */

struct extraction {
    struct worker *w;
    struct error *e;
    bool is_broken_off; /* the gateway is gone: *e tells */
    bool is_at_end;
    char head[6]; /* the first bytes, by which what is no tar may be known */
    size_t head_len;
    struct strbuf problems;
    bool has_problems;
    struct strbuf folders; /* struct folder and path, one after the other */
    size_t folder_count;
};

struct folder {
    mode_t mode;
    struct timespec mtime;
    size_t path_len; /* its path follows, with a NUL */
};

static int problem(struct extraction *x, const char *path, const char *what, int error)
{
    x->has_problems = true;
    if (x->problems.len < PROBLEMS_MAX)
        strbuf_addf(&x->problems, "tar: %.120s: %s%s%s\n", path, what, error ? ": " : "",
                    error == EXDEV ? "leads out of the workspace"
                    : error        ? strerror(error)
                                   : "");
    return -1;
}

/* ---- input ----------------------------------------------------------------------------------- */

static la_ssize_t on_read(struct archive *a, void *context, const void **bytes)
{
    struct extraction *x = context;
    if (x->is_at_end)
        return 0;
    ssize_t n = worker_receive(x->w, x->e);
    if (n < 0) {
        x->is_broken_off = true;
        archive_set_error(a, EIO, "%s", x->e->text);
        return ARCHIVE_FATAL;
    }
    x->is_at_end = n == 0;
    for (ssize_t i = 0; i < n && x->head_len < sizeof x->head; i++)
        x->head[x->head_len++] = x->w->packet[i];
    *bytes = x->w->packet;
    return n;
}

/* What comes behind the archive's end. */
static int drain(struct extraction *x)
{
    while (!x->is_at_end && !x->is_broken_off) {
        ssize_t n = worker_receive(x->w, x->e);
        x->is_at_end = n == 0;
        x->is_broken_off = n < 0;
    }
    return x->is_broken_off ? -1 : 0;
}

/* ---- members --------------------------------------------------------------------------------- */

/* A member's path below the workspace, without slashes at its ends; NULL with a problem noted. */
static char *clean(struct extraction *x, const char *path)
{
    char *copy = path ? strdup(path + strspn(path, "/")) : NULL;
    if (!copy) {
        problem(x, "(no name)", "Cannot be read", path ? ENOMEM : EINVAL);
        return NULL;
    }
    size_t n = strlen(copy);
    while (n > 0 && copy[n - 1] == '/')
        copy[--n] = '\0';
    for (const char *at = copy; *at; at += strcspn(at, "/"), at += strspn(at, "/")) {
        if (strcspn(at, "/") == 2 && strncmp(at, "..", 2) == 0) {
            problem(x, path, "Member name contains '..'", 0);
            free(copy);
            return NULL;
        }
    }
    return copy;
}

static mode_t mode_of(struct archive_entry *m)
{
    return archive_entry_perm(m) & 01777;
}

static struct timespec time_of(struct archive_entry *m)
{
    if (!archive_entry_mtime_is_set(m))
        return (struct timespec){0, UTIME_NOW};
    return (struct timespec){archive_entry_mtime(m), archive_entry_mtime_nsec(m)};
}

static void set_times(int fd, struct timespec mtime)
{
    futimens(fd, (struct timespec[2]){{0, UTIME_NOW}, mtime});
}

/* Where a name is, make room for something that is no folder. */
static int make_room(const struct place *p)
{
    return unlinkat(p->dir, p->name, 0) == 0 || errno == ENOENT ? 0 : -1;
}

static int write_content(struct extraction *x, struct archive *a, int fd, const char *path)
{
    const void *bytes;
    size_t n;
    la_int64_t offset;
    int rc;
    while ((rc = archive_read_data_block(a, &bytes, &n, &offset)) == ARCHIVE_OK) {
        const char *from = bytes;
        while (n > 0) {
            ssize_t k = pwrite(fd, from, n, offset);
            if (k < 0 && errno == EINTR)
                continue;
            if (k < 0)
                return problem(x, path, "Cannot write", errno);
            from += k;
            n -= (size_t)k;
            offset += k;
        }
    }
    return rc == ARCHIVE_EOF ? 0 : -1;
}

static int extract_file(struct extraction *x, struct archive *a, struct archive_entry *m,
                        const struct place *p, const char *path)
{
    if (make_room(p) < 0)
        return problem(x, path, "Cannot open", errno == EISDIR ? EEXIST : errno);
    CLEANUP_FD int fd =
        openat(p->dir, p->name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return problem(x, path, "Cannot open", errno);
    if (write_content(x, a, fd, path) < 0)
        return -1;
    if (ftruncate(fd, archive_entry_size(m)) < 0) /* a sparse file's last hole */
        return problem(x, path, "Cannot set its size", errno);
    if (fchmod(fd, mode_of(m)) < 0)
        return problem(x, path, "Cannot change mode", errno);
    set_times(fd, time_of(m));
    return 0;
}

static int extract_folder(struct extraction *x, struct archive_entry *m, const struct place *p,
                          const char *path)
{
    struct stat st;
    if (!place_is_root(p) && mkdirat(p->dir, p->name, 0700) < 0) {
        if (errno != EEXIST || fstatat(p->dir, p->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return problem(x, path, "Cannot mkdir", errno);
        if (!S_ISDIR(st.st_mode) && (make_room(p) < 0 || mkdirat(p->dir, p->name, 0700) < 0))
            return problem(x, path, "Cannot mkdir", errno);
    }
    struct folder f = {mode_of(m), time_of(m), strlen(path)};
    if (x->folders.len + sizeof f + f.path_len + 1 > FOLDERS_MAX ||
        strbuf_add(&x->folders, &f, sizeof f) < 0)
        return problem(x, path, "Too many folders", 0);
    if (strbuf_add(&x->folders, path, f.path_len + 1) < 0)
        return problem(x, path, "Cannot mkdir", ENOMEM);
    return 0;
}

static int extract_link(struct extraction *x, const char *target, const struct place *p,
                        const char *path)
{
    if (!target || !*target)
        return problem(x, path, "Cannot create symlink", ENOENT);
    if (make_room(p) < 0 || symlinkat(target, p->dir, p->name) < 0)
        return problem(x, path, "Cannot create symlink", errno);
    return 0;
}

static int extract_hard_link(struct extraction *x, const char *target, const struct place *p,
                             const char *path)
{
    struct place from;
    char *clean_target = clean(x, target);
    if (!clean_target)
        return -1;
    int rc = place_find(&x->w->root, clean_target, 0, &from);
    if (rc == 0) {
        struct stat a, b;
        bool is_same = fstatat(from.dir, from.name, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
                       fstatat(p->dir, p->name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
                       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
        if (!is_same && (make_room(p) < 0 || linkat(from.dir, from.name, p->dir, p->name, 0) < 0))
            rc = -1;
        place_close(&from);
    }
    free(clean_target);
    return rc < 0 ? problem(x, path, "Cannot hard link", errno) : 0;
}

static int extract_member(struct extraction *x, struct archive *a, struct archive_entry *m)
{
    struct place p;
    char *path = clean(x, archive_entry_pathname(m));
    if (!path)
        return -1;
    if (place_find(&x->w->root, path, RESOLVE_MAKE, &p) < 0) {
        problem(x, path, "Cannot open", errno);
        free(path);
        return -1;
    }
    int rc = 0;
    if (place_is_root(&p) && archive_entry_filetype(m) != AE_IFDIR)
        rc = problem(x, path, "Cannot open", EISDIR);
    else if (archive_entry_hardlink(m))
        rc = extract_hard_link(x, archive_entry_hardlink(m), &p, path);
    else if (archive_entry_filetype(m) == AE_IFREG)
        rc = extract_file(x, a, m, &p, path);
    else if (archive_entry_filetype(m) == AE_IFDIR)
        rc = extract_folder(x, m, &p, path);
    else if (archive_entry_filetype(m) == AE_IFLNK)
        rc = extract_link(x, archive_entry_symlink(m), &p, path);
    else
        rc = problem(x, path, "Cannot mknod", EPERM);
    place_close(&p);
    free(path);
    return rc;
}

/* Modes and times of the folders: now nothing is written into them any more. Backwards would be no
 * better, since each is opened from the top: those that forbid it come last. */
static void finish_folders(struct extraction *x)
{
    for (int forbid = 0; forbid < 2; forbid++) {
        for (size_t at = 0; at < x->folders.len;) {
            struct folder f;
            memcpy(&f, x->folders.data + at, sizeof f);
            const char *path = x->folders.data + at + sizeof f;
            at += sizeof f + f.path_len + 1;
            if (forbid != ((f.mode & 0500) != 0500))
                continue;
            CLEANUP_FD int fd = root_openat(&x->w->root, path, 0, O_RDONLY | O_DIRECTORY);
            if (fd < 0)
                continue; /* replaced by a later member */
            fchmod(fd, f.mode);
            set_times(fd, f.mtime);
        }
    }
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

static struct archive *open_archive(struct extraction *x)
{
    struct archive *a = archive_read_new();
    if (!a)
        return NULL;
    archive_read_support_filter_none(a);
    archive_read_support_format_tar(a);
    archive_read_open(a, x, NULL, on_read, NULL);
    return a;
}

/* What the bytes are that are no tar, as GNU tar's hint on the option does; "": not known. */
static const char *compression(const struct extraction *x)
{
    static const struct {
        const char *name, *magic;
    } known[] = {
        {"gzip", "\x1f\x8b"},
        {"zstd", "\x28\xb5\x2f\xfd"},
        {"xz", "\xfd"
               "7zXZ"},
        {"bzip2", "BZh"},
        {"lz4", "\x04\x22\x4d\x18"},
        {"zip", "PK\x03\x04"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = strlen(known[i].magic);
        if (x->head_len >= n && memcmp(x->head, known[i].magic, n) == 0)
            return known[i].name;
    }
    return "";
}

static void note_no_tar(struct extraction *x)
{
    const char *name = compression(x);
    (void)strbuf_adds(&x->problems, "tar: This does not look like a tar archive\n");
    if (*name)
        (void)strbuf_addf(&x->problems, "tar: It is compressed (%s): send a plain tar\n", name);
}

static void read_members(struct extraction *x, struct archive *a)
{
    struct archive_entry *m;
    unsigned count = 0;
    for (;; count++) {
        int rc = archive_read_next_header(a, &m);
        if (rc == ARCHIVE_EOF || x->is_broken_off)
            return;
        if (rc == ARCHIVE_RETRY)
            continue;
        if (rc < ARCHIVE_WARN) {
            x->has_problems = true;
            if (count == 0)
                note_no_tar(x);
            else
                (void)strbuf_adds(&x->problems, "tar: Unexpected EOF or damage in archive\n");
            return;
        }
        extract_member(x, a, m);
        if (x->is_broken_off)
            return;
    }
}

int worker_extract(struct worker *w, struct error *e)
{
    struct extraction x = {.w = w, .e = e};
    x.folders.limit = FOLDERS_MAX;
    struct archive *a = open_archive(&x);
    if (!a)
        return error_set(e, ERR_MEMORY, "tar: no memory");
    read_members(&x, a);
    finish_folders(&x);
    archive_read_free(a);
    int rc = drain(&x);
    if (rc == 0 && x.has_problems) {
        rc = error_set(e, ERR_SYSTEM, "%star: Exiting with failure status due to previous errors\n",
                       strbuf_text(&x.problems));
        e->sys = EIO;
    }
    strbuf_free(&x.problems);
    strbuf_free(&x.folders);
    return rc;
}
