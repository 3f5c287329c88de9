/*
 * Signals, synchronously: all of them are blocked before the first fork and read from two
 * descriptors, one for SIGCHLD and one for the rest. No handler ever runs, so nothing is
 * interrupted, and PID 1 loses none: a blocked signal is queued even where its default action
 * would be ignored for an init (sig_ignored() in the kernel; signal(7) on init).
 *
 * Rewriting changes what is passed on, not what init itself does. Only where there is no main
 * command may a signal that init has no use for stand for another one: any STOPSIGNAL of an image
 * can be made to begin the stop.
 *
 * What a signal does (docs/sandbox-init.8.md has the same table):
 *   TERM          begins the stop; the main command gets it (behind services after it)
 *   INT, QUIT, PWR, RTMIN+3  with a main command: passed on; without: begin the stop
 *   HUP           reload; also passed on
 *   TSTP          passed on, then init stops itself (where it is not PID 1)
 *   CHLD          reaping
 *   all others    passed on to the main command's group, ignored without one
 */
#include "init/init.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/number.h"
#include "sessions/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* After strangers were reaped the next look waits a moment: in a storm of orphans one sweep then
 * takes many. A sweep walks all live children at least once (600 µs for 5000), so the pause grows
 * with it and sweeping takes a tenth of the time at most. A long sweep lets the loop turn in
 * between. Own children do not wait, they are seen by their pidfd. */
#define SWEEP_NS        (5 * 1000000u)
#define SWEEP_PAUSE_NS  (2 * 1000000u)
#define SWEEP_PAUSE_MAX (50 * 1000000u)
#define SWEEP_SHARE     10

void signals_block(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    /* An ignored SIGCHLD, inherited, would make the kernel reap our children by itself. What else
     * is ignored does not matter here: a blocked signal is queued all the same, and children reset
     * their own (spawn.c). */
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &dfl, NULL);
}

static void log_reload(void *context, const char *what, const char *needs)
{
    (void)context;
    LOG_INF("reload_change", F_STR("what", what), F_STR("needs", needs));
}

static void on_reloaded(void *context, const struct error *e)
{
    if (e)
        LOG_ERR("reload", F_STR("why", e->text));
    else
        LOG_INF("reload_done"); /* also where nothing has changed */
    free(context);
}

static void on_hangup(struct init *in)
{
    list_each(waiting, &in->reading.waiting, struct reload_wish,
              link) if (waiting->on_done == on_reloaded) return;
    struct reload_wish *wish = calloc(1, sizeof *wish);
    if (!wish) {
        LOG_ERR("reload", F_STR("why", "no memory"));
        return;
    }
    *wish = (struct reload_wish){.told = log_reload, .on_done = on_reloaded, .context = wish};
    reload(in, wish);
}

static void suspend(struct init *in)
{
    main_command_signal(in, SIGTSTP);
    if (!in->is_pid1)
        raise(SIGSTOP);
}

/* What engines and hosts say to an init that is to end its container: Ctrl-C, the STOPSIGNAL of
 * many images, "power failure" (lxc-stop), halt.target of systemd(1). */
static bool asks_for_stop(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGQUIT || sig == SIGPWR ||
           sig == SIGRTMIN + 3;
}

static void act(struct init *in, int sig)
{
    switch (sig) {
    case SIGTERM:
        if (in->stop_state != STOP_NONE)
            main_command_signal(in, sig);
        stop_by_signal(in, sig);
        break;
    case SIGHUP:
        on_hangup(in);
        main_command_signal(in, sig);
        break;
    case SIGTSTP:
        suspend(in);
        break;
    default:
        if (in->main_state == MAIN_RUNNING)
            main_command_signal(in, sig);
        else if (asks_for_stop(sig) || asks_for_stop(main_command_rewritten(in, sig)))
            stop_by_signal(in, sig);
    }
}

static void on_signal(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    struct init *in = w->data;
    struct signalfd_siginfo si[16];
    ssize_t k = read(in->signal_fd, si, sizeof si);
    for (ssize_t i = 0; i < k / (ssize_t)sizeof si[0]; i++) {
        int sig = (int)si[i].ssi_signo;
        /* Our own: a SIGPIPE of a write to somebody who left. */
        if (sig == SIGPIPE && si[i].ssi_pid == (uint32_t)getpid())
            continue;
        char name[16];
        LOG_DBG("signal", F_STR("name", signal_name(sig, name, sizeof name)),
                F_INT("from", si[i].ssi_pid));
        act(in, sig);
    }
}

static void sweep(struct init *in)
{
    uint64_t began_ns = clock_mono_ns(), pause_ns = 0;
    unsigned strangers = children_sweep_until(began_ns + SWEEP_NS, &in->is_swept);
    if (in->is_swept && strangers == 0) {
        ev_io_start(in->loop, &in->child_io);
        return;
    }
    if (in->is_swept) {
        pause_ns = (clock_mono_ns() - began_ns) * SWEEP_SHARE;
        pause_ns = pause_ns < SWEEP_PAUSE_NS ? SWEEP_PAUSE_NS : pause_ns;
        pause_ns = pause_ns > SWEEP_PAUSE_MAX ? SWEEP_PAUSE_MAX : pause_ns;
    }
    ev_io_stop(in->loop, &in->child_io);
    ev_now_update(in->loop);
    ev_timer_set(&in->child_pause, (double)pause_ns / 1e9, 0.);
    ev_timer_start(in->loop, &in->child_pause);
}

static void on_child_pause_over(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)events;
    struct init *in = w->data;
    if (in->is_swept)
        ev_io_start(loop, &in->child_io);
    else
        sweep(in);
}

static void on_child_signal(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    struct init *in = w->data;
    struct signalfd_siginfo si;
    while (read(in->child_fd, &si, sizeof si) > 0)
        continue;
    sweep(in);
}

int signals_start(struct init *in, struct error *e)
{
    sigset_t child, rest;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigfillset(&rest);
    sigdelset(&rest, SIGCHLD);
    in->child_fd = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
    in->signal_fd = signalfd(-1, &rest, SFD_NONBLOCK | SFD_CLOEXEC);
    if (in->child_fd < 0 || in->signal_fd < 0)
        return error_set_sys(e, errno, "signalfd");
    ev_io_init(&in->child_io, on_child_signal, in->child_fd, EV_READ);
    ev_io_init(&in->signal_io, on_signal, in->signal_fd, EV_READ);
    ev_timer_init(&in->child_pause, on_child_pause_over, 0., 0.);
    in->child_io.data = in->signal_io.data = in->child_pause.data = in;
    ev_io_start(in->loop, &in->child_io);
    ev_io_start(in->loop, &in->signal_io);
    return 0;
}
