/*
 * session.fork and session.save: a session's state, for another session or for a file of the
 * client's.
 */
#include "init/verb.h"
#include "base/fd.h"
#include "control/wire.h"
#include "sessions/saved_state.h"
#include "sessions/session.h"
#include "sessions/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A connection that waits for a state, and then sends it (save) or for the new session (fork). */
struct keeper {
    struct init *init;
    struct conn *conn;
    struct snapshot *snapshot; /* while it is waited for */
    struct session_wish wish;  /* fork: then for the new session */
    char *new_name;            /* fork */
    char name[65];             /* save: what the result says */
    char family[SHELL_FAMILY_SIZE];
    int fd; /* save: the state file, sent up to `at` of `size` */
    off_t at, size;
    struct strbuf header; /* save: sent first */
    bool is_header_sent;
};

static void keeper_free(struct keeper *k)
{
    if (k->snapshot)
        snapshot_drop(k->snapshot);
    session_wish_drop(&k->wish);
    fd_close(&k->fd);
    strbuf_free(&k->header);
    free(k->new_name);
    free(k);
}

static void on_closed(void *owner)
{
    keeper_free(owner);
}

static void keeper_fail(struct keeper *k, const struct error *e)
{
    conn_fail(k->conn, e);
    keeper_free(k);
}

static struct keeper *keeper_new(struct init *in, struct conn *c, const char *new_name,
                                 struct error *e)
{
    struct keeper *k = calloc(1, sizeof *k);
    if (k && new_name && !(k->new_name = strdup(new_name))) {
        free(k);
        k = NULL;
    }
    if (!k) {
        error_set(e, ERR_MEMORY, "session: no memory");
        return NULL;
    }
    list_init(&k->wish.link);
    k->init = in;
    k->conn = c;
    k->fd = -1;
    return k;
}

/* Stand in the queue of the session that the request names. */
static int begin(struct keeper *k, struct session *s, const struct request *r, const char *verb,
                 const struct conn_events *events,
                 void (*on_done)(void *owner, struct session *s, int fd, const struct error *e),
                 struct error *e)
{
    struct lock_patience patience;
    if (verb_get_patience(r, &patience, e) == 0)
        k->snapshot = snapshot_take(s, verb, &patience, on_done, k, e);
    if (!k->snapshot) {
        keeper_free(k);
        return -1;
    }
    conn_set_owner(k->conn, events, k);
    session_step(s);
    return 0;
}

/* ---- save ---- */

static void send_result(struct keeper *k)
{
    struct record r = {0};
    record_str(&r, "name", k->name);
    record_str(&r, "shell", k->family);
    record_int(&r, "bytes", (int64_t)k->header.len + (int64_t)k->size);
    conn_result(k->conn, &r);
    record_free(&r);
    keeper_free(k);
}

/* What the session's user does to the file meanwhile harms the copy only: it is never longer than
 * it was. */
static void pump(struct keeper *k)
{
    char bytes[WIRE_PAYLOAD_MAX];
    struct error e = {0};
    enum conn_sent sent = CONN_SENT;
    if (!k->is_header_sent)
        sent = conn_send(k->conn, WIRE_STDOUT, k->header.data, k->header.len);
    k->is_header_sent = sent == CONN_SENT;
    while (k->at < k->size && sent == CONN_SENT) {
        size_t want = sizeof bytes;
        if ((off_t)want > k->size - k->at)
            want = (size_t)(k->size - k->at);
        ssize_t n = pread(k->fd, bytes, want, k->at);
        if (n <= 0) {
            error_set_sys(&e, n < 0 ? errno : ENODATA, "session '%s': read its state", k->name);
            keeper_fail(k, &e);
            return;
        }
        sent = conn_send(k->conn, WIRE_STDOUT, bytes, (size_t)n);
        if (sent == CONN_SENT)
            k->at += n;
    }
    if (sent == CONN_SENT)
        send_result(k);
}

static void on_writable(void *owner)
{
    pump(owner);
}

static const struct conn_events save_events = {.on_writable = on_writable, .on_closed = on_closed};

static void on_state_to_send(void *owner, struct session *s, int fd, const struct error *why)
{
    struct keeper *k = owner;
    struct error e = {0};
    struct stat st = {0};
    uint64_t limit = k->init->config->text_limit;
    k->snapshot = NULL;
    k->fd = fd;
    memcpy(k->family, s->family, sizeof k->family);
    snprintf(k->name, sizeof k->name, "%s", s->name);
    if (why)
        e = *why;
    else if (fstat(fd, &st) < 0)
        error_set_sys(&e, errno, "session '%s': its state", s->name);
    else if ((uint64_t)st.st_size + SHELL_FAMILY_SIZE + sizeof SAVED_STATE_HEADER > limit)
        error_set(&e, ERR_LIMIT, "session '%s': its state has %lld bytes, text_limit is %llu",
                  s->name, (long long)st.st_size, (unsigned long long)limit);
    else if (saved_state_begin(&k->header, k->family) < 0)
        error_set(&e, ERR_MEMORY, "session '%s': no memory", s->name);
    if (e.code != ERR_NONE) {
        keeper_fail(k, &e);
        return;
    }
    k->size = st.st_size;
    pump(k);
}

int verb_session_save(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *name = verb_required(r, "name", e);
    struct session *s = name ? session_find(&in->sessions, name, e) : NULL;
    struct keeper *k = s ? keeper_new(in, c, NULL, e) : NULL;
    return k ? begin(k, s, r, "save", &save_events, on_state_to_send, e) : -1;
}

/* ---- fork ---- */

static void on_created(void *owner, const struct session *s, const struct teardown_report *report,
                       const struct error *e)
{
    struct keeper *k = owner;
    struct record r = {0};
    struct error gone = {0};
    if (!e && report && !s->ends_for_reset) {
        error_set(&gone, ERR_STATE, "session '%s' was deleted before it was ready", s->name);
        e = &gone;
    }
    if (e) {
        conn_fail(k->conn, e);
    } else {
        record_str(&r, "name", s->name);
        conn_result(k->conn, &r);
    }
    record_free(&r);
    keeper_free(k);
}

static const struct conn_events fork_events = {.on_closed = on_closed};

static void on_state_to_fork(void *owner, struct session *s, int fd, const struct error *why)
{
    struct keeper *k = owner;
    struct error e = {0};
    CLEANUP_STRBUF struct strbuf state = {0};
    char from[80];
    k->snapshot = NULL;
    k->fd = fd;
    if (why) {
        keeper_fail(k, why);
        return;
    }
    snprintf(from, sizeof from, "state of '%s'", s->name);
    memcpy(k->family, s->family, sizeof k->family);
    struct session_request q = {
        .name = k->new_name, .like = s, .state = &state, .state_name = from};
    if (saved_state_read(&state, k->family, fd, k->init->config->text_limit, &e) < 0)
        error_wrap(&e, "session '%s'", s->name);
    else if (session_create(&k->init->sessions, &q, &k->wish, &e))
        return;
    keeper_fail(k, &e);
}

int verb_session_fork(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *name = verb_required(r, "name", e);
    struct session *s = name ? session_find(&in->sessions, name, e) : NULL;
    struct keeper *k = s ? keeper_new(in, c, request_get(r, "new"), e) : NULL;
    if (!k)
        return -1;
    k->wish.on_done = on_created;
    k->wish.owner = k;
    return begin(k, s, r, "fork", &fork_events, on_state_to_fork, e);
}
