/* A process is held as a teardown holds it: by pid, start time and pidfd (member.h), so what is
 * signalled is what was found, though pids are reused meanwhile (case G2). */
#include "sessions/tree.h"

#include <errno.h>
#include <stdlib.h>

int tree_init(struct tree *t, struct error *e)
{
    *t = (struct tree){.limit = TREE_MAX};
    if (member_set_init(&t->set) < 0)
        return error_set(e, ERR_MEMORY, "no memory to look at processes");
    return 0;
}

void tree_free(struct tree *t)
{
    member_set_free(&t->set);
}

/* Its parent makes it certain; where none is known, that it is there now has to do. */
static bool add(struct tree *t, pid_t pid, pid_t parent, uint32_t index)
{
    struct hold_claim claim = {.ppid = parent, .before_ticks = parent ? 0 : UINT64_MAX};
    return t->set.count < t->limit && member_hold(&t->set, pid, index, &claim, 0) != HOLD_FULL;
}

bool tree_add(void *context, pid_t pid)
{
    struct tree *t = context;
    return add(t, pid, t->parent, MEMBER_NONE);
}

struct growth {
    struct tree *tree;
    uint32_t parent;
};

static bool add_child(void *context, pid_t pid)
{
    struct growth *g = context;
    return add(g->tree, pid, g->tree->set.items[g->parent].pid, g->parent);
}

void tree_grow(struct tree *t)
{
    for (uint32_t i = 0; i < t->set.count && t->set.count < t->limit; i++) {
        struct growth g = {.tree = t, .parent = i};
        const struct member *m = &t->set.items[i];
        if (m->threads == 1)
            proc_children_of_only_thread(m->pid, add_child, &g);
        else
            proc_children(m->pid, add_child, &g);
    }
}

int tree_signal(struct tree *t, int sig, struct error *e)
{
    int sent = 0, refused = 0;
    for (size_t i = t->set.count; i-- > 0;) {
        if (member_signal(&t->set, &t->set.items[i], sig) == 0)
            sent++;
        else if (errno == EPERM)
            refused = EPERM;
    }
    if (sent == 0 && refused)
        return error_set_sys(e, refused, "signal %d", sig);
    return sent;
}
