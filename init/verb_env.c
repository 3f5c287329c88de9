/*
 * session.env: the variables of a session, and of all sessions to come. A change is a command like
 * any other, which waits for its turn and can fail by the shell's words.
 */
#include "init/verb.h"
#include "base/number.h"
#include "base/quote.h"
#include "control/wire.h"
#include "sessions/command.h"
#include "sessions/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A change of variables: a set, and names to unset ("NAME\0NAME\0"). */
struct env_change {
    struct env_set set;
    struct strbuf unset;
    struct conn *conn;
    struct command *command; /* that carries it out in a session */
};

static void env_change_free(struct env_change *x)
{
    env_free(&x->set);
    strbuf_free(&x->unset);
    free(x);
}

static struct env_change *env_change_new(const struct request *r, struct conn *c, struct error *e)
{
    struct field f;
    size_t at = 0;
    struct env_change *x = calloc(1, sizeof *x);
    if (!x) {
        error_set(e, ERR_MEMORY, "session.env: no memory");
        return NULL;
    }
    x->conn = c;
    int rc = verb_get_env(r, &x->set, e);
    while (rc == 0 && record_next(r->args.data, r->args.len, &at, &f) > 0) {
        if (!field_is(&f, "unset"))
            continue;
        if (env_name_check(f.value, f.value_len) < 0)
            rc = error_set(e, ERR_INVALID, "env name '%.64s': want letters, digits and _", f.value);
        else if (strbuf_add(&x->unset, f.value, f.value_len + 1) < 0)
            rc = error_set(e, ERR_MEMORY, "session.env: no memory");
    }
    if (rc == 0)
        return x;
    env_change_free(x);
    return NULL;
}

/* In what a session's fresh shells begin with. */
static int env_change_apply(const struct env_change *x, struct env_set *to, struct error *e)
{
    const char *end = x->unset.data + x->unset.len;
    for (const char *name = x->unset.data; name < end; name += strlen(name) + 1)
        env_unset(to, name);
    return env_copy(to, &x->set, e);
}

/* For all sessions to come. */
static int env_change_apply_to_all(const struct env_change *x, struct sessions *all,
                                   struct error *e)
{
    const char *end = x->unset.data + x->unset.len;
    int rc = 0;
    for (const char *name = x->unset.data; name < end && rc == 0; name += strlen(name) + 1)
        rc = sessions_set_env(all, name, NULL, e);
    for (size_t i = 0; i < x->set.count && rc == 0; i++) {
        char *item = x->set.items[i], *sign = strchr(item, '=');
        *sign = '\0';
        rc = sessions_set_env(all, item, sign + 1, e);
        *sign = '=';
    }
    return rc;
}

/* As a text for the session's shell. One list: its status tells whether all of it was done. A
 * function called export or unset is not meant, nor one that has the name of a variable. */
static int env_change_text(const struct env_change *x, struct strbuf *text, struct error *e)
{
    int rc = 0;
    const char *end = x->unset.data + x->unset.len;
    for (const char *name = x->unset.data; name < end && rc == 0; name += strlen(name) + 1)
        rc = strbuf_addf(text, "\\command unset -v %s &&\n", name);
    for (size_t i = 0; i < x->set.count && rc == 0; i++) {
        const char *item = x->set.items[i], *value = strchr(item, '=') + 1;
        rc = strbuf_addf(text, "\\command export %.*s", (int)(value - item), item) |
             quote_sh(text, value, strlen(value)) | strbuf_adds(text, " &&\n");
    }
    if (rc < 0 || strbuf_adds(text, ":\n") < 0)
        return error_set(e, ERR_MEMORY, "session.env: no memory");
    return 0;
}

/* What the shell had to say, on one line: "dev: bash: R: readonly variable". */
static void explain_env_failure(const struct env_change *x, const struct outcome *o,
                                struct error *e)
{
    if (outcome_is_busy(o)) {
        error_set(e, ERR_BUSY, "%s", o->message);
        return;
    }
    char said[256];
    size_t n = output_last_bytes(command_output(x->command), STREAM_STDERR, said, sizeof said - 1);
    while (n > 0 && said[n - 1] == '\n')
        n--;
    said[n] = '\0';
    const char *why = o->message[0] ? o->message : n ? said : verdict_name(o->verdict);
    error_set(e, ERR_STATE, "session '%s': its shell refused the change: %s",
              command_session(x->command)->name, why);
}

static void on_env_done(void *owner, const struct outcome *o)
{
    struct env_change *x = owner;
    struct record r = {0};
    struct error e = {0};
    bool is_done = o->verdict == VERDICT_EXITED && o->status == 0;
    if (!is_done)
        explain_env_failure(x, o, &e);
    else if (env_change_apply(x, &command_session(x->command)->env, &e) < 0)
        is_done = false;
    if (is_done)
        conn_result(x->conn, &r);
    else
        conn_fail(x->conn, &e);
    command_free(x->command);
    env_change_free(x);
}

static void on_env_closed(void *owner)
{
    struct env_change *x = owner;
    command_abandon(x->command);
    env_change_free(x);
}

static const struct command_events env_events = {.on_done = on_env_done};
static const struct conn_events env_conn_events = {.on_closed = on_env_closed};

/* ---- showing it ---- */

/* A connection that is sent an environment, as it was when the request came. */
struct env_sender {
    struct conn *conn;
    struct strbuf bytes; /* "NAME=VALUE\0" … */
    size_t at;           /* what is sent */
    char name[65];
};

static void env_sender_free(struct env_sender *x)
{
    strbuf_free(&x->bytes);
    free(x);
}

static void send_env(void *owner)
{
    struct env_sender *x = owner;
    struct record r = {0};
    while (x->at < x->bytes.len) {
        size_t n = x->bytes.len - x->at;
        n = n < WIRE_PAYLOAD_MAX ? n : WIRE_PAYLOAD_MAX;
        if (conn_send(x->conn, WIRE_STDOUT, x->bytes.data + x->at, n) != CONN_SENT)
            return; /* on_writable or on_closed comes */
        x->at += n;
    }
    record_str(&r, "name", x->name);
    record_int(&r, "bytes", (int64_t)x->bytes.len);
    conn_result(x->conn, &r);
    record_free(&r);
    env_sender_free(x);
}

static void on_sender_closed(void *owner)
{
    env_sender_free(owner);
}

static const struct conn_events sender_events = {.on_writable = send_env,
                                                 .on_closed = on_sender_closed};

static int show_env(const struct session *s, struct conn *c, struct error *e)
{
    struct env_sender *x = calloc(1, sizeof *x);
    int rc = x ? 0 : -1;
    for (size_t i = 0; i < s->env.count && rc == 0; i++)
        rc = strbuf_add(&x->bytes, s->env.items[i], strlen(s->env.items[i]) + 1);
    if (rc < 0) {
        if (x)
            env_sender_free(x);
        return error_set(e, ERR_MEMORY, "session.env: no memory");
    }
    x->conn = c;
    snprintf(x->name, sizeof x->name, "%s", s->name);
    conn_set_owner(c, &sender_events, x);
    send_env(x);
    return 0;
}

/* ---- the verb ---- */

static int change_env(struct session *s, struct env_change *x, const struct lock_patience *patience,
                      struct error *e)
{
    struct command_request q = {.title = "(session env)", /* values may be secrets */
                                .limits = s->limits,
                                .patience = *patience};
    if (env_change_text(x, &q.text, e) == 0)
        x->command = command_submit(s, &q, &env_events, x, e);
    strbuf_free(&q.text);
    if (!x->command)
        return -1;
    conn_set_owner(x->conn, &env_conn_events, x);
    session_step(s);
    return 0;
}

int verb_session_env(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    const char *name = request_get(r, "name");
    struct lock_patience patience = {0};
    struct session *s = name ? session_find(&in->sessions, name, e) : NULL;
    if ((name && !s) || verb_get_patience(r, &patience, e) < 0)
        return -1;
    struct env_change *x = env_change_new(r, c, e);
    if (!x)
        return -1;
    if (s && x->set.count == 0 && x->unset.len == 0) {
        env_change_free(x);
        return show_env(s, c, e);
    }
    if (s) {
        int rc = change_env(s, x, &patience, e);
        if (rc < 0)
            env_change_free(x);
        return rc;
    }
    struct record done = {0};
    int rc = env_change_apply_to_all(x, &in->sessions, e);
    env_change_free(x);
    if (rc == 0)
        conn_result(c, &done);
    return rc;
}
