/*
 * Paths inside the workspace, resolved so that nothing leads out of it: neither "..", nor a
 * symlink, nor one that is swapped in meanwhile. openat2(RESOLVE_BENEATH) finds the folder; what it
 * refuses (an absolute link that points into the workspace), and kernels or filters that refuse
 * openat2 itself, go the same way step by step: each name is opened with O_NOFOLLOW relative to the
 * folder before, links are read and followed as text, ".." takes the last name away and begins
 * anew.
 */
#ifndef GATEWAY_HELPER_ROOT_H
#define GATEWAY_HELPER_ROOT_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

struct root {
    int fd;           /* the workspace's folder, O_PATH */
    const char *path; /* absolute, no slash at its end (but "/"), as in the configuration */
    char real[PATH_MAX];
    bool has_no_openat2;
};

/* Open the workspace; it is made if it is missing. 0, or -1 with errno. */
int root_open(struct root *r, const char *workspace);

#define RESOLVE_LAST 1 /* if the last name is a symlink: what it points to */
#define RESOLVE_MAKE 2 /* make the folders above the last name that are missing */

#define PLACE_MADE_MAX 32
/* A name in a folder that is held open, so that nobody can put another folder in its place. */
struct place {
    int dir;
    char name[NAME_MAX + 1]; /* "." for the workspace itself */
    struct {
        int dir;
        char name[NAME_MAX + 1];
    } made[PLACE_MADE_MAX]; /* folders that were made for it */
    unsigned made_count;
};

/* 0 (what the name means need not exist), or -1 with errno: EXDEV leads out of the workspace. The
 * caller ends it with place_close(). */
int place_find(struct root *r, const char *path, unsigned flags, struct place *to);
void place_close(struct place *p);
/* Remove the folders that were made for it and are empty. */
void place_unmake(struct place *p);
/* True for the workspace itself. */
bool place_is_root(const struct place *p);

/* Find and open, never through a symlink that was put there after the path was resolved. Returns
 * the descriptor or -1 with errno; ENXIO: a FIFO, socket or device, which is not touched. */
int root_openat(struct root *r, const char *path, unsigned flags, int how);

#endif
