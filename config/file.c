/* Files that a configuration is made of: read whole, bounded, and never waited for. */
#include "config/config_internal.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Nothing but a regular file is read: a FIFO or device could block or never end. */
int file_read(const char *path, struct strbuf *to, dev_t *dev, ino_t *ino, struct error *e)
{
    struct stat st;
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_sys(e, errno, "%s", shown_file(path));
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERR_INVALID, "%s: not a regular file", shown_file(path));
    *dev = st.st_dev;
    *ino = st.st_ino;
    to->limit = CONFIG_FILE_MAX + 1;
    for (;;) {
        size_t want = to->limit - to->len < 65536 ? to->limit - to->len : 65536;
        char *room = strbuf_reserve(to, want);
        if (!room)
            return error_set(e, ERR_MEMORY, "%s: out of memory", shown_file(path));
        ssize_t k = read(fd, room, want);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return error_set_sys(e, errno, "%s", shown_file(path));
        if (k == 0)
            return 0;
        to->len += (size_t)k;
        if (to->len > CONFIG_FILE_MAX)
            return error_set(e, ERR_INVALID, "%s: longer than 4M", shown_file(path));
    }
}

char *path_beside(const char *file, const char *path, struct error *e)
{
    char buf[SHOWN_SIZE];
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            error_set(e, ERR_INVALID, "'%s' holds a control character",
                      shown(path, strlen(path), buf));
            return NULL;
        }
    const char *slash = strrchr(file, '/');
    size_t folder_n = path[0] == '/' || !slash ? 0 : (size_t)(slash - file) + 1;
    size_t n = strlen(path);
    char *whole = malloc(folder_n + n + 1);
    if (!whole) {
        error_set(e, ERR_MEMORY, "out of memory");
        return NULL;
    }
    memcpy(whole, file, folder_n);
    memcpy(whole + folder_n, path, n + 1);
    return whole;
}
