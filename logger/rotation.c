#include "logger/rotation.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define NAME_BYTES (PATH_MAX + 16)

static const char *name_of(const char *name, unsigned generation, char buf[NAME_BYTES])
{
    if (generation)
        snprintf(buf, NAME_BYTES, "%s.%u", name, generation);
    else
        snprintf(buf, NAME_BYTES, "%s", name);
    return buf;
}

static int fail(const char *what, const char *name, const char **step, char *failed, size_t size)
{
    *step = what;
    snprintf(failed, size, "%s", name);
    return -1;
}

/* The one that was to become `to` stays: those behind it go back to their places, or the next tries
 * would push them all out. */
static void shift_back(int dirfd, const char *name, unsigned to, unsigned keep)
{
    char from[NAME_BYTES], back[NAME_BYTES];
    for (unsigned i = to + 1; i <= keep; i++)
        (void)renameat(dirfd, name_of(name, i, from), dirfd, name_of(name, i - 1, back));
}

int rotation_shift(int dirfd, const char *name, unsigned keep, const char **step, char *failed,
                   size_t size)
{
    char from[NAME_BYTES], to[NAME_BYTES];
    if (keep == 0 && unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
        return fail("unlink", name, step, failed, size);
    for (unsigned i = keep; i > 0; i--) {
        name_of(name, i - 1, from);
        name_of(name, i, to);
        if (renameat(dirfd, from, dirfd, to) < 0 && errno != ENOENT) {
            int sys = errno;
            shift_back(dirfd, name, i, keep);
            errno = sys;
            return fail("rename", from, step, failed, size);
        }
    }
    for (unsigned i = keep + 1; unlinkat(dirfd, name_of(name, i, from), 0) == 0; i++)
        continue; /* there may once have been more */
    return 0;
}
