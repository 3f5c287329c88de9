/*
 * op=open. The descriptor goes to the gateway, which sends the file from it; but a file system that
 * may hang (FUSE, network) would hang the gateway's loop with it: there the worker reads.
 */
#include "gateway/helper_worker.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/statfs.h>
#include <unistd.h>

/* File systems whose reads wait for nothing but a local disk: statfs(2). */
static bool is_local(int fd)
{
    static const uint32_t local[] = {0xef53 /* ext */,
                                     0x58465342 /* xfs */,
                                     0x9123683e /* btrfs */,
                                     0x01021994 /* tmpfs */,
                                     0x794c7630 /* overlayfs */,
                                     0x858458f6 /* ramfs */,
                                     0xf2f52010 /* f2fs */,
                                     0x2fc12fc1 /* zfs */,
                                     0x73717368 /* squashfs */,
                                     0xe0f5e1e2 /* erofs */,
                                     0xca451a4e /* bcachefs */};
    struct statfs s;
    if (fstatfs(fd, &s) < 0)
        return false;
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        if ((uint32_t)s.f_type == local[i])
            return true;
    return false;
}

/* Send length bytes from offset. */
static int pump(struct worker *w, int fd, int64_t offset, int64_t length, const char *path,
                struct error *e)
{
    while (length > 0) {
        size_t part = length < HELPER_DATA_MAX ? (size_t)length : HELPER_DATA_MAX;
        ssize_t n = pread(fd, w->packet, part, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return worker_fail(w, "read", path, e);
        if (n == 0)
            return error_set(e, ERR_SYSTEM, "read %s: it has become shorter", path);
        if (worker_send(w, HELPER_DATA, w->packet, (size_t)n, e) < 0)
            return -1;
        offset += n;
        length -= n;
    }
    return 0;
}

static int serve_range(struct worker *w, int fd, const char *path, struct error *e)
{
    int64_t offset, length;
    ssize_t n = worker_receive(w, e);
    if (n <= 0)
        return (int)n;
    w->packet[n < HELPER_DATA_MAX ? n : HELPER_DATA_MAX] = '\0';
    if (sscanf(w->packet, "%" SCNd64 " %" SCNd64, &offset, &length) != 2 || offset < 0)
        return error_set(e, ERR_PROTOCOL, "a malformed range");
    return pump(w, fd, offset, length, path, e);
}

int worker_open(struct worker *w, struct error *e)
{
    const char *path = worker_argument(w, "path");
    struct stat st;
    if (!path)
        return error_set(e, ERR_PROTOCOL, "open: no path");
    CLEANUP_FD int fd = root_openat(&w->root, path, RESOLVE_LAST, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return worker_fail(w, "open", path, e);
    if (!S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : ENXIO;
        return worker_fail(w, "open", path, e);
    }
    struct record r = {0};
    bool is_streamed = !is_local(fd);
    file_record(&r, &st, -1, NULL);
    record_int(&r, "inode", (int64_t)(st.st_ino & INT64_MAX));
    if (is_streamed)
        record_int(&r, "streamed", 1);
    if (worker_send_record(w, HELPER_BEGIN, &r, is_streamed ? -1 : fd, e) < 0)
        return -1;
    return is_streamed ? serve_range(w, fd, path, e) : 0;
}
