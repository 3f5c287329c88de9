/*
 * The workspace as a whole: whether it is there; emptying it when the sandbox is deleted.
 *
 * Whether it is there is told to init where it is seen: at the start, and by what was to happen in
 * it. Nobody asks again and again.
 *
 * Invariants of the emptying: nothing that a client writes meanwhile is left in it: changes under
 * way are called off (files_hold_changes()), new ones are refused until the end; one file system
 * that hangs holds up the answer for a bounded time only.
 */
#ifndef GATEWAY_WORKSPACE_H
#define GATEWAY_WORKSPACE_H

#include "base/error.h"
#include "gateway/files.h"
#include "gateway/upstream.h"

#include <ev.h>

/* At the start, before anything is served: look whether it is a folder, and tell init. */
void workspace_look(struct upstream *u, const char *path);
/* A use of it has failed (sys: errno) or was possible (0). */
void workspace_note(struct upstream *u, const char *path, int sys);

/* Remove all that is in the workspace of f. It begins when the workers of all changes are done, or
 * after 10 s. done is called once: with NULL if nothing is left, else with what is left and why, or
 * with ERR_UNAVAILABLE if f was freed first. It may be called from inside, if it fails at once. */
void workspace_empty(struct ev_loop *loop, struct files *f,
                     void (*done)(void *context, const struct error *e), void *context);

#endif
