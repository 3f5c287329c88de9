/* One signal to every process of some trees, children before parents; no teardown. */
#ifndef SESSIONS_TREE_SIGNAL_H
#define SESSIONS_TREE_SIGNAL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tree_signal {
    pid_t *pids; /* roots first, then their descendants */
    size_t count;
};

/* Make an empty set. 0, or -1 with *e. */
int tree_signal_init(struct tree_signal *t, struct error *e);
/* Add a root; an each() callback for walks: context is the set. False when it is full. */
bool tree_signal_add(void *context, pid_t pid);
/* Send sig to the roots and all that descends from them, and free the set. Returns how many got it,
 * 0: nobody is there, or -1 with *e (EPERM and nobody got it). */
int tree_signal_send(struct tree_signal *t, int sig, struct error *e);

#endif
