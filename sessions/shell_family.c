#include "sessions/shell_family.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void shell_family_of_name(const char *path, char family[SHELL_FAMILY_SIZE])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strncmp(name, "bash", 4) == 0)
        name = "bash";
    else if (strncmp(name, "busybox", 7) == 0)
        name = "ash";
    else if (!*name)
        name = path; /* it ends in '/': no shell, but not nothing either */
    snprintf(family, SHELL_FAMILY_SIZE, "%.*s", SHELL_FAMILY_SIZE - 1, name);
    for (char *lf = family; (lf = strchr(lf, '\n'));)
        *lf = '?'; /* it is told, and kept with a saved state, as a line */
}

bool shell_family_at_once(const char *path, char family[SHELL_FAMILY_SIZE])
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_XDEV};
    char link[40], real[PATH_MAX];
    CLEANUP_FD int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (fd < 0 && (errno == EXDEV || errno == ENOSYS || errno == EPERM))
        return false; /* another mount; an old kernel; seccomp */
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = fd < 0 ? -1 : readlink(link, real, sizeof real - 1);
    if (n > 0)
        real[n] = '\0';
    shell_family_of_name(n > 0 ? real : path, family);
    return true;
}

void shell_family_find(const char *path, char family[SHELL_FAMILY_SIZE])
{
    char real[PATH_MAX];
    shell_family_of_name(realpath(path, real) ? real : path, family);
}
