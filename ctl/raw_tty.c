#include "ctl/raw_tty.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static int tty = -1; /* in raw mode; -1: none is */
static struct termios cooked, raw;
static int wake[2] = {-1, -1};

void raw_tty_leave(void)
{
    if (tty < 0)
        return;
    int fd = tty;
    tty = -1;
    tcsetattr(fd, TCSANOW, &cooked);
}

/* tcsetattr(3), signal(2) and raise(3) may be called from a handler: signal-safety(7). */
static void on_end(int number)
{
    raw_tty_leave();
    signal(number, SIG_DFL);
    raise(number); /* it is blocked until this returns; then the program ends by it */
}

static void on_window(int number)
{
    int saved = errno;
    (void)number;
    if (wake[1] >= 0)
        (void)!write(wake[1], "", 1);
    errno = saved;
}

static void on_stop(int number)
{
    int saved = errno, fd = tty;
    raw_tty_leave();
    raise(SIGSTOP);
    if (fd >= 0 && tcsetattr(fd, TCSANOW, &raw) == 0)
        tty = fd;
    on_window(number);
    errno = saved;
}

/* A signal that was ignored when we started stays so. */
static void catch_signal(int number, void (*handler)(int))
{
    struct sigaction old, new = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&new.sa_mask);
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, &new, NULL);
}

int raw_tty_enter(int fd, struct error *e)
{
    static const int ends[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2};
    if (tcgetattr(fd, &cooked) < 0)
        return error_set_sys(e, errno, "terminal: read the settings of the caller's own");
    raw = cooked;
    cfmakeraw(&raw);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        catch_signal(ends[i], on_end);
    catch_signal(SIGTSTP, on_stop);
    if (atexit(raw_tty_leave) != 0 || tcsetattr(fd, TCSADRAIN, &raw) < 0)
        return error_set_sys(e, errno, "terminal: put the caller's own into raw mode");
    tty = fd;
    return 0;
}

struct window raw_tty_window(void)
{
    struct winsize w;
    for (int fd = 0; fd <= 2; fd++)
        if (ioctl(fd, TIOCGWINSZ, &w) == 0)
            return (struct window){.rows = w.ws_row, .cols = w.ws_col};
    return (struct window){0};
}

int raw_tty_watch_window(struct error *e)
{
    if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_set_sys(e, errno, "pipe");
    catch_signal(SIGWINCH, on_window);
    return wake[0];
}

void raw_tty_window_seen(void)
{
    char bytes[64];
    while (read(wake[0], bytes, sizeof bytes) > 0)
        continue;
}
