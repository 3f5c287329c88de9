#include "sessions/orphan.h"

#include "sessions/child.h"

#include <unistd.h>

struct orphan_walk {
    bool (*owns)(const void *owner, const struct proc_stat *st);
    const void *owner;
    bool (*each)(void *context, pid_t pid);
    void *context;
};

static bool on_init_child(void *context, pid_t pid)
{
    const struct orphan_walk *w = context;
    struct proc_stat st;
    if (child_find(pid) || proc_stat_read(pid, &st) < 0 || proc_stat_is_dead(&st) ||
        !w->owns(w->owner, &st))
        return true;
    return w->each(w->context, pid);
}

void orphans_each(bool (*owns)(const void *owner, const struct proc_stat *st), const void *owner,
                  bool (*each)(void *context, pid_t pid), void *context)
{
    struct orphan_walk w = {.owns = owns, .owner = owner, .each = each, .context = context};
    proc_children(getpid(), on_init_child, &w);
}
