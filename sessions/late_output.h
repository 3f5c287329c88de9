/*
 * What is written after its command or process is over, by those that outlived it: nobody is told
 * of it, but it is read until end of file, so that no writer is ended by SIGPIPE or blocked by a
 * full pipe. The end of the last writer is the end of it; no memory is kept.
 */
#ifndef SESSIONS_LATE_OUTPUT_H
#define SESSIONS_LATE_OUTPUT_H

#include "base/list.h"
#include "sessions/capture.h"

#include <ev.h>
#include <stdbool.h>

struct late_outputs {
    struct list list; /* struct late_output, oldest first */
    struct ev_loop *loop;
};

void late_outputs_init(struct late_outputs *all, struct ev_loop *loop);

/* Take over the descriptors of a capture, which is stopped by that. False: nobody holds the output
 * any more, and nothing is kept. session: its name, or "" for none. */
bool late_output_take(struct late_outputs *all, struct capture *from, const char *session);

/* Let go of all; who still writes hears SIGPIPE. */
void late_outputs_free(struct late_outputs *all);

#endif
