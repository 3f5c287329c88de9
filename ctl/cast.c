#include "ctl/cast.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int cast_open(struct cast *c, const char *path, struct error *e)
{
    *c = (struct cast){.path = path};
    c->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return c->fd < 0 ? error_set_sys(e, errno, "record to %s", path) : 0;
}

/* The first failure ends the recording; the terminal goes on. */
static void put(struct cast *c, struct strbuf *line, int rc)
{
    if (rc < 0)
        error_set(&c->failed, ERR_MEMORY, "record to %s: no memory", c->path);
    else if (fd_write_all(c->fd, line->data, line->len) < 0)
        error_set_sys(&c->failed, errno, "record to %s", c->path);
    strbuf_free(line);
}

static bool is_recording(const struct cast *c)
{
    return c->fd >= 0 && c->failed.code == ERR_NONE;
}

void cast_begin(struct cast *c, struct window size)
{
    struct strbuf line = {0};
    const char *term = getenv("TERM");
    if (!is_recording(c))
        return;
    c->began_ns = clock_mono_ns();
    c->size = size;
    int rc = strbuf_addf(&line, "{\"version\":2,\"width\":%u,\"height\":%u,\"timestamp\":%lld",
                         size.cols, size.rows, (long long)time(NULL));
    if (term && *term)
        rc |= strbuf_adds(&line, ",\"env\":{\"TERM\":") |
              json_add_string(&line, term, strlen(term)) | strbuf_adds(&line, "}");
    put(c, &line, rc | strbuf_adds(&line, "}\n"));
}

static void put_event(struct cast *c, const char *kind, const char *bytes, size_t n)
{
    struct strbuf line = {0};
    uint64_t us = (clock_mono_ns() - c->began_ns) / 1000;
    int rc = strbuf_addf(&line, "[%llu.%06u,\"%s\",", (unsigned long long)(us / 1000000),
                         (unsigned)(us % 1000000), kind);
    rc |= json_add_string(&line, bytes, n) | strbuf_adds(&line, "]\n");
    put(c, &line, rc);
}

/* How many of the last bytes begin a character that is not complete. */
static size_t incomplete(const char *bytes, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char b = (unsigned char)bytes[n - k];
        if ((b & 0xc0) == 0x80)
            continue;
        size_t whole = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : b >= 0xc0 ? 2 : 1;
        return whole > k ? k : 0;
    }
    return 0;
}

void cast_output(struct cast *c, const char *bytes, size_t n)
{
    struct strbuf text = {0};
    if (!is_recording(c) || !c->began_ns)
        return;
    if (strbuf_add(&text, c->rest, c->rest_len) < 0 || strbuf_add(&text, bytes, n) < 0) {
        put(c, &text, -1);
        return;
    }
    c->rest_len = incomplete(strbuf_text(&text), text.len);
    text.len -= c->rest_len;
    memcpy(c->rest, strbuf_text(&text) + text.len, c->rest_len);
    if (text.len > 0)
        put_event(c, "o", text.data, text.len);
    strbuf_free(&text);
}

void cast_resize(struct cast *c, struct window size)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    if (size.rows == c->size.rows && size.cols == c->size.cols)
        return;
    c->size = size;
    if (is_recording(c) && c->began_ns && strbuf_addf(&text, "%ux%u", size.cols, size.rows) == 0)
        put_event(c, "r", text.data, text.len);
}

int cast_close(struct cast *c, struct error *e)
{
    if (c->fd < 0)
        return 0;
    if (is_recording(c) && c->rest_len > 0)
        put_event(c, "o", c->rest, c->rest_len);
    fd_close(&c->fd);
    if (c->failed.code == ERR_NONE)
        return 0;
    *e = c->failed;
    return -1;
}
