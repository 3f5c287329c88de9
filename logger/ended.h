/* The IDs of ended processes whose files are in the folder, oldest end first: no more of them stay
 * than are to be kept. */
#ifndef LOGGER_ENDED_H
#define LOGGER_ENDED_H

#include "logger/log_folder.h"
#include "logger/message.h"

#include <stddef.h>

struct ended {
    char (*ids)[LOGGER_ID_MAX + 1];
    size_t count, keep;
};

/* Room for `keep` and one more. 0, or -1 without memory: then nothing is ever deleted. */
int ended_init(struct ended *ended, size_t keep);
/* Find those that earlier writers have left in the folder; the oldest are deleted if they are too
 * many. */
void ended_load(struct ended *ended, const struct log_folder *folder);
/* One more has ended; the oldest is deleted if there are now too many. */
void ended_add(struct ended *ended, const struct log_folder *folder, const char *id);
/* It has begun anew. */
void ended_remove(struct ended *ended, const char *id);

#endif
