#include "gateway/sse.h"

#include "base/base64.h"

#include <string.h>

#define GATHERED_MAX ((size_t)32 * 1024) /* bytes that wait for a flush */

static void begin(struct sse *s)
{
    if (s->has_begun || !s->exchange)
        return;
    s->has_begun = true;
    exchange_add_header(s->exchange, "Cache-Control", "no-cache");
    exchange_begin(s->exchange, 200, "text/event-stream", -1);
}

static void on_silence(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct sse *s = w->data;
    if (!s->has_begun) { /* it takes long to begin: the headers tell that the request is taken */
        begin(s);
        ev_timer_again(s->loop, w);
        return;
    }
    /* One that does not read needs no sign of life, and gets no more bytes. */
    if (s->gathered.len == 0 && !s->is_full)
        (void)strbuf_adds(&s->gathered, ": alive\n\n");
    (void)sse_flush(s);
}

void sse_init(struct sse *s, struct exchange *x)
{
    memset(s, 0, sizeof *s);
    s->exchange = x;
    s->loop = exchange_loop(x);
    ev_timer_init(&s->silence, on_silence, SSE_PATIENCE_S, SSE_KEEP_ALIVE_S);
    s->silence.data = s;
    ev_now_update(s->loop); /* a long body may just have been read */
    ev_timer_start(s->loop, &s->silence);
}

/* No memory for an event: a stream with a hole would be taken for a whole one. */
static void cut(struct sse *s)
{
    struct exchange *x = s->exchange;
    struct ev_loop *loop = s->loop;
    if (!x)
        return;
    begin(s);
    ev_timer_stop(loop, &s->silence);
    s->exchange = NULL;
    exchange_cut(x);
}

static int add_head(struct sse *s, const char *name, const char *id)
{
    int rc = id ? strbuf_addf(&s->gathered, "id: %s\n", id) : 0;
    return rc < 0 ? rc : strbuf_addf(&s->gathered, "event: %s\ndata: ", name);
}

static void end_event(struct sse *s, int rc)
{
    if (rc < 0 || strbuf_adds(&s->gathered, "\n\n") < 0)
        cut(s);
    else if (s->gathered.len >= GATHERED_MAX)
        (void)sse_flush(s);
}

void sse_event(struct sse *s, const char *name, const char *id, const char *data, size_t n)
{
    if (!s->exchange)
        return;
    int rc = add_head(s, name, id);
    end_event(s, rc < 0 ? rc : strbuf_add(&s->gathered, data, n));
}

void sse_event_base64(struct sse *s, const char *name, const char *id, const char *bytes, size_t n)
{
    if (!s->exchange)
        return;
    int rc = add_head(s, name, id);
    char *to = rc < 0 ? NULL : strbuf_reserve(&s->gathered, BASE64_SIZE(n));
    if (to)
        s->gathered.len += base64_encode(to, bytes, n);
    end_event(s, to ? 0 : -1);
}

bool sse_flush(struct sse *s)
{
    if (!s->exchange)
        return true;
    if (s->gathered.len > 0) {
        begin(s);
        s->is_full = !exchange_write(s->exchange, s->gathered.data, s->gathered.len);
        strbuf_clear(&s->gathered);
        ev_timer_again(s->loop, &s->silence);
    }
    return !s->is_full;
}

void sse_relieved(struct sse *s)
{
    s->is_full = false;
}

void sse_end(struct sse *s)
{
    struct exchange *x = s->exchange;
    if (!x)
        return;
    begin(s);
    (void)sse_flush(s);
    sse_drop(s);
    exchange_end(x);
}

void sse_drop(struct sse *s)
{
    if (s->loop)
        ev_timer_stop(s->loop, &s->silence);
    s->exchange = NULL;
    strbuf_free(&s->gathered);
}
