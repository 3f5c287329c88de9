/* The folder of the logs, and names in it. It may be moved or deleted under the writer at any time:
 * it is then made anew. */
#ifndef LOGGER_LOG_FOLDER_H
#define LOGGER_LOG_FOLDER_H

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

struct log_folder {
    const char *path;
    int fd;        /* -1: not open */
    uint64_t turn; /* files are looked at again in each */
    uint64_t file_size;
    uint64_t file_age_ns; /* 0: no limit */
    unsigned files;       /* older ones kept of each log */
};

/* Have the folder open that stands at its path now, making it if there is none. 0 or -1 with *e. */
int log_folder_open(struct log_folder *f, struct error *e);

/* Fill a small file of the folder: written under another name, then renamed. 0 or -1 with *e. */
int log_folder_put(struct log_folder *f, const char *name, const char *text, size_t n,
                   struct error *e);

/* -1 with *e: "log DIR/NAME: STEP: <errno>". */
int log_folder_fail(const struct log_folder *f, const char *name, const char *step, int sys,
                    struct error *e);

#endif
