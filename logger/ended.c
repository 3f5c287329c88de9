#include "logger/ended.h"
#include "base/fd.h"
#include "base/number.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_SUFFIX ".exit"

int ended_init(struct ended *ended, size_t keep)
{
    *ended = (struct ended){.ids = calloc(keep + 1, sizeof *ended->ids), .keep = keep};
    return ended->ids ? 0 : -1;
}

static void delete_files(const struct log_folder *folder, const char *id)
{
    static const char *const suffixes[] = {"log", "pid", "exit"};
    char name[LOGGER_ID_MAX + 32];
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        snprintf(name, sizeof name, "%s.%s", id, suffixes[i]);
        (void)unlinkat(folder->fd, name, 0);
    }
    for (unsigned i = 1;; i++) {
        snprintf(name, sizeof name, "%s.log.%u", id, i);
        if (unlinkat(folder->fd, name, 0) < 0)
            break;
    }
}

static void drop(struct ended *ended, size_t i)
{
    memmove(ended->ids + i, ended->ids + i + 1, (--ended->count - i) * sizeof *ended->ids);
}

void ended_remove(struct ended *ended, const char *id)
{
    for (size_t i = 0; i < ended->count; i++)
        if (strcmp(ended->ids[i], id) == 0) {
            drop(ended, i);
            return;
        }
}

static void push(struct ended *ended, const char *id)
{
    snprintf(ended->ids[ended->count++], sizeof *ended->ids, "%s", id);
}

void ended_add(struct ended *ended, const struct log_folder *folder, const char *id)
{
    if (!ended->ids)
        return;
    ended_remove(ended, id);
    push(ended, id);
    if (ended->count <= ended->keep)
        return;
    delete_files(folder, ended->ids[0]);
    drop(ended, 0);
}

/* ---- what is there already ---- */

struct found {
    struct timespec when;
    char id[LOGGER_ID_MAX + 1];
};

struct founds {
    struct found *items;
    size_t count, room;
};

static int compare(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->when.tv_sec != y->when.tv_sec)
        return x->when.tv_sec < y->when.tv_sec ? -1 : 1;
    return (x->when.tv_nsec > y->when.tv_nsec) - (x->when.tv_nsec < y->when.tv_nsec);
}

/* Note an ID.exit. Anything else in the folder is nobody's business. */
static void note(struct founds *all, const struct log_folder *folder, const char *name)
{
    struct found f = {.id = ""};
    struct stat st;
    size_t n = strlen(name), k = strlen(EXIT_SUFFIX);
    if (n <= k || n - k > LOGGER_ID_MAX || strcmp(name + n - k, EXIT_SUFFIX) != 0 ||
        fstatat(folder->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return;
    memcpy(f.id, name, n - k);
    f.when = st.st_mtim;
    if (name_check(f.id) < 0)
        return;
    if (all->count == all->room) {
        size_t room = all->room ? 2 * all->room : 64;
        struct found *items = realloc(all->items, room * sizeof *items);
        if (!items)
            return;
        all->items = items;
        all->room = room;
    }
    all->items[all->count++] = f;
}

void ended_load(struct ended *ended, const struct log_folder *folder)
{
    struct founds all = {0};
    int fd = ended->ids ? openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        fd_close(&fd);
        return;
    }
    for (const struct dirent *d; (d = readdir(dir));)
        note(&all, folder, d->d_name);
    closedir(dir);
    if (all.count)
        qsort(all.items, all.count, sizeof *all.items, compare);
    for (size_t i = 0; i < all.count; i++) {
        if (all.count - i > ended->keep)
            delete_files(folder, all.items[i].id);
        else
            push(ended, all.items[i].id);
    }
    free(all.items);
}
