/* GET …/watch/…: what happens in a folder and below, as server-sent events. */
#include "base/fd.h"
#include "base/json.h"
#include "gateway/file_request.h"
#include "gateway/file_routes.h"
#include "gateway/helper_wire.h"
#include "gateway/sse.h"

#include <stdlib.h>
#include <string.h>

#define WATCHES_MAX 16 /* at a time: each is a process and many kernel watches */

struct watch {
    struct file_request *r;
    struct sse sse;
};

static unsigned watches; /* under way; the program has one gateway */

static void watch_free(struct watch *v)
{
    sse_drop(&v->sse);
    file_request_free(v->r);
    free(v);
    watches--;
}

/* Send an event of members, which begin with a comma. False: no more until on_writable, or the
 * watch is over. */
static bool send_event(struct watch *v, const char *kind, const struct strbuf *members)
{
    CLEANUP_STRBUF struct strbuf data = {0};
    if (strbuf_addf(&data, "{%s}", members->len > 0 ? members->data + 1 : "") < 0) {
        exchange_cut(v->r->x);
        watch_free(v);
        return false;
    }
    sse_event(&v->sse, kind, NULL, data.data, data.len);
    bool wants_more = sse_flush(&v->sse);
    if (!v->sse.exchange) /* no memory: the answer was cut */
        watch_free(v);
    return wants_more;
}

/* A path below the watched folder as its absolute one. */
static int add_path(struct strbuf *json, struct file_request *r, const char *key, const char *path)
{
    CLEANUP_STRBUF struct strbuf full = {0};
    const char *folder = strcmp(r->path.data, "/") == 0 ? "" : r->path.data;
    if (strbuf_addf(&full, "%s%s%s", folder, *path ? "/" : "", path) < 0)
        return -1;
    return file_add_name(json, key, full.data);
}

/* Kinds as the helper tells them; others are not passed on. */
static const char *known_kind(const char *kind)
{
    static const char *const kinds[] = {"create", "modify", "attributes",
                                        "delete", "move",   "overflow"};
    for (size_t i = 0; kind && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kind, kinds[i]) == 0)
            return kinds[i];
    return NULL;
}

static int add_members(struct strbuf *json, struct file_request *r, const char *record, size_t n)
{
    const char *path = record_get(record, n, "path"), *to = record_get(record, n, "to"),
               *folder = record_get(record, n, "directory");
    if (path && add_path(json, r, to ? "from" : "path", path) < 0)
        return -1;
    if (to && add_path(json, r, "to", to) < 0)
        return -1;
    return folder ? strbuf_addf(json, ",\"directory\":%s",
                                strcmp(folder, "true") == 0 ? "true" : "false")
                  : 0;
}

static void on_begin(void *owner, const char *record, size_t n, int fd)
{
    struct watch *v = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    (void)record;
    (void)n;
    fd_close(&fd); /* none belongs here */
    (void)file_add_name(&json, "path", v->r->path.data);
    send_event(v, "ready", &json);
}

static bool on_row(void *owner, char channel, const char *record, size_t n)
{
    struct watch *v = owner;
    CLEANUP_STRBUF struct strbuf json = {0};
    const char *kind = known_kind(record_get(record, n, "kind"));
    (void)channel;
    if (!kind)
        return true;
    if (add_members(&json, v->r, record, n) == 0)
        return send_event(v, kind, &json);
    exchange_cut(v->r->x);
    watch_free(v);
    return false;
}

static void on_end(void *owner, const char *record, size_t n, const struct error *e)
{
    struct watch *v = owner;
    static const struct error none = {.text = "the file helper gave no answer"};
    CLEANUP_STRBUF struct strbuf json = {0};
    (void)record;
    (void)n;
    e = e ? e : &none;
    v->r->call = NULL;
    if (!v->sse.has_begun) {
        sse_drop(&v->sse);
        file_answer_refused(v->r->x, "watch", e);
    } else if (strbuf_adds(&json, "{\"error\":") == 0 &&
               json_add_string(&json, e->text, strlen(e->text)) == 0 &&
               strbuf_adds(&json, ",\"code\":\"exec_transport_error\"}") == 0) {
        sse_event(&v->sse, "error", NULL, json.data, json.len);
        sse_end(&v->sse);
    }
    watch_free(v);
}

static void on_writable(void *owner)
{
    struct watch *v = owner;
    sse_relieved(&v->sse);
    if (sse_flush(&v->sse))
        file_call_resume(v->r->call);
}

static void on_closed(void *owner)
{
    watch_free(owner);
}

static struct watch *watch_new(struct exchange *x)
{
    struct file_request *r = file_request_new(x);
    struct watch *v = r ? calloc(1, sizeof *v) : NULL;
    if (!v) {
        if (r)
            exchange_error(x, 502, "exec_transport_error", "no memory for the watch");
        file_request_free(r);
        return NULL;
    }
    v->r = r;
    sse_init(&v->sse, x);
    watches++;
    return v;
}

void route_watch(struct exchange *x)
{
    static const struct file_events events = {
        .on_begin = on_begin, .on_packet = on_row, .on_end = on_end};
    static const struct exchange_events hears = {.on_writable = on_writable,
                                                 .on_closed = on_closed};
    struct gateway *g = exchange_context(x);
    struct record request = {0};
    struct error e = {0};
    if (watches >= WATCHES_MAX) {
        exchange_error(x, 503, "capacity_exceeded", "there are %d watches already: end one first",
                       WATCHES_MAX);
        return;
    }
    if (strcmp(exchange_method(x), "HEAD") == 0) {
        exchange_add_header(x, "Cache-Control", "no-cache");
        exchange_begin(x, 200, "text/event-stream", -1);
        exchange_end(x);
        return;
    }
    struct watch *v = watch_new(x);
    if (!v)
        return;
    record_str(&request, "op", "watch");
    record_str(&request, "path", v->r->below);
    v->r->call = files_call(g->files, &request, &events, v, &e);
    if (v->r->call) {
        exchange_own(x, &hears, v);
        exchange_follow(x);
        return;
    }
    sse_drop(&v->sse);
    exchange_failed(x, "exec_transport_error", "watch", &e);
    watch_free(v);
}
