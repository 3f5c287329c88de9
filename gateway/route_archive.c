/*
 * persist and hydrate: the workspace as a tar, streamed both ways. The tar is made and read by a
 * worker of the file helper; nothing is collected here.
 */
#include "base/fd.h"
#include "gateway/file_request.h"
#include "gateway/helper_wire.h"

#include <string.h>

/* ---- persist ------------------------------------------------------------------------------- */

/* The patterns of ?excludes=a,b as GNU tar would get them. -1: x was answered. */
static int add_excludes(struct exchange *x, struct record *request)
{
    CLEANUP_STRBUF struct strbuf list = {0}, pattern = {0};
    int rc = exchange_parameter(x, "excludes", &list);
    if (rc < 0) {
        exchange_error(x, 400, "invalid_request", "excludes cannot be decoded");
        return -1;
    }
    char *save = NULL;
    for (char *part = rc ? strtok_r(list.data, ",", &save) : NULL; part;
         part = strtok_r(NULL, ",", &save)) {
        if (strstr(part, "..")) {
            exchange_error(x, 400, "invalid_request", "exclude paths must not contain \"..\"");
            return -1;
        }
        part += strncmp(part, "./", 2) == 0 ? 2 : 0;
        if (!*part)
            continue;
        strbuf_clear(&pattern);
        if (strbuf_adds(&pattern, "./") < 0 || strbuf_adds(&pattern, part) < 0)
            request->is_broken = true;
        else
            record_str(request, "exclude", pattern.data);
    }
    return 0;
}

static void on_archive(void *owner, const char *record, size_t n, int fd)
{
    struct file_request *r = owner;
    (void)record;
    (void)n;
    fd_close(&fd); /* none belongs here */
    r->left = 0;
    exchange_begin(r->x, 200, "application/octet-stream", -1);
}

static bool on_tar(void *owner, char channel, const char *bytes, size_t n)
{
    (void)channel;
    return exchange_write(((struct file_request *)owner)->x, bytes, n);
}

static void on_archived(void *owner, const char *record, size_t n, const struct error *e)
{
    struct file_request *r = owner;
    (void)record;
    (void)n;
    r->call = NULL;
    if (r->left == FILE_NOT_BEGUN && e && strncmp(e->text, "tar: ", 5) == 0)
        exchange_error(r->x, 502, "workspace_archive_read_error", "tar failed (exit 2): %s",
                       e->text);
    else if (r->left == FILE_NOT_BEGUN)
        exchange_error(r->x, 502, "workspace_archive_read_error", "persist failed: %s",
                       e ? e->text : "the file helper gave no answer");
    else if (e)
        exchange_cut(r->x);
    else
        exchange_end(r->x);
    file_request_free(r);
}

static void begin_persist(struct exchange *x)
{
    static const struct file_events events = {
        .on_begin = on_archive, .on_packet = on_tar, .on_end = on_archived};
    static const struct exchange_events hears = {.on_writable = file_request_writable,
                                                 .on_closed = file_request_closed};
    struct record request = {0};
    record_str(&request, "op", "archive");
    struct file_request *r = add_excludes(x, &request) < 0 ? NULL : file_request_new_for(x, NULL);
    if (!r) {
        record_free(&request);
        return;
    }
    r->left = FILE_NOT_BEGUN;
    file_request_begin(r, &request, &events, &hears, "persist", "workspace_archive_read_error");
}

/* ---- hydrate ------------------------------------------------------------------------------- */

static void on_extracted(void *owner, const char *record, size_t n, const struct error *e)
{
    struct file_request *r = owner;
    (void)record;
    (void)n;
    r->call = NULL;
    if (e && strncmp(e->text, "tar: ", 5) == 0)
        exchange_error(r->x, 502, "workspace_archive_write_error",
                       "tar extract failed (exit 2): %s", e->text);
    else if (e)
        file_answer_failed(r->x, "hydrate", "workspace_archive_write_error", e);
    else
        exchange_json(r->x, 200, "{\"ok\":true}");
    file_request_free(r);
}

static void on_room(void *owner)
{
    exchange_resume_body(((struct file_request *)owner)->x);
}

static void on_body(void *owner, const char *bytes, size_t n)
{
    struct file_request *r = owner;
    r->left += (int64_t)n;
    if (!file_call_send(r->call, bytes, n))
        exchange_pause_body(r->x);
}

static void on_body_end(void *owner)
{
    struct file_request *r = owner;
    if (r->left > 0) {
        file_call_finish(r->call);
        return;
    }
    exchange_error(r->x, 400, "invalid_request", "Empty tar payload");
    file_request_free(r);
}

static void begin_hydrate(struct exchange *x)
{
    static const struct file_events events = {.on_writable = on_room, .on_end = on_extracted};
    static const struct exchange_events hears = {
        .on_body = on_body, .on_body_end = on_body_end, .on_closed = file_request_closed};
    struct record request = {0};
    if (exchange_length(x) == 0) {
        exchange_error(x, 400, "invalid_request", "Empty tar payload");
        return;
    }
    struct file_request *r = file_request_new_for(x, NULL);
    if (!r)
        return;
    record_str(&request, "op", "extract");
    file_request_begin(r, &request, &events, &hears, "hydrate", "workspace_archive_write_error");
}

static void on_too_large(struct exchange *x, uint64_t length, uint64_t limit)
{
    exchange_error(x, 400, "invalid_request",
                   "tar payload too large: %llu bytes exceeds the %llu-byte limit",
                   (unsigned long long)length, (unsigned long long)limit);
}

const struct route routes_archive[] = {
    {.method = "POST", .pattern = "/v1/sandbox/:id/persist", .begin = begin_persist},
    {.method = "POST",
     .pattern = "/v1/sandbox/:id/hydrate",
     .body = BODY_STREAMED,
     .too_large = on_too_large,
     .begin = begin_hydrate},
    {.method = NULL},
};
