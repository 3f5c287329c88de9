/*
 * How much a teardown costs above the least that ending the tree can cost: a program that knows all
 * pids, sends SIGKILL to each and reaps them. Both end the same kind of tree, in turn, so that a
 * busy machine slows both; the medians of the rounds are compared.
 *
 *     bench_teardown [processes [rounds [program]]]      default 1000 15, no program
 *
 * The tree: each process has up to ten children. They sleep in pause(2) and die on SIGTERM; with a
 * program ("sleep") each one executes it, which is nearer to life.
 */
#include "base/clock.h"
#include "sessions/teardown.h"

#include <ev.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FANOUT     10
#define MAX_ROUNDS 101

struct shared {
    volatile int ready;
    pid_t pids[65536];
};
static struct shared *shared;
static const char *program;

/* The process with this number, with all below it. Does not return. */
static void be(int number, int count)
{
    shared->pids[number] = getpid();
    for (int child = number * FANOUT + 1, last = child + FANOUT; child < last; child++)
        if (child < count && fork() == 0) {
            number = child; /* in the new process: its own children */
            shared->pids[number] = getpid();
            last = number * FANOUT + 1 + FANOUT;
            child = number * FANOUT;
        }
    __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
    if (program)
        execlp(program, program, "1000", (char *)NULL);
    for (;;)
        pause();
}

static pid_t grow_tree(int count)
{
    shared->ready = 0;
    pid_t root = fork();
    if (root == 0)
        be(0, count);
    while (shared->ready < count)
        usleep(1000);
    usleep(program ? 300000 : 20000); /* the last ones are on their way to sleep */
    return root;
}

/* What a round took, and CPU time of this process in it (on a busy machine the more telling one).
 */
struct cost {
    uint64_t ns, cpu_ns;
};

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct cost cost_begin(void)
{
    return (struct cost){.ns = clock_mono_ns(), .cpu_ns = cpu_ns()};
}

static struct cost cost_since(struct cost start)
{
    return (struct cost){.ns = clock_mono_ns() - start.ns, .cpu_ns = cpu_ns() - start.cpu_ns};
}

static struct cost round_of_known_pids(int count)
{
    grow_tree(count);
    struct cost start = cost_begin();
    for (int i = 0; i < count; i++)
        kill(shared->pids[i], SIGKILL);
    for (int left = count; left > 0;)
        if (wait(NULL) > 0)
            left--;
    return cost_since(start);
}

struct bench {
    struct ev_loop *loop;
    pid_t root;
    int reaped;
    bool is_done;
    size_t survivors;
};

static void on_child(struct ev_loop *loop, ev_signal *watcher, int events)
{
    (void)loop;
    (void)events;
    struct bench *b = watcher->data;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        b->reaped++;
}

static void on_collect(void *context, struct teardown *t)
{
    struct bench *b = context;
    teardown_add_root(t, b->root);
}

static void on_done(void *context, const struct teardown_report *report)
{
    struct bench *b = context;
    b->is_done = true;
    b->survivors = report->survivor_count;
}

static struct cost round_of_teardown(int count)
{
    struct bench b = {.loop = ev_loop_new(EVFLAG_AUTO), .root = grow_tree(count)};
    struct teardown_plan plan = {.loop = b.loop,
                                 .first_signal = SIGTERM,
                                 .grace_ms = 10000,
                                 .collect = on_collect,
                                 .on_done = on_done,
                                 .context = &b,
                                 .cgroup_fd = -1};
    ev_signal watcher;
    ev_signal_init(&watcher, on_child, SIGCHLD);
    watcher.data = &b;
    ev_signal_start(b.loop, &watcher);
    struct cost start = cost_begin();
    if (!teardown_start(&plan, NULL))
        abort();
    while (!b.is_done || b.reaped < count)
        ev_run(b.loop, EVRUN_ONCE);
    struct cost took = cost_since(start);
    if (b.survivors > 0)
        printf("%zu survivors\n", b.survivors);
    ev_signal_stop(b.loop, &watcher);
    ev_loop_destroy(b.loop);
    return took;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_ms(const struct cost *c, int rounds, bool is_cpu)
{
    double ms[MAX_ROUNDS];
    for (int i = 0; i < rounds; i++)
        ms[i] = (double)(is_cpu ? c[i].cpu_ns : c[i].ns) / 1e6;
    qsort(ms, (size_t)rounds, sizeof *ms, compare);
    return ms[rounds / 2];
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1000;
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 15;
    program = argc > 3 ? argv[3] : NULL;
    if (count < 1 || count > 60000 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: bench_teardown [processes [rounds [program]]]\n");
        return 2;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        perror("bench_teardown");
        return 1;
    }
    struct cost known[MAX_ROUNDS], torn[MAX_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        known[i] = round_of_known_pids(count);
        torn[i] = round_of_teardown(count);
    }
    double least_ms = median_ms(known, rounds, false), ours_ms = median_ms(torn, rounds, false);
    printf(
        "processes=%d rounds=%d known_pids_ms=%.2f teardown_ms=%.2f ratio=%.2f known_cpu_ms=%.2f "
        "teardown_cpu_ms=%.2f\n",
        count, rounds, least_ms, ours_ms, ours_ms / least_ms, median_ms(known, rounds, true),
        median_ms(torn, rounds, true));
    return 0;
}
