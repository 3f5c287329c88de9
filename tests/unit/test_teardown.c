/*
 * sessions/teardown on real trees. The program is a subreaper and the one that reaps, as init is.
 * It runs with a mark in its environment that all of its descendants inherit, so that each test
 * can say at its end that nobody is left, whatever the code under test believes.
 *
 * Tests that need root say "# skip" without it. TEST_WIDE sets the size of the wide tree.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "sessions/member.h"
#include "sessions/teardown.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OTHER_UID 54321
#define THIRD_UID 54322
#define MS        1000000ull

#define EVENTUALLY(cond)                                                                           \
    do {                                                                                           \
        uint64_t eventually_end = clock_mono_ns() + 20000 * MS;                                    \
        while (!(cond) && clock_mono_ns() < eventually_end)                                        \
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);                               \
    } while (0)

static struct ev_loop *loop;
static ev_signal child_watcher;
static char mark[64];        /* "TEARDOWN_TEST=…" */
static char folder[64];      /* for marker files */
static volatile int *shared; /* a page that forked processes share with us */

/* --- trees --- */

static void become_child(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGCHLD, SIG_DFL);
    setsid();
}

static pid_t spawn_shell(const char *shell, const char *script)
{
    pid_t pid = fork();
    if (pid == 0) {
        become_child();
        if (chdir(folder) < 0)
            _exit(127);
        if (strcmp(shell, "busybox") == 0)
            execlp("busybox", "busybox", "sh", "-c", script, (char *)NULL);
        execlp(shell, shell, "-c", script, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static pid_t spawn_fn(void (*fn)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        become_child();
        fn();
        _exit(0);
    }
    return pid;
}

static void sleep_for_ever(void)
{
    for (;;)
        pause();
}

/* Live processes with our mark, not counting ourselves. */
static int count_marked(void)
{
    struct proc_scan *scan = proc_scan_new();
    struct proc_stat s;
    int n = 0;
    while (scan && proc_scan_next(scan, &s) > 0)
        if (s.pid != getpid() && !proc_stat_is_dead(&s) && proc_environ_has(s.pid, mark))
            n++;
    proc_scan_free(&scan);
    return n;
}

static int count_marked_named(const char *comm)
{
    struct proc_scan *scan = proc_scan_new();
    struct proc_stat s;
    int n = 0;
    while (scan && proc_scan_next(scan, &s) > 0)
        if (strcmp(s.comm, comm) == 0 && !proc_stat_is_dead(&s) && proc_environ_has(s.pid, mark))
            n++;
    proc_scan_free(&scan);
    return n;
}

static char state_of(pid_t pid)
{
    struct proc_stat s;
    return proc_stat_read(pid, &s) == 0 ? s.state : '-';
}

static bool marker_exists(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void marker_remove(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

/* --- running a teardown --- */

enum roots { ROOT, CHILDREN_OF_ROOT, ALL_OUR_CHILDREN, NO_ROOT };

struct run {
    enum roots roots;
    pid_t root;
    struct teardown_plan plan;
    struct teardown *teardown;
    int collects;
    bool is_done;
    bool is_late; /* the watchdog ended it */
    struct teardown_report report;
    struct teardown_survivor survivors[16];
    uint64_t start_ns;
    int64_t took_ms;
    ev_timer watchdog;
};

static bool name_root(void *t, pid_t pid)
{
    teardown_add_root(t, pid);
    return true;
}

static void on_collect(void *context, struct teardown *t)
{
    struct run *r = context;
    r->collects++;
    switch (r->roots) {
    case ROOT:
        teardown_add_root(t, r->root);
        break;
    case CHILDREN_OF_ROOT:
        proc_children(r->root, name_root, t);
        break;
    case ALL_OUR_CHILDREN:
        proc_children(getpid(), name_root, t);
        break;
    case NO_ROOT:
        break;
    }
}

static void on_done(void *context, const struct teardown_report *report)
{
    struct run *r = context;
    r->is_done = true;
    r->report = *report;
    memcpy(r->survivors, report->survivors, report->survivors_told * sizeof *r->survivors);
    r->report.survivors = r->survivors;
    r->took_ms = (int64_t)((clock_mono_ns() - r->start_ns) / MS);
    teardown_cancel(r->teardown); /* harmless here */
    ev_break(loop, EVBREAK_ALL);
}

static void on_watchdog(struct ev_loop *l, ev_timer *timer, int events)
{
    (void)l;
    (void)events;
    ((struct run *)timer->data)->is_late = true;
    ev_break(loop, EVBREAK_ALL);
}

static void on_child(struct ev_loop *l, ev_signal *watcher, int events)
{
    (void)l;
    (void)watcher;
    (void)events;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static struct run plan_of(enum roots roots, pid_t root, uint64_t grace_ms)
{
    return (struct run){.roots = roots,
                        .root = root,
                        .plan = {.loop = loop,
                                 .first_signal = SIGTERM,
                                 .grace_ms = grace_ms,
                                 .collect = on_collect,
                                 .on_done = on_done,
                                 .cgroup_fd = -1}};
}

static void run_start(struct run *r)
{
    r->plan.context = r;
    r->start_ns = clock_mono_ns();
    r->teardown = teardown_start(&r->plan, NULL);
}

static void run_finish(struct run *r)
{
    ev_timer_init(&r->watchdog, on_watchdog, 60., 0.);
    r->watchdog.data = r;
    ev_timer_start(loop, &r->watchdog);
    if (r->teardown && !r->is_done)
        ev_run(loop, 0);
    ev_timer_stop(loop, &r->watchdog);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static void on_stop_loop(struct ev_loop *l, ev_timer *timer, int events)
{
    (void)timer;
    (void)events;
    ev_break(l, EVBREAK_ALL);
}

static void run_loop_for(double seconds)
{
    ev_timer timer;
    ev_timer_init(&timer, on_stop_loop, seconds, 0.);
    ev_timer_start(loop, &timer);
    ev_run(loop, 0);
    ev_timer_stop(loop, &timer);
}

static bool kill_it(void *unused, pid_t pid)
{
    (void)unused;
    kill(pid, SIGKILL);
    return true;
}

/* End whatever a test has left. What is not our child yet becomes it as its parents die. */
static void clean_up(void)
{
    for (int i = 0; i < 20000 && count_marked() > 0; i++) {
        for (int k = 0; k < 20; k++)
            proc_children(getpid(), kill_it, NULL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}

#define CHECK_ALL_GONE(run)                                                                        \
    do {                                                                                           \
        CHECK((run)->is_done && !(run)->is_late);                                                  \
        CHECK((run)->report.survivor_count == 0);                                                  \
        int all_gone_left = count_marked();                                                        \
        if (all_gone_left > 0)                                                                     \
            CHECK_FAIL("%d processes are left", all_gone_left);                                    \
    } while (0)

#define CHECK_TOOK(run, least, most)                                                               \
    do {                                                                                           \
        if ((run)->took_ms < (least) || (run)->took_ms > (most))                                   \
            CHECK_FAIL("it took %lld ms, not %d to %d", (long long)(run)->took_ms, (int)(least),   \
                       (int)(most));                                                               \
    } while (0)

#define SKIP_UNLESS_ROOT()                                                                         \
    do {                                                                                           \
        if (geteuid() != 0) {                                                                      \
            printf("# skip %s: needs root\n", __func__);                                           \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* Start a shell, wait until so many of its sleeps run, end all. */
static struct run end_shell(const char *shell, const char *script, int sleeps, uint64_t grace_ms)
{
    pid_t pid = spawn_shell(shell, script);
    EVENTUALLY(count_marked_named("sleep") + count_marked_named("busybox") >= sleeps);
    struct run r = plan_of(ROOT, pid, grace_ms);
    run_start(&r);
    run_finish(&r);
    return r;
}

/* --- cases of trees --- */

static void test_case_F1_children_of_the_shell(void)
{
    struct run r = end_shell("sh", "sh -c 'sleep 500 & sleep 501; :'; :", 2, 5000);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 4);
    CHECK_TOOK(&r, 0, 1000);
}

static void test_case_F2_four_levels(void)
{
    struct run r =
        end_shell("bash", "bash -c 'bash -c \"bash -c \\\"sleep 700; :\\\"; :\"; :'; :", 1, 5000);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 5);
}

static void test_case_F4_setsid_child(void)
{
    struct run r = end_shell("sh", "setsid sleep 800 & sleep 801; :", 2, 5000);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 3);
}

static void test_case_F5_middle_does_not_pass_it_on(void)
{
    struct run r = end_shell("sh", "trap 'exit 0' TERM; sh -c 'sleep 900 & wait; :'; :", 1, 5000);
    CHECK_ALL_GONE(&r);
    CHECK_TOOK(&r, 0, 1000);
}

static void test_case_F8_term_ignored(void)
{
    struct run r = end_shell("sh", "trap '' TERM; while :; do sleep 1; done", 1, 300);
    CHECK_ALL_GONE(&r);
    CHECK_TOOK(&r, 300, 1500);
}

static void test_case_E4_descendants_ignore_term(void)
{
    struct run r =
        end_shell("bash", "trap '' TERM INT; (trap '' TERM; sleep 99) & sleep 99; :", 2, 300);
    CHECK_ALL_GONE(&r);
    CHECK_TOOK(&r, 300, 1500);
}

/* No shell may run its next statement because its child has died. */
static void test_next_statement_never_runs(void)
{
    static const char *const shells[] = {"dash", "bash", "busybox"};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        for (int repeat = 0; repeat < 5; repeat++) {
            struct run r =
                end_shell(shells[i],
                          "( sleep 9; echo x >marker ) & ( ( sleep 9 ); echo y >marker ); "
                          "echo z >marker",
                          2, 5000);
            CHECK_ALL_GONE(&r);
            CHECK(!marker_exists("marker"));
        }
}

static void *fork_in_thread(void *unused)
{
    if (fork() == 0)
        sleep_for_ever();
    shared[0] = 1;
    sleep_for_ever();
    return unused;
}

static void be_forking_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, fork_in_thread, NULL) != 0)
        _exit(1);
    sleep_for_ever();
}

static void test_case_F10_forking_thread(void)
{
    shared[0] = 0;
    pid_t pid = spawn_fn(be_forking_thread);
    EVENTUALLY(shared[0] == 1 && count_marked() == 2);
    struct run r = plan_of(ROOT, pid, 5000);
    run_start(&r);
    run_finish(&r);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 2);
}

static void be_without_first_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, fork_in_thread, NULL) != 0)
        _exit(1);
    pthread_exit(NULL);
}

/* Its state says Z, but it lives. */
static void test_first_thread_gone(void)
{
    shared[0] = 0;
    pid_t pid = spawn_fn(be_without_first_thread);
    EVENTUALLY(shared[0] == 1 && state_of(pid) == 'Z');
    struct run r = plan_of(ROOT, pid, 5000);
    run_start(&r);
    run_finish(&r);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 2);
    CHECK_TOOK(&r, 0, 1000);
}

static void be_subreaper_with_daemon(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t middle = fork();
    if (middle == 0) {
        setsid();
        if (fork() == 0) {
            shared[0] = getpid();
            sleep_for_ever();
        }
        _exit(0);
    }
    waitpid(middle, NULL, 0);
    shared[1] = 1;
    sleep_for_ever();
}

static void test_double_fork_adopted_by_subreaper(void)
{
    shared[0] = shared[1] = 0;
    pid_t pid = spawn_fn(be_subreaper_with_daemon);
    EVENTUALLY(shared[0] && shared[1]);
    struct run r = plan_of(ROOT, pid, 5000);
    run_start(&r);
    bool has_daemon = teardown_has(r.teardown, shared[0]);
    bool has_us = teardown_has(r.teardown, getpid()) || teardown_has(r.teardown, 1);
    run_finish(&r);
    CHECK(has_daemon && !has_us);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 2);
}

/* The root is gone before; its children are ours now. */
static void test_children_of_an_exited_root(void)
{
    pid_t pid =
        spawn_shell("sh", "sleep 60 & setsid sleep 61 & (sleep 62 & sleep 63 & wait) & exit");
    EVENTUALLY(count_marked_named("sleep") == 4);
    EVENTUALLY(waitpid(pid, NULL, WNOHANG) != 0);
    struct run r = plan_of(ALL_OUR_CHILDREN, 0, 5000);
    run_start(&r);
    run_finish(&r);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 5);
}

/* The session's shell: its children die, it is never stopped. */
static void test_shell_that_is_not_named_lives(void)
{
    pid_t pid = spawn_shell("bash", "mkfifo fifo; trap 'echo cont >cont' CONT; sleep 99 & "
                                    "sleep 98; sleep 97; read x <fifo");
    EVENTUALLY(count_marked_named("sleep") == 2);
    struct run r = plan_of(CHILDREN_OF_ROOT, pid, 5000);
    run_start(&r);
    char state = state_of(pid);
    run_finish(&r);
    bool lives = kill(pid, 0) == 0;
    bool was_continued = marker_exists("cont");
    marker_remove("fifo");
    struct run end = plan_of(ROOT, pid, 100);
    run_start(&end);
    run_finish(&end);
    CHECK(state == 'S' || state == 'R');
    CHECK(r.is_done && r.report.survivor_count == 0 && r.report.ended >= 2);
    CHECK(lives && !was_continued);
    CHECK_ALL_GONE(&end);
}

static void be_deep(void)
{
    for (int level = 0; level < 49; level++)
        if (fork() > 0)
            sleep_for_ever();
    shared[0] = 1;
    sleep_for_ever();
}

static void test_deep_tree(void)
{
    shared[0] = 0;
    pid_t pid = spawn_fn(be_deep);
    EVENTUALLY(shared[0] == 1);
    struct run r = plan_of(ROOT, pid, 5000);
    run_start(&r);
    run_finish(&r);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 50);
    CHECK_TOOK(&r, 0, 2000);
}

struct tick {
    ev_timer timer;
    uint64_t last_ns, longest_ns;
};

static void on_tick(struct ev_loop *l, ev_timer *timer, int events)
{
    (void)l;
    (void)events;
    struct tick *tick = timer->data;
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used); /* ours, and the reaping in one sweep */
    uint64_t now = (uint64_t)used.tv_sec * 1000 * MS + (uint64_t)used.tv_nsec;
    if (tick->last_ns && now - tick->last_ns > tick->longest_ns)
        tick->longest_ns = now - tick->last_ns;
    tick->last_ns = now;
}

static int wide_size(void)
{
    const char *size = getenv("TEST_WIDE");
    return size ? (int)strtol(size, NULL, 10) : 1200;
}

static struct run end_wide_tree(struct tick *tick)
{
    char script[128];
    snprintf(script, sizeof script, "for i in $(seq %d); do sleep 1000 & done; wait", wide_size());
    pid_t pid = spawn_shell("dash", script);
    EVENTUALLY(count_marked_named("sleep") == wide_size());
    ev_timer_init(&tick->timer, on_tick, 0., 0.001);
    tick->timer.data = tick;
    ev_timer_start(loop, &tick->timer);
    struct run r = plan_of(ROOT, pid, 20000);
    run_start(&r);
    run_finish(&r);
    ev_timer_stop(loop, &tick->timer);
    return r;
}

static void test_wide_tree(void)
{
    struct tick tick = {0};
    struct run r = end_wide_tree(&tick);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == (size_t)wide_size() + 1);
    CHECK_TOOK(&r, 0, 5000);
    printf("# %d processes in %lld ms; longest turn of the loop %llu us of CPU time\n", wide_size(),
           (long long)r.took_ms, (unsigned long long)tick.longest_ns / 1000);
    CHECK(tick.longest_ns < 60 * MS);
}

static void test_wide_tree_without_children_files(void)
{
    struct tick tick = {0};
    proc_pretend_no_children_files(true);
    struct run r = end_wide_tree(&tick);
    proc_pretend_no_children_files(false);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == (size_t)wide_size() + 1);
    CHECK(tick.longest_ns < 60 * MS);
}

static void test_case_F4_without_children_files(void)
{
    proc_pretend_no_children_files(true);
    struct run r = end_shell("sh", "setsid sleep 800 & (sleep 801; :) & sleep 802; :", 3, 5000);
    struct run forking = end_shell("sh", "trap '' TERM; while :; do sleep 0.01; done", 1, 100);
    proc_pretend_no_children_files(false);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 5);
    CHECK_ALL_GONE(&forking);
}

/* --- those that fight back --- */

static void be_fork_bomb(void)
{
    struct rlimit limit = {.rlim_cur = 300, .rlim_max = 300};
    setrlimit(RLIMIT_NPROC, &limit);
    if (setgroups(0, NULL) < 0 || setresgid(OTHER_UID, OTHER_UID, OTHER_UID) < 0 ||
        setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0)
        _exit(1);
    signal(SIGTERM, SIG_IGN);
    for (;;)
        if (fork() < 0)
            shared[0] = 1;
}

static void test_fork_bomb(void)
{
    SKIP_UNLESS_ROOT();
    shared[0] = 0;
    pid_t pid = spawn_fn(be_fork_bomb);
    EVENTUALLY(shared[0] == 1); /* it has met its limit */
    struct run r = plan_of(ROOT, pid, 200);
    run_start(&r);
    run_finish(&r);
    printf("# fork bomb: %zu ended in %lld ms\n", r.report.ended, (long long)r.took_ms);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended >= 250);
    CHECK_TOOK(&r, 0, 15000);
}

/* Each process forks its successor and ends: none lives long, each has another parent. */
static void be_hopper(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_IGN);
    if (fork() > 0)
        sleep_for_ever();
    signal(SIGTERM, SIG_IGN);
    for (;;) {
        shared[0]++;
        pid_t next = fork();
        if (next > 0)
            _exit(0);
    }
}

static void test_hopping_process(void)
{
    for (int repeat = 0; repeat < 10; repeat++) {
        shared[0] = 0;
        pid_t pid = spawn_fn(be_hopper);
        EVENTUALLY(shared[0] > 20);
        struct run r = plan_of(ALL_OUR_CHILDREN, pid, 50);
        run_start(&r);
        run_finish(&r);
        int seen = shared[0];
        run_loop_for(0.02); /* a living one makes a step in 0.2 ms */
        CHECK_ALL_GONE(&r);
        CHECK(shared[0] == seen);
    }
}

/* A shell that always has a young child. */
static void test_busy_shell(void)
{
    for (int repeat = 0; repeat < 10; repeat++) {
        spawn_shell("dash", "sleep 50 & while :; do (:); ( (: &) ); done");
        EVENTUALLY(count_marked_named("sleep") == 1);
        struct run r = plan_of(ALL_OUR_CHILDREN, 0, 2000);
        run_start(&r);
        run_finish(&r);
        CHECK_ALL_GONE(&r);
        CHECK_TOOK(&r, 0, 1500);
    }
}

static void be_vfork_parent(void)
{
    if (vfork() == 0) {
        shared[0] = 1;
        for (;;)
            pause();
    }
    _exit(0);
}

/* The parent sleeps in state D until the child, which is stopped, calls exec. */
static void test_vfork_parent_cannot_stop(void)
{
    shared[0] = 0;
    pid_t pid = spawn_fn(be_vfork_parent);
    EVENTUALLY(shared[0] == 1 && state_of(pid) == 'D');
    struct run r = plan_of(ROOT, pid, 5000);
    run_start(&r);
    run_finish(&r);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 2);
    CHECK_TOOK(&r, 0, 500);
}

static void be_traced(void)
{
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGUSR1);
        sleep_for_ever();
    }
    waitpid(child, NULL, 0); /* it is in its trace stop */
    shared[0] = child;
    sleep_for_ever();
}

static void test_traced_process(void)
{
    shared[0] = 0;
    pid_t pid = spawn_fn(be_traced);
    EVENTUALLY(shared[0] > 0 && state_of(shared[0]) == 't');
    struct run r = plan_of(ROOT, pid, 1000);
    run_start(&r);
    run_finish(&r);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 2);
}

/* Somebody outside of the set continues a member all the time. */
static void be_continuer(void)
{
    for (;;)
        if (shared[0] > 1)
            kill(shared[0], SIGCONT);
}

static void test_member_continued_by_another(void)
{
    shared[0] = 0;
    pid_t continuer = spawn_fn(be_continuer);
    pid_t pid = spawn_shell("dash", "sleep 50 & trap '' TERM; while :; do (:); done");
    shared[0] = pid;
    EVENTUALLY(count_marked_named("sleep") == 1);
    struct run r = plan_of(ROOT, pid, 100);
    run_start(&r);
    run_finish(&r);
    kill(continuer, SIGKILL);
    waitpid(continuer, NULL, 0);
    CHECK_ALL_GONE(&r);
}

/* --- time --- */

static void test_grace_ends_early(void)
{
    struct run r = end_shell("sh", "sleep 50 & sleep 51; :", 2, 30000);
    CHECK_ALL_GONE(&r);
    CHECK_TOOK(&r, 0, 500);
}

static void test_grace_is_given(void)
{
    pid_t pid = spawn_shell("bash", "trap 'sleep 0.4; echo bye >bye; exit' TERM; echo >ready; "
                                    "while :; do sleep 0.05; done");
    EVENTUALLY(marker_exists("ready"));
    struct run r = plan_of(ROOT, pid, 20000);
    run_start(&r);
    run_finish(&r);
    bool said_bye = marker_exists("bye");
    marker_remove("bye");
    marker_remove("ready");
    CHECK_ALL_GONE(&r);
    CHECK(said_bye);
    CHECK_TOOK(&r, 400, 3000);
}

static void test_kill_skips_the_grace(void)
{
    pid_t pid = spawn_shell("sh", "trap '' TERM; sleep 50 & sleep 51; :");
    EVENTUALLY(count_marked_named("sleep") == 2);
    struct run r = plan_of(ROOT, pid, 30000);
    r.plan.first_signal = SIGKILL;
    run_start(&r);
    run_finish(&r);
    CHECK_ALL_GONE(&r);
    CHECK_TOOK(&r, 0, 500);
}

static void test_no_grace(void)
{
    struct run r = end_shell("sh", "trap '' TERM; sleep 50 & sleep 51; :", 2, 0);
    CHECK_ALL_GONE(&r);
    CHECK_TOOK(&r, 0, 500);
}

static void test_other_first_signal(void)
{
    pid_t pid = spawn_shell("bash", "trap 'echo int >int; exit' INT; trap '' TERM; echo >ready; "
                                    "while :; do sleep 0.05; done");
    EVENTUALLY(marker_exists("ready"));
    struct run r = plan_of(ROOT, pid, 20000);
    r.plan.first_signal = SIGINT;
    run_start(&r);
    run_finish(&r);
    bool got_int = marker_exists("int");
    marker_remove("int");
    marker_remove("ready");
    CHECK_ALL_GONE(&r);
    CHECK(got_int);
    CHECK_TOOK(&r, 0, 3000);
}

static struct run *hurried;
static uint64_t hurried_grace_ms;
static void on_hurry(struct ev_loop *l, ev_timer *timer, int events)
{
    (void)l;
    (void)timer;
    (void)events;
    teardown_hurry(hurried->teardown, hurried_grace_ms);
}

static struct run hurry_after(double seconds, uint64_t grace_ms)
{
    pid_t pid = spawn_shell("sh", "trap '' TERM; sleep 50 & sleep 51; :");
    EVENTUALLY(count_marked_named("sleep") == 2);
    struct run r = plan_of(ROOT, pid, 50000);
    hurried = &r;
    hurried_grace_ms = grace_ms;
    run_start(&r);
    ev_timer timer;
    ev_timer_init(&timer, on_hurry, seconds, 0.);
    if (seconds > 0)
        ev_timer_start(loop, &timer);
    else
        teardown_hurry(r.teardown, grace_ms);
    run_finish(&r);
    ev_timer_stop(loop, &timer);
    return r;
}

static void test_case_F8_second_kill_hurries(void)
{
    struct run now = hurry_after(0.2, 0);
    CHECK_ALL_GONE(&now);
    CHECK_TOOK(&now, 190, 1000);
    struct run soon = hurry_after(0.1, 300);
    CHECK_ALL_GONE(&soon);
    CHECK_TOOK(&soon, 390, 1400);
    struct run at_once = hurry_after(0, 0);
    CHECK_ALL_GONE(&at_once);
    CHECK_TOOK(&at_once, 0, 500);
}

/* --- stopped by their user --- */

static void test_stopped_before(void)
{
    pid_t pid = spawn_shell("bash", "trap 'echo term >term; exit' TERM; echo >ready; "
                                    "kill -STOP $$; while :; do sleep 0.05; done");
    EVENTUALLY(marker_exists("ready") && state_of(pid) == 'T');
    struct run r = plan_of(ROOT, pid, 20000);
    run_start(&r);
    run_finish(&r);
    bool got_term = marker_exists("term");
    marker_remove("term");
    marker_remove("ready");
    CHECK_ALL_GONE(&r);
    CHECK(got_term);
    CHECK_TOOK(&r, 0, 3000);
}

struct cancel_run {
    struct run r;
    int cancel_at; /* the collect() that cancels */
};

static void on_collect_that_cancels(void *context, struct teardown *t)
{
    struct cancel_run *c = context;
    teardown_add_root(t, c->r.root);
    if (++c->r.collects == c->cancel_at)
        teardown_cancel(t);
}

static void on_done_never(void *context, const struct teardown_report *report)
{
    (void)report;
    ((struct cancel_run *)context)->r.is_done = true;
}

static void test_cancel_continues(void)
{
    pid_t pid = spawn_shell("sh", "sleep 50 & (sleep 51; :) & sleep 52; :");
    EVENTUALLY(count_marked_named("sleep") == 3);
    struct run r = plan_of(ROOT, pid, 50000);
    r.plan.first_signal = SIGCONT; /* harms nobody, whatever has been sent by now */
    run_start(&r);
    teardown_cancel(r.teardown);
    bool runs_again = false;
    EVENTUALLY((runs_again = state_of(pid) == 'S'));
    run_loop_for(0.1);
    int left = count_marked();
    struct run end = plan_of(ROOT, pid, 5000);
    run_start(&end);
    run_finish(&end);
    CHECK(runs_again && !r.is_done);
    CHECK(left == 5);
    CHECK_ALL_GONE(&end);
    CHECK(end.report.ended == 5);
}

/* Cancelled in the middle of the walk, by collect() in its first or second call. */
static void test_cancel_from_collect(void)
{
    for (int at = 1; at <= 2; at++) {
        pid_t pid = spawn_shell("sh", "sleep 50 & sleep 51; :");
        EVENTUALLY(count_marked_named("sleep") == 2);
        pid_t stopped = spawn_fn(sleep_for_ever);
        kill(stopped, SIGSTOP);
        EVENTUALLY(state_of(stopped) == 'T');
        struct cancel_run c = {.r = plan_of(ROOT, pid, 5000), .cancel_at = at};
        c.r.plan.collect = on_collect_that_cancels;
        c.r.plan.on_done = on_done_never;
        c.r.plan.context = &c;
        teardown_start(&c.r.plan, NULL);
        run_loop_for(0.1);
        char state = state_of(pid), other = state_of(stopped);
        struct run end = plan_of(ALL_OUR_CHILDREN, 0, 5000);
        run_start(&end);
        run_finish(&end);
        CHECK(!c.r.is_done && c.r.collects == at);
        CHECK(state == 'S' && other == 'T');
        CHECK_ALL_GONE(&end);
        CHECK(end.report.ended == 4);
    }
}

static void test_cancel_leaves_user_stopped(void)
{
    pid_t pid = spawn_fn(sleep_for_ever);
    kill(pid, SIGSTOP);
    EVENTUALLY(state_of(pid) == 'T');
    struct cancel_run c = {.r = plan_of(ROOT, pid, 5000), .cancel_at = 1};
    c.r.plan.collect = on_collect_that_cancels;
    c.r.plan.on_done = on_done_never;
    c.r.plan.context = &c;
    teardown_start(&c.r.plan, NULL);
    run_loop_for(0.1);
    char state = state_of(pid);
    clean_up();
    CHECK(state == 'T');
}

/* --- identity --- */

static void test_nobody_to_end(void)
{
    struct run r = plan_of(NO_ROOT, 0, 5000);
    run_start(&r);
    CHECK(!r.is_done); /* never from inside teardown_start() */
    run_finish(&r);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 0);
    CHECK_TOOK(&r, 0, 200);
}

static void test_forbidden_and_dead_roots(void)
{
    static const pid_t pids[] = {0, 1, -1, INT32_MIN, 4194304};
    for (size_t i = 0; i <= sizeof pids / sizeof *pids; i++) {
        pid_t pid = i < sizeof pids / sizeof *pids ? pids[i] : getpid();
        struct run r = plan_of(ROOT, pid, 100);
        run_start(&r);
        run_finish(&r);
        CHECK(r.is_done && r.report.ended == 0 && r.report.survivor_count == 0);
    }
    pid_t zombie = spawn_fn(sleep_for_ever);
    kill(zombie, SIGKILL);
    EVENTUALLY(state_of(zombie) == 'Z');
    struct run r = plan_of(ROOT, zombie, 100);
    run_start(&r);
    teardown_add_root(r.teardown, 1); /* outside of collect(): ignored */
    run_finish(&r);
    CHECK(r.is_done && r.report.ended == 0 && r.report.survivor_count == 0);
}

/* Zombies whose parent lives and does not reap count as gone. */
static void be_careless_parent(void)
{
    signal(SIGTERM, SIG_IGN);
    for (int i = 0; i < 5; i++) {
        siginfo_t end;
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitid(P_PID, (id_t)child, &end, WEXITED | WNOWAIT); /* a zombie from now on */
    }
    if (fork() == 0) {
        signal(SIGTERM, SIG_DFL);
        shared[0] = getpid();
        sleep_for_ever();
    }
    sleep_for_ever();
}

static void test_case_T5_zombies_of_a_live_parent(void)
{
    shared[0] = 0;
    pid_t pid = spawn_fn(be_careless_parent);
    EVENTUALLY(shared[0] > 0 && count_marked() == 2);
    struct run r = plan_of(CHILDREN_OF_ROOT, pid, 5000);
    run_start(&r);
    run_finish(&r);
    char state = state_of(pid);
    clean_up();
    CHECK(r.is_done && r.report.ended == 1 && r.report.survivor_count == 0);
    CHECK_TOOK(&r, 0, 500);
    CHECK(state == 'S');
}

/* A member with another start time is another process. */
static void test_case_G2_start_time_differs(void)
{
    pid_t pid = spawn_fn(sleep_for_ever);
    struct member_set set;
    CHECK(member_set_init(&set) == 0);
    struct hold_claim claim = {.ppid = getpid()};
    CHECK(member_hold(&set, pid, MEMBER_NONE, &claim, SIGSTOP) == HOLD_NEW);
    CHECK(member_hold(&set, pid, MEMBER_NONE, &claim, SIGSTOP) == HOLD_KNOWN);
    struct member *m = &set.items[member_find(&set, pid)];
    fd_close(&m->pidfd);
    CHECK(member_signal(&set, m, SIGCONT) == 0);
    m->start_ticks--;
    int rc = member_signal(&set, m, SIGKILL);
    int why = errno;
    EVENTUALLY(state_of(pid) == 'S');
    char state = state_of(pid);
    bool was_marked = m->is_gone && set.alive == 0 && set.ended == 1;
    /* Found again, it is a new member. */
    enum hold_result again = member_hold(&set, pid, MEMBER_NONE, &claim, SIGSTOP);
    bool is_second = set.count == 2 && member_find(&set, pid) == 1;
    /* Neither our child nor older than the reading of its pid: not the one that was meant. */
    member_mark_gone(&set, &set.items[1]);
    set.items[1].start_ticks--;
    claim = (struct hold_claim){.ppid = 1, .before_ticks = 1};
    enum hold_result unsure = member_hold(&set, pid, MEMBER_NONE, &claim, SIGSTOP);
    member_set_free(&set);
    clean_up();
    CHECK(rc == -1 && why == ESRCH && state == 'S' && was_marked);
    CHECK(again == HOLD_NEW && is_second);
    CHECK(unsure == HOLD_UNSURE);
}

/* Pid 1 of a pid namespace of its own: make the kernel give a pid out again. */
static void reuse_a_pid(void)
{
    if (mount("proc", "/proc", "proc", 0, NULL) < 0)
        _exit(2);
    pid_t first = fork();
    if (first == 0)
        sleep_for_ever();
    for (int with_pidfd = 0; with_pidfd < 2; with_pidfd++) {
        struct member_set set;
        struct hold_claim claim = {.ppid = getpid()};
        if (member_set_init(&set) < 0)
            _exit(3);
        if (!with_pidfd)
            set.pidfd_limit = 0;
        if (member_hold(&set, first, MEMBER_NONE, &claim, SIGSTOP) != HOLD_NEW)
            _exit(4);
        /* The start time counts in ticks of 10 ms; the second must not start in the same one. */
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        kill(first, SIGKILL);
        waitpid(first, NULL, 0);
        char text[16];
        int n = snprintf(text, sizeof text, "%d", first - 1);
        int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, text, (size_t)n) != n)
            _exit(5);
        close(fd);
        pid_t second = fork();
        if (second == 0)
            sleep_for_ever();
        if (second != first)
            _exit(6);
        if (member_signal(&set, &set.items[0], SIGKILL) == 0 || errno != ESRCH)
            _exit(7);
        struct proc_stat s;
        if (!set.items[0].is_gone || proc_stat_read(second, &s) < 0 || proc_stat_is_dead(&s))
            _exit(8);
        if (waitpid(second, NULL, WNOHANG) != 0)
            _exit(9);
        member_set_free(&set);
    }
    _exit(0);
}

static void be_in_namespace(void)
{
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        _exit(1);
    pid_t pid = fork();
    if (pid == 0)
        reuse_a_pid();
    int status;
    if (waitpid(pid, &status, 0) != pid)
        _exit(10);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 11);
}

static void test_case_G1_reused_pid_is_not_hit(void)
{
    SKIP_UNLESS_ROOT();
    pid_t pid = spawn_fn(be_in_namespace);
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1) {
        printf("# skip %s: no namespaces\n", __func__);
        return;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        CHECK_FAIL("wait status %d", status);
}

/* --- order --- */

static bool take_only_child(void *context, pid_t pid)
{
    *(pid_t *)context = pid;
    return false;
}

/* The deepest are found first here; the order is children before parents all the same. */
static void test_order_of_a_tree_named_from_below(void)
{
    shared[0] = 0;
    pid_t chain[50] = {spawn_fn(be_deep)};
    EVENTUALLY(shared[0] == 1);
    for (int i = 1; i < 50; i++)
        proc_children(chain[i - 1], take_only_child, &chain[i]);
    struct member_set set;
    CHECK(member_set_init(&set) == 0);
    struct hold_claim claim = {.before_ticks = UINT64_MAX};
    for (int i = 49; i >= 0; i--)
        CHECK(member_hold(&set, chain[i], MEMBER_NONE, &claim, SIGSTOP) == HOLD_NEW);
    CHECK(!member_order(&set));
    for (uint32_t i = 0; i < 49; i++) /* each is seen below its parent, who stands behind it */
        CHECK(member_hold(&set, set.items[i].pid, i + 1, &claim, SIGSTOP) == HOLD_KNOWN);
    uint32_t *order = member_order(&set);
    CHECK(order);
    bool is_right = true;
    for (uint32_t i = 0; i < 50; i++)
        is_right = is_right && set.items[order[i]].pid == chain[49 - i];
    free(order);
    member_set_free(&set);
    clean_up();
    CHECK(is_right);
}

/* --- want of permission, of descriptors, of room --- */

/* In a process of its own: it gives up root while its child belongs to another user. */
static void be_without_permission(void)
{
    loop = ev_loop_new(EVFLAG_AUTO);
    int ready[2];
    if (pipe(ready) < 0)
        _exit(1);
    pid_t foreign = fork();
    if (foreign == 0) {
        if (setresuid(THIRD_UID, THIRD_UID, THIRD_UID) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        sleep_for_ever();
    }
    pid_t own = fork();
    if (own == 0) {
        if (setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        sleep_for_ever();
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1 || read(ready[0], &byte, 1) != 1)
        _exit(2);
    if (setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0)
        _exit(3);
    struct run r = plan_of(ALL_OUR_CHILDREN, 0, 30000);
    run_start(&r);
    run_finish(&r);
    if (!r.is_done || r.report.survivor_count != 1 || r.report.survivors_told != 1)
        _exit(4);
    if (r.survivors[0].pid != foreign || strcmp(r.survivors[0].why, strerror(EPERM)) != 0)
        _exit(5);
    if (r.report.ended != 1 || kill(own, 0) == 0)
        _exit(6);
    if (r.took_ms > 2000) /* the grace is not for those that cannot be told */
        _exit(7);
    _exit(strlen(r.survivors[0].comm) > 0 ? 0 : 8);
}

static void test_case_G4_refused_signal_is_reported(void)
{
    SKIP_UNLESS_ROOT();
    pid_t pid = spawn_fn(be_without_permission);
    int status = 0;
    waitpid(pid, &status, 0);
    clean_up();
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        CHECK_FAIL("wait status %d", status);
}

static int count_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* With so many descriptors left before the teardown, and none left after its first step. */
static struct run end_with_descriptors(int left)
{
    pid_t pid =
        spawn_shell("sh", "for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & setsid sleep 61 & done;"
                          "wait");
    EVENTUALLY(count_marked_named("sleep") == 18);
    struct rlimit old, low;
    getrlimit(RLIMIT_NOFILE, &old);
    low = old;
    int fill[64], filled = 0;
    low.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &low);
    while (filled < 64 && (fill[filled] = open("/", O_PATH | O_CLOEXEC)) >= 0)
        filled++;
    for (int i = 0; i < left && filled > 0; i++)
        close(fill[--filled]);
    struct run r = plan_of(ROOT, pid, 5000);
    run_start(&r);
    run_finish(&r);
    while (filled > 0)
        close(fill[--filled]);
    setrlimit(RLIMIT_NOFILE, &old);
    return r;
}

static void test_few_descriptors(void)
{
    run_loop_for(0.01); /* the loop has what it needs */
    int before = count_descriptors();
    for (int left = 20; left > 1; left = left / 2) {
        struct run r = end_with_descriptors(left);
        CHECK_ALL_GONE(&r);
        CHECK(r.report.ended == 19);
        CHECK_TOOK(&r, 0, 4000);
    }
    CHECK(count_descriptors() == before);
}

/* All in use but those that were kept from the start on. */
static void test_only_the_reserve(void)
{
    teardown_reserve();
    struct run r = end_with_descriptors(0);
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 19);
}

static void test_no_descriptor_at_all(void)
{
    teardown_unreserve();
    struct run r = end_with_descriptors(0);
    int left = count_marked();
    clean_up();
    CHECK(r.is_done);
    CHECK(left == 19);
    CHECK(r.report.survivor_count == 1 && r.survivors[0].pid == r.root);
    CHECK_STR(r.survivors[0].why, strerror(EMFILE));
}

static void test_more_than_the_set_holds(void)
{
    member_limit = 40;
    pid_t pid = spawn_shell("dash", "trap '' TERM; for i in $(seq 10); do "
                                    "(for j in $(seq 20); do sleep 60 & done; wait) & done; wait");
    EVENTUALLY(count_marked_named("sleep") == 200);
    struct run r = plan_of(ALL_OUR_CHILDREN, pid, 300);
    run_start(&r);
    run_finish(&r);
    member_limit = MEMBER_LIMIT;
    CHECK_ALL_GONE(&r);
    CHECK(r.report.ended == 211);
}

/* --- cgroup v2 --- */

/* A new cgroup below the mounted hierarchy; -1 if there is none. */
static int make_cgroup(char *path, size_t size)
{
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        char procs[192];
        snprintf(path, size, "%s/teardown-test-%d", mounts[i], (int)getpid());
        if (mkdir(path, 0755) < 0)
            continue;
        int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        snprintf(procs, sizeof procs, "%s/cgroup.freeze", path);
        if (access(procs, W_OK) == 0)
            return fd;
        close(fd);
        rmdir(path);
    }
    return -1;
}

static void move_to(int cgroup_fd, pid_t pid)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%d", pid);
    int fd = openat(cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, (size_t)n) != n)
        perror("cgroup.procs");
    close(fd);
}

static void test_cgroup(void)
{
    SKIP_UNLESS_ROOT();
    char path[128];
    int fd = make_cgroup(path, sizeof path);
    if (fd < 0) {
        printf("# skip %s: no cgroup v2\n", __func__);
        return;
    }
    /* The first one handles TERM. The second has left the tree for us; only the cgroup knows. */
    pid_t pid = spawn_shell("bash", "kill -STOP $$; trap 'echo >term; exit' TERM; (sleep 70 & "
                                    "sleep 71 &); sleep 73 & while :; do sleep 0.01; done");
    EVENTUALLY(state_of(pid) == 'T');
    move_to(fd, pid);
    kill(pid, SIGCONT);
    EVENTUALLY(count_marked_named("sleep") >= 3);
    struct run r = plan_of(ROOT, pid, 5000);
    r.plan.cgroup_fd = fd;
    run_start(&r);
    run_finish(&r);
    bool got_term = marker_exists("term");
    marker_remove("term");
    /* The same with those that ignore it. */
    pid_t stubborn = spawn_shell("bash", "kill -STOP $$; trap '' TERM; sleep 70 & while :; do "
                                         "sleep 0.01; done");
    EVENTUALLY(state_of(stubborn) == 'T');
    move_to(fd, stubborn);
    kill(stubborn, SIGCONT);
    EVENTUALLY(count_marked_named("sleep") >= 1);
    struct run second = plan_of(ROOT, stubborn, 100);
    second.plan.cgroup_fd = fd;
    run_start(&second);
    run_finish(&second);
    close(fd);
    EVENTUALLY(rmdir(path) == 0 || errno == ENOENT);
    CHECK_ALL_GONE(&r);
    CHECK(got_term);
    CHECK_TOOK(&r, 0, 1500);
    CHECK_ALL_GONE(&second);
    CHECK_TOOK(&second, 100, 1500);
}

/* --- several at once --- */

static int runs_left;
static void on_one_done(void *context, const struct teardown_report *report)
{
    struct run *r = context;
    r->is_done = true;
    r->report = *report;
    if (--runs_left == 0)
        ev_break(loop, EVBREAK_ALL);
}

static void test_many_teardowns_at_once(void)
{
    static struct run runs[20];
    runs_left = 20;
    for (int i = 0; i < 20; i++) {
        pid_t pid = spawn_shell("sh", i % 2 ? "trap '' TERM; sleep 60 & sleep 61; :"
                                            : "setsid sleep 62 & sleep 63; :");
        runs[i] = plan_of(ROOT, pid, 200);
        runs[i].plan.on_done = on_one_done;
    }
    EVENTUALLY(count_marked_named("sleep") == 40);
    for (int i = 0; i < 20; i++)
        run_start(&runs[i]);
    ev_run(loop, 0);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    for (int i = 0; i < 20; i++) {
        CHECK(runs[i].is_done && runs[i].report.survivor_count == 0);
        CHECK(runs[i].report.ended == 3);
    }
    CHECK(count_marked() == 0);
}

/* --- */

#define RUN_CLEAN(test)                                                                            \
    do {                                                                                           \
        if (argc < 2 || strstr(#test, argv[1])) {                                                  \
            RUN(test);                                                                             \
            clean_up();                                                                            \
        }                                                                                          \
    } while (0)

static void set_up(char **argv)
{
    if (!getenv("TEARDOWN_TEST")) { /* /proc/PID/environ shows what a program was started with */
        char value[32];
        snprintf(value, sizeof value, "%d", (int)getpid());
        setenv("TEARDOWN_TEST", value, 1);
        execv(argv[0], argv);
        perror(argv[0]);
        exit(1);
    }
    snprintf(mark, sizeof mark, "TEARDOWN_TEST=%s", getenv("TEARDOWN_TEST"));
    snprintf(folder, sizeof folder, "/tmp/test_teardown.%d", (int)getpid());
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    loop = ev_loop_new(EVFLAG_AUTO);
    if (mkdir(folder, 0755) < 0 || shared == MAP_FAILED || !loop ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        perror("test_teardown");
        exit(1);
    }
    if (getenv("TEST_DEBUG"))
        log_configure(LOG_DEBUG, LOG_TEXT);
    ev_signal_init(&child_watcher, on_child, SIGCHLD);
    ev_signal_start(loop, &child_watcher);
}

int main(int argc, char **argv)
{
    set_up(argv);
    RUN_CLEAN(test_case_F1_children_of_the_shell);
    RUN_CLEAN(test_case_F2_four_levels);
    RUN_CLEAN(test_case_F4_setsid_child);
    RUN_CLEAN(test_case_F5_middle_does_not_pass_it_on);
    RUN_CLEAN(test_case_F8_term_ignored);
    RUN_CLEAN(test_case_E4_descendants_ignore_term);
    RUN_CLEAN(test_next_statement_never_runs);
    RUN_CLEAN(test_case_F10_forking_thread);
    RUN_CLEAN(test_first_thread_gone);
    RUN_CLEAN(test_double_fork_adopted_by_subreaper);
    RUN_CLEAN(test_children_of_an_exited_root);
    RUN_CLEAN(test_shell_that_is_not_named_lives);
    RUN_CLEAN(test_deep_tree);
    RUN_CLEAN(test_wide_tree);
    RUN_CLEAN(test_wide_tree_without_children_files);
    RUN_CLEAN(test_case_F4_without_children_files);
    RUN_CLEAN(test_fork_bomb);
    RUN_CLEAN(test_hopping_process);
    RUN_CLEAN(test_busy_shell);
    RUN_CLEAN(test_vfork_parent_cannot_stop);
    RUN_CLEAN(test_traced_process);
    RUN_CLEAN(test_member_continued_by_another);
    RUN_CLEAN(test_grace_ends_early);
    RUN_CLEAN(test_grace_is_given);
    RUN_CLEAN(test_kill_skips_the_grace);
    RUN_CLEAN(test_no_grace);
    RUN_CLEAN(test_other_first_signal);
    RUN_CLEAN(test_case_F8_second_kill_hurries);
    RUN_CLEAN(test_stopped_before);
    RUN_CLEAN(test_cancel_continues);
    RUN_CLEAN(test_cancel_from_collect);
    RUN_CLEAN(test_cancel_leaves_user_stopped);
    RUN_CLEAN(test_nobody_to_end);
    RUN_CLEAN(test_forbidden_and_dead_roots);
    RUN_CLEAN(test_case_T5_zombies_of_a_live_parent);
    RUN_CLEAN(test_case_G2_start_time_differs);
    RUN_CLEAN(test_case_G1_reused_pid_is_not_hit);
    RUN_CLEAN(test_order_of_a_tree_named_from_below);
    RUN_CLEAN(test_case_G4_refused_signal_is_reported);
    RUN_CLEAN(test_few_descriptors);
    RUN_CLEAN(test_only_the_reserve);
    RUN_CLEAN(test_no_descriptor_at_all);
    RUN_CLEAN(test_more_than_the_set_holds);
    RUN_CLEAN(test_cgroup);
    RUN_CLEAN(test_many_teardowns_at_once);
    rmdir(folder);
    ev_signal_stop(loop, &child_watcher);
    ev_loop_destroy(loop);
    return check_failures ? 1 : 0;
}
