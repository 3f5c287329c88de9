/*
 * The runtime folder: init's own (mode 0711, so that others can pass but not list), chosen at boot.
 * It holds the control socket and one folder a session or process, whose files belong to the
 * session's user (0600). All access is by descriptor of the folder with O_NOFOLLOW.
 */
#ifndef SESSIONS_RUNTIME_H
#define SESSIONS_RUNTIME_H

#include "base/error.h"
#include "sessions/user.h"

#include <stdbool.h>
#include <stddef.h>

struct runtime {
    char path[256]; /* "" where nothing was writable */
    int fd;         /* of the folder, locked with flock(2), or -1 */
};

/* Use a folder: make it if need be, lock it for this init, remove what an earlier one left there.
 * 0, or -1 with *e set and r empty (fd -1). */
int runtime_open(struct runtime *r, const char *path, struct error *e);
/* Remove what is left and close. */
void runtime_close(struct runtime *r);

/* A folder of one session or process below the runtime folder. */
struct workdir {
    int fd;
    char path[300];
    char name[40];
};
/* name: "s1", "p7": made anew. 0 or -1 with *e. */
int workdir_open(struct workdir *w, const struct runtime *r, const char *name, struct error *e);
/* Delete its files and the folder; fine when it was never opened. */
void workdir_close(struct workdir *w, const struct runtime *r);
/* True if the entry of this name is still the file behind fd. */
bool workdir_has(const struct workdir *w, const char *name, int fd);
/* Create a regular file or a FIFO of the user in it (what stands there is replaced) and open it for
 * init: a file read-write, a FIFO read-write and non-blocking. Returns the descriptor or -1 with
 * *e. */
int workdir_file(const struct workdir *w, const char *name, const struct user *owner,
                 struct error *e);
int workdir_fifo(const struct workdir *w, const char *name, const struct user *owner,
                 struct error *e);
/* Open a FIFO that was made before for reading, non-blocking; its type is checked. */
int workdir_fifo_reader(const struct workdir *w, const char *name, struct error *e);
/* Fill a file that was made before with n bytes (NUL allowed). 0 or -1 with *e. */
int workdir_fill(const struct workdir *w, int fd, const char *name, const void *bytes, size_t n,
                 struct error *e);

#endif
