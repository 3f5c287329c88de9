/*
 * What a session's commands leave behind: live descendants, and the pipes that they hold.
 */
#include "sessions/session.h"
#include "base/fd.h"
#include "base/log.h"
#include "sessions/proc.h"
#include "sessions/sessions_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRAYS_KEEP ((uint64_t)256 * 1024) /* bytes kept of what strays write */

struct stray_walk {
    const struct session *session;
    bool (*each)(void *context, pid_t pid);
    void *context;
    bool is_done;
};

static bool on_shell_child(void *context, pid_t pid)
{
    struct stray_walk *w = context;
    w->is_done = !w->each(w->context, pid);
    return !w->is_done;
}

static bool on_init_child(void *context, pid_t pid)
{
    struct stray_walk *w = context;
    if (child_find(pid) || !proc_environ_has(pid, w->session->mark))
        return true;
    return on_shell_child(context, pid);
}

void session_each_stray(const struct session *s, bool (*each)(void *context, pid_t pid),
                        void *context)
{
    struct stray_walk w = {.session = s, .each = each, .context = context};
    if (s->shell.pid > 0)
        proc_children(s->shell.pid, on_shell_child, &w);
    if (!w.is_done)
        proc_children(getpid(), on_init_child, &w);
}

void session_each_orphan(const struct session *s, bool (*each)(void *context, pid_t pid),
                         void *context)
{
    struct stray_walk w = {.session = s, .each = each, .context = context};
    proc_children(getpid(), on_init_child, &w);
}

static bool count_live(void *context, pid_t pid)
{
    struct proc_stat st;
    *(unsigned *)context += proc_stat_read(pid, &st) == 0 && st.state != 'Z' && st.state != 'X';
    return true;
}

unsigned session_count_strays(const struct session *s)
{
    unsigned n = 0;
    if (!s->running)
        session_each_stray(s, count_live, &n);
    return n;
}

#define OLDER_MAX 4096

static bool note_child(void *context, pid_t pid)
{
    struct session *s = context;
    if ((s->older_count & (s->older_count + 1)) == 0 || !s->older) {
        pid_t *more = realloc(s->older, (2 * s->older_count + 2) * sizeof *more);
        if (!more)
            return false;
        s->older = more;
    }
    s->older[s->older_count++] = pid;
    return s->older_count < OLDER_MAX;
}

void session_note_children(struct session *s)
{
    s->older_count = 0;
    /* Between two commands it is a shell, which has one thread. */
    if (s->shell.pid > 0)
        proc_children_of_only_thread(s->shell.pid, note_child, s);
}

void session_leftover_free(struct leftover *l)
{
    capture_stop(&l->capture);
    list_remove(&l->link);
    free(l);
}

static void on_leftover_eof(void *context)
{
    session_leftover_free(context);
}

void session_keep_leftover(struct session *s, struct capture *from)
{
    struct leftover *l = calloc(1, sizeof *l);
    if (!s->stray_output)
        s->stray_output = output_new(STRAYS_KEEP);
    s->has_dirty_fifos = true;
    if (!l || !s->stray_output) {
        free(l);
        capture_stop(from);
        return;
    }
    /* Background children of one session must not use up the descriptors of all: the oldest lose
     * their reader (their next write ends in SIGPIPE). */
    if (!list_is_empty(&s->leftovers) && fd_next_is_scarce(4 * SESSIONS_FD_RESERVE)) {
        LOG_WRN("stray_output_closed", F_STR("session", s->name));
        session_leftover_free(list_entry(s->leftovers.next, struct leftover, link));
    }
    int fd[STREAM_COUNT] = {from->fd[STREAM_STDOUT], from->fd[STREAM_STDERR]};
    capture_detach(from);
    l->session = s;
    l->capture.on_eof = on_leftover_eof;
    l->capture.context = l;
    capture_start(&l->capture, s->all->loop, s->stray_output, fd);
    list_append(&s->leftovers, &l->link);
}
