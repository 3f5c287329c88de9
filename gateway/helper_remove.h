/* Removing all that is in a folder, however deep, but nothing of what is mounted there. */
#ifndef GATEWAY_HELPER_REMOVE_H
#define GATEWAY_HELPER_REMOVE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct removal {
    bool is_forced; /* folders that forbid it are opened first; mounts are left, and no error */
    uint64_t removed, kept; /* kept: entries that stay */
    int error;              /* errno of the first thing that stays */
    char path[PATH_MAX];
};

/* fd, a folder, becomes the function's. 0, or -1 with r->error and r->path set; what can be removed
 * is removed all the same. */
int remove_below(int fd, struct removal *r);

#endif
