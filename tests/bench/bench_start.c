/*
 * How long short-lived programs take as PID 1 of a new PID namespace with its own /proc, from their
 * exec to the end of the namespace. They run in turn; the median of each is printed, in the order
 * of the command line. Needs root.
 *
 *     bench_start ROUNDS  PROGRAM ARGS… [,, PROGRAM ARGS…]…
 */
#include "base/clock.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAMS 16
#define ROUNDS   2000

static struct {
    char **argv;
    double us[ROUNDS];
} programs[PROGRAMS];

static volatile uint64_t *began_ns; /* written by the child right before its exec */

static _Noreturn void be(char **argv)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    if (mount("proc", "/proc", "proc", 0, NULL) < 0)
        _exit(126);
    *began_ns = clock_mono_ns();
    execvp(argv[0], argv);
    _exit(127);
}

static double run(char **argv)
{
    int status;
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        be(argv);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        perror("clone");
        exit(1);
    }
    double us = (double)(clock_mono_ns() - *began_ns) / 1e3;
    umount2("/proc", MNT_DETACH);
    if (status != 0) {
        fprintf(stderr, "bench_start: %s: wait status %d\n", argv[0], status);
        exit(1);
    }
    return us;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[1]) : 0, count = 0;
    if (rounds < 1 || rounds > ROUNDS) {
        fprintf(stderr, "usage: bench_start ROUNDS PROGRAM ARGS… [,, PROGRAM ARGS…]…\n");
        return 2;
    }
    for (char **at = argv + 2; *at && count < PROGRAMS; count++) {
        programs[count].argv = at;
        while (*at && strcmp(*at, ",,") != 0)
            at++;
        if (*at)
            *at++ = NULL;
    }
    began_ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (began_ns == MAP_FAILED || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        perror("bench_start: a mount namespace of its own");
        return 1;
    }
    for (int i = -1; i < rounds; i++)
        for (int p = 0; p < count; p++) {
            double us = run(programs[p].argv);
            if (i >= 0)
                programs[p].us[i] = us;
        }
    for (int p = 0; p < count; p++) {
        qsort(programs[p].us, (size_t)rounds, sizeof(double), by_value);
        printf("%.1f\n", programs[p].us[rounds / 2]);
    }
    return 0;
}
