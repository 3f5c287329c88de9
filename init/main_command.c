/*
 * The main command: the container's life. It leads a process group of its own; on a terminal that
 * group is put into the foreground, so that job control works and Ctrl-C reaches it once, from the
 * kernel. Its exit code is the container's (128+n for a signal).
 */
#include "init/init.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "sessions/events.h"
#include "sessions/outcome.h"
#include "sessions/proc.h"
#include "sessions/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static void on_exit_(void *context, const struct child_exit *how)
{
    struct init *in = context;
    struct outcome o = {0};
    char name[16];
    outcome_of_exit(&o, how, false);
    in->main_child = NULL;
    in->main_state = MAIN_ENDED;
    if (!in->is_fatal)
        in->exit_code = in->options->exit_codes[(unsigned)o.status & 0xff];
    EVENT(EVENT_MAIN, "ended", F_INT("status", o.status),
          F_STR("signal", o.signal ? signal_name(o.signal, name, sizeof name) : NULL),
          F_STR("step", how->step), F_STR("why", how->step ? child_exit_why(how) : NULL));
    if (how->step)
        LOG_ERR("main", F_STR("command", in->main_argv[0]), F_STR("step", how->step),
                F_STR("why", child_exit_why(how)), F_INT("status", o.status));
    else
        LOG_INF("main_end", F_INT("status", o.status), F_INT("signal", o.signal));
    stop_on_main_end(in);
}

/* True if descriptor 0 is the terminal that controls init's session. */
static bool owns_terminal(void)
{
    return isatty(0) && tcgetsid(0) == getsid(0);
}

int main_command_start(struct init *in, struct error *e)
{
    in->has_terminal = owns_terminal();
    struct spawn_plan plan = spawn_plan_empty();
    plan.argv = (const char *const *)(const void *)in->main_argv;
    plan.envp = env_vector(&in->sessions.own_env);
    plan.takes_terminal = in->has_terminal;
    plan.steals_terminal = !in->has_terminal && isatty(0);
    for (int i = 0; i < 3; i++)
        plan.stdio[i] = i;
    plan.on_exit = on_exit_;
    plan.context = in;
    in->main_child = spawn(&plan, e);
    if (!in->main_child) {
        in->main_state = MAIN_ENDED;
        in->exit_code = in->options->exit_codes[STATUS_NOT_RUN];
        stop_begin(in, "the main command could not be started", -1);
        return -1;
    }
    in->main_state = MAIN_RUNNING;
    in->main_began_ns = clock_mono_ns();
    EVENT(EVENT_MAIN, "started", F_STR("command", in->main_argv[0]),
          F_INT("pid", in->main_child->pid));
    return 0;
}

/* A group that leads a session of its own is an orphaned one, and the kernel drops the stop that is
 * the default action of these three there (setpgid(2), "orphaned"). A main command that does not
 * handle such a signal gets the STOP that it would have meant. */
static int signal_for_main(const struct init *in, int sig)
{
    bool is_stop = sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU;
    return is_stop && !proc_handles(in->main_child->pid, sig) ? SIGSTOP : sig;
}

int main_command_rewritten(const struct init *in, int sig)
{
    uint8_t to =
        in->options->rewrite.to[sig] ? in->options->rewrite.to[sig] : in->config->rewrite.to[sig];
    return to == REWRITE_DROP ? 0 : to ? to : sig;
}

void main_command_signal(struct init *in, int sig)
{
    if (!in->main_child || (sig = main_command_rewritten(in, sig)) == 0)
        return;
    sig = signal_for_main(in, sig);
    /* The group, as a terminal would; before it has one (between fork and setsid) the process. */
    if (kill(-in->main_child->pid, sig) < 0 && errno == ESRCH)
        child_signal(in->main_child, sig);
}

void main_command_wake(const struct init *in)
{
    struct proc_stat stat;
    if (in->main_child && proc_stat_read(in->main_child->pid, &stat) == 0 && proc_is_stopped(&stat))
        (void)kill(-in->main_child->pid, SIGCONT);
}
