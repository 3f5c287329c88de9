/* Small operations on file descriptors. Every descriptor of this program is close-on-exec. */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

/* Close *fd if it is open (>= 0) and set it to -1. errno is kept. */
void fd_close(int *fd);

/* The descriptor, which is the caller's from now on; *fd is -1 (and not closed by CLEANUP_FD). */
int fd_take(int *fd);

/* Close a descriptor that somebody else has sent. The last reference to a TCP socket may be ours
 * now, and with SO_LINGER its close would wait for the peer: socket(7). */
void fd_close_foreign(int fd);

/* Send one packet of a SOCK_SEQPACKET socket, with the descriptor `fd` if it is not -1 (unix(7),
 * SCM_RIGHTS). flags: MSG_DONTWAIT or 0. EINTR is retried, SIGPIPE never comes. 0 or -1 with errno.
 */
int fd_send_packet(int socket, const struct iovec *parts, size_t n, int fd, int flags);

/* Send pieces to a stream socket, never waiting. EINTR is retried, SIGPIPE never comes. flags: 0 or
 * MSG_MORE. The bytes that it took, or -1 with errno (EAGAIN: no room). */
ssize_t fd_send_pieces(int socket, const struct iovec *pieces, size_t n, int flags);

#define CLEANUP_FD __attribute__((cleanup(fd_close)))

/* Set O_NONBLOCK on the open file description. Returns 0 or -1 with errno. */
int fd_set_nonblock(int fd);

/* Write all n bytes to a descriptor that cannot block for long (a regular file, a blocking
 * descriptor outside PID 1's loop). EINTR is retried. Returns 0 or -1 with errno. */
int fd_write_all(int fd, const void *bytes, size_t n);

/* Read a whole small file below dirfd into buf with a final NUL. Longer content is cut.
 * Returns the number of bytes or -1 with errno. Used for /proc files. */
long fd_read_file(int dirfd, const char *path, char *buf, size_t size);

/* True if fd is among the highest `reserve` that this process may have. The kernel gives out the
 * lowest free number, so a fresh descriptor tells how many are left. */
bool fd_is_scarce(int fd, unsigned reserve);
/* The same for the next descriptor. Needs none itself once they are all in use. */
bool fd_next_is_scarce(unsigned reserve);
/* True if `reserve` or fewer are left, wherever they lie: one who holds many that can be done
 * without has holes below them, and a low number next to the very last. */
bool fd_few_are_left(unsigned reserve);

#endif
