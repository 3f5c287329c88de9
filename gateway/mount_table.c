/*
 * Mounts (mount_table.h). Which are ours is a list in memory; after a restart of the gateway the
 * type of the file system tells. Unmounting is done by a program of the image that init runs as the
 * sessions' user: the gateway may not.
 */
#include "gateway/mount_table.h"

#include "base/fd.h"
#include "gateway/gateway.h"
#include "gateway/gather.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOUNTINFO_MAX ((size_t)4 << 20)

struct mount_note {
    struct mount_note *next;
    char path[];
};

/* ---- the kernel's table ------------------------------------------------------------------ */

/* A path of the table, in which blanks and the like stand as \\040. 0 or -1 (no memory). */
static int decode(const char *field, size_t n, struct strbuf *to)
{
    for (size_t i = 0; i < n; i++) {
        char c = field[i];
        if (c == '\\' && i + 3 < n) {
            c = (char)((field[i + 1] - '0') << 6 | (field[i + 2] - '0') << 3 |
                       (field[i + 3] - '0'));
            i += 3;
        }
        if (strbuf_add(to, &c, 1) < 0)
            return -1;
    }
    return 0;
}

/* Step through the lines of /proc/self/mountinfo (proc_pid_mountinfo(5)): *at begins with its text.
 * The mount point into *path, decoded. False at the end. */
static bool mountinfo_next(const char **at, struct strbuf *path, bool *is_s3fs)
{
    static const char type[] = " - fuse.s3fs ";
    while (**at) {
        const char *line = *at, *field = line;
        size_t end = strcspn(line, "\n");
        *at = line + end + (line[end] == '\n');
        for (int i = 0; i < 4 && field < line + end; i++) /* the mount point is the fifth */
            field += strcspn(field, " \n") + 1;
        strbuf_clear(path);
        if (field >= line + end || decode(field, strcspn(field, " \n"), path) < 0)
            continue;
        *is_s3fs = memmem(line, end, type, sizeof type - 1) != NULL;
        return true;
    }
    return false;
}

static void read_table(struct strbuf *all)
{
    CLEANUP_FD int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    all->limit = MOUNTINFO_MAX;
    for (;;) {
        char *to = fd < 0 ? NULL : strbuf_reserve(all, 16384);
        ssize_t k = to ? read(fd, to, 16384) : 0;
        if (k <= 0)
            return;
        all->len += (size_t)k;
        all->data[all->len] = '\0';
    }
}

bool is_mount_point(const char *wanted)
{
    CLEANUP_STRBUF struct strbuf all = {0};
    CLEANUP_STRBUF struct strbuf path = {0};
    bool is_s3fs;
    read_table(&all);
    for (const char *at = strbuf_text(&all); mountinfo_next(&at, &path, &is_s3fs);)
        if (strcmp(strbuf_text(&path), wanted) == 0)
            return true;
    return false;
}

/* ---- which are ours ---------------------------------------------------------------------- */

static bool is_noted(const struct gateway *g, const char *path)
{
    for (const struct mount_note *n = g->mounts; n; n = n->next)
        if (strcmp(n->path, path) == 0)
            return true;
    return false;
}

void mounts_note(struct gateway *g, const char *path)
{
    size_t n = strlen(path) + 1;
    struct mount_note *note = is_noted(g, path) ? NULL : malloc(sizeof *note + n);
    if (!note)
        return;
    memcpy(note->path, path, n);
    note->next = g->mounts;
    g->mounts = note;
}

void mounts_forget_all(struct gateway *g)
{
    while (g->mounts) {
        struct mount_note *next = g->mounts->next;
        free(g->mounts);
        g->mounts = next;
    }
}

/* Add the paths of mounts that are ours to the arguments of q; path: only this one. True if there
 * are any. */
static bool add_ours(const struct gateway *g, const char *wanted, struct client_request *q)
{
    CLEANUP_STRBUF struct strbuf all = {0};
    CLEANUP_STRBUF struct strbuf path = {0};
    bool is_s3fs, found = false;
    read_table(&all);
    for (const char *at = strbuf_text(&all); mountinfo_next(&at, &path, &is_s3fs);) {
        const char *text = strbuf_text(&path);
        if ((!is_s3fs && !is_noted(g, text)) || (wanted && strcmp(text, wanted) != 0))
            continue;
        found = true;
        if (q)
            client_request_add(q, "arg", text);
    }
    return found;
}

bool is_left_mount(const struct gateway *g, const char *path)
{
    return add_ours(g, path, NULL);
}

bool has_left_mounts(const struct gateway *g)
{
    return add_ours(g, NULL, NULL);
}

/* ---- cleaning ---------------------------------------------------------------------------- */

struct cleaning {
    struct gather *gather;
    void (*on_done)(void *owner);
    void *owner;
};

/* The folders that are still mounted come behind "--", those that are only removed before it. A
 * folder with something in it stays. */
static const char clean_script[] =
    "while [ \"$1\" != -- ]; do rmdir -- \"$1\" 2>/dev/null; shift; done; shift\n"
    "for p; do\n"
    "fusermount -u -z -- \"$p\" 2>/dev/null || fusermount3 -u -z -- \"$p\" 2>/dev/null ||"
    " umount -l -- \"$p\"\n"
    "rmdir -- \"$p\" 2>/dev/null\n"
    "done\n"
    "exit 0";

static void on_clean_answer(void *owner, const struct gathered *all)
{
    struct cleaning *c = owner;
    (void)all; /* who asked looks whether it is still mounted */
    void (*on_done)(void *) = c->on_done;
    void *then = c->owner;
    free(c);
    on_done(then);
}

struct cleaning *mounts_clean(struct gateway *g, const char *path, void (*on_done)(void *owner),
                              void *owner, struct error *e)
{
    struct client_request q;
    struct cleaning *c = calloc(1, sizeof *c);
    if (!c) {
        error_set(e, ERR_MEMORY, "no memory for unmounting");
        return NULL;
    }
    c->on_done = on_done;
    c->owner = owner;
    client_request_init(&q, "exec");
    client_request_add(&q, "timeout_ms", "10000");
    const char *argv[] = {"/bin/sh", "-c", clean_script, "sh"};
    for (size_t i = 0; i < sizeof argv / sizeof argv[0]; i++)
        client_request_add(&q, "arg", argv[i]);
    if (path && !is_mount_point(path))
        client_request_add(&q, "arg", path);
    client_request_add(&q, "arg", "--");
    (void)add_ours(g, path, &q);
    c->gather = gather_open(g->upstream, &q, on_clean_answer, c, e);
    if (c->gather)
        return c;
    free(c);
    return NULL;
}

void cleaning_close(struct cleaning *c)
{
    if (!c)
        return;
    gather_close(c->gather);
    free(c);
}
