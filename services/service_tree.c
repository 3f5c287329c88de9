/*
 * What belongs to a service: its process, the hook that runs, and what these have left behind. The
 * programs of a service don't reap what is not theirs, so they are no subreapers: its orphans come
 * to init, which knows them by the mark in their environment, by their session, or by the cgroup.
 */
#include "services/service.h"
#include "base/fd.h"
#include "sessions/orphan.h"
#include "sessions/tree.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CLIMB_MAX 8192 /* a tree may be deep, and its links may change while we climb */

/* One that is being loaded while its parent ends shows no mark yet, and one may clear its
 * environment: then its session tells, whose number is nobody else's while it is in use. */
static bool is_led(const struct service *s, const struct proc_stat *st)
{
    bool is_of_root =
        s->root_pid > 0 && st->sid == s->root_pid && (s->child || st->start_ticks <= s->root_ticks);
    return is_of_root || (s->hook && st->sid == s->hook_pid);
}

static bool owns_orphan(const void *owner, const struct proc_stat *st)
{
    const struct service *s = owner;
    return !child_find(st->pid) &&
           (is_led(s, st) || proc_environ_has(st->pid, s->mark) || cgroup_has(&s->cgroup, st->pid));
}

void service_each_root(const struct service *s, bool (*each)(void *context, pid_t pid),
                       void *context)
{
    if (s->child && !each(context, s->child->pid))
        return;
    if (s->hook && !each(context, s->hook->pid))
        return;
    orphans_each(owns_orphan, s, each, context);
}

bool service_has_member(const struct service *s, pid_t pid)
{
    struct proc_stat st;
    for (int turn = 0; turn < CLIMB_MAX && pid > 1 && proc_stat_read(pid, &st) == 0; turn++) {
        const struct child *c = child_find(pid);
        if (c)
            return c == s->child || c == s->hook;
        if (st.ppid == getpid())
            return owns_orphan(s, &st);
        pid = st.ppid;
    }
    return false;
}

static bool on_found(void *context, pid_t pid)
{
    (void)pid;
    *(bool *)context = true;
    return false;
}

bool service_has_tree(const struct service *s)
{
    bool is_found = s->child || s->hook;
    if (!is_found)
        service_each_root(s, on_found, &is_found);
    return is_found;
}

/* Each is looked at once, however many services there are. */
static const struct service *owner_of_orphan(const struct services *all, pid_t pid)
{
    struct proc_stat st;
    char name[SERVICE_NAME_MAX + 1];
    if (proc_stat_read(pid, &st) < 0)
        return NULL;
    if (proc_environ_get(pid, SERVICE_MARK_NAME, name, sizeof name))
        return services_look_up(all, name);
    list_each(s, &all->services, struct service, link)
    {
        if (service_is_live(s) && (is_led(s, &st) || cgroup_has(&s->cgroup, pid)))
            return s;
    }
    return NULL;
}

bool services_own(const struct services *all, pid_t pid)
{
    const struct child *c = child_find(pid);
    const struct service *s = c ? NULL : owner_of_orphan(all, pid);
    if (!c)
        return s && service_is_live(s);
    list_each(one, &all->services, struct service,
              link) if (one->child == c || one->hook == c ||
                        check_has(one->attempt, pid)) return true;
    return false;
}

/* ---- its end ---- */

static bool add_root(void *context, pid_t pid)
{
    teardown_add_root(context, pid);
    return true;
}

static void collect(void *context, struct teardown *t)
{
    service_each_root(context, add_root, t);
}

static void describe_survivors(struct service *s, const struct teardown_report *report)
{
    const struct teardown_survivor *first = report->survivors;
    char more[32] = "";
    if (report->survivor_count > 1)
        snprintf(more, sizeof more, " and %zu more", report->survivor_count - 1);
    snprintf(s->survivor_words, sizeof s->survivor_words, "%d %s: %s%s",
             report->survivors_told ? (int)first->pid : 0,
             report->survivors_told ? first->comm : "?", report->survivors_told ? first->why : "?",
             more);
}

static void on_torn_down(void *context, const struct teardown_report *report)
{
    struct service *s = context;
    s->survivors = report->survivor_count;
    if (s->survivors)
        describe_survivors(s, report);
    children_sweep(); /* the status of its process, if nobody has collected it yet */
    s->teardown = NULL;
    s->tree_is_over = true;
    service_mark(s);
}

int service_tear_down(struct service *s, int sig, uint64_t grace_ms, struct error *e)
{
    CLEANUP_FD int cgroup_fd = cgroup_open(&s->cgroup);
    struct teardown_plan plan = {.loop = s->all->host.loop,
                                 .first_signal = sig,
                                 .grace_ms = grace_ms,
                                 .collect = collect,
                                 .on_done = on_torn_down,
                                 .context = s,
                                 .cgroup_fd = cgroup_fd};
    s->teardown = teardown_start(&plan, e);
    return s->teardown ? 0 : error_wrap(e, "service '%s'", s->name);
}

/* ---- a signal ---- */

int service_signal(struct service *s, int sig, bool all, struct error *e)
{
    struct tree t;
    if (!s->child)
        return error_set(e, ERR_STATE, "service '%s' does not run: it is %s", s->name,
                         service_state_name(s->state));
    if (!all)
        return child_signal(s->child, sig) < 0
                   ? error_set_sys(e, errno, "service '%s': signal", s->name)
                   : 1;
    if (tree_init(&t, e) < 0)
        return -1;
    t.parent = getpid();
    service_each_root(s, tree_add, &t);
    tree_grow(&t);
    int sent = tree_signal(&t, sig, e);
    tree_free(&t);
    return sent < 0 ? error_wrap(e, "service '%s'", s->name) : sent;
}
