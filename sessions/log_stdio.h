/* init's own stdout and stderr as places where lines of services go. Both are one place if both
 * lead to the same file, pipe or terminal: the order of lines is then kept. */
#ifndef SESSIONS_LOG_STDIO_H
#define SESSIONS_LOG_STDIO_H

#include "base/outlet.h"
#include "sessions/log_sink.h"
#include "sessions/output.h"

struct log_stdio {
    struct log_way {
        struct log_sink sink;
        struct outlet *outlet;
        const char *name;
        ev_io io;
        ev_timer retry; /* of what the loop cannot wait for, a full disk */
        double retry_s;
    } ways[STREAM_COUNT];
    struct ev_loop *loop;
    struct outlet own_stdout;
    bool is_open; /* somebody has asked for one of them */
    bool is_one;  /* ways[STREAM_STDERR] is both */
};

/* Nothing is opened before somebody asks for a sink. */
void log_stdio_init(struct log_stdio *o, struct ev_loop *loop);
struct log_sink *log_stdio_sink(struct log_stdio *o, enum stream stream);
/* True if no line waits. */
bool log_stdio_is_idle(const struct log_stdio *o);
void log_stdio_close(struct log_stdio *o);

#endif
