/*
 * The gateway's side of the file helper (helper_wire.h tells what is spoken). The helper is a
 * process of the sessions' user that init starts when it is first needed, and anew when it is gone:
 * then operations that it had not begun fail, and the next one finds a new helper.
 *
 * Invariants: no call blocks; an operation costs bounded memory; what a helper says is believed no
 * more than any program of the sessions' user; on_end comes exactly once unless file_call_close()
 * came before it, and never from inside files_call().
 */
#ifndef GATEWAY_FILES_H
#define GATEWAY_FILES_H

#include "base/error.h"
#include "base/list.h"
#include "control/record.h"
#include "gateway/upstream.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

struct files;
struct file_call;

/* u stays the caller's; NULL: there is no init, and every operation fails. NULL with *e set. */
struct files *files_new(struct ev_loop *loop, struct upstream *u, struct error *e);
/* Calls everything off; owners of operations hear nothing more. NULL is fine. */
void files_free(struct files *f);

/* What the owner of an operation hears. */
struct file_events {
    /* The operation has begun: a record, and a descriptor that is the owner's now, or -1. */
    void (*on_begin)(void *owner, const char *record, size_t n, int fd);
    /* HELPER_DATA or HELPER_ROW. False: no more until file_call_resume(); this one is taken. */
    bool (*on_packet)(void *owner, char channel, const char *bytes, size_t n);
    void (*on_writable)(void *owner); /* after file_call_send() said false */
    /* The end, with its record, or with *e: e->sys is the errno if it has one; ERR_NOT_FOUND with
     * sys 0: it is the workspace that is not there. The call is gone. */
    void (*on_end)(void *owner, const char *record, size_t n, const struct error *e);
};

/* Begin an operation: request is its record (op=… and what belongs to it), and is freed; events are
 * copied. NULL with *e set: ERR_STATE while changes are held, ERR_UNAVAILABLE without a helper. */
struct file_call *files_call(struct files *f, struct record *request,
                             const struct file_events *events, void *owner, struct error *e);
/* Send content. False: no more until on_writable, please (it is queued all the same). */
bool file_call_send(struct file_call *c, const char *bytes, size_t n);
/* The content is complete: what was sent becomes the file, or the tar is at its end. */
void file_call_finish(struct file_call *c);
/* Go on with packets, after on_packet said false. */
void file_call_resume(struct file_call *c);
/* Call it off: what is not complete leaves nothing behind. NULL is fine. */
void file_call_close(struct file_call *c);

/* Somebody who wants nothing to change in the workspace. The owner fills it and keeps it until
 * files_release_changes(), or on_stop. */
struct changes_hold {
    struct list link;        /* files.c's */
    const char *refusal;     /* what new changes hear, static */
    const char *calling_off; /* what those under way hear that were cut short, static */
    /* No change is under way. Comes each time that this is so again, also from inside
     * files_hold_changes(); it may release. */
    void (*on_quiet)(struct changes_hold *h);
    void (*on_stop)(struct changes_hold *h); /* files_free(); the hold is released */
};

/* From now on new changes are refused. Those under way (content that still comes) are called off:
 * unless their workers were done before, they fail and leave nothing behind; both with ERR_STATE.
 */
void files_hold_changes(struct files *f, struct changes_hold *h);
void files_release_changes(struct changes_hold *h);

#endif
