/*
 * Where the output of a service goes. It is captured into an output (sessions/output.h) that
 * outlives restarts, as that of a process is; followers then carry it on:
 *
 *     inherit  to init's own stdout and stderr, line by line, with a prefix if configured; init
 *              never blocks on their reader: what finds no room is dropped, counted, and said
 *     file     to a plain text file through the log writer (logger/logger.h), rotated by size
 *              between lines, made anew when it was deleted; a full disk loses lines, counted and
 *              said once there is space again
 *     none     nowhere; the last lines are still kept for `service show`
 *
 * Several services may name the same file: each line stands in it whole, up to SERVICE_LINE_MAX
 * bytes; a longer one is cut there. Any byte may stand in a line.
 */
#ifndef SERVICES_SERVICE_LOG_H
#define SERVICES_SERVICE_LOG_H

#include "base/error.h"
#include "config/service_config.h"
#include "sessions/log_feed.h"
#include "sessions/output.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#define SERVICE_OUTPUT_KEEP (64 * 1024) /* bytes kept of each service's last output */
#define SERVICE_LINE_MAX    (63 * 1024) /* so that a line with its prefix fits into one packet */

struct service_log;

/* feed outlives the log. The configuration is not kept. NULL with *e: no memory. */
struct service_log *service_log_new(struct ev_loop *loop, struct log_feed *feed,
                                    const struct service_config *c, struct error *e);
/* Borrowed; lives as long as the log. */
struct output *service_log_output(struct service_log *l);
/* New settings take effect from the next line on. 0, or -1 with *e and the old ones in force. */
int service_log_configure(struct service_log *l, const struct service_config *c, struct error *e);
/* Read the pipes of a run that was just spawned (takes both read ends; non-blocking). on_eof:
 * nobody holds them any more; may be NULL. */
void service_log_capture(struct service_log *l, const int fd[STREAM_COUNT],
                         void (*on_eof)(void *context), void *context);
/* The run is over: take what is in the pipes now; what strays write later still comes. A line
 * without its end is ended. */
void service_log_run_ended(struct service_log *l);
/* Lines that could not be written anywhere, and why, now or at the last of them ("": none). */
uint64_t service_log_dropped(const struct service_log *l, const char **why);
/* What was captured already goes on to where it was to go. */
void service_log_free(struct service_log *l);

#endif
