/*
 * What is mounted, as the kernel tells it, and what of it is ours: s3fs unmounts when it is told to
 * end, but one that is killed leaves a mount behind that nobody serves.
 */
#ifndef GATEWAY_MOUNT_TABLE_H
#define GATEWAY_MOUNT_TABLE_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stdbool.h>

struct gateway;
struct cleaning;

/* True if something is mounted at this path (absolute, without a slash at its end). */
bool is_mount_point(const char *path);
/* True if it is, and was made by s3fs, for this gateway or (as its type says) for another one. */
bool is_left_mount(const struct gateway *g, const char *path);
/* True if there is any such mount. */
bool has_left_mounts(const struct gateway *g);

/* Remember that path is a mount of ours. */
void mounts_note(struct gateway *g, const char *path);
void mounts_forget_all(struct gateway *g);

/* Unmount what s3fs has left at path (NULL: all that is ours), remove the folder if it is empty, as
 * the sessions' user. on_done comes once, from the loop, unless cleaning_close() came before. NULL
 * with *e set. */
struct cleaning *mounts_clean(struct gateway *g, const char *path, void (*on_done)(void *owner),
                              void *owner, struct error *e);
/* NULL is fine. */
void cleaning_close(struct cleaning *c);

#endif
