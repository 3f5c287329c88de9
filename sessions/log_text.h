/*
 * A plain text file that lines of services are written to, by a log writer of its own: one for each
 * owner of a folder in which such files lie, who writes as that owner and without capabilities. So
 * init itself waits for no disk, and a folder's owner can do no more through the writer than by
 * himself. What waits and what the writer has not confirmed stands in the queue of the sink: a
 * writer that is killed loses and doubles nothing.
 */
#ifndef SESSIONS_LOG_TEXT_H
#define SESSIONS_LOG_TEXT_H

#include "base/error.h"
#include "sessions/log_feed.h"
#include "sessions/log_sink.h"

#include <stdint.h>

struct log_text;

/* The file of an absolute path, which several may have open; max_size (bytes before it is put aside
 * as PATH.1) and keep (how many older ones) are those that were given last. Close it again. NULL
 * with *e: no memory. What is wrong with the file itself is told by the sink's why, and tried
 * again.
 */
struct log_text *log_text_open(struct log_feed *feed, const char *path, uint64_t max_size,
                               uint64_t keep, struct error *e);
struct log_sink *log_text_sink(struct log_text *t);
/* NULL is fine. What is in the queue is still written. */
void log_text_close(struct log_text *t);

#endif
