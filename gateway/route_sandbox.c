/*
 * The sandbox: its id, whether it runs, its end. One container is one sandbox, whatever its id is:
 * to create one gives an id, to delete it makes the container fresh (or ends it, on_delete).
 */
#include "base/log.h"
#include "control/record.h"
#include "gateway/ask.h"
#include "gateway/gateway.h"
#include "gateway/mount_table.h"
#include "gateway/reply.h"
#include "gateway/workspace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- POST /v1/sandbox -------------------------------------------------------------------- */

#define ID_BYTES 16
#define ID_TEXT  26 /* characters of 16 bytes in base32, without padding */

static void base32(const unsigned char bytes[ID_BYTES], char text[ID_TEXT + 1])
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned held = 0, bits = 0;
    size_t n = 0;
    for (size_t i = 0; i < ID_BYTES; i++) {
        held = held << 8 | bytes[i];
        for (bits += 8; bits >= 5; bits -= 5)
            text[n++] = digits[held >> (bits - 5) & 31];
    }
    text[n++] = digits[held << (5 - bits) & 31];
    text[n] = '\0';
}

static void begin_create(struct exchange *x)
{
    const struct gateway *g = exchange_context(x);
    unsigned char bytes[ID_BYTES];
    char id[ID_TEXT + 1], json[192];
    if (!g->options.sandbox_id && getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        exchange_error(x, 502, "pool_error", "pool error: no random bytes: %s", strerror(errno));
        return;
    }
    if (!g->options.sandbox_id)
        base32(bytes, id);
    snprintf(json, sizeof json, "{\"id\":\"%s\"}",
             g->options.sandbox_id ? g->options.sandbox_id : id);
    exchange_json(x, 200, json);
}

/* ---- GET …/running ----------------------------------------------------------------------- */

static void answer_running(struct exchange *x, const struct gathered *all, const char *note)
{
    const char *state = all->error ? NULL : record_get(all->result, all->result_len, "state");
    (void)note;
    exchange_json(x, 200,
                  state && strcmp(state, "running") == 0 ? "{\"running\":true}"
                                                         : "{\"running\":false}");
}

static void begin_running(struct exchange *x)
{
    struct client_request q;
    client_request_init(&q, "status");
    ask(x, &q, NULL, answer_running);
}

/* ---- DELETE /v1/sandbox/:id -------------------------------------------------------------- */

/* First all that runs ends, then the workspace is emptied: nothing writes to it by then. It goes on
 * when the client has left. */
struct deletion {
    struct exchange *exchange; /* NULL: its client has left */
    struct gateway *gateway;
};

static void deletion_end(struct deletion *d, const struct error *e)
{
    struct exchange *x = d->exchange;
    free(d);
    if (!x)
        return;
    if (e)
        exchange_failed(x, "pool_error", "delete", e);
    else
        exchange_answer(x, 204, NULL, NULL, 0);
}

/* The sandbox is deleted, whatever stays in the workspace: nothing runs any more, and a second try
 * would leave it, too. The answer, the log and the numbers say so. */
static void on_emptied(void *context, const struct error *e)
{
    struct deletion *d = context;
    if (e) {
        d->gateway->deletes_incomplete++;
        LOG_WRN("workspace_not_empty", F_STR("error", e->text));
        if (d->exchange)
            reply_warn(d->exchange, e->text);
    }
    deletion_end(d, NULL);
}

static void on_unmounted(void *owner)
{
    struct deletion *d = owner;
    mounts_forget_all(d->gateway);
    if (d->gateway->files)
        workspace_empty(d->gateway->loop, d->gateway->files, on_emptied, d);
    else
        deletion_end(d, NULL);
}

/* An s3fs that was killed leaves its mount: it is not to be emptied, nor to stay. */
static void on_purged(void *owner, const struct gathered *all)
{
    struct deletion *d = owner;
    struct error e = {0};
    if (all->error || !d->gateway->options.is_reset)
        deletion_end(d, all->error);
    else if (!has_left_mounts(d->gateway) || !mounts_clean(d->gateway, NULL, on_unmounted, d, &e))
        on_unmounted(d);
}

static void on_closed(void *owner)
{
    struct deletion *d = owner;
    d->exchange = NULL;
}

static const struct exchange_events exchange_events = {.on_closed = on_closed};

static void begin_delete(struct exchange *x)
{
    struct gateway *g = exchange_context(x);
    struct error e = {0};
    struct client_request q;
    struct deletion *d = calloc(1, sizeof *d);
    if (!d) {
        exchange_error(x, 502, "pool_error", "delete failed: no memory");
        return;
    }
    d->exchange = x;
    d->gateway = g;
    exchange_own(x, &exchange_events, d);
    client_request_init(&q, g->options.is_reset ? "purge" : "shutdown");
    if (!gather_open(g->upstream, &q, on_purged, d, &e))
        deletion_end(d, &e);
}

const struct route routes_sandbox[] = {
    {"POST", "/v1/sandbox", BODY_IGNORED, 0, 0, NULL, begin_create},
    {"DELETE", "/v1/sandbox/:id", BODY_IGNORED, 0, 0, NULL, begin_delete},
    {"GET", "/v1/sandbox/:id/running", BODY_IGNORED, 0, 0, NULL, begin_running},
    {.method = NULL},
};
