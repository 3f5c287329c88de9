/*
 * A session's state as bytes that can leave the container: the dump of the driver (driver.*.sh), a
 * script, behind a first line that names the shell which wrote it:
 *
 *     # sandbox-init state 1 bash
 *
 * Its last line is the driver's "# end". A shell of another kind cannot run it.
 */
#ifndef SESSIONS_SAVED_STATE_H
#define SESSIONS_SAVED_STATE_H

#include "base/error.h"
#include "base/strbuf.h"

#define SAVED_STATE_HEADER "# sandbox-init state 1 "
#define SAVED_STATE_END    "# end\n"

/* Append the first line for a shell of this family (shell_family.h). 0, or -1: no memory. */
int saved_state_begin(struct strbuf *to, const char *family);

/* Append a dump of the driver, read from its file, to the first line. 0, or -1 with *e: larger than
 * limit bytes, no memory, or it cannot be read. */
int saved_state_read(struct strbuf *to, const char *family, int fd, size_t limit, struct error *e);

/* 0 if a shell of this family (NULL: not known yet) can be given these bytes, or -1 with *e. name:
 * where they come from, for the message. */
int saved_state_check(const struct strbuf *bytes, const char *name, const char *family,
                      struct error *e);
/* The same for the family alone, by the beginning of the bytes. */
int saved_state_check_family(const char *bytes, size_t size, const char *name, const char *family,
                             struct error *e);

#endif
