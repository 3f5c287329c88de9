#include "sessions/snapshot.h"
#include "base/fd.h"
#include "sessions/sessions_internal.h"

#include <stdio.h>
#include <stdlib.h>

struct snapshot {
    struct session *session;
    char id[40];
    struct lock_request lock;
    bool is_dumping; /* the shell is at it: the session holds a pointer to this */
    void (*on_done)(void *owner, struct session *s, int fd, const struct error *e);
    void *owner; /* NULL: dropped */
};

/* It is over either way: give the lock back, tell, free. */
static void finish(struct snapshot *sn, int fd, const struct error *why)
{
    struct session *s = sn->session;
    lock_leave(&s->lock, &sn->lock);
    if (sn->owner)
        sn->on_done(sn->owner, s, fd, why);
    free(sn);
    session_step(s);
}

static void on_dumped(void *context, const struct error *why)
{
    struct snapshot *sn = context;
    struct error e = {0};
    int fd = -1;
    if (!why && (fd = session_detach_state(sn->session, &e)) < 0)
        why = &e;
    CLEANUP_FD int unwanted = sn->owner ? -1 : fd;
    (void)unwanted;
    finish(sn, sn->owner ? fd : -1, why);
}

static void on_granted(void *owner)
{
    struct snapshot *sn = owner;
    struct error e = {0};
    session_note_cwd(sn->session);
    sn->is_dumping = true;
    if (session_dump(sn->session, NULL, on_dumped, sn, &e) < 0)
        finish(sn, -1, &e);
}

static void on_refused(void *owner, const struct error *why)
{
    struct snapshot *sn = owner;
    if (sn->owner)
        sn->on_done(sn->owner, sn->session, -1, why);
    free(sn);
}

struct snapshot *
snapshot_take(struct session *s, const char *verb, const struct lock_patience *patience,
              void (*on_done)(void *owner, struct session *s, int fd, const struct error *e),
              void *owner, struct error *e)
{
    if (s->all->is_stopping) {
        error_set(e, ERR_UNAVAILABLE, "init is stopping");
        return NULL;
    }
    if (session_check_queue(s, patience, 0, e) < 0)
        return NULL;
    struct snapshot *sn = calloc(1, sizeof *sn);
    if (!sn) {
        error_set(e, ERR_MEMORY, "session '%s': no memory", s->name);
        return NULL;
    }
    sn->session = s;
    sn->on_done = on_done;
    sn->owner = owner;
    snprintf(sn->id, sizeof sn->id, "%s%llu", verb, (unsigned long long)++s->all->numbers);
    sn->lock = (struct lock_request){.id = sn->id,
                                     .kind = EVENT_SESSION,
                                     .patience = *patience,
                                     .on_granted = on_granted,
                                     .on_refused = on_refused,
                                     .owner = sn};
    session_enqueue(s, &sn->lock);
    return sn;
}

void snapshot_drop(struct snapshot *sn)
{
    sn->owner = NULL;
    if (sn->is_dumping)
        return;
    lock_leave(&sn->session->lock, &sn->lock);
    free(sn);
}
