#include "sessions/segment.h"
#include "base/fd.h"
#include "base/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define HOLE_BYTES ((uint64_t)64 * 1024) /* less is not worth a call */

int segment_open(struct segment *s, uint64_t start, uint64_t capacity)
{
    int fd = memfd_create("sandbox-output", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    *s = (struct segment){.fd = fd};
    segment_reopen(s, start, capacity);
    return 0;
}

void segment_reopen(struct segment *s, uint64_t start, uint64_t capacity)
{
    int fd = s->fd;
    if (s->size > capacity)
        (void)!ftruncate(fd, (off_t)capacity);
    *s = (struct segment){.fd = fd, .start = start, .end = start};
    s->mark_step = capacity / SEGMENT_MARKS + 1;
}

void segment_close(struct segment *s)
{
    fd_close(&s->fd);
    *s = (struct segment){.fd = -1};
}

static void index_frame(struct segment *s)
{
    uint64_t due = s->mark_count ? s->marks[s->mark_count - 1].position + s->mark_step : 0;
    if (s->mark_count < SEGMENT_MARKS && s->size >= due)
        s->marks[s->mark_count++] = (struct segment_mark){.offset = s->end, .position = s->size};
}

int segment_append(struct segment *s, enum stream stream, const char *bytes, size_t n,
                   uint64_t time_ns)
{
    unsigned char head[FRAME_HEADER];
    frame_encode(head,
                 &(struct frame_head){.kind = stream == STREAM_STDOUT ? FRAME_STDOUT : FRAME_STDERR,
                                      .length = (uint32_t)n,
                                      .time_ns = time_ns});
    struct iovec parts[2] = {{.iov_base = head, .iov_len = sizeof head},
                             {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n}};
    ssize_t k = pwritev(s->fd, parts, 2, (off_t)s->size);
    if (k != (ssize_t)(sizeof head + n)) {
        int saved = k < 0 ? errno : ENOSPC;
        (void)!ftruncate(s->fd, (off_t)s->size);
        errno = saved;
        return -1;
    }
    index_frame(s);
    s->size += sizeof head + n;
    s->end += n;
    s->last_ns = time_ns;
    return 0;
}

/* Read the header at a file position. */
static int frame_at(const struct segment *s, uint64_t position, uint64_t offset, struct frame *f)
{
    unsigned char head[FRAME_HEADER];
    struct frame_head h;
    if (position >= s->size || pread(s->fd, head, sizeof head, (off_t)position) != sizeof head ||
        frame_decode(head, &h) < 0)
        return -1;
    f->stream = h.kind == FRAME_STDOUT ? STREAM_STDOUT : STREAM_STDERR;
    f->length = h.length;
    f->time_ns = h.time_ns;
    f->offset = offset;
    f->position = position + FRAME_HEADER;
    return 0;
}

int segment_next(const struct segment *s, struct frame *f)
{
    return frame_at(s, f->position + f->length, f->offset + f->length, f);
}

/* Give memory in front of the first frame back, up to a mark: a search begins at marks. */
static void punch(struct segment *s)
{
    uint64_t to = 0;
    for (unsigned i = 0; i < s->mark_count && s->marks[i].offset <= s->start; i++)
        to = s->marks[i].position;
    if (to < s->hole + HOLE_BYTES)
        return;
    (void)fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)to);
    s->hole = to;
}

uint64_t segment_expire(struct segment *s, uint64_t before_ns, uint64_t until, unsigned *budget)
{
    struct frame f;
    uint64_t first_ns = 0;
    if (s->last_ns < before_ns && s->end <= until)
        s->start = s->end;
    while (s->start < s->end) {
        if (frame_at(s, s->first, s->start, &f) < 0) {
            s->start = s->end;
            break;
        }
        first_ns = f.time_ns;
        if (first_ns >= before_ns || s->start + f.length > until || *budget == 0)
            break;
        s->start += f.length;
        s->first += FRAME_HEADER + f.length;
        (*budget)--;
    }
    if (s->start == s->end)
        return 0;
    punch(s);
    return first_ns;
}

int segment_find(const struct segment *s, uint64_t offset, struct frame *f)
{
    unsigned lo = 0, hi = s->mark_count;
    while (hi - lo > 1) {
        unsigned mid = (lo + hi) / 2;
        if (s->marks[mid].offset <= offset)
            lo = mid;
        else
            hi = mid;
    }
    if (s->mark_count == 0 || frame_at(s, s->marks[lo].position, s->marks[lo].offset, f) < 0)
        return -1;
    while (offset >= f->offset + f->length)
        if (segment_next(s, f) < 0)
            return -1;
    return 0;
}
