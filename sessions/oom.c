#include "sessions/oom.h"
#include "base/fd.h"
#include "base/log.h"
#include "sessions/cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int counter = -1; /* memory.events or memory.oom_control, open for good */

static int open_counter(const char *controller, const char *file)
{
    struct error e;
    CLEANUP_FD int folder = cgroup_open_own(controller, &e);
    return folder < 0 ? -1 : openat(folder, file, O_RDONLY | O_CLOEXEC);
}

void oom_init(void)
{
    counter = open_counter(NULL, "memory.events");
    if (counter < 0)
        counter = open_counter("memory", "memory.oom_control");
}

void oom_exit(void)
{
    fd_close(&counter);
}

uint64_t oom_kills(void)
{
    char text[512];
    ssize_t n = counter < 0 ? 0 : pread(counter, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, "oom_kill "); /* not oom_kill_disable, nor oom_group_kill */
    return line ? strtoull(line + strlen("oom_kill "), NULL, 10) : 0;
}

void oom_judge(struct outcome *o, uint64_t before, bool is_decided, const char *owner)
{
    uint64_t now = oom_kills();
    if (now <= before || o->verdict == VERDICT_SPAWN_FAILED)
        return;
    o->oom_kills = now - before;
    LOG_WRN("oom", F_STR("id", owner), F_INT("killed", o->oom_kills));
    bool is_killed = o->signal == SIGKILL || o->status == STATUS_KILLED;
    if (is_decided || !is_killed)
        return;
    o->verdict = VERDICT_OOM;
    if (!o->message[0])
        snprintf(o->message, sizeof o->message, "out of memory: the kernel killed %llu process%s",
                 (unsigned long long)o->oom_kills, o->oom_kills > 1 ? "es" : "");
}
