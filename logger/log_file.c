#include "logger/log_file.h"
#include "base/clock.h"
#include "base/fd.h"
#include "logger/rotation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define NAME_BYTES 96
#define NOTE_BYTES 64
#define NOTES_MAX  ((size_t)2 * (FRAME_HEADER + NOTE_BYTES))

/* ID.log, or ID.log.N. */
static const char *name_of(const struct log_file *f, unsigned generation, char buf[NAME_BYTES])
{
    if (generation)
        snprintf(buf, NAME_BYTES, "%s.log.%u", f->id, generation);
    else
        snprintf(buf, NAME_BYTES, "%s.log", f->id);
    return buf;
}

void log_file_close(struct log_file *f)
{
    fd_close(&f->fd);
    list_remove(&f->use_link);
}

/* ---- rotation ---- */

/* Move the present file to ID.log.1, and older ones on; the oldest go. */
static int rotate(struct log_file *f, struct log_folder *folder, struct error *e)
{
    char name[NAME_BYTES], failed[NAME_BYTES];
    const char *step;
    log_file_close(f);
    if (rotation_shift(folder->fd, name_of(f, 0, name), folder->files, &step, failed,
                       sizeof failed) < 0)
        return log_folder_fail(folder, failed, step, errno, e);
    return 0;
}

/* ---- opening ---- */

static bool is_ours(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid() && st->st_nlink == 1;
}

/* True while the open file is what stands under its name. */
static bool is_present(const struct log_file *f, const struct log_folder *folder)
{
    char name[NAME_BYTES];
    struct stat st;
    return f->fd >= 0 && fstatat(folder->fd, name_of(f, 0, name), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_ino == f->inode && st.st_dev == f->device;
}

static void take_open_file(struct log_file *f, int fd, const struct stat *st)
{
    unsigned char first[FRAME_HEADER];
    struct frame_head h;
    bool is_known = st->st_ino == f->inode && st->st_dev == f->device;
    f->fd = fd;
    f->size = (uint64_t)st->st_size;
    f->inode = st->st_ino;
    f->device = st->st_dev;
    f->needs_offset = f->needs_offset || !is_known || f->size == 0;
    f->began_ns = clock_real_ns();
    if (pread(fd, first, sizeof first, 0) == sizeof first && frame_decode(first, &h) == 0)
        f->began_ns = h.time_ns;
}

/* Open ID.log for appending: the one that is there if it is ours, else a new one. */
static int open_file(struct log_file *f, struct log_folder *folder, struct error *e)
{
    char name[NAME_BYTES];
    struct stat st;
    const int flags = O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    name_of(f, 0, name);
    CLEANUP_FD int fd = openat(folder->fd, name, flags);
    if (fd < 0 || fstat(fd, &st) < 0 || !is_ours(&st)) {
        bool is_foreign = fd >= 0 || errno == ELOOP || errno == ENXIO || errno == EISDIR;
        if (!is_foreign && errno != ENOENT)
            return log_folder_fail(folder, name, "open", errno, e);
        fd_close(&fd);
        if (is_foreign && rotate(f, folder, e) < 0)
            return -1;
        fd = openat(folder->fd, name, flags | O_CREAT | O_EXCL, 0600);
        if (fd < 0 || fstat(fd, &st) < 0)
            return log_folder_fail(folder, name, "create", errno, e);
    }
    take_open_file(f, fd_take(&fd), &st);
    return 0;
}

/* Once in a turn: is it still there? */
static int check(struct log_file *f, struct log_folder *folder, struct error *e)
{
    if (f->checked == folder->turn && f->fd >= 0)
        return 0;
    if (log_folder_open(folder, e) < 0)
        return -1;
    if (!is_present(f, folder)) {
        log_file_close(f);
        if (open_file(f, folder, e) < 0)
            return -1;
    }
    f->checked = folder->turn;
    return 0;
}

/* ---- writing ---- */

/* A frame to write, and its header. */
struct piece {
    unsigned char head[FRAME_HEADER];
    char note[NOTE_BYTES];
};

struct batch {
    struct piece pieces[3];
    struct iovec parts[6];
    int count;
    size_t bytes;
};

static void add_frame(struct batch *b, enum frame_kind kind, const char *bytes, size_t n,
                      uint64_t time_ns)
{
    struct piece *p = &b->pieces[b->count / 2];
    frame_encode(p->head, &(struct frame_head){kind, (uint32_t)n, time_ns});
    b->parts[b->count++] = (struct iovec){p->head, FRAME_HEADER};
    b->parts[b->count++] = (struct iovec){(void *)(uintptr_t)bytes, n};
    b->bytes += FRAME_HEADER + n;
}

static void add_note(struct batch *b, const char *note, uint64_t time_ns)
{
    struct piece *p = &b->pieces[b->count / 2];
    snprintf(p->note, sizeof p->note, "%s", note);
    add_frame(b, FRAME_NOTE, p->note, strlen(p->note), time_ns);
}

/* What the file has to say before the byte at offset. */
static void add_notes(struct batch *b, const struct log_file *f, uint64_t offset, uint64_t time_ns)
{
    char note[NOTE_BYTES];
    if (f->needs_offset) {
        snprintf(note, sizeof note, "offset %llu run %llu\n",
                 (unsigned long long)(f->has_loss ? f->lost_from : offset),
                 (unsigned long long)f->run);
        add_note(b, note, time_ns);
    }
    if (f->has_loss) {
        snprintf(note, sizeof note, "lost %llu..%llu\n", (unsigned long long)f->lost_from,
                 (unsigned long long)f->end);
        add_note(b, note, time_ns);
    }
}

/* All of it or nothing. */
static int write_batch(struct log_file *f, struct log_folder *folder, const struct batch *b,
                       struct error *e)
{
    char name[NAME_BYTES];
    ssize_t k = writev(f->fd, b->parts, b->count);
    if (k != (ssize_t)b->bytes) {
        int sys = k < 0 ? errno : ENOSPC;
        if (k > 0)
            (void)!ftruncate(f->fd, (off_t)f->size);
        return log_folder_fail(folder, name_of(f, 0, name), "write", sys, e);
    }
    f->size += b->bytes;
    f->needs_offset = f->has_loss = false;
    return 0;
}

static bool is_due(const struct log_file *f, const struct log_folder *folder, size_t more)
{
    if (f->size == 0)
        return false;
    uint64_t now = clock_real_ns();
    return f->size + more > folder->file_size ||
           (folder->file_age_ns && now > f->began_ns && now - f->began_ns > folder->file_age_ns);
}

/* n 0: the notes alone. */
static int append(struct log_file *f, struct log_folder *folder, enum frame_kind kind,
                  uint64_t offset, const char *bytes, size_t n, uint64_t time_ns, struct error *e)
{
    if (check(f, folder, e) < 0)
        return -1;
    if (is_due(f, folder, n + FRAME_HEADER + (f->has_loss ? NOTES_MAX : 0))) {
        f->needs_offset = true;
        if (rotate(f, folder, e) < 0 || open_file(f, folder, e) < 0)
            return -1;
    }
    struct batch b = {.count = 0};
    add_notes(&b, f, offset, time_ns);
    if (n)
        add_frame(&b, kind, bytes, n, time_ns);
    return b.count ? write_batch(f, folder, &b, e) : 0;
}

int log_file_append(struct log_file *f, struct log_folder *folder, enum frame_kind kind,
                    uint64_t offset, const char *bytes, size_t n, uint64_t time_ns, struct error *e)
{
    if (offset + n <= f->end)
        return 0;
    if (offset < f->end) {
        bytes += f->end - offset;
        n -= (size_t)(f->end - offset);
        offset = f->end;
    }
    if (offset > f->end)
        log_file_lose(f, f->end, offset);
    while (n > 0) { /* as one frame, unless a file is to be smaller than that */
        size_t most = (size_t)folder->file_size - FRAME_HEADER - NOTES_MAX;
        size_t piece = n < most ? n : most;
        if (append(f, folder, kind, offset, bytes, piece, time_ns, e) < 0)
            return -1;
        f->end = offset += piece;
        bytes += piece;
        n -= piece;
    }
    return 0;
}

void log_file_lose(struct log_file *f, uint64_t from, uint64_t to)
{
    if (to <= f->end)
        return;
    if (!f->has_loss)
        f->lost_from = from < f->end ? f->end : from;
    f->has_loss = true;
    f->end = to;
}

int log_file_tell_loss(struct log_file *f, struct log_folder *folder, struct error *e)
{
    return append(f, folder, FRAME_NOTE, f->end, NULL, 0, clock_real_ns(), e);
}

/* ---- beginning ---- */

/* The offset at which a file of this run ends, by its notes; a torn frame at its end is cut off.
 * False: it is none. */
static bool read_end(struct log_file *f, struct log_folder *folder, unsigned generation,
                     uint64_t *end)
{
    char name[NAME_BYTES];
    struct frame_reader r = {0};
    struct frame_head h;
    struct stat st;
    const char *payload;
    uint64_t lost_from, run = 0;
    CLEANUP_FD int fd = openat(folder->fd, name_of(f, generation, name),
                               O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !is_ours(&st) || frame_reader_init(&r, fd) < 0)
        return false;
    *end = 0;
    while (frame_reader_next(&r, &h, &payload) > 0) {
        if (h.kind != FRAME_NOTE)
            *end += h.length;
        else if (!frame_note_offset(payload, h.length, end, &run))
            (void)frame_note_lost(payload, h.length, &lost_from, end);
        if (run != f->run)
            break;
    }
    if (run == f->run && r.position < (uint64_t)st.st_size)
        (void)!ftruncate(fd, (off_t)r.position);
    frame_reader_free(&r);
    return run == f->run;
}

/* Another process had this ID once: its files are not ours. An empty one holds nothing of anybody:
 * a writer that was killed right after it made ID.log has left it, and putting it aside would cost
 * the place of an older file. */
static int clear_old(struct log_file *f, struct log_folder *folder, struct error *e)
{
    char name[NAME_BYTES];
    struct stat st;
    snprintf(name, sizeof name, "%s.exit", f->id);
    (void)unlinkat(folder->fd, name, 0);
    snprintf(name, sizeof name, "%s.pid", f->id);
    (void)unlinkat(folder->fd, name, 0);
    if (fstatat(folder->fd, name_of(f, 0, name), &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        (is_ours(&st) && st.st_size == 0))
        return 0;
    return rotate(f, folder, e);
}

int log_file_begin(struct log_file *f, struct log_folder *folder, uint64_t offset, uint64_t sent,
                   struct error *e)
{
    if (!f->is_settled) {
        uint64_t end = 0;
        if (log_folder_open(folder, e) < 0)
            return -1;
        /* A writer that was killed while it rotated has left no ID.log. */
        bool is_present = read_end(f, folder, 0, &end);
        bool is_known = is_present || read_end(f, folder, 1, &end);
        if (!is_present && clear_old(f, folder, e) < 0)
            return -1;
        f->end = is_known && end > offset && end <= sent ? end : offset;
        f->is_settled = true;
    }
    return log_file_tell_loss(f, folder, e);
}
