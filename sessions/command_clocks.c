/* What the clocks of a command look at, and what happens when one runs out. */
#include "sessions/command.h"
#include "sessions/cpu_time.h"
#include "sessions/proc.h"
#include "sessions/sessions_internal.h"

#include <stdlib.h>

static void on_expired(void *owner, enum clock_kind kind)
{
    struct command *c = owner;
    if (c->state != COMMAND_RUNNING || c->has_returned)
        return;
    c->outcome.clock = clock_kind_name(kind);
    command_kill(c, VERDICT_TIMEOUT, c->session->kill_grace_ms);
}

static bool has_unread(void *owner)
{
    const struct command *c = owner;
    return capture_has_unread(&c->capture);
}

struct child_walk {
    const struct session *session;
    pid_t found[256]; /* looked at after the list is read: the walks below share one stack */
    size_t count;
};

static bool note_child(void *context, pid_t pid)
{
    struct child_walk *w = context;
    struct proc_stat st;
    if (proc_stat_read(pid, &st) == 0 && !session_is_older(w->session, &st))
        w->found[w->count++] = pid;
    return w->count < sizeof w->found / sizeof w->found[0];
}

/* The shell counts the children that it has waited for as its own; those that are older than the
 * command are taken out again, as they were when they were last seen. */
static uint64_t older_ended(struct command *c)
{
    const struct session *s = c->session;
    uint64_t ended = 0;
    for (size_t i = 0; i < c->older_counted && i < s->older_count; i++) {
        uint64_t now = cpu_time_of(s->older[i]);
        if (now >= c->cpu_older[i] && now > 0)
            c->cpu_older[i] = now;
        else
            ended += c->cpu_older[i];
    }
    return ended;
}

static uint64_t cpu_ms(void *owner)
{
    struct command *c = owner;
    const struct session *s = c->session;
    struct child_walk w = {.session = s};
    uint64_t own = cpu_time_of(s->shell.pid), ended = older_ended(c);
    uint64_t ticks = own > c->cpu_before + ended ? own - c->cpu_before - ended : 0;
    proc_children(s->shell.pid, note_child, &w);
    for (size_t i = 0; i < w.count; i++)
        ticks += cpu_time_of_tree(w.found[i]);
    return cpu_time_ms(ticks);
}

const struct clocks_events command_clocks_events = {
    .on_expired = on_expired, .has_unread = has_unread, .cpu_ms = cpu_ms};

void command_start_clocks(struct command *c)
{
    const struct session *s = c->session;
    if (c->clocks.limits.cpu_ms) {
        c->cpu_before = cpu_time_of(s->shell.pid);
        c->cpu_older = calloc(s->older_count ? s->older_count : 1, sizeof *c->cpu_older);
        c->older_counted = c->cpu_older ? s->older_count : 0;
        older_ended(c);
    }
    clocks_start(&c->clocks, c->output);
}
