/* Where init keeps its runtime folder when nothing is configured, and so where clients look for its
 * socket. The one place that knows this list. */
#ifndef CONTROL_PATHS_H
#define CONTROL_PATHS_H

#include <stddef.h>
#include <sys/types.h>

#define PATHS_SOCKET_NAME "control.sock" /* inside the runtime folder */
#define PATHS_MAX         108            /* sun_path of unix(7), its NUL included */

/* The i-th candidate (from 0) for the runtime folder of an init that runs as uid: /run/sandbox,
 * /dev/shm/sandbox-UID, $TMPDIR/sandbox-UID, /tmp/sandbox-UID. Returns buf; "" for one that does
 * not apply (TMPDIR unset, relative or too long for a socket below it); NULL behind the last. */
const char *paths_runtime_dir(unsigned i, uid_t uid, char *buf, size_t size);

/* The control socket of the first candidate where one exists that belongs to uid or root (others
 * could plant one below /tmp). Returns buf, or NULL when there is none. */
const char *paths_find_socket(uid_t uid, char *buf, size_t size);

#endif
