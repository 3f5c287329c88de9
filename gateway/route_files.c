/*
 * GET, HEAD and PUT of a file, and the table of all routes of files. A GET's descriptor comes from
 * the file helper and goes to the socket by sendfile(2); where the helper reads itself (a file
 * system that may hang) its bytes are passed on as they come.
 */
#include "gateway/file_request.h"
#include "gateway/file_routes.h"
#include "gateway/helper_wire.h"
#include "gateway/http_range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- GET ----------------------------------------------------------------------------------- */

struct served {
    int64_t size;
    int64_t mtime_ns, inode;
    char tag[64];
    struct range range;
};

/* The size is the descriptor's, where there is one: that is what will be sent. */
static int look(struct served *s, const char *record, size_t n, int fd)
{
    struct stat st;
    s->size = helper_number(record, n, "size", INT64_MAX, 0);
    s->mtime_ns = helper_number(record, n, "mtime_ns", INT64_MAX, 0);
    s->inode = helper_number(record, n, "inode", INT64_MAX, 0);
    if (fd >= 0) {
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
            return -1;
        s->size = st.st_size;
    }
    snprintf(s->tag, sizeof s->tag, "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"",
             (uint64_t)s->mtime_ns, (uint64_t)s->size, (uint64_t)s->inode);
    s->range = (struct range){0, s->size};
    return 0;
}

/* The status that the request's conditions ask for: 200, 206, 304 or 416. */
static int judge(struct exchange *x, struct served *s, const char *modified)
{
    const char *none = exchange_header(x, "if-none-match"),
               *since = exchange_header(x, "if-modified-since"),
               *same = exchange_header(x, "if-range");
    if (none ? etag_matches(none, s->tag) : since && strcmp(since, modified) == 0)
        return 304;
    if (same && strcmp(same, s->tag) != 0 && strcmp(same, modified) != 0)
        return 200;
    int rc = range_parse(exchange_header(x, "range"), s->size, &s->range);
    return rc > 0 ? 206 : rc < 0 ? 416 : 200;
}

static int add_headers(struct exchange *x, struct served *s)
{
    char modified[HTTP_TIME_SIZE], text[80];
    http_time(s->mtime_ns / 1000000000, modified);
    int status = judge(x, s, modified);
    exchange_add_header(x, "Accept-Ranges", "bytes");
    exchange_add_header(x, "ETag", s->tag);
    exchange_add_header(x, "Last-Modified", modified);
    if (status == 416)
        snprintf(text, sizeof text, "bytes */%" PRId64, s->size);
    else
        snprintf(text, sizeof text, "bytes %" PRId64 "-%" PRId64 "/%" PRId64, s->range.offset,
                 s->range.offset + s->range.length - 1, s->size);
    if (status == 206 || status == 416)
        exchange_add_header(x, "Content-Range", text);
    return status;
}

static void end_read(struct file_request *r)
{
    exchange_end(r->x);
    file_request_free(r);
}

static void on_opened(void *owner, const char *record, size_t n, int fd)
{
    struct file_request *r = owner;
    struct served s;
    if (look(&s, record, n, fd) < 0) {
        close(fd);
        exchange_error(r->x, 502, "exec_transport_error", "read failed: not a regular file");
        file_request_free(r);
        return;
    }
    int status = add_headers(r->x, &s);
    bool has_body = (status == 200 || status == 206) && strcmp(exchange_method(r->x), "HEAD") != 0;
    if (status == 416) {
        exchange_error(r->x, 416, "invalid_request", "the file has %" PRId64 " bytes", s.size);
        file_request_free(r);
    } else {
        exchange_begin(r->x, status, "application/octet-stream", s.range.length);
        if (fd >= 0 && has_body) {
            exchange_end_with_file(r->x, fd, s.range.offset, s.range.length);
            fd = -1;
            file_request_free(r);
        } else if (!has_body || s.range.length == 0) {
            end_read(r);
        } else { /* the helper reads */
            char text[48];
            int k =
                snprintf(text, sizeof text, "%" PRId64 " %" PRId64, s.range.offset, s.range.length);
            r->left = s.range.length;
            file_call_send(r->call, text, (size_t)k);
        }
    }
    if (fd >= 0)
        close(fd);
}

static bool on_read(void *owner, char channel, const char *bytes, size_t n)
{
    struct file_request *r = owner;
    (void)channel;
    r->left -= (int64_t)n; /* more than was announced breaks the connection */
    return exchange_write(r->x, bytes, n);
}

static void answer_not_read(struct file_request *r, const struct error *e)
{
    if (e->sys == ENOENT || e->sys == ENOTDIR)
        exchange_error(r->x, 404, "workspace_read_not_found", "File not found: %s", r->path.data);
    else if (e->sys == EISDIR || e->sys == ENXIO)
        exchange_error(r->x, 404, "workspace_read_not_found", "File not found: %s is %s",
                       r->path.data, e->sys == EISDIR ? "a directory" : "not a regular file");
    else
        file_answer_failed(r->x, "read", "exec_transport_error", e);
}

static void on_read_end(void *owner, const char *record, size_t n, const struct error *e)
{
    struct file_request *r = owner;
    (void)record;
    (void)n;
    r->call = NULL;
    if (r->left == FILE_NOT_BEGUN)
        answer_not_read(r, e ? e : &(struct error){.text = "the file helper gave no answer"});
    else if (e || r->left != 0)
        exchange_cut(r->x);
    else
        exchange_end(r->x);
    file_request_free(r);
}

static void begin_get(struct exchange *x)
{
    static const struct file_events events = {
        .on_begin = on_opened, .on_packet = on_read, .on_end = on_read_end};
    static const struct exchange_events hears = {.on_writable = file_request_writable,
                                                 .on_closed = file_request_closed};
    struct file_request *r = file_request_new(x);
    struct record request = {0};
    if (!r)
        return;
    r->left = FILE_NOT_BEGUN;
    record_str(&request, "op", "open");
    record_str(&request, "path", r->below);
    file_request_begin(r, &request, &events, &hears, "read", "exec_transport_error");
}

/* ---- PUT ----------------------------------------------------------------------------------- */

static void on_body(void *owner, const char *bytes, size_t n)
{
    struct file_request *r = owner;
    if (!file_call_send(r->call, bytes, n))
        exchange_pause_body(r->x);
}

static void on_body_end(void *owner)
{
    file_call_finish(((struct file_request *)owner)->call);
}

static void on_room(void *owner)
{
    exchange_resume_body(((struct file_request *)owner)->x);
}

static void on_put(void *owner, const char *record, size_t n, const struct error *e)
{
    struct file_request *r = owner;
    (void)record;
    (void)n;
    r->call = NULL;
    if (e)
        file_answer_failed(r->x, "write", "workspace_archive_write_error", e);
    else
        exchange_json(r->x, 200, "{\"ok\":true}");
    file_request_free(r);
}

static void begin_put(struct exchange *x)
{
    static const struct file_events events = {.on_writable = on_room, .on_end = on_put};
    static const struct exchange_events hears = {
        .on_body = on_body, .on_body_end = on_body_end, .on_closed = file_request_closed};
    if (exchange_header(x, "content-range")) {
        exchange_error(x, 400, "invalid_request", "a file is put whole: no Content-Range, please");
        return;
    }
    struct file_request *r = file_request_new(x);
    struct record request = {0};
    if (!r)
        return;
    record_str(&request, "op", "put");
    record_str(&request, "path", r->below);
    file_request_begin(r, &request, &events, &hears, "write", "workspace_archive_write_error");
}

/* ---- the table ----------------------------------------------------------------------------- */

const struct route routes_files[] = {
    {.method = "GET", .pattern = "/v1/sandbox/:id/file/*", .begin = begin_get},
    {.method = "PUT",
     .pattern = "/v1/sandbox/:id/file/*",
     .body = BODY_STREAMED,
     .begin = begin_put},
    {.method = "DELETE", .pattern = "/v1/sandbox/:id/file/*", .begin = route_delete_file},
    {.method = "GET", .pattern = "/v1/sandbox/:id/stat/*", .begin = route_stat},
    {.method = "GET", .pattern = "/v1/sandbox/:id/list/*", .begin = route_list},
    {.method = "POST", .pattern = "/v1/sandbox/:id/mkdir/*", .begin = route_mkdir},
    {.method = "POST",
     .pattern = "/v1/sandbox/:id/rename",
     .body = BODY_WHOLE,
     .max_body = (size_t)64 * 1024,
     .begin = route_rename},
    {.method = "GET", .pattern = "/v1/sandbox/:id/watch/*", .begin = route_watch},
    {.method = NULL},
};
