#include "init/scheduling.h"

#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS      100000 /* the shortest that there is */
#define RESET_ON_FORK 1u     /* SCHED_FLAG_RESET_ON_FORK */

/* struct sched_attr in its first form, which every kernel with the call takes. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

void scheduling_ask_for_short_slice(void)
{
    struct attributes a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, (unsigned)sizeof a, 0u) < 0 || a.policy != SCHED_OTHER ||
        a.nice < 0) /* the reset would take it from the children */
        return;
    a.flags |= RESET_ON_FORK;
    a.runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &a, 0u);
}
