/*
 * Mounts: POST …/mount makes a bucket a folder, by s3fs if the image has it; …/unmount ends that.
 * s3fs is an aide (aide.h), named by its path's hash. It runs in the foreground, so that it is
 * supervised, and unmounts at SIGTERM. The credentials stand in the environment of that one
 * process: an argv can be read by everybody.
 */
#include "gateway/aide.h"
#include "gateway/gateway.h"
#include "gateway/gather.h"
#include "gateway/mount_request.h"
#include "gateway/mount_table.h"
#include "gateway/port_routes.h"

#include "base/hash.h"
#include "control/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOUNT_READY_S    30. /* until it is mounted */
#define MOUNT_LOOK_S     0.05
#define MOUNT_END_S      3. /* for s3fs to say why it does not work */
#define UNMOUNT_GRACE_MS 10000

struct mount {
    struct exchange *x;
    struct ev_loop *loop;
    struct aide *aide;
    struct gateway *gateway;
    struct cleaning *cleaning;
    struct gather *entering; /* it is mounted: does it answer? */
    bool is_dead;            /* it does not */
    ev_timer look;           /* is it mounted? */
    double waited_s;
    struct mount_request request;
    const char *code, *what; /* of errors */
};

/* ---- ends -------------------------------------------------------------------------------- */

static struct exchange *mount_free(struct mount *m)
{
    struct exchange *x = m->x;
    ev_timer_stop(m->loop, &m->look);
    aide_close(m->aide);
    cleaning_close(m->cleaning);
    gather_close(m->entering);
    mount_request_free(&m->request);
    free(m);
    return x;
}

static void mount_fail(struct mount *m, const char *why)
{
    const char *code = m->code, *what = m->what;
    exchange_error(mount_free(m), 502, code, "%s failed: %s", what, why);
}

static void mount_done(struct mount *m)
{
    exchange_json(mount_free(m), 200, "{\"ok\":true}");
}

static void on_mount_failed(void *owner, const struct error *e)
{
    mount_fail(owner, e->text);
}

static void on_mount_closed(void *owner)
{
    (void)mount_free(owner); /* what has begun goes on */
}

static const struct exchange_events mount_exchange_events = {.on_closed = on_mount_closed};

/* ---- mounting ---------------------------------------------------------------------------- */

/* $1 the bucket, $2 where, then s3fs's options. */
static const char mount_script[] =
    "command -v s3fs >/dev/null 2>&1 || {"
    " echo \"a mount needs the program s3fs in the image's PATH\" >&2; exit 127; }\n"
    "mkdir -p -- \"$2\" && exec s3fs \"$@\"";

static void add_option(struct client_request *q, const char *name, const char *value)
{
    CLEANUP_STRBUF struct strbuf option = {0};
    if (strbuf_adds(&option, name) < 0 || strbuf_adds(&option, value) < 0)
        q->is_broken = true;
    client_request_add(q, "arg", "-o");
    client_request_add(q, "arg", strbuf_text(&option));
}

/* The older and the newer name of the same thing: which one s3fs reads depends on its version. */
static void add_secret(struct client_request *q, const char *older, const char *newer,
                       const char *value)
{
    const char *names[] = {older, newer};
    for (size_t i = 0; i < 2; i++) {
        CLEANUP_STRBUF struct strbuf env = {0};
        if (strbuf_addf(&env, "%s=%s", names[i], value) < 0)
            q->is_broken = true;
        client_request_add(q, "env", strbuf_text(&env));
    }
}

static void add_options(struct client_request *q, const struct mount_request *r)
{
    if (*r->endpoint)
        add_option(q, "url=", r->endpoint);
    add_option(q, "use_path_request_style", "");
    if (r->is_read_only)
        add_option(q, "ro", "");
    if (!r->key_id)
        add_option(q, "public_bucket=1", "");
    for (size_t i = 0; i < json_array_size(r->s3fs_options); i++)
        add_option(q, json_string_value(json_array_get(r->s3fs_options, i)), "");
    if (!r->key_id)
        return;
    add_secret(q, "AWSACCESSKEYID", "AWS_ACCESS_KEY_ID", r->key_id);
    add_secret(q, "AWSSECRETACCESSKEY", "AWS_SECRET_ACCESS_KEY", r->secret);
}

static int mount_start(struct mount *m, struct error *e)
{
    const struct mount_request *r = &m->request;
    CLEANUP_STRBUF struct strbuf bucket = {0};
    struct client_request q;
    bool has_prefix = r->prefix && *r->prefix;
    client_request_init(&q, "start");
    if (strbuf_adds(&bucket, r->bucket) < 0 ||
        (has_prefix && strbuf_adds(&bucket, *r->prefix == '/' ? ":" : ":/") < 0) ||
        (has_prefix && strbuf_adds(&bucket, r->prefix) < 0))
        q.is_broken = true;
    const char *argv[] = {
        "/bin/sh", "-c", mount_script, "s3fs", strbuf_text(&bucket), strbuf_text(&r->path), "-f"};
    for (size_t i = 0; i < sizeof argv / sizeof argv[0]; i++)
        client_request_add(&q, "arg", argv[i]);
    add_options(&q, r);
    return aide_start(m->aide, &q, e);
}

static void on_mount_found(void *owner, bool is_live, uint64_t uptime_ms)
{
    struct mount *m = owner;
    struct error e = {0};
    char why[256];
    const char *path = strbuf_text(&m->request.path);
    (void)uptime_ms;
    if (is_live || is_mount_point(path)) {
        snprintf(why, sizeof why, "Mount path already in use: %.200s", path);
        mount_fail(m, why);
    } else if (mount_start(m, &e) < 0) {
        mount_fail(m, e.text);
    }
}

/* s3fs mounts first and asks for the bucket then: one that it cannot have is mounted for a moment.
 * Who looks into a folder of FUSE meanwhile waits until that is settled. */
static void on_entered(void *owner, const struct gathered *all)
{
    struct mount *m = owner;
    const char *path = strbuf_text(&m->request.path);
    const char *status = all->result ? record_get(all->result, all->result_len, "status") : NULL;
    m->entering = NULL;
    if (status && strcmp(status, "0") == 0 && is_mount_point(path)) {
        mounts_note(m->gateway, path);
        mount_done(m);
        return;
    }
    m->is_dead = true; /* why, s3fs says as it ends */
    m->waited_s = MOUNT_READY_S - MOUNT_END_S;
    ev_timer_again(m->loop, &m->look);
}

static void enter(struct mount *m)
{
    struct error e = {0};
    struct client_request q;
    const char *argv[] = {"/bin/sh", "-c", "test -e \"$1\"", "sh", strbuf_text(&m->request.path)};
    client_request_init(&q, "exec");
    client_request_add(&q, "timeout_ms", "20000");
    for (size_t i = 0; i < sizeof argv / sizeof argv[0]; i++)
        client_request_add(&q, "arg", argv[i]);
    ev_timer_stop(m->loop, &m->look);
    m->entering = gather_open(m->gateway->upstream, &q, on_entered, m, &e);
    if (!m->entering)
        mount_fail(m, e.text);
}

static void on_mount_look(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct mount *m = w->data;
    struct error e = {0};
    m->waited_s += MOUNT_LOOK_S;
    if (!m->is_dead && is_mount_point(strbuf_text(&m->request.path))) {
        enter(m);
    } else if (m->waited_s >= MOUNT_READY_S) {
        ev_timer_stop(m->loop, &m->look);
        if (aide_kill(m->aide, UNMOUNT_GRACE_MS, &e) < 0)
            mount_fail(m, e.text);
    }
}

static void on_mount_late(void *owner)
{
    const struct mount *m = owner;
    mount_fail(owner, m->is_dead ? "s3fs mounted it, but it does not answer"
                                 : "s3fs did not mount it in time");
}

static void on_mount_ended(void *owner, const char *last_line)
{
    mount_fail(owner, *last_line ? last_line : "s3fs ended without a word");
}

static void on_mount_started(void *owner)
{
    struct mount *m = owner;
    struct error e = {0};
    ev_now_update(m->loop);
    ev_timer_start(m->loop, &m->look);
    if (aide_follow(m->aide, &e) < 0)
        mount_fail(m, e.text);
}

static const struct aide_events mount_events = {.on_found = on_mount_found,
                                                .on_started = on_mount_started,
                                                .on_ended = on_mount_ended,
                                                .on_killed = on_mount_late,
                                                .on_failed = on_mount_failed};

/* ---- unmounting -------------------------------------------------------------------------- */

static void on_cleaned(void *owner)
{
    struct mount *m = owner;
    m->cleaning = NULL;
    if (is_mount_point(strbuf_text(&m->request.path)))
        mount_fail(m, "s3fs has ended, but the path is still a mount");
    else
        mount_done(m);
}

static void on_unmount_killed(void *owner)
{
    struct mount *m = owner;
    struct error e = {0};
    m->cleaning = mounts_clean(m->gateway, strbuf_text(&m->request.path), on_cleaned, m, &e);
    if (!m->cleaning)
        mount_fail(m, e.text);
}

static void on_unmount_found(void *owner, bool is_live, uint64_t uptime_ms)
{
    struct mount *m = owner;
    struct error e = {0};
    const char *path = strbuf_text(&m->request.path);
    (void)uptime_ms;
    if (!is_live && is_left_mount(m->gateway, path)) { /* its s3fs was killed */
        on_unmount_killed(m);
    } else if (!is_live) {
        CLEANUP_STRBUF struct strbuf why = {0};
        (void)strbuf_addf(&why, "No active mount found at path: %s", path);
        mount_fail(m, strbuf_text(&why));
    } else if (aide_kill(m->aide, UNMOUNT_GRACE_MS, &e) < 0) {
        mount_fail(m, e.text);
    }
}

static const struct aide_events unmount_events = {
    .on_found = on_unmount_found, .on_killed = on_unmount_killed, .on_failed = on_mount_failed};

/* ---- the requests ------------------------------------------------------------------------ */

/* NULL: x was answered. */
static struct mount *mount_new(struct exchange *x, const char *code, const char *what,
                               const char *(*parse)(const char *, size_t, struct mount_request *))
{
    size_t n;
    const char *body = exchange_body(x, &n);
    struct mount *m = calloc(1, sizeof *m);
    if (!m) {
        exchange_error(x, 502, code, "%s failed: no memory", what);
        return NULL;
    }
    m->x = x;
    m->gateway = exchange_context(x);
    m->code = code;
    m->what = what;
    m->loop = exchange_loop(x);
    ev_timer_init(&m->look, on_mount_look, MOUNT_LOOK_S, MOUNT_LOOK_S);
    m->look.data = m;
    const char *wrong = parse(body, n, &m->request);
    if (wrong) {
        (void)mount_free(m);
        exchange_error(x, 400, "invalid_request", "%s", wrong);
        return NULL;
    }
    exchange_own(x, &mount_exchange_events, m);
    return m;
}

static void mount_find(struct mount *m, const struct aide_events *events)
{
    struct error e = {0};
    char name[40];
    snprintf(name, sizeof name, "mount-%016llx",
             (unsigned long long)hash_add(HASH_START, m->request.path.data, m->request.path.len));
    m->aide = aide_find(m->gateway->upstream, name, events, m, &e);
    if (!m->aide)
        mount_fail(m, e.text);
}

void mount_begin(struct exchange *x)
{
    struct mount *m = mount_new(x, "mount_error", "mount", mount_request_parse);
    if (!m)
        return;
    if (m->request.binding)
        mount_fail(m, "there are no R2 bindings here; give bucket, options.endpoint and "
                      "options.credentials instead");
    else if (strcmp(strbuf_text(&m->request.path), "/") == 0)
        mount_fail(m, "the filesystem root cannot be mounted over");
    else
        mount_find(m, &mount_events);
}

void unmount_begin(struct exchange *x)
{
    struct mount *m = mount_new(x, "unmount_error", "unmount", unmount_request_parse);
    if (m)
        mount_find(m, &unmount_events);
}
