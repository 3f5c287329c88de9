/*
 * Orphans for an init, and how it copes: run it as the main command of a PID namespace's init, and
 * only there (it looks at PID 1 through /proc).
 *
 *     bench_orphans zombies|living|stream COUNT
 *
 *     zombies   a parent that has waited for none of its COUNT ended children dies
 *     living    a parent of COUNT live children dies, then all of them end at once
 *     stream    COUNT processes lose their parent and end, one after the other
 *
 * Prints: ms from the hand-over to the moment when the last orphan was reaped (a zombie still
 * answers kill(pid, 0)), in a stream ms from its begin; lag_ms after the last one was made; cpu_us
 * of PID 1 per orphan.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT_MAX 30000

struct shared {
    volatile int ended;
    volatile uint64_t handed_ns;
    volatile uint64_t began_ns;
    volatile pid_t pids[COUNT_MAX];
};
static struct shared *shared;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

static pid_t fork_child(void)
{
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    return pid;
}

/* CPU time of PID 1, which sleeps. */
static uint64_t cpu_of_init_ns(void)
{
    char text[128] = "";
    int fd = open("/proc/1/schedstat", O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        die("/proc/1/schedstat");
    close(fd);
    return strtoull(text, NULL, 10);
}

/* Make `count` children that end at once, or when the pipe closes; then die and leave them. */
static _Noreturn void be_parent(int count, int gate)
{
    for (int i = 0; i < count; i++) {
        pid_t pid = fork_child();
        if (pid == 0) {
            char byte;
            if (gate >= 0)
                (void)!read(gate, &byte, 1);
            __atomic_add_fetch(&shared->ended, 1, __ATOMIC_SEQ_CST);
            _exit(0);
        }
        shared->pids[i] = pid;
    }
    while (gate < 0 && shared->ended < count)
        sleep_us(1000);
    sleep_us(50000);
    shared->handed_ns = shared->began_ns = now_ns();
    _exit(0);
}

/* One after the other: a child that makes a child and dies. */
static _Noreturn void be_stream(int count)
{
    shared->began_ns = now_ns();
    for (int i = 0; i < count; i++) {
        pid_t middle = fork_child();
        if (middle == 0) {
            pid_t orphan = fork_child();
            if (orphan > 0)
                shared->pids[i] = orphan;
            _exit(0);
        }
        waitpid(middle, NULL, 0);
    }
    shared->handed_ns = now_ns();
    _exit(0);
}

/* Wait until PID 1 has reaped all of them. */
static uint64_t await_reaped(int count)
{
    uint64_t limit = now_ns() + 60000000000u;
    for (int left = count; left > 0; sleep_us(200)) {
        while (left > 0 && kill(shared->pids[left - 1], 0) < 0 && errno == ESRCH)
            left--;
        if (now_ns() > limit) {
            fprintf(stderr, "bench_orphans: %d orphans are left after 60 s\n", left);
            exit(1);
        }
    }
    return now_ns();
}

int main(int argc, char **argv)
{
    int count = argc == 3 ? atoi(argv[2]) : 0, gate[2] = {-1, -1};
    if (count < 1 || count > COUNT_MAX) {
        fprintf(stderr, "usage: bench_orphans zombies|living|stream COUNT\n");
        return 2;
    }
    bool is_stream = strcmp(argv[1], "stream") == 0, is_living = strcmp(argv[1], "living") == 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || (is_living && pipe(gate) < 0))
        die("bench_orphans");
    sleep_us(50000); /* the init has started */
    uint64_t before_ns = cpu_of_init_ns();
    pid_t parent = fork_child();
    if (parent == 0 && is_stream)
        be_stream(count);
    if (parent == 0) {
        close(gate[1]);
        be_parent(count, gate[0]);
    }
    close(gate[0]);
    waitpid(parent, NULL, 0);
    if (is_living) {
        sleep_us(20000);
        shared->handed_ns = shared->began_ns = now_ns();
        close(gate[1]);
    }
    uint64_t end_ns = await_reaped(count);
    sleep_us(20000);
    uint64_t cpu_ns = cpu_of_init_ns() - before_ns;
    printf("ms=%.2f\nlag_ms=%.2f\ncpu_us=%.3f\n", (double)(end_ns - shared->began_ns) / 1e6,
           (double)(end_ns - shared->handed_ns) / 1e6, (double)cpu_ns / 1e3 / count);
    return 0;
}
