/* sessions/proc: names of any bytes, children of all threads and in any number, environment. */
#include "base/clock.h"
#include "base/fd.h"
#include "sessions/proc.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MANY 2500 /* pids of up to 5 digits: several chunks */

/* Poll a condition each millisecond, for at most 20 s. */
#define EVENTUALLY(cond)                                                                           \
    do {                                                                                           \
        uint64_t eventually_end = clock_mono_ns() + 20000000000u;                                  \
        while (!(cond) && clock_mono_ns() < eventually_end)                                        \
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);                               \
    } while (0)

static pid_t fork_named(const char *name)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (name)
            prctl(PR_SET_NAME, name);
        for (;;)
            pause();
    }
    return pid;
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* --- stat --- */

static void test_stat_of_self(void)
{
    struct proc_stat s;
    CHECK(proc_stat_read(getpid(), &s) == 0);
    CHECK(s.pid == getpid() && s.ppid == getppid());
    CHECK(s.pgrp == getpgrp() && s.sid == getsid(0));
    CHECK(s.state == 'R' && s.threads == 1 && s.start_ticks > 0);
    CHECK(!proc_stat_is_dead(&s) && !proc_is_stopped(&s));
}

static void test_stat_of_nobody(void)
{
    struct proc_stat s;
    pid_t pid = fork_named(NULL);
    end_child(pid);
    CHECK(proc_stat_read(pid, &s) == -1 && (errno == ENOENT || errno == ESRCH));
    CHECK(proc_stat_read(0, &s) == -1);
    CHECK(proc_stat_read(-1, &s) == -1);
}

static void test_stat_of_any_name(void)
{
    static const char *const names[] = {"plain", ") R 1 2 3 (",    "a\nb) S 1 1",   "((((",
                                        "))))",  " leading blank", ") Z 0 0 0 0 0", "\xff\x01\t"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        pid_t pid = fork_named(names[i]);
        struct proc_stat s;
        char want[16];
        snprintf(want, sizeof want, "%s", names[i]);
        EVENTUALLY(proc_stat_read(pid, &s) == 0 && strcmp(s.comm, want) == 0);
        end_child(pid);
        CHECK_STR(s.comm, want);
        CHECK(s.pid == pid && s.ppid == getpid() && s.pgrp == getpgrp());
        CHECK(s.state == 'S' || s.state == 'R');
        CHECK(s.threads == 1);
    }
}

static void test_stat_parse(void)
{
    struct proc_stat s;
    const char *rest = " 1 2 3 0 -1 4194560 0 0 0 0 7 8 0 0 20 0 3 0 18446744073709551615 0\n";
    char line[256];
    snprintf(line, sizeof line, "77 (x) y) T%s", rest);
    CHECK(proc_stat_parse(line, &s) == 0);
    CHECK_STR(s.comm, "x) y");
    CHECK(s.pid == 77 && s.state == 'T' && s.ppid == 1 && s.pgrp == 2 && s.sid == 3);
    CHECK(s.user_ticks == 7 && s.system_ticks == 8 && s.threads == 3);
    CHECK(s.start_ticks == UINT64_MAX);
    /* A kernel worker's name can be longer than 15 bytes. */
    snprintf(line, sizeof line, "5 (kworker/u257:13-events_unbound_and_more) I%s", rest);
    CHECK(proc_stat_parse(line, &s) == 0);
    CHECK(strlen(s.comm) == sizeof s.comm - 1 && s.state == 'I');
    static const char *const bad[] = {"",        "77",      "77 (x",        "77 )x(",  "77 (x)",
                                      "77 (x) ", "77 (x)S", "77 (x) S 1 2", "(x) S 1", "0 (x) S 1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        errno = 0;
        CHECK(proc_stat_parse(bad[i], &s) == -1 && errno == EPROTO);
    }
    snprintf(line, sizeof line, "77 (x) S%s", rest);
    *strstr(line, " 18446744073709551615") = '\0'; /* one number short */
    CHECK(proc_stat_parse(line, &s) == -1);
}

static void test_zombie_is_dead(void)
{
    pid_t pid = fork_named("zombie");
    struct proc_stat s = {0};
    kill(pid, SIGKILL);
    EVENTUALLY(proc_stat_read(pid, &s) == 0 && proc_stat_is_dead(&s));
    bool is_dead = proc_stat_is_dead(&s);
    waitpid(pid, NULL, 0);
    CHECK(is_dead && s.state == 'Z');
}

static void *sleep_for_ever(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

/* The state of /proc/PID/stat is the first thread's. */
static void test_first_thread_gone_is_not_dead(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, sleep_for_ever, NULL) != 0)
            _exit(1);
        pthread_exit(NULL);
    }
    struct proc_stat s = {0}, stopped = {0};
    EVENTUALLY(proc_stat_read(pid, &s) == 0 && s.state == 'Z');
    kill(pid, SIGSTOP);
    bool was_seen_stopped = false;
    EVENTUALLY(
        (was_seen_stopped = proc_stat_read(pid, &stopped) == 0 && proc_is_stopped(&stopped)));
    end_child(pid);
    CHECK(s.state == 'Z' && s.threads == 2);
    CHECK(!proc_stat_is_dead(&s));
    CHECK(was_seen_stopped);
}

static void test_stopped(void)
{
    pid_t pid = fork_named(NULL);
    struct proc_stat s = {0};
    kill(pid, SIGSTOP);
    EVENTUALLY(proc_stat_read(pid, &s) == 0 && proc_is_stopped(&s));
    bool is_stopped = proc_is_stopped(&s);
    kill(pid, SIGCONT);
    EVENTUALLY(proc_stat_read(pid, &s) == 0 && !proc_is_stopped(&s));
    bool is_continued = !proc_is_stopped(&s);
    end_child(pid);
    CHECK(is_stopped && is_continued);
}

/* --- children --- */

struct pid_set {
    pid_t pids[MANY + 10];
    size_t count;
    size_t stop_at; /* 0: never */
};

static bool take_pid(void *context, pid_t pid)
{
    struct pid_set *set = context;
    if (set->count < sizeof set->pids / sizeof *set->pids)
        set->pids[set->count++] = pid;
    return set->count != set->stop_at;
}

static int compare_pids(const void *a, const void *b)
{
    return *(const pid_t *)a - *(const pid_t *)b;
}

static bool is_same_set(struct pid_set *a, struct pid_set *b)
{
    qsort(a->pids, a->count, sizeof *a->pids, compare_pids);
    qsort(b->pids, b->count, sizeof *b->pids, compare_pids);
    return a->count == b->count && memcmp(a->pids, b->pids, a->count * sizeof *a->pids) == 0;
}

static struct pid_set wanted, got, scanned, stopped_early;

static void test_thousands_of_children(void)
{
    wanted.count = got.count = scanned.count = stopped_early.count = 0;
    stopped_early.stop_at = 7;
    while (wanted.count < MANY) {
        pid_t pid = fork_named(NULL);
        if (pid < 0)
            break;
        wanted.pids[wanted.count++] = pid;
    }
    int rc = proc_children(getpid(), take_pid, &got);
    int rc_early = proc_children(getpid(), take_pid, &stopped_early);
    proc_pretend_no_children_files(true);
    int rc_scan = proc_children(getpid(), take_pid, &scanned);
    proc_pretend_no_children_files(false);
    for (size_t i = 0; i < wanted.count; i++)
        kill(wanted.pids[i], SIGKILL);
    while (wait(NULL) > 0)
        ;
    CHECK(wanted.count == MANY);
    CHECK(rc == 0 && rc_early == 0 && rc_scan == 0);
    CHECK(is_same_set(&wanted, &got));
    CHECK(is_same_set(&wanted, &scanned));
    CHECK(stopped_early.count == 7);
}

static void *fork_in_thread(void *out)
{
    *(pid_t *)out = fork_named("thread_child");
    return sleep_for_ever(NULL);
}

/* A child is listed under the thread that forked it only. */
static void test_case_F10_child_of_a_thread(void)
{
    pid_t parent = fork();
    if (parent == 0) {
        pthread_t thread;
        pid_t child = 0;
        if (pthread_create(&thread, NULL, fork_in_thread, &child) != 0)
            _exit(1);
        sleep_for_ever(NULL);
    }
    got.count = 0;
    EVENTUALLY((got.count = 0, proc_children(parent, take_pid, &got)) == 0 && got.count > 0);
    scanned.count = 0;
    proc_pretend_no_children_files(true);
    proc_children(parent, take_pid, &scanned);
    proc_pretend_no_children_files(false);
    struct pid_set of_first = {0};
    proc_children_of_only_thread(parent, take_pid, &of_first);
    if (got.count == 1)
        kill(got.pids[0], SIGKILL);
    end_child(parent);
    CHECK(got.count == 1 && scanned.count == 1 && got.pids[0] == scanned.pids[0]);
    CHECK(of_first.count == 0);
}

static void test_children_of_nobody(void)
{
    pid_t pid = fork_named(NULL);
    end_child(pid);
    got.count = 0;
    CHECK(proc_children(pid, take_pid, &got) == -1);
    proc_pretend_no_children_files(true);
    int rc = proc_children(pid, take_pid, &got);
    proc_pretend_no_children_files(false);
    CHECK(rc == -1 && got.count == 0);
}

static void test_list_of_pids_cut_by_chunks(void)
{
    char path[] = "/tmp/test_proc.XXXXXX";
    CLEANUP_FD int fd = mkstemp(path);
    CHECK(fd >= 0);
    unlink(path);
    char text[32768];
    size_t n = 0;
    for (int pid = 100000; n + 8 < sizeof text; pid++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d\n", pid);
    text[--n] = '\0'; /* no end of line behind the last one */
    bool is_written = write(fd, text, n) == (ssize_t)n;
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    static struct pid_set listed;
    CHECK(is_written && proc_list_pids(AT_FDCWD, name, take_pid, &listed) == 0);
    size_t lines = (n + 1) / 7;
    if (lines > sizeof listed.pids / sizeof *listed.pids)
        lines = sizeof listed.pids / sizeof *listed.pids;
    CHECK(listed.count == lines);
    for (size_t i = 0; i < listed.count; i++)
        CHECK(listed.pids[i] == 100000 + (pid_t)i);
}

static void test_scan_finds_self(void)
{
    struct proc_scan *scan = proc_scan_new();
    CHECK(scan);
    struct proc_stat s;
    bool found = false;
    int rc;
    while ((rc = proc_scan_next(scan, &s)) > 0)
        found = found || s.pid == getpid();
    proc_scan_free(&scan);
    proc_scan_free(&scan);
    CHECK(rc == 0 && found && !scan);
}

/* --- environment and command line --- */

/* A shell that stops itself, with padding bytes of other variables before the one that is looked
 * for. */
static pid_t run_with_environ(size_t padding, const char *assignment)
{
    pid_t pid = fork();
    if (pid == 0) {
        static char pads[8][100001];
        char *env[10] = {0};
        size_t count = 0;
        while (padding > 0 && count < 8) { /* one string is at most 128 KiB: execve(2) */
            size_t n = padding < sizeof pads[0] - 1 ? padding : sizeof pads[0] - 1;
            memset(pads[count], 'p', n - 1); /* n with its NUL */
            env[count] = pads[count];
            count++;
            padding -= n;
        }
        char *copy = strdup(assignment);
        env[count] = copy;
        execle("/bin/sh", "sh", "-c", "kill -STOP $$; exit 0", "two  words", (char *)NULL, env);
        _exit(127);
    }
    struct proc_stat s;
    EVENTUALLY(proc_stat_read(pid, &s) == 0 && s.state == 'T');
    return pid;
}

static void test_environ(void)
{
    pid_t pid = run_with_environ(10, "MARK=dev-1");
    bool has = proc_environ_has(pid, "MARK=dev-1");
    bool has_prefix = proc_environ_has(pid, "MARK=dev-");
    bool has_longer = proc_environ_has(pid, "MARK=dev-12");
    bool has_suffix = proc_environ_has(pid, "ARK=dev-1");
    bool has_empty = proc_environ_has(pid, "");
    end_child(pid);
    CHECK(has);
    CHECK(!has_prefix && !has_longer && !has_suffix && !has_empty);
    CHECK(!proc_environ_has(pid, "MARK=dev-1")); /* gone */
}

static void test_environ_across_chunks(void)
{
    for (size_t padding = 4096 - 12; padding <= 4096 + 2; padding++) {
        pid_t pid = run_with_environ(padding, "MARK=dev-1");
        bool has = proc_environ_has(pid, "MARK=dev-1");
        end_child(pid);
        CHECK(has);
    }
}

static void test_environ_is_bounded(void)
{
    pid_t pid = run_with_environ(250 * 1024, "MARK=x");
    bool has_near = proc_environ_has(pid, "MARK=x");
    end_child(pid);
    pid = run_with_environ(300 * 1024, "MARK=x");
    bool has_far = proc_environ_has(pid, "MARK=x");
    end_child(pid);
    CHECK(has_near);
    CHECK(!has_far);
}

static void test_command(void)
{
    char line[128], tiny[5], one[1] = {'x'};
    pid_t pid = run_with_environ(0, "A=b");
    proc_command(pid, line, sizeof line);
    proc_command(pid, tiny, sizeof tiny);
    proc_command(pid, one, sizeof one);
    proc_command(pid, NULL, 0);
    kill(pid, SIGKILL);
    struct proc_stat s;
    EVENTUALLY(proc_stat_read(pid, &s) == 0 && s.state == 'Z');
    char zombie[32], gone[32] = "x";
    proc_command(pid, zombie, sizeof zombie);
    waitpid(pid, NULL, 0);
    proc_command(pid, gone, sizeof gone);
    CHECK_STR(line, "sh -c kill -STOP $$; exit 0 two  words");
    CHECK_STR(tiny, "sh -");
    CHECK(one[0] == '\0');
    CHECK_STR(zombie, "[sh]");
    CHECK_STR(gone, "");
}

int main(void)
{
    RUN(test_stat_of_self);
    RUN(test_stat_of_nobody);
    RUN(test_stat_of_any_name);
    RUN(test_stat_parse);
    RUN(test_zombie_is_dead);
    RUN(test_first_thread_gone_is_not_dead);
    RUN(test_stopped);
    RUN(test_thousands_of_children);
    RUN(test_case_F10_child_of_a_thread);
    RUN(test_children_of_nobody);
    RUN(test_list_of_pids_cut_by_chunks);
    RUN(test_scan_finds_self);
    RUN(test_environ);
    RUN(test_environ_across_chunks);
    RUN(test_environ_is_bounded);
    RUN(test_command);
    return check_failures ? 1 : 0;
}
