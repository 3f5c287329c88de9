#include "ctl/output.h"

#include "ctl/ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether output on stdout, on stderr stands in the middle of a line. */
static bool is_amid_line[STDERR_FILENO + 1];

/* Both lead to one terminal, file or pipe. */
static bool is_same_place(void)
{
    struct stat out, err;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

static void note_written(int fd, const char *bytes, size_t n)
{
    is_amid_line[fd] = bytes[n - 1] != '\n';
    if (is_same_place()) /* what came last counts, on whichever */
        is_amid_line[STDOUT_FILENO] = is_amid_line[STDERR_FILENO] = is_amid_line[fd];
}

void output_say(const char *fmt, ...)
{
    va_list ap;
    if (is_amid_line[STDERR_FILENO])
        fputc('\n', stderr);
    is_amid_line[STDERR_FILENO] = false;
    if (is_same_place())
        is_amid_line[STDOUT_FILENO] = false;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
}

int output_write(int fd, const char *bytes, size_t n, void (*on_turn)(void *), void *context)
{
    while (n > 0) {
        if (on_turn)
            on_turn(context);
        ssize_t k = write(fd, bytes, n);
        if (k > 0)
            note_written(fd, bytes, (size_t)k);
        if (k >= 0) {
            bytes += k;
            n -= (size_t)k;
        } else if (errno == EAGAIN) { /* somebody made our stdout non-blocking */
            usleep(1000);
        } else if (errno == EPIPE) {
            return CTL_PIPE;
        } else if (errno != EINTR) {
            fprintf(stderr, "sandboxctl: %s: %s\n", fd == STDOUT_FILENO ? "stdout" : "stderr",
                    strerror(errno));
            return CTL_REFUSED;
        }
    }
    return 0;
}

/* Add a part of a line; a line that finds no memory goes out as it is, broken in two. */
static int add_part(struct labeller *l, const char *bytes, size_t n)
{
    if (l->line.len == 0)
        (void)strbuf_adds(&l->line, l->label);
    if (strbuf_add(&l->line, bytes, n) == 0)
        return 0;
    int code = labeller_end(l);
    if (code != 0)
        return code;
    code = output_write(STDOUT_FILENO, l->label, strlen(l->label), NULL, NULL);
    return code ? code : output_write(STDOUT_FILENO, bytes, n, NULL, NULL);
}

int labeller_add(struct labeller *l, const char *bytes, size_t n)
{
    CLEANUP_STRBUF struct strbuf lines = {0}; /* one write for all lines of a packet */
    while (n > 0) {
        const char *end = memchr(bytes, '\n', n);
        size_t part = end ? (size_t)(end - bytes) + 1 : n;
        int code = add_part(l, bytes, part);
        if (code != 0)
            return code;
        if (end && strbuf_add(&lines, strbuf_text(&l->line), l->line.len) < 0)
            code = output_write(STDOUT_FILENO, strbuf_text(&l->line), l->line.len, NULL, NULL);
        if (code != 0)
            return code;
        if (end)
            strbuf_clear(&l->line);
        bytes += part;
        n -= part;
    }
    return output_write(STDOUT_FILENO, strbuf_text(&lines), lines.len, NULL, NULL);
}

int labeller_end(struct labeller *l)
{
    int code = 0;
    if (l->line.len > 0 && strbuf_adds(&l->line, "\n") == 0)
        code = output_write(STDOUT_FILENO, l->line.data, l->line.len, NULL, NULL);
    else if (l->line.len > 0)
        code = output_write(STDOUT_FILENO, l->line.data, l->line.len, NULL, NULL);
    strbuf_free(&l->line);
    return code;
}
