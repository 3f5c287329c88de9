/*
 * An answer of server-sent events (HTML, section 9.2). Lives in its owner. Events are gathered and
 * go out with sse_flush(), or before where they are many; a stream that has nothing to say shows
 * every 15 s that it is alive, by a comment.
 *
 * The owner of the exchange stays who it is: on its on_closed it calls sse_drop().
 */
#ifndef GATEWAY_SSE_H
#define GATEWAY_SSE_H

#include "base/strbuf.h"
#include "gateway/http.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

#define SSE_KEEP_ALIVE_S 15.0
#define SSE_PATIENCE_S   0.25 /* for the first event: then the headers go out alone */

struct sse {
    struct exchange *exchange; /* NULL: over, or its client is gone */
    struct ev_loop *loop;
    struct strbuf gathered;
    ev_timer silence; /* since the last bytes */
    bool has_begun;   /* the headers are sent */
    bool is_full;     /* no more, please */
};

/* Nothing is sent before the first event, or the end of the patience for it: until then
 * has_begun is false and the exchange can be answered in another way (after sse_drop()). */
void sse_init(struct sse *s, struct exchange *x);

/* An event; id may be NULL; data is one line. Without memory for it the answer is cut: then
 * exchange is NULL, and the owner ends. */
void sse_event(struct sse *s, const char *name, const char *id, const char *data, size_t n);
/* The same, the data in base64. */
void sse_event_base64(struct sse *s, const char *name, const char *id, const char *bytes, size_t n);

/* Send what is gathered. False: no more until on_writable of the exchange, where the owner calls
 * sse_relieved() and goes on. */
bool sse_flush(struct sse *s);
/* The exchange can take more: is_full is false again. */
void sse_relieved(struct sse *s);
/* Send what is gathered and end the answer. */
void sse_end(struct sse *s);
/* Forget the exchange: its client is gone, or it is answered otherwise. */
void sse_drop(struct sse *s);

#endif
