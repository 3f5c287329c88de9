#include "gateway/file_request.h"

#include "base/base64.h"
#include "base/json.h"
#include "gateway/helper_wire.h"
#include "gateway/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- paths --------------------------------------------------------------------------------- */

static const char *workspace_of(struct exchange *x)
{
    return ((struct gateway *)exchange_context(x))->options.workspace;
}

int file_path(struct exchange *x, const char *path, struct strbuf *to, const char **below)
{
    const char *workspace = workspace_of(x);
    int rc = workspace_resolve(workspace, path, to);
    if (rc == -1)
        exchange_error(x, 403, "invalid_request", "path must resolve to a location within %s",
                       workspace);
    else if (rc < 0)
        exchange_error(x, 400, "invalid_request", "path is too long");
    if (rc < 0)
        return -1;
    CLEANUP_STRBUF struct strbuf base = {0};
    if (workspace_resolve(workspace, workspace, &base) < 0 || base.len > to->len) {
        exchange_error(x, 502, "exec_transport_error", "no memory for the path");
        return -1;
    }
    *below = to->data + base.len + strspn(to->data + base.len, "/");
    return 0;
}

static bool has_good_session(struct exchange *x)
{
    const char *id = exchange_header(x, "session-id");
    if (!id || !*id || is_session_id(id))
        return true;
    exchange_error(x, 400, "invalid_request", "Invalid session ID format");
    return false;
}

struct file_request *file_request_new_for(struct exchange *x, const char *path)
{
    if (!has_good_session(x))
        return NULL;
    struct file_request *r = calloc(1, sizeof *r);
    if (!r) {
        exchange_error(x, 502, "exec_transport_error", "no memory for the request");
        return NULL;
    }
    r->x = x;
    r->below = "";
    if (path && file_path(x, path, &r->path, &r->below) < 0) {
        file_request_free(r);
        return NULL;
    }
    return r;
}

struct file_request *file_request_new(struct exchange *x)
{
    const char *raw = exchange_segment(x, "*");
    CLEANUP_STRBUF struct strbuf path = {0};
    if (!*raw) {
        exchange_error(x, 400, "invalid_request", "file path must not be empty");
        return NULL;
    }
    if (strbuf_adds(&path, "/") < 0 || percent_decode(raw, strlen(raw), false, &path) < 0) {
        exchange_error(x, 400, "invalid_request",
                       "path has a percent sign that is no escape, or %%00 in it");
        return NULL;
    }
    return file_request_new_for(x, path.data);
}

void file_request_free(struct file_request *r)
{
    if (!r)
        return;
    file_call_close(r->call);
    strbuf_free(&r->path);
    free(r);
}

void file_request_closed(void *owner)
{
    file_request_free(owner);
}

void file_request_writable(void *owner)
{
    file_call_resume(((struct file_request *)owner)->call);
}

bool file_request_begin(struct file_request *r, struct record *request,
                        const struct file_events *events, const struct exchange_events *hears,
                        const char *what, const char *code)
{
    struct gateway *g = exchange_context(r->x);
    struct error e = {0};
    r->call = files_call(g->files, request, events, r, &e);
    if (r->call) {
        exchange_own(r->x, hears, r);
        return true;
    }
    file_answer_failed(r->x, what, code, &e);
    file_request_free(r);
    return false;
}

/* ---- failures ------------------------------------------------------------------------------ */

void file_answer_failed(struct exchange *x, const char *what, const char *code,
                        const struct error *e)
{
    if (e->sys == EXDEV)
        exchange_error(x, 403, "invalid_request", "path must resolve to a location within %s",
                       workspace_of(x));
    else if (e->code == ERR_STATE) /* the sandbox has been deleted: no second try */
        exchange_error(x, 409, code, "%s failed: %s", what, e->text);
    else
        exchange_failed(x, code, what, e);
}

void file_answer_refused(struct exchange *x, const char *what, const struct error *e)
{
    int status = 0;
    if (e->code == ERR_NOT_FOUND) {
        exchange_error(x, 502, "workspace_unavailable", "%s", e->text);
        return;
    }
    switch (e->sys) {
    case ENOENT:
        exchange_error(x, 404, "workspace_read_not_found", "%s", e->text);
        return;
    case EACCES:
    case EPERM:
    case EROFS:
        status = 403;
        break;
    case EEXIST:
    case ENOTEMPTY:
    case EBUSY:
        status = 409;
        break;
    case EINVAL:
    case EISDIR:
    case ENOTDIR:
    case ENAMETOOLONG:
    case ELOOP:
        status = 400;
        break;
    default:
        file_answer_failed(x, what, "workspace_archive_write_error", e);
        return;
    }
    exchange_error(x, status, "invalid_request", "%s", e->text);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

int file_add_name(struct strbuf *json, const char *key, const char *name)
{
    size_t n = strlen(name);
    if (strbuf_addf(json, ",\"%s\":", key) < 0 || json_add_string(json, name, n) < 0)
        return -1;
    if (utf8_is_valid(name, n))
        return 0;
    if (strbuf_addf(json, ",\"%s_base64\":\"", key) < 0)
        return -1;
    char *to = strbuf_reserve(json, BASE64_SIZE(n));
    if (!to)
        return -1;
    json->len += base64_encode(to, name, n);
    return strbuf_adds(json, "\"");
}

int file_add_record(struct strbuf *json, const char *record, size_t n)
{
    const long long most = INT64_MAX;
    const char *type = record_get(record, n, "type"), *target = record_get(record, n, "target");
    long long ns = helper_number(record, n, "mtime_ns", most, 0);
    if (strbuf_adds(json, ",\"type\":") < 0 ||
        json_add_string(json, type ? type : "", type ? strlen(type) : 0) < 0 ||
        strbuf_addf(json,
                    ",\"size\":%lld,\"mode\":\"%04llo\",\"mtime\":%lld.%03lld,\"uid\":%lld,"
                    "\"gid\":%lld,\"links\":%lld",
                    helper_number(record, n, "size", most, 0),
                    (unsigned long long)helper_number(record, n, "mode", 07777, 0), ns / 1000000000,
                    ns / 1000000 % 1000, helper_number(record, n, "uid", most, 0),
                    helper_number(record, n, "gid", most, 0),
                    helper_number(record, n, "links", most, 1)) < 0)
        return -1;
    return target ? file_add_name(json, "target", target) : 0;
}
