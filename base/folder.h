/* Folders that are made where somebody else may have a hand in the way to them. */
#ifndef BASE_FOLDER_H
#define BASE_FOLDER_H

#include <sys/types.h>

/* Make the folder of an absolute path, and those above it, as far as they are missing: mode 0755,
 * the last one uid's and gid's. No symlink is followed, and nothing is made in a folder of others,
 * or that others may write to, so that nobody can lead the caller, who may be root, to another
 * place. One that is there stays as it is. 0, or -1 with errno. Safe between fork and exec. */
int folder_make(const char *path, uid_t uid, gid_t gid);

#endif
