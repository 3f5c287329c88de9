/* What a handler reads of its request, and how it takes hold of the exchange. */
#include "gateway/http_internal.h"
#include "gateway/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *exchange_method(const struct exchange *x)
{
    return llhttp_method_name(x->parser.method);
}

const char *exchange_path(const struct exchange *x)
{
    return x->path;
}

const char *exchange_query(const struct exchange *x)
{
    return x->query;
}

const char *exchange_segment(const struct exchange *x, const char *name)
{
    for (unsigned i = 0; i < x->capture_count; i++) {
        const struct http_capture *c = &x->captures[i];
        if (strlen(name) == c->name_len && strncmp(name, c->name, c->name_len) == 0)
            return c->value;
    }
    return "";
}

static const char *join(struct exchange *x, const char *before, const char *value)
{
    size_t size = strlen(before) + strlen(value) + sizeof ", ";
    struct http_joined *j = malloc(sizeof *j + size);
    if (!j)
        return before;
    snprintf(j->text, size, "%s, %s", before, value);
    j->next = x->joined;
    x->joined = j;
    return j->text;
}

const char *exchange_header(const struct exchange *x, const char *name)
{
    const char *value = NULL, *one;
    for (unsigned i = 0; i < x->header_count; i++)
        if (strcasecmp(x->head.data + x->headers[i].name, name) == 0) {
            one = x->head.data + x->headers[i].value;
            value = value ? join((struct exchange *)(uintptr_t)x, value, one) : one;
        }
    return value;
}

bool exchange_header_at(const struct exchange *x, size_t i, const char **name, const char **value)
{
    if (i >= x->header_count)
        return false;
    *name = x->head.data + x->headers[i].name;
    *value = x->head.data + x->headers[i].value;
    return true;
}

int exchange_parameter(const struct exchange *x, const char *name, struct strbuf *to)
{
    CLEANUP_STRBUF struct strbuf key = {0};
    for (const char *at = x->query; *at;) {
        size_t n = strcspn(at, "&");
        const char *equals = memchr(at, '=', n);
        size_t key_n = equals ? (size_t)(equals - at) : n;
        strbuf_clear(&key);
        if (percent_decode(at, key_n, true, &key) == 0 && strcmp(strbuf_text(&key), name) == 0) {
            size_t skip = equals ? key_n + 1 : n;
            return percent_decode(at + skip, n - skip, true, to) < 0 ? -1 : 1;
        }
        at += n + (at[n] == '&');
    }
    return 0;
}

int64_t exchange_length(const struct exchange *x)
{
    return x->length;
}

/* True if the comma-separated list has the word. */
static bool has_word(const char *list, const char *word)
{
    size_t want = strlen(word);
    while (list && *list) {
        list += strspn(list, ", \t");
        size_t n = strcspn(list, ", \t");
        if (n == want && strncasecmp(list, word, n) == 0)
            return true;
        list += n;
    }
    return false;
}

bool exchange_is_upgrade(const struct exchange *x, const char *protocol)
{
    return !x->is_http10 && has_word(exchange_header(x, "connection"), "upgrade") &&
           has_word(exchange_header(x, "upgrade"), protocol);
}

const char *exchange_body(const struct exchange *x, size_t *n)
{
    *n = x->body.len;
    return strbuf_text(&x->body);
}

void *exchange_context(const struct exchange *x)
{
    return x->conn->server->config.context;
}

struct ev_loop *exchange_loop(const struct exchange *x)
{
    return x->conn->server->loop;
}

void exchange_own(struct exchange *x, const struct exchange_events *events, void *owner)
{
    x->events = events;
    x->owner = owner;
}

void exchange_follow(struct exchange *x)
{
    x->is_following = true;
}

void exchange_pause_body(struct exchange *x)
{
    x->is_paused = true;
    conn_touch(x->conn);
}

void exchange_resume_body(struct exchange *x)
{
    if (x->is_paused) /* the time that the handler took is not the client's */
        x->conn->since = ev_now(x->conn->server->loop);
    x->is_paused = false;
    conn_touch(x->conn);
}

int exchange_take_socket(struct exchange *x, struct strbuf *early, struct http_server **server)
{
    struct conn *c = x->conn;
    http_conn_flush(c);
    x->answer_has_ended = true;
    x->events = NULL;
    bool is_feeding = c->is_feeding;
    const char *bytes = is_feeding ? c->feed_at : strbuf_text(&c->in);
    size_t n = is_feeding ? (size_t)(c->feed_end - c->feed_at) : c->in.len;
    c->is_broken = true; /* whatever comes of it, the connection is over for the server */
    conn_touch(c);
    if (conn_pending(c) > 0 || c->fd < 0 || strbuf_add(early, bytes, n) < 0)
        return -1;
    ev_io_stop(c->server->loop, &c->reader);
    ev_io_stop(c->server->loop, &c->writer);
    if (!x->answer_has_begun)
        c->server->counts.by_class[1]++;
    x->answer_has_begun = true;
    int fd = c->fd;
    c->fd = -1;
    *server = c->server;
    c->server->counts.connections++; /* the socket; the connection leaves when it is settled */
    return fd;
}
