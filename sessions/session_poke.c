/*
 * Zombies below an idle dash or ash: these shells wait only when they run something.
 */
#include "sessions/session.h"
#include "sessions/proc.h"
#include "sessions/sessions_internal.h"

#include <string.h>

/* Zombies below an idle dash or ash would pile up to the pids limit (case AA8). Only while it has
 * children at all is there a tick; bash reaps by itself. */
struct zombie_count {
    unsigned zombies, children;
};

static bool count_zombie(void *context, pid_t pid)
{
    struct zombie_count *n = context;
    struct proc_stat st;
    n->children++;
    n->zombies += proc_stat_read(pid, &st) == 0 && st.state == 'Z';
    return true;
}

void session_watch_idle_shell(struct session *s)
{
    if (s->shell.kind == SHELL_POSIX && s->older_count > 0)
        ev_timer_again(s->all->loop, &s->poke);
}

void session_on_poke(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct session *s = w->data;
    struct zombie_count n = {0};
    struct error e;
    if (session_state(s) != SESSION_IDLE) {
        ev_timer_stop(loop, w);
        return;
    }
    proc_children(s->shell.pid, count_zombie, &n);
    if (n.children == 0)
        ev_timer_stop(loop, w);
    if (n.zombies == 0)
        return;
    s->poke_sequence = shell_poke(&s->shell, &e);
    if (s->poke_sequence)
        s->is_ready = false;
    else
        session_replace_shell(s, "it takes no orders");
}

void session_on_poked(struct session *s)
{
    s->poke_sequence = 0;
    s->is_ready = true;
    session_note_children(s);
    if (s->older_count == 0)
        ev_timer_stop(s->all->loop, &s->poke);
    session_step(s);
}
