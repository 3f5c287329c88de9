#include "sessions/tree_signal.h"
#include "sessions/proc.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#define TREE_MAX 8192

int tree_signal_init(struct tree_signal *t, struct error *e)
{
    t->count = 0;
    t->pids = malloc(TREE_MAX * sizeof *t->pids);
    return t->pids ? 0 : error_set(e, ERR_MEMORY, "signal: no memory");
}

bool tree_signal_add(void *context, pid_t pid)
{
    struct tree_signal *t = context;
    if (pid > 1 && t->count < TREE_MAX)
        t->pids[t->count++] = pid;
    return t->count < TREE_MAX;
}

int tree_signal_send(struct tree_signal *t, int sig, struct error *e)
{
    int sent = 0;
    bool is_refused = false;
    for (size_t i = 0; i < t->count; i++) /* grows as it goes: what is added is walked as well */
        proc_children(t->pids[i], tree_signal_add, t);
    for (size_t i = t->count; i-- > 0;) {
        if (kill(t->pids[i], sig) == 0)
            sent++;
        else
            is_refused = is_refused || errno == EPERM;
    }
    free(t->pids);
    *t = (struct tree_signal){0};
    if (sent == 0 && is_refused)
        return error_set_sys(e, EPERM, "signal %d", sig);
    return sent;
}
