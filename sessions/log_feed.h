/*
 * init's side of the logs: the log writer (logger/logger.h), a supervised child of its own, and for
 * each process a stream, which is a follower of its output like any other. A writer that is slow or
 * dead delays nobody; what a log has lost meanwhile is told to it as lost. After a restart each
 * stream goes on from what the last writer has said it wrote. Streams do nothing unless log_dir is
 * configured.
 *
 * Lines of services go through the same feed to plain files (log_text.h) and to init's own stdout
 * and stderr (log_stdio.h).
 */
#ifndef SESSIONS_LOG_FEED_H
#define SESSIONS_LOG_FEED_H

#include "base/error.h"
#include "config/config.h"
#include "sessions/output.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct log_feed;
struct log_stdio;
struct log_stream;

/* With log_dir: make the folder if it is not there, and start the writer. NULL with *e for want of
 * memory. */
struct log_feed *log_feed_new(struct ev_loop *loop, const struct config *config, struct error *e);
/* Write what is left: on_done is called once, when the writers have ended, or after limit_ms at the
 * latest; it may be called from inside. */
void log_feed_end(struct log_feed *feed, uint64_t limit_ms, void (*on_done)(void *context),
                  void *context);
void log_feed_free(struct log_feed *feed);

/* True if it is a log writer, which ends last. */
bool log_feed_is_writer(const struct log_feed *feed, pid_t pid);
/* Where lines of services go that are not written to a file. Lives as long as the feed. */
struct log_stdio *log_feed_stdio(struct log_feed *feed);
/* What a log writer cannot do now, or NULL; and bytes that are in no file of log_dir. */
const char *log_feed_trouble(const struct log_feed *feed);
uint64_t log_feed_lost_bytes(const struct log_feed *feed);

/* The log of a process that has begun. *slot, the caller's pointer to it, is set to NULL when the
 * log is complete. Does nothing without a feed or memory (the latter is logged). */
void log_stream_begin(struct log_feed *feed, struct log_stream **slot, const char *id, pid_t pid,
                      struct output *output);
/* Its process is over: what its exit file is to hold. Late output of its strays is still written.
 */
void log_stream_exited(struct log_stream *s, int status, const char *verdict);
/* Nobody holds its output any more. */
void log_stream_drained(struct log_stream *s);
/* The process is forgotten. Takes its output, which stays until the writer has it if there is not
 * much of such; else what is not sent is lost. s may be NULL. Clears the slot. */
void log_stream_leave(struct log_stream *s, struct output *output);

#endif
