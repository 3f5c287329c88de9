/*
 * The one capture: reads the two pipes (or FIFOs) of a command or process into its output, on the
 * loop, never more than a bounded amount a turn; of two that have bytes, the one that had some
 * first is read first. When the command is over capture_drain() takes
 * exactly what is in the pipes at that moment; what background children write later goes to
 * another output (the session's strays) until end of file, so that they are neither killed by
 * SIGPIPE nor blocked.
 */
#ifndef SESSIONS_CAPTURE_H
#define SESSIONS_CAPTURE_H

#include "sessions/output.h"

#include <ev.h>

#define CAPTURE_PIPE_BYTES (256 * 1024) /* of a pipe whose writer is quick */

struct capture {
    struct ev_loop *loop;
    struct output *output; /* borrowed */
    struct ev_io io[STREAM_COUNT];
    ev_check turn;                 /* never started: fed once a stream has bytes */
    bool is_ready[STREAM_COUNT];   /* the loop told so in this turn */
    enum stream first;             /* of those: the one that was written to first */
    bool is_wide[STREAM_COUNT];    /* the pipe was made larger */
    bool is_terminal;              /* stdout is the master of a pty; set before the start */
    int fd[STREAM_COUNT];          /* owned; -1 after end of file */
    void (*on_eof)(void *context); /* both streams ended; may be NULL; may free the capture */
    void *context;
};

/* Begin to read. Takes both descriptors (non-blocking read ends; -1: that stream has ended). */
void capture_start(struct capture *c, struct ev_loop *loop, struct output *output,
                   const int fd[STREAM_COUNT]);

/* Take what is in the pipes now, by FIONREAD: complete for everything that was written before the
 * call, and bounded though somebody still writes. (What a terminal holds, FIONREAD doesn't know
 * before it is read: there it is until nothing comes, with a bound.) Calls on_eof never. */
void capture_drain(struct capture *c);

/* Go on reading: for an output of several captures, of which output_on_relief() knows the last
 * only.
 */
void capture_resume(struct capture *c);

/* True if something waits to be read: it is held up by a follower that lags. */
bool capture_has_unread(const struct capture *c);

/* True if neither stream has a writer left (and nothing is unread). Asks the kernel. */
bool capture_is_at_eof(struct capture *c);

/* True if the FIFO of stdout has neither bytes nor a hang-up: somebody has it open, or nobody ever
 * had (fifo(7)). Not once capture_is_at_eof() was asked. */
bool capture_is_untouched(const struct capture *c);

/* Stop reading; the descriptors are the caller's from now on. */
void capture_detach(struct capture *c);

/* Stop reading and close both descriptors. */
void capture_stop(struct capture *c);

#endif
