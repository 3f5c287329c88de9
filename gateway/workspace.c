#include "gateway/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_S 10. /* for a worker that a file system holds up */
#define TRIES  5   /* by workers that are killed at it */

/* ---- whether it is there ----------------------------------------------------------------- */

void workspace_note(struct upstream *u, const char *path, int sys)
{
    char text[WIRE_WORDS_MAX];
    snprintf(text, sizeof text, "workspace %.400s: %s", path, strerror(sys));
    upstream_tell_trouble(u, sys ? text : "");
}

/* With the gateway's rights, which say nothing on those of the sessions' user. */
void workspace_look(struct upstream *u, const char *path)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 || errno != EACCES)
        workspace_note(u, path, fd < 0 ? errno : 0);
    if (fd >= 0)
        close(fd);
}

/* ---- emptying ---------------------------------------------------------------------------- */

struct emptying {
    struct ev_loop *loop;
    struct files *files;
    struct changes_hold hold;
    void (*done)(void *context, const struct error *e);
    void *context;
    ev_timer patience; /* active: changes are not over yet */
    unsigned tries;
};

static void emptying_end(struct emptying *t, const struct error *e)
{
    void (*done)(void *, const struct error *) = t->done;
    void *context = t->context;
    ev_timer_stop(t->loop, &t->patience);
    files_release_changes(&t->hold);
    free(t);
    done(context, e);
}

static void empty_now(struct emptying *t);

/* A worker that was ended has left the rest for another. */
static void on_emptied(void *owner, const char *record, size_t n, const struct error *e)
{
    struct emptying *t = owner;
    (void)record;
    (void)n;
    if (e && e->code == ERR_UNAVAILABLE && t->tries < TRIES)
        empty_now(t);
    else
        emptying_end(t, e);
}

static void empty_now(struct emptying *t)
{
    static const struct file_events events = {.on_end = on_emptied};
    struct error e = {0};
    struct record request = {0};
    t->tries++;
    ev_timer_stop(t->loop, &t->patience);
    record_str(&request, "op", "empty");
    if (!files_call(t->files, &request, &events, t, &e))
        emptying_end(t, &e);
}

static void on_patience(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    empty_now(w->data);
}

static void on_quiet(struct changes_hold *h)
{
    struct emptying *t = list_entry(h, struct emptying, hold);
    if (ev_is_active(&t->patience)) /* else it has begun */
        empty_now(t);
}

static void on_stop(struct changes_hold *h)
{
    struct error e = {0};
    error_set(&e, ERR_UNAVAILABLE, "the gateway is stopping");
    emptying_end(list_entry(h, struct emptying, hold), &e);
}

void workspace_empty(struct ev_loop *loop, struct files *f,
                     void (*done)(void *context, const struct error *e), void *context)
{
    struct emptying *t = calloc(1, sizeof *t);
    if (!t) {
        struct error e = {0};
        error_set(&e, ERR_MEMORY, "no memory to empty the workspace");
        done(context, &e);
        return;
    }
    *t = (struct emptying){
        .loop = loop,
        .files = f,
        .hold = {.refusal = "the sandbox is being deleted",
                 .calling_off = "the sandbox has been deleted meanwhile",
                 .on_quiet = on_quiet,
                 .on_stop = on_stop},
        .done = done,
        .context = context,
    };
    ev_timer_init(&t->patience, on_patience, WAIT_S, 0.);
    t->patience.data = t;
    ev_timer_start(loop, &t->patience);
    files_hold_changes(f, &t->hold);
}
