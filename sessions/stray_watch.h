/* The events of strays: left by a command or process that ended, and ended at last. */
#ifndef SESSIONS_STRAY_WATCH_H
#define SESSIONS_STRAY_WATCH_H

#include "sessions/outcome.h"

#include <ev.h>

#define STRAYS_WATCHED 256 /* whose end is told, of all sessions together: a descriptor each */

/* Tell of the strays in an outcome that were not told of before, and watch them. session: "" for
 * none. */
void stray_watch(struct ev_loop *loop, const char *session, const char *id,
                 const struct outcome *o);
/* Init stops: tell of those whose end the loop has not seen yet, and watch no more. */
void stray_watch_end(struct ev_loop *loop);

#endif
