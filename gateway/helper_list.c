/* op=stat and op=list. What they tell is lstat(2)'s: a link is a link, a FIFO is not opened. */
#include "gateway/helper_worker.h"

#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIST_LIMIT_MAX 1000000

int worker_stat(struct worker *w, struct error *e)
{
    const char *path = worker_argument(w, "path");
    struct place p;
    struct stat st;
    if (!path)
        return error_set(e, ERR_PROTOCOL, "stat: no path");
    if (place_find(&w->root, path, worker_flag(w, "follow") ? RESOLVE_LAST : 0, &p) < 0)
        return worker_fail(w, "stat", path, e);
    int rc = fstatat(p.dir, p.name, &st, AT_SYMLINK_NOFOLLOW);
    if (rc < 0)
        worker_fail(w, "stat", path, e);
    else
        file_record(&w->result, &st, p.dir, p.name);
    place_close(&p);
    return rc;
}

/* The names of a folder, sorted by their bytes. */
struct names {
    struct strbuf text;
    const char **at;
    size_t count;
};

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void names_free(struct names *n)
{
    strbuf_free(&n->text);
    free((void *)n->at);
}

static int read_names(DIR *d, struct names *n, const char *after)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(d);
        if (!entry && errno != 0)
            return -1;
        if (!entry)
            break;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            (after && strcmp(entry->d_name, after) <= 0))
            continue;
        bool may_be_file = entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN;
        if (may_be_file && is_put_name(entry->d_name) && put_sweep(dirfd(d), entry->d_name))
            continue;
        if (strbuf_add(&n->text, entry->d_name, strlen(entry->d_name) + 1) < 0) {
            errno = ENOMEM;
            return -1;
        }
        n->count++;
    }
    n->at = calloc(n->count + 1, sizeof *n->at);
    if (!n->at)
        return -1;
    const char *name = strbuf_text(&n->text);
    for (size_t i = 0; i < n->count; i++, name += strlen(name) + 1)
        n->at[i] = name;
    qsort((void *)n->at, n->count, sizeof *n->at, compare);
    return 0;
}

static int send_rows(struct worker *w, int dir, const struct names *names, size_t limit,
                     struct error *e)
{
    size_t sent = 0;
    for (size_t i = 0; i < names->count; i++) {
        struct stat st;
        struct record row = {0};
        if (sent == limit) {
            record_str(&w->result, "next", names->at[i - 1]);
            return 0;
        }
        if (fstatat(dir, names->at[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue; /* gone meanwhile */
        record_str(&row, "name", names->at[i]);
        file_record(&row, &st, dir, names->at[i]);
        if (worker_send_record(w, HELPER_ROW, &row, -1, e) < 0)
            return -1;
        sent++;
    }
    return 0;
}

/* A link that leads nowhere is no folder, rather than nothing. */
static int open_folder(struct worker *w, const char *path)
{
    struct place p;
    struct stat st;
    int fd = root_openat(&w->root, path, RESOLVE_LAST, O_RDONLY | O_DIRECTORY);
    if (fd >= 0)
        return fd;
    int error = errno == ENXIO ? ENOTDIR : errno;
    if (error == ENOENT && place_find(&w->root, path, 0, &p) == 0) {
        if (fstatat(p.dir, p.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            error = ENOTDIR;
        place_close(&p);
    }
    errno = error;
    return -1;
}

int worker_list(struct worker *w, struct error *e)
{
    const char *path = worker_argument(w, "path");
    size_t limit = (size_t)helper_number(w->request, w->n, "limit", LIST_LIMIT_MAX, LIST_LIMIT_MAX);
    struct names names = {0};
    struct record begin = {0};
    if (!path)
        return error_set(e, ERR_PROTOCOL, "list: no path");
    int fd = open_folder(w, path);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d || read_names(d, &names, worker_argument(w, "after")) < 0) {
        worker_fail(w, "list", path, e);
        if (d)
            closedir(d);
        else
            fd_close(&fd);
        names_free(&names);
        return -1;
    }
    record_int(&begin, "count", (int64_t)names.count);
    int rc = worker_send_record(w, HELPER_BEGIN, &begin, -1, e);
    if (rc == 0)
        rc = send_rows(w, dirfd(d), &names, limit, e);
    closedir(d);
    names_free(&names);
    return rc;
}
