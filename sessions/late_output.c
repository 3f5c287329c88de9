#include "sessions/late_output.h"
#include "base/fd.h"
#include "base/log.h"
#include "sessions/sessions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TURN_READS 4 /* of one stream in one turn of the loop: a flood shall starve nobody */

struct late_output {
    struct list link;
    struct ev_loop *loop;
    int fd[STREAM_COUNT];
    ev_io io[STREAM_COUNT];
    char session[65];
};

void late_outputs_init(struct late_outputs *all, struct ev_loop *loop)
{
    list_init(&all->list);
    all->loop = loop;
}

static void close_stream(struct late_output *l, enum stream s)
{
    ev_io_stop(l->loop, &l->io[s]);
    fd_close(&l->fd[s]);
}

static void late_output_free(struct late_output *l)
{
    for (enum stream s = 0; s < STREAM_COUNT; s++)
        close_stream(l, s);
    list_remove(&l->link);
    free(l);
}

static void on_readable(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop, (void)events;
    static char nowhere[OUTPUT_CHUNK];
    struct late_output *l = w->data;
    enum stream s = w == &l->io[STREAM_STDOUT] ? STREAM_STDOUT : STREAM_STDERR;
    ssize_t n = 1;
    for (int i = 0; i < TURN_READS && n > 0; i++)
        n = read(l->fd[s], nowhere, sizeof nowhere);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    close_stream(l, s);
    if (l->fd[STREAM_STDOUT] < 0 && l->fd[STREAM_STDERR] < 0)
        late_output_free(l);
}

/* What one session leaves must not use up the descriptors of all: its oldest then lose their reader
 * (their next write ends in SIGPIPE). */
static void make_room(struct late_outputs *all, const char *session)
{
    if (list_is_empty(&all->list) || !fd_few_are_left(4 * SESSIONS_FD_RESERVE))
        return;
    list_each(l, &all->list, struct late_output, link)
    {
        if (strcmp(l->session, session) != 0)
            continue;
        LOG_WRN("stray_output_closed", F_STR("session", session));
        late_output_free(l);
        return;
    }
}

bool late_output_take(struct late_outputs *all, struct capture *from, const char *session)
{
    struct late_output *l = capture_is_at_eof(from) ? NULL : calloc(1, sizeof *l);
    if (!l) {
        capture_stop(from);
        return false;
    }
    make_room(all, session);
    l->loop = all->loop;
    snprintf(l->session, sizeof l->session, "%s", session);
    memcpy(l->fd, from->fd, sizeof l->fd);
    capture_detach(from);
    for (enum stream s = 0; s < STREAM_COUNT; s++) {
        ev_io_init(&l->io[s], on_readable, l->fd[s], EV_READ);
        l->io[s].data = l;
        if (l->fd[s] >= 0)
            ev_io_start(l->loop, &l->io[s]);
    }
    list_append(&all->list, &l->link);
    return true;
}

void late_outputs_free(struct late_outputs *all)
{
    list_each(l, &all->list, struct late_output, link) late_output_free(l);
}
