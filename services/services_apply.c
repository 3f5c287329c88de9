/*
 * Another configuration comes into force: what is new begins, what is gone ends, what differs is
 * restarted, signalled or only told. Everything that can fail is done before anything changes.
 */
#include "services/services_internal.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A configuration that is no longer in force and that some run still has. */
struct retired {
    struct list link;
    struct config *config;
};

void services_remove_left(struct services *all)
{
    (void)all;
}

void services_forget_retired(struct services *all, bool all_of_them)
{
    (void)all;
    (void)all_of_them;
}
