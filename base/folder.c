#include "base/folder.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Nobody else can put another folder in the place of one that is made here. */
static bool is_ours(int folder)
{
    struct stat st;
    return fstat(folder, &st) == 0 && st.st_uid == geteuid() &&
           (!(st.st_mode & (S_IWGRP | S_IWOTH)) || (st.st_mode & S_ISVTX));
}

/* The folder of that name in another one, made if it is missing; *is_new tells. */
static int enter(int at, const char *name, int *is_new)
{
    *is_new = is_ours(at) && mkdirat(at, name, 0755) == 0;
    return openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int folder_make(const char *path, uid_t uid, gid_t gid)
{
    char name[NAME_MAX + 1];
    int is_new = 0;
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && *(path += strspn(path, "/"))) {
        size_t n = strcspn(path, "/");
        if (n > NAME_MAX) {
            fd_close(&fd);
            errno = ENAMETOOLONG;
            break;
        }
        memcpy(name, path, n);
        name[n] = '\0';
        path += n;
        int next = enter(fd, name, &is_new), saved = errno;
        fd_close(&fd);
        fd = next;
        errno = saved;
    }
    int rc = fd < 0 || (is_new && fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0) ? -1 : 0;
    int saved = errno;
    fd_close(&fd);
    errno = saved;
    return rc;
}
