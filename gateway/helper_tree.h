/*
 * Walking a folder and all below it, without recursion and never through a symlink or a path: each
 * folder is opened relative to the one above. Folders deeper than TREE_DEPTH are not entered.
 */
#ifndef GATEWAY_HELPER_TREE_H
#define GATEWAY_HELPER_TREE_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <sys/stat.h>

#define TREE_DEPTH 400

struct tree_entry {
    int dir;          /* the folder that holds it */
    const char *name; /* in that folder */
    const char *path; /* from where the walk began */
    struct stat stat; /* lstat(2) */
    unsigned depth;   /* 1: directly below */
    bool is_mount;    /* something is mounted on it */
};

enum tree_step { TREE_NEXT, TREE_ENTER, TREE_STOP };

struct tree_visitor {
    /* Each entry, before what is below it. TREE_ENTER is taken for folders only. */
    enum tree_step (*on_entry)(void *context, const struct tree_entry *entry);
    /* A folder that was entered has been walked; its stat is not filled. May be NULL. */
    enum tree_step (*on_leave)(void *context, const struct tree_entry *entry);
    /* A folder could not be entered or read: errno (ELOOP: deeper than TREE_DEPTH). */
    enum tree_step (*on_error)(void *context, const struct tree_entry *entry, int error);
};

/* Walk what is below the folder fd, which becomes the walk's. 0 at the end, 1 if a visitor said
 * TREE_STOP, -1 with errno (no memory). */
int tree_walk(int fd, const struct tree_visitor *v, void *context);

#endif
