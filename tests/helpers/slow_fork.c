/*
 * To be preloaded into a shell: makes the moments around a fork as long as a loaded machine can
 * make them. SLOW_BEFORE and SLOW_AFTER are seconds in the parent before a fork, and in the child
 * between fork and exec; SLOW_MARK is a file that is made when such a time begins.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Not a sleep: no signal ends it, and the process waits for the CPU. */
static void spend(const char *name)
{
    const char *seconds = getenv(name), *mark = getenv("SLOW_MARK");
    if (!seconds)
        return;
    double end = now() + strtod(seconds, NULL);
    if (mark)
        close(open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    while (now() < end) {
    }
}

pid_t fork(void)
{
    spend("SLOW_BEFORE");
    pid_t pid = (pid_t)syscall(SYS_fork);
    if (pid == 0)
        spend("SLOW_AFTER");
    return pid;
}
