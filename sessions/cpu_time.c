#include "sessions/cpu_time.h"
#include "base/clock.h"
#include "sessions/proc.h"

#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#define TREE_MAX    4096    /* processes that wait to be looked at */
#define LOOK_MAX_NS 5000000 /* for one tree */

/* A walk without recursion. init has one thread. */
static struct {
    pid_t pids[TREE_MAX];
    size_t count;
} stack;

static bool push(void *context, pid_t pid)
{
    (void)context;
    if (stack.count == TREE_MAX)
        return false;
    stack.pids[stack.count++] = pid;
    return true;
}

uint64_t cpu_time_of(pid_t pid)
{
    struct proc_stat st;
    if (proc_stat_read(pid, &st) < 0)
        return 0;
    return st.user_ticks + st.system_ticks + st.waited_user_ticks + st.waited_system_ticks;
}

uint64_t cpu_time_of_tree(pid_t pid)
{
    uint64_t ticks = 0, until = clock_mono_ns() + LOOK_MAX_NS;
    stack.count = 0;
    push(NULL, pid);
    while (stack.count > 0 && clock_mono_ns() < until) {
        pid_t next = stack.pids[--stack.count];
        ticks += cpu_time_of(next);
        proc_children(next, push, NULL);
    }
    return ticks;
}

uint64_t cpu_time_ms(uint64_t ticks)
{
    long hz = sysconf(_SC_CLK_TCK);
    return ticks * 1000u / (hz > 0 ? (uint64_t)hz : 100u);
}
