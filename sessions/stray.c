#include "sessions/stray.h"
#include "base/log.h"
#include "sessions/ports.h"
#include "sessions/sessions_internal.h"
#include "sessions/tree.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLIMB_MAX 8192 /* a tree may be deep, and its links may change while we climb */

/* ---- telling ---- */

size_t strays_describe(struct tree *t, struct stray *to, size_t room)
{
    struct ports ports;
    uint64_t now = proc_ticks_now(), per_second = (uint64_t)sysconf(_SC_CLK_TCK);
    size_t told = 0;
    ports_begin(&ports);
    for (size_t i = 0; i < t->set.count && told < room; i++) {
        struct proc_stat st;
        if (!member_look(&t->set, &t->set.items[i], &st))
            continue;
        struct stray *s = &to[told++];
        *s = (struct stray){.pid = st.pid};
        snprintf(s->comm, sizeof s->comm, "%s", st.comm);
        s->age_ms = now > st.start_ticks ? (now - st.start_ticks) * 1000 / per_second : 0;
        ports_of(&ports, st.pid, s->ports, sizeof s->ports);
    }
    ports_end(&ports);
    return told;
}

size_t stray_text(const struct stray *s, char buf[STRAY_TEXT])
{
    int n = snprintf(buf, STRAY_TEXT, "%d %s age=%llu.%llu%s%s", (int)s->pid, s->comm,
                     (unsigned long long)s->age_ms / 1000, (unsigned long long)s->age_ms / 100 % 10,
                     s->ports[0] ? " listen=" : "", s->ports);
    return n > 0 ? (size_t)n : 0;
}

/* ---- finding ---- */

static int refuse(pid_t pid, const char *kind, const char *name, const char *hint, struct error *e)
{
    return error_set(e, ERR_DENIED, "%d is no stray: it belongs to %s%s%s%s%s", (int)pid, kind,
                     *name ? " '" : "", name, *name ? "'" : "", hint);
}

static struct process *process_of_child(struct sessions *all, const struct child *c)
{
    list_each(p, &all->processes, struct process, link) if (p->child == c) return p;
    return NULL;
}

static struct session *session_of_shell(struct sessions *all, pid_t pid)
{
    list_each(s, &all->sessions, struct session, link) if (s->shell.pid == pid) return s;
    return NULL;
}

/* pid is, or descends from, a child that init has started itself; below is the ancestor of pid, or
 * pid, that is a child of that one (NULL: pid is that one). 0 if it is a stray. */
static int check_below_child(struct sessions *all, pid_t pid, const struct child *c,
                             const struct proc_stat *below, struct error *e)
{
    const struct process *p = process_of_child(all, c);
    const struct session *s = p ? NULL : session_of_shell(all, c->pid);
    if (p)
        return refuse(pid, "process", p->id, ", which runs (see: sandboxctl kill ID)", e);
    if (!s)
        return refuse(pid, "no session", "", "", e);
    if (!below)
        return refuse(pid, "session", s->name, ": it is its shell", e);
    if (session_is_older(s, below))
        return 0;
    return refuse(pid, "command", s->running->id, ", which runs (see: sandboxctl kill ID)", e);
}

/* top was adopted by init. */
static int check_below_orphan(struct sessions *all, pid_t pid, const struct proc_stat *top,
                              struct error *e)
{
    list_each(p, &all->processes, struct process, link)
    {
        if (!process_owns_orphan(p, top))
            continue;
        if (p->state == PROCESS_EXITED)
            return 0;
        return refuse(pid, "process", p->id, ", which runs (see: sandboxctl kill ID)", e);
    }
    list_each(s, &all->sessions, struct session, link)
    {
        if (!session_owns_orphan(s, top))
            continue;
        if (!s->running || session_is_older(s, top))
            return 0;
        return refuse(pid, "command", s->running->id, ", which runs (see: sandboxctl kill ID)", e);
    }
    return refuse(pid, "no session", "", "", e);
}

static int not_there(pid_t pid, struct error *e)
{
    return error_set(e, ERR_NOT_FOUND, "%d: no such process", (int)pid);
}

/* 0 with its start time if pid is a stray of some session or ended process, or -1 with *e that says
 * whose it is. */
static int stray_find(struct sessions *all, pid_t pid, uint64_t *start_ticks, struct error *e)
{
    struct proc_stat st, below = {0};
    if (pid == getpid())
        return error_set(e, ERR_DENIED, "%d is no stray: it is init (see: sandboxctl shutdown)",
                         (int)pid);
    if (pid < 1 || proc_stat_read(pid, &st) < 0 || proc_stat_is_dead(&st))
        return not_there(pid, e);
    *start_ticks = st.start_ticks;
    for (int turn = 0; turn < CLIMB_MAX; turn++) {
        const struct child *c = child_find(st.pid);
        if (c)
            return check_below_child(all, pid, c, below.pid ? &below : NULL, e);
        if (st.ppid == getpid())
            return check_below_orphan(all, pid, &st, e);
        below = st;
        if (st.ppid <= 0 || proc_stat_read(below.ppid, &st) < 0)
            break;
    }
    return refuse(pid, "no session", "", "", e);
}

/* ---- ending ---- */

struct stray_kill {
    struct list link;
    pid_t pid;
    uint64_t start_ticks;
    struct teardown *teardown;
    struct list wishes; /* struct stray_wish */
};

static void collect(void *context, struct teardown *t)
{
    struct stray_kill *k = context;
    struct proc_stat st;
    if (proc_stat_read(k->pid, &st) == 0 && st.start_ticks == k->start_ticks)
        teardown_add_root(t, k->pid);
}

static void kill_free(struct stray_kill *k)
{
    list_remove(&k->link);
    while (!list_is_empty(&k->wishes))
        list_remove(k->wishes.next);
    free(k);
}

static void on_torn_down(void *context, const struct teardown_report *report)
{
    struct stray_kill *k = context;
    children_sweep();
    LOG_INF("stray_killed", F_INT("pid", k->pid), F_INT("ended", report->ended),
            F_INT("survivors", report->survivor_count));
    while (!list_is_empty(&k->wishes)) {
        struct stray_wish *w = list_entry(k->wishes.next, struct stray_wish, link);
        list_remove(&w->link);
        w->on_done(w->owner, k->pid, report);
    }
    kill_free(k);
}

void stray_wish_drop(struct stray_wish *w)
{
    if (w->link.next)
        list_remove(&w->link);
}

static struct stray_kill *kill_of(struct sessions *all, pid_t pid, uint64_t start_ticks)
{
    list_each(k, &all->stray_kills, struct stray_kill,
              link) if (k->pid == pid && k->start_ticks == start_ticks) return k;
    return NULL;
}

int stray_kill(struct sessions *all, pid_t pid, uint64_t grace_ms, struct stray_wish *wish,
               struct error *e)
{
    uint64_t start_ticks = 0;
    if (stray_find(all, pid, &start_ticks, e) < 0)
        return -1;
    struct stray_kill *k = kill_of(all, pid, start_ticks);
    if (k) {
        teardown_hurry(k->teardown, grace_ms);
        list_append(&k->wishes, &wish->link);
        return 0;
    }
    k = calloc(1, sizeof *k);
    if (!k)
        return error_set(e, ERR_MEMORY, "stray %d: no memory", (int)pid);
    k->pid = pid;
    k->start_ticks = start_ticks;
    list_init(&k->link);
    list_init(&k->wishes);
    struct teardown_plan plan = {.loop = all->loop,
                                 .first_signal = grace_ms ? SIGTERM : SIGKILL,
                                 .grace_ms = grace_ms,
                                 .collect = collect,
                                 .on_done = on_torn_down,
                                 .context = k,
                                 .cgroup_fd = -1};
    k->teardown = teardown_start(&plan, e);
    if (!k->teardown) {
        free(k);
        return error_wrap(e, "stray %d", (int)pid);
    }
    list_append(&all->stray_kills, &k->link);
    list_append(&k->wishes, &wish->link);
    return 0;
}

int stray_signal(struct sessions *all, pid_t pid, int sig, struct error *e)
{
    uint64_t start_ticks = 0;
    struct tree t;
    if (stray_find(all, pid, &start_ticks, e) < 0 || tree_init(&t, e) < 0)
        return -1;
    tree_add(&t, pid);
    if (t.set.count == 0 || t.set.items[0].start_ticks != start_ticks) {
        tree_free(&t);
        return not_there(pid, e);
    }
    tree_grow(&t);
    int sent = tree_signal(&t, sig, e);
    tree_free(&t);
    if (sent < 0)
        return error_wrap(e, "stray %d", (int)pid);
    return sent ? sent : not_there(pid, e);
}

void strays_free(struct sessions *all)
{
    list_each(k, &all->stray_kills, struct stray_kill, link)
    {
        teardown_cancel(k->teardown);
        kill_free(k);
    }
}
