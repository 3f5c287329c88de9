/*
 * The end of a session: delete and reset. One teardown takes the shell, what it left behind and the
 * session's processes; the rest follows when that is verified.
 */
#include "sessions/session.h"
#include "base/fd.h"
#include "base/log.h"
#include "sessions/command.h"
#include "sessions/events.h"
#include "sessions/process.h"
#include "sessions/sessions_internal.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static bool add_root(void *context, pid_t pid)
{
    teardown_add_root(context, pid);
    return true;
}

static void collect(void *context, struct teardown *t)
{
    struct session *s = context;
    if (s->shell.pid > 0)
        teardown_add_root(t, s->shell.pid);
    session_each_root(s, add_root, t);
    processes_each_of(s->all, s, add_root, t);
}

/* bash notes a SIGTERM and acts on it later. Coming right before a fork it leaves a child of which
 * no walk knows, and the EXIT trap begins with waiting for that (seen with 5.2: the command for
 * which it was forked still counts as unfinished). Coming right before a read it is forgotten until
 * that is over; any other signal that bash catches ends the read. Where a trap of the user's may be
 * at work the shell is left alone. */
void session_remind(const struct session *s, struct teardown *t)
{
    struct proc_stat st;
    if (s->shell.pid <= 0 || s->shell.kind != SHELL_BASH || s->may_have_traps ||
        proc_stat_read(s->shell.pid, &st) < 0 || st.state != 'S' || !teardown_has(t, s->shell.pid))
        return;
    if (teardown_tell_children(t, s->shell.pid) == 0)
        (void)shell_interrupt(&s->shell);
}

static void remind(void *context, struct teardown *t)
{
    session_remind(context, t);
}

static void explain_end(const struct session *s, struct error *why)
{
    if (s->has_failed_setup) {
        *why = s->why;
        return;
    }
    error_set(why, ERR_STATE, "session '%s' was %s", s->name,
              s->ends_for_reset ? "reset" : "deleted");
}

static void finish_ending(void *context, const struct teardown_report *report)
{
    struct session *s = context;
    struct error why = {0};
    children_sweep();
    if (!s->ends_for_reset && s->was_ever_ready) /* it was deleted while its set-up failed */
        s->has_failed_setup = false;
    explain_end(s, &why);
    session_fail_dump(s, &why);
    if (s->running)
        command_session_gone(s->running);
    if (!s->ends_for_reset)
        session_refuse_waiters(s, &why);
    s->teardown = NULL;
    if (s->has_failed_setup) {
        s->has_failed_setup = false;
        shell_forget(&s->shell);
        session_give_up(s, &why);
        return;
    }
    LOG_INF(s->ends_for_reset ? "session_reset" : "session_deleted", F_STR("session", s->name),
            F_INT("ended", report->ended), F_INT("survivors", report->survivor_count));
    EVENT(EVENT_SESSION, s->ends_for_reset ? "reset" : "deleted", F_STR("session", s->name),
          F_INT("killed", report->ended), F_INT("survivors", report->survivor_count));
    if (!s->ends_for_reset) {
        workdir_close(&s->dir, s->all->runtime); /* whoever hears of it finds nothing left */
        cgroup_remove(&s->cgroup);
        session_tell_wishes(s, report, NULL);
        shell_kill(&s->shell); /* if it is still there: what is deleted lives no longer */
        session_free(s);
        return;
    }
    s->was_reset = true; /* the answer to it comes when the fresh shell is ready */
    teardown_keep(&s->torn_down, report);
    shell_forget(&s->shell);
    s->last_cwd[0] = '\0';
    s->last_status = 0;
    s->older_count = 0;
    s->may_have_traps = s->may_have_functions = false;
    s->was_restarted = s->was_state_lost = s->were_functions_lost = false;
    s->needs_setup = s->setup != NULL;
    if ((s->is_configured && session_remake(s, &why) < 0) || session_write_first_state(s, &why) < 0)
        session_give_up(s, &why);
    else
        session_restart_shell(s);
}

static int begin_ending(struct session *s, bool is_reset, struct session_wish *wish,
                        struct error *e)
{
    if (s->teardown) {
        s->ends_for_reset = s->ends_for_reset && is_reset;
        session_add_wish(s, wish);
        return 0;
    }
    CLEANUP_FD int cgroup_fd = cgroup_open(&s->cgroup);
    struct teardown_plan plan = {.loop = s->all->loop,
                                 .first_signal = SIGTERM,
                                 .grace_ms = s->kill_grace_ms,
                                 .collect = collect,
                                 .remind = remind,
                                 .on_done = finish_ending,
                                 .context = s,
                                 .cgroup_fd = cgroup_fd};
    s->ends_for_reset = is_reset;
    s->teardown = teardown_start(&plan, e);
    if (!s->teardown)
        return error_wrap(e, "session '%s'", s->name);
    struct error why = {0};
    explain_end(s, &why);
    if (s->running)
        command_session_ends(s->running, why.text);
    processes_session_ends(s->all, s, why.text);
    session_add_wish(s, wish);
    return 0;
}

void session_end_failed(struct session *s, const struct error *why)
{
    struct error e = {0};
    s->why = *why;
    s->has_failed_setup = true;
    if (begin_ending(s, s->is_configured || s->was_ever_ready, NULL, &e) == 0)
        return;
    LOG_ERR("teardown", F_STR("session", s->name), F_STR("why", e.text));
    s->has_failed_setup = false;
    session_give_up(s, why);
}

int session_delete(struct session *s, struct session_wish *wish, struct error *e)
{
    if (s->is_configured)
        return error_set(e, ERR_DENIED,
                         "session '%s' is declared in the configuration: it can be reset, not "
                         "deleted",
                         s->name);
    return begin_ending(s, false, wish, e);
}

void session_declare(struct session *s, bool is_configured)
{
    s->is_configured = is_configured;
    if (s->teardown && is_configured)
        s->ends_for_reset = true;
}

int session_reset(struct session *s, struct session_wish *wish, struct error *e)
{
    return begin_ending(s, true, wish, e);
}
