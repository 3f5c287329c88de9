#include "sessions/saved_state.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAMILY_SHOWN 24 /* bytes of a shell's name in a message */

int saved_state_begin(struct strbuf *to, const char *family)
{
    return strbuf_addf(to, SAVED_STATE_HEADER "%s\n", family);
}

int saved_state_read(struct strbuf *to, const char *family, int fd, size_t limit, struct error *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return error_set_sys(e, errno, "state: stat");
    if ((uint64_t)st.st_size > limit)
        return error_set(e, ERR_LIMIT, "the state has %lld bytes, text_limit is %zu",
                         (long long)st.st_size, limit);
    char *room = saved_state_begin(to, family) == 0 ? strbuf_reserve(to, (size_t)st.st_size) : NULL;
    if (!room)
        return error_set(e, ERR_MEMORY, "state: no memory");
    ssize_t k = pread(fd, room, (size_t)st.st_size, 0);
    if (k < 0)
        return error_set_sys(e, errno, "state: read");
    to->len += (size_t)k;
    return 0;
}

static bool ends_with(const struct strbuf *bytes, const char *end)
{
    size_t n = strlen(end);
    return bytes->len >= n && memcmp(bytes->data + bytes->len - n, end, n) == 0;
}

int saved_state_check_family(const char *bytes, size_t size, const char *name, const char *family,
                             struct error *e)
{
    static const char header[] = SAVED_STATE_HEADER;
    size_t at = sizeof header - 1;
    if (size <= at || memcmp(bytes, header, at) != 0)
        return error_set(
            e, ERR_INVALID,
            "%s: not a saved session: its first line is not '" SAVED_STATE_HEADER "SHELL'", name);
    const char *written_by = bytes + at;
    const char *line_end = memchr(written_by, '\n', size - at);
    int n = line_end ? (int)(line_end - written_by) : 0;
    if (n <= 0 || n > FAMILY_SHOWN || memchr(written_by, '\0', (size_t)n))
        return error_set(e, ERR_INVALID, "%s: its first line names no shell", name);
    if (!family)
        return 0;
    if ((size_t)n != strlen(family) || memcmp(written_by, family, (size_t)n) != 0)
        return error_set(e, ERR_INVALID,
                         "%s: saved by %.*s, and the shell of the session would be %s: give "
                         "another with --shell",
                         name, n, written_by, family);
    return 0;
}

int saved_state_check(const struct strbuf *bytes, const char *name, const char *family,
                      struct error *e)
{
    if (saved_state_check_family(bytes->data, bytes->len, name, family, e) < 0)
        return -1;
    const char *nul = memchr(bytes->data, '\0', bytes->len);
    if (nul)
        return error_set(e, ERR_INVALID, "%s: NUL byte at offset %zu", name,
                         (size_t)(nul - bytes->data));
    if (!ends_with(bytes, "\n" SAVED_STATE_END))
        return error_set(e, ERR_INVALID, "%s: cut off: its last line is not '# end'", name);
    return 0;
}
