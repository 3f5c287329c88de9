/* A full log becomes NAME.1, NAME.1 becomes NAME.2 and so on; so many older ones are kept. */
#ifndef LOGGER_ROTATION_H
#define LOGGER_ROTATION_H

#include <stddef.h>

/* Put NAME of a folder aside; a gap in the row is closed by nobody, and no file is lost to one. 0,
 * or -1 with errno, the step and the name that failed. */
int rotation_shift(int dirfd, const char *name, unsigned keep, const char **step, char *failed,
                   size_t size);

#endif
