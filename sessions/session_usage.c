/*
 * CPU time of a command: what its shell, and the children that the shell has waited for, have used
 * more than when the command before ended. In ticks (proc(5): utime, stime, cutime, cstime), and
 * without what still lives.
 */
#include "sessions/outcome.h"
#include "sessions/proc.h"
#include "sessions/sessions_internal.h"

static uint64_t without(uint64_t all, uint64_t before)
{
    return all > before ? all - before : 0;
}

void session_take_usage(struct session *s, struct outcome *o)
{
    struct proc_stat st;
    if ((o && o->has_usage) || s->shell.pid <= 0 || proc_stat_read(s->shell.pid, &st) < 0)
        return;
    uint64_t user_us = proc_ticks_us(st.user_ticks + st.waited_user_ticks);
    uint64_t system_us = proc_ticks_us(st.system_ticks + st.waited_system_ticks);
    if (o) {
        o->has_usage = true;
        o->user_us = without(user_us, s->shell_user_us);
        o->system_us = without(system_us, s->shell_system_us);
    }
    s->shell_user_us = user_us;
    s->shell_system_us = system_us;
}

void session_leave_usage(const struct session *s, struct outcome *o)
{
    o->user_us = without(o->user_us, s->shell_user_us);
    o->system_us = without(o->system_us, s->shell_system_us);
    o->peak_kib = 0; /* of any command that the shell has run */
}
