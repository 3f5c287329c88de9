#include "control/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *paths_runtime_dir(unsigned i, uid_t uid, char *buf, size_t size)
{
    const char *tmpdir = getenv("TMPDIR");
    const char *const parents[] = {NULL, "/dev/shm", tmpdir ? tmpdir : "", "/tmp"};
    if (i >= sizeof parents / sizeof parents[0])
        return NULL;
    int n = 0;
    if (!parents[i])
        n = snprintf(buf, size, "/run/sandbox");
    else if (parents[i][0] == '/')
        n = snprintf(buf, size, "%s/sandbox-%u", parents[i], (unsigned)uid);
    if (n <= 0 || (size_t)n >= size || (size_t)n + sizeof PATHS_SOCKET_NAME >= PATHS_MAX)
        buf[0] = '\0';
    return buf;
}

const char *paths_find_socket(uid_t uid, char *buf, size_t size)
{
    char dir[PATHS_MAX];
    struct stat st;
    for (unsigned i = 0; paths_runtime_dir(i, uid, dir, sizeof dir); i++) {
        int n = snprintf(buf, size, "%s/" PATHS_SOCKET_NAME, dir);
        if (!dir[0] || n < 0 || (size_t)n >= size || lstat(buf, &st) < 0)
            continue;
        if (S_ISSOCK(st.st_mode) && (st.st_uid == uid || st.st_uid == 0))
            return buf;
    }
    return NULL;
}
