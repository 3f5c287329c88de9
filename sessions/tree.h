/*
 * Some processes with all that descends from them, looked at once: to list them, or to send each
 * one signal. No teardown: nothing is stopped, and who forks meanwhile gets away.
 */
#ifndef SESSIONS_TREE_H
#define SESSIONS_TREE_H

#include "base/error.h"
#include "sessions/member.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TREE_MAX 8192 /* processes; the rest of a larger tree is left out */

struct tree {
    struct member_set set; /* roots first, then their descendants, level by level */
    pid_t parent;          /* whose children the roots are that come next; 0: anybody's */
    size_t limit;
};

/* Make an empty one. 0, or -1 with *e. */
int tree_init(struct tree *t, struct error *e);
void tree_free(struct tree *t);
/* Add a root that lives; an each() callback for walks: context is the tree. False when it is full.
 */
bool tree_add(void *context, pid_t pid);
/* Add all that descends from the roots. */
void tree_grow(struct tree *t);
/* Send sig to all, children before parents. Returns how many got it, 0: nobody is there, or -1 with
 * *e (nobody got it, and somebody was refused). */
int tree_signal(struct tree *t, int sig, struct error *e);

#endif
