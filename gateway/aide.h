/*
 * An aide: a program of the image that serves the gateway (cloudflared, s3fs), run by init as a
 * process of its own, so that it is supervised, listed, logged and torn down with the sandbox. The
 * gateway keeps nothing of it: which one there is says init's list, where it stands under the id
 * NAME.N, the N growing. So an aide outlives the gateway, and two requests at once get one.
 *
 * One struct aide is one request's look at it, in steps: aide_find(), perhaps aide_start(), then
 * aide_follow() or aide_kill(). Each step ends with one callback; a callback may begin the next
 * step or close the aide.
 */
#ifndef GATEWAY_AIDE_H
#define GATEWAY_AIDE_H

#include "gateway/upstream.h"

#include <stdint.h>

struct aide;

#define AIDE_LINE_MAX 1024 /* bytes of a line that is looked at; what is longer is cut */

/* Those of steps that are not taken may be NULL. */
struct aide_events {
    /* is_live: there is one, for so long. Without one, aide_start() may be called. */
    void (*on_found)(void *owner, bool is_live, uint64_t uptime_ms);
    void (*on_started)(void *owner);
    void (*on_line)(void *owner, const char *line);       /* that it has written, without its end */
    void (*on_ended)(void *owner, const char *last_line); /* while it was followed */
    void (*on_killed)(void *owner);
    /* The step failed: init refused, or the program cannot be run. */
    void (*on_failed)(void *owner, const struct error *e);
};

/* name: at most 40 bytes of a process's id. Looks for the live one. NULL with *e set. */
struct aide *aide_find(struct upstream *u, const char *name, const struct aide_events *events,
                       void *owner, struct error *e);
/* The process's id: that of the live one, or that of the one to start. */
const char *aide_id(const struct aide *a);
/* Start it by this request (verb start, without id, freed). 0 or -1 with *e set. */
int aide_start(struct aide *a, struct client_request *q, struct error *e);
/* Hear the lines of all that it has written and will write, until aide_close(). 0 or -1. */
int aide_follow(struct aide *a, struct error *e);
/* End it: SIGTERM, after grace_ms SIGKILL. One that has ended already counts as killed. 0 or -1. */
int aide_kill(struct aide *a, uint64_t grace_ms, struct error *e);
/* Look away; what was started goes on. NULL is fine. */
void aide_close(struct aide *a);

#endif
