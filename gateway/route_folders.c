/* Routes of files beyond the contract: list, stat, mkdir, rename, delete. */
#include "gateway/file_request.h"
#include "gateway/file_routes.h"
#include "gateway/helper_wire.h"
#include "gateway/json_body.h"

#include "base/fd.h"

#include <stdlib.h>
#include <string.h>

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void no_memory(struct file_request *r)
{
    exchange_error(r->x, 502, "exec_transport_error", "no memory for the answer");
}

/* True if a parameter is there and says yes. */
static bool has_flag(struct exchange *x, const char *name)
{
    CLEANUP_STRBUF struct strbuf value = {0};
    return exchange_parameter(x, name, &value) == 1 &&
           (strcmp(strbuf_text(&value), "1") == 0 || strcmp(strbuf_text(&value), "true") == 0);
}

/* ---- one answer ---------------------------------------------------------------------------- */

static const struct exchange_events hears = {.on_closed = file_request_closed};

static void begin(struct file_request *r, struct record *request, const struct file_events *events,
                  const char *what)
{
    file_request_begin(r, request, events, &hears, what, "exec_transport_error");
}

/* A request for op about the path of x; NULL: x was answered. */
static struct file_request *prepare(struct exchange *x, const char *op, struct record *request)
{
    struct file_request *r = file_request_new(x);
    if (!r)
        return NULL;
    record_str(request, "op", op);
    record_str(request, "path", r->below);
    return r;
}

static void on_changed(void *owner, const char *record, size_t n, const struct error *e)
{
    struct file_request *r = owner;
    const char *made = e ? NULL : record_get(record, n, "made");
    r->call = NULL;
    if (e)
        file_answer_refused(r->x, "change", e);
    else if (made)
        exchange_json(r->x, 200,
                      strcmp(made, "true") == 0 ? "{\"ok\":true,\"created\":true}"
                                                : "{\"ok\":true,\"created\":false}");
    else
        exchange_json(r->x, 200, "{\"ok\":true}");
    file_request_free(r);
}

static const struct file_events changes = {.on_end = on_changed};

void route_mkdir(struct exchange *x)
{
    struct record request = {0};
    struct file_request *r = prepare(x, "mkdir", &request);
    if (r)
        begin(r, &request, &changes, "mkdir");
}

void route_delete_file(struct exchange *x)
{
    struct record request = {0};
    struct file_request *r = prepare(x, "delete", &request);
    if (!r)
        return;
    if (has_flag(x, "recursive"))
        record_str(&request, "recursive", "1");
    begin(r, &request, &changes, "delete");
}

/* ---- stat ---------------------------------------------------------------------------------- */

static void on_stat(void *owner, const char *record, size_t n, const struct error *e)
{
    struct file_request *r = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    r->call = NULL;
    if (e)
        file_answer_refused(r->x, "stat", e);
    else if (strbuf_adds(&json, "{\"ok\":true") < 0 ||
             file_add_name(&json, "path", r->path.data) < 0 ||
             file_add_name(&json, "name", name_of(r->path.data)) < 0 ||
             file_add_record(&json, record, n) < 0 || strbuf_adds(&json, "}") < 0)
        no_memory(r);
    else
        exchange_json(r->x, 200, json.data);
    file_request_free(r);
}

void route_stat(struct exchange *x)
{
    static const struct file_events events = {.on_end = on_stat};
    struct record request = {0};
    struct file_request *r = prepare(x, "stat", &request);
    if (!r)
        return;
    if (has_flag(x, "follow"))
        record_str(&request, "follow", "1");
    begin(r, &request, &events, "stat");
}

/* ---- rename -------------------------------------------------------------------------------- */

/* Standard base64 to bytes without NUL. 0 or -1. */
static int decode_base64(const char *text, struct strbuf *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = strlen(text);
    unsigned bits = 0, have = 0;
    if (n % 4 != 0)
        return -1;
    while (n > 0 && text[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        const char *at = strchr(digits, text[i]);
        if (!at)
            return -1;
        bits = bits << 6 | (unsigned)(at - digits);
        have += 6;
        if (have < 8)
            continue;
        have -= 8;
        char c = (char)(bits >> have & 255);
        if (c == '\0' || strbuf_add(to, &c, 1) < 0)
            return -1;
    }
    return 0;
}

/* The path under a key of the body, or under key_base64. 0, or -1: x was answered. */
static int take_path(struct exchange *x, const json_t *body, const char *key, struct strbuf *to,
                     const char **below)
{
    char key64[24];
    CLEANUP_STRBUF struct strbuf bytes = {0};
    const json_t *plain = json_object_get(body, key);
    snprintf(key64, sizeof key64, "%s_base64", key);
    const char *coded = json_string_value(json_object_get(body, key64));
    const char *path = NULL;
    if (json_is_string(plain) && strlen(json_string_value(plain)) == json_string_length(plain))
        path = json_string_value(plain);
    else if (!plain && coded && decode_base64(coded, &bytes) == 0)
        path = strbuf_text(&bytes);
    if (!path || !*path) {
        exchange_error(x, 400, "invalid_request", "%s must be a path, or %s its bytes", key, key64);
        return -1;
    }
    return file_path(x, path, to, below);
}

static struct file_request *prepare_rename(struct exchange *x, const json_t *body,
                                           struct record *request)
{
    CLEANUP_STRBUF struct strbuf to = {0};
    const char *to_below = NULL;
    struct file_request *r = file_request_new_for(x, NULL);
    if (!r)
        return NULL;
    if (take_path(x, body, "from", &r->path, &r->below) < 0 ||
        take_path(x, body, "to", &to, &to_below) < 0) {
        file_request_free(r);
        return NULL;
    }
    record_str(request, "op", "rename");
    record_str(request, "path", r->below);
    record_str(request, "to", to_below);
    if (json_is_false(json_object_get(body, "replace")))
        record_str(request, "keep", "1");
    return r;
}

void route_rename(struct exchange *x)
{
    size_t n;
    const char *text = exchange_body(x, &n);
    struct record request = {0};
    json_t *body = json_body_parse(text, n);
    if (!json_is_object(body)) {
        exchange_error(x, 400, "invalid_request", "Invalid JSON body");
        json_decref(body);
        return;
    }
    struct file_request *r = prepare_rename(x, body, &request);
    json_decref(body);
    if (r)
        begin(r, &request, &changes, "rename");
}

/* ---- list ---------------------------------------------------------------------------------- */

static void on_list(void *owner, const char *record, size_t n, int fd)
{
    struct file_request *r = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    (void)record;
    (void)n;
    fd_close(&fd); /* none belongs here */
    r->left = 0;
    if (strbuf_adds(&json, "{\"ok\":true") < 0 || file_add_name(&json, "path", r->path.data) < 0 ||
        strbuf_adds(&json, ",\"entries\":[") < 0) {
        no_memory(r);
        file_request_free(r);
        return;
    }
    exchange_begin(r->x, 200, "application/json", -1);
    exchange_write(r->x, json.data, json.len);
}

static bool on_entry(void *owner, char channel, const char *record, size_t n)
{
    struct file_request *r = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    const char *name = record_get(record, n, "name");
    (void)channel;
    /* the first member begins with a comma: the opening brace goes over it */
    if (file_add_name(&json, "name", name ? name : "") < 0 ||
        file_add_record(&json, record, n) < 0 || strbuf_adds(&json, "}") < 0) {
        exchange_cut(r->x);
        file_request_free(r);
        return false;
    }
    json.data[0] = '{';
    if (r->left++ > 0)
        exchange_write(r->x, ",", 1);
    return exchange_write(r->x, json.data, json.len);
}

static void on_listed(void *owner, const char *record, size_t n, const struct error *e)
{
    struct file_request *r = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    const char *next = e ? NULL : record_get(record, n, "next");
    r->call = NULL;
    if (r->left == FILE_NOT_BEGUN)
        file_answer_refused(r->x, "list",
                            e ? e : &(struct error){.text = "the file helper gave no answer"});
    else if (e || strbuf_adds(&json, "]") < 0 || (next && file_add_name(&json, "next", next) < 0) ||
             strbuf_adds(&json, "}") < 0)
        exchange_cut(r->x);
    else {
        exchange_write(r->x, json.data, json.len);
        exchange_end(r->x);
    }
    file_request_free(r);
}

/* limit and after into the request. -1: x was answered. */
static int add_page(struct exchange *x, struct record *request)
{
    CLEANUP_STRBUF struct strbuf limit = {0}, after = {0};
    int has_limit = exchange_parameter(x, "limit", &limit);
    int has_after = exchange_parameter(x, "after", &after);
    const char *digits = strbuf_text(&limit);
    if (has_after < 0 || has_limit < 0 ||
        (has_limit && (!*digits || strspn(digits, "0123456789") != limit.len || limit.len > 6 ||
                       strspn(digits, "0") == limit.len))) {
        exchange_error(x, 400, "invalid_request", "limit must be 1 to 999999");
        return -1;
    }
    if (has_limit)
        record_str(request, "limit", digits);
    if (has_after)
        record_str(request, "after", strbuf_text(&after));
    return 0;
}

void route_list(struct exchange *x)
{
    static const struct file_events events = {
        .on_begin = on_list, .on_packet = on_entry, .on_end = on_listed};
    static const struct exchange_events list_hears = {.on_writable = file_request_writable,
                                                      .on_closed = file_request_closed};
    struct record request = {0};
    struct file_request *r = add_page(x, &request) < 0 ? NULL : prepare(x, "list", &request);
    if (!r) {
        record_free(&request);
        return;
    }
    r->left = FILE_NOT_BEGUN;
    file_request_begin(r, &request, &events, &list_hears, "list", "exec_transport_error");
}
