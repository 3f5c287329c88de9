/*
 * The workspace as a whole: emptying it when the sandbox is deleted.
 *
 * Invariants: nothing that a client writes meanwhile is left in it: changes under way are called
 * off (files_hold_changes()), new ones are refused until the end; one file system that hangs holds
 * up the answer for a bounded time only.
 */
#ifndef GATEWAY_WORKSPACE_H
#define GATEWAY_WORKSPACE_H

#include "base/error.h"
#include "gateway/files.h"

#include <ev.h>

/* Remove all that is in the workspace of f. It begins when the workers of all changes are done, or
 * after 10 s. done is called once: with NULL if nothing is left, else with what is left and why, or
 * with ERR_UNAVAILABLE if f was freed first. It may be called from inside, if it fails at once. */
void workspace_empty(struct ev_loop *loop, struct files *f,
                     void (*done)(void *context, const struct error *e), void *context);

#endif
