/*
 * What a session's commands leave behind: live descendants. (What these write: late_output.c.)
 */
#include "sessions/session.h"
#include "sessions/orphan.h"
#include "sessions/process.h"
#include "sessions/sessions_internal.h"
#include "sessions/tree.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- who belongs to the session ---- */

struct root_walk {
    bool (*each)(void *context, pid_t pid);
    void *context;
    bool is_done;
};

static bool on_shell_child(void *context, pid_t pid)
{
    struct root_walk *w = context;
    w->is_done = !w->each(w->context, pid);
    return !w->is_done;
}

/* What a shell leaves behind when it dies keeps its session id, unless it has made its own, and its
 * environment, unless it has cleared that. Only a cgroup tells of one that did both. */
bool session_owns_orphan(const struct session *s, const struct proc_stat *st)
{
    return !child_find(st->pid) &&
           (shell_led(&s->shell, st->sid, st->start_ticks) || proc_environ_has(st->pid, s->mark) ||
            cgroup_has(&s->cgroup, st->pid));
}

static bool owns_orphan(const void *owner, const struct proc_stat *st)
{
    return session_owns_orphan(owner, st);
}

void session_each_root(const struct session *s, bool (*each)(void *context, pid_t pid),
                       void *context)
{
    struct root_walk w = {.each = each, .context = context};
    if (s->shell.pid > 0)
        proc_children(s->shell.pid, on_shell_child, &w);
    if (!w.is_done)
        orphans_each(owns_orphan, s, each, context);
}

void session_each_orphan(const struct session *s, bool (*each)(void *context, pid_t pid),
                         void *context)
{
    orphans_each(owns_orphan, s, each, context);
}

/* ---- who is older than the command that runs ---- */

static bool is_listed(const struct session *s, pid_t pid)
{
    for (size_t i = 0; i < s->older_count; i++)
        if (s->older[i] == pid)
            return true;
    return false;
}

/* True if a process of that session id was there before the command: its daemons, which the shell
 * adopts while the command runs, are no part of the command. The leader's pid is not given to
 * another while the id is in use. */
static bool has_older_leader(const struct session *s, const struct proc_stat *st, uint64_t began)
{
    struct proc_stat leader;
    if (st->sid <= 1 || st->sid == st->pid || st->sid == s->shell.pid)
        return false;
    return is_listed(s, st->sid) ||
           (proc_stat_read(st->sid, &leader) == 0 && leader.start_ticks < began);
}

bool session_is_older(const struct session *s, const struct proc_stat *st)
{
    if (!s->running)
        return true;
    uint64_t began = s->running->began_ticks;
    /* A listed pid that has started since is another process: pids are reused. Within the tick in
     * which the command began the list alone can tell. */
    return st->start_ticks < began || (st->start_ticks == began && is_listed(s, st->pid)) ||
           has_older_leader(s, st, began);
}

#define OLDER_MAX 4096 /* of more, those of the very last tick may be taken for the command's */

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

/* ---- strays ---- */

struct stray_walk {
    const struct session *session;
    struct tree *tree;
    bool wants_new; /* those that the running command leaves; else those that were there before */
    bool has_seen;  /* any at all */
};

static bool add_stray(void *context, pid_t pid)
{
    struct stray_walk *w = context;
    struct proc_stat st;
    w->has_seen = true;
    if (proc_stat_read(pid, &st) < 0 || proc_stat_is_dead(&st))
        return true;
    /* Nobody is older than what has ended. */
    if (session_is_older(w->session, &st) == w->wants_new)
        return true;
    return tree_add(w->tree, pid);
}

static bool add_orphan(void *context, pid_t pid)
{
    const struct stray_walk *w = context;
    return processes_own(w->session->all, pid) || add_stray(context, pid);
}

/* False: the shell has no child at all. */
static bool grow_strays(const struct session *s, struct tree *t, bool wants_new, bool has_shell)
{
    struct stray_walk w = {.session = s, .tree = t, .wants_new = wants_new};
    t->limit = STRAYS_MAX;
    member_release_pidfds(&t->set, 0); /* it is only looked at */
    t->parent = s->shell.pid;
    if (has_shell) /* between two commands it has one thread */
        proc_children_of_only_thread(s->shell.pid, add_stray, &w);
    t->parent = getpid();
    if (!has_shell || !wants_new)
        session_each_orphan(s, add_orphan, &w);
    tree_grow(t);
    return !has_shell || w.has_seen;
}

size_t session_list_strays(const struct session *s, struct stray *to, size_t room)
{
    struct tree t;
    if (tree_init(&t, NULL) < 0)
        return 0;
    grow_strays(s, &t, false, s->shell.pid > 0);
    size_t count = t.set.count;
    strays_describe(&t, to, room);
    tree_free(&t);
    return count;
}

bool session_tell_new_strays(const struct session *s, struct outcome *o)
{
    struct tree t;
    bool has_shell = s->shell.pid > 0 && s->shell.pid == s->running->shell_pid;
    if (tree_init(&t, NULL) < 0)
        return true;
    bool has_children = grow_strays(s, &t, true, has_shell);
    o->stray_count = t.set.count;
    strays_describe(&t, o->strays, STRAYS_TOLD);
    tree_free(&t);
    return has_children;
}
