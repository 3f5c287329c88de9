/*
 * Tar members as strict readers take them: POSIX ustar, with a PAX header before a member whose
 * path or link target does not fit. No GNU members, no hard links, no sparse files, no PAX size (a
 * file of 8 GiB and more has its size in base 256, which GNU tar, libarchive and Python read).
 */
#ifndef GATEWAY_HELPER_TAR_H
#define GATEWAY_HELPER_TAR_H

#include "base/strbuf.h"

#include <stddef.h>
#include <sys/stat.h>

#define TAR_BLOCK 512

/* Append the headers of one member: a file (size and mode of st), a folder (path ends with a slash)
 * or a symlink (target not NULL). 0, or -1: no memory. */
int tar_add_member(struct strbuf *to, const char *path, const struct stat *st, const char *target);

#endif
