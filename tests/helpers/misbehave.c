/*
 * misbehave: a static program that does on demand what programs under an init do wrong. Its
 * arguments are actions, carried out in order; [ and ] enclose the actions of a child or thread.
 *
 *   exit N; die SIG; say TEXT; err TEXT; write N CHAR; argv WORDS (the rest, one a line)
 *   sleep SECONDS; forever; wait (for all children); eat (stdin to its end, prints the count)
 *   ignore SIGS; default SIGS; block SIGS; catch SIGS (each prints "got NAME"; SIGS: A,B or all)
 *   until SIG (go on when it has come); raise SIG; kill PID SIG
 *   report (pid, ppid, pgrp, sid, tpgid, cwd, masks, descriptors as key=value lines)
 *   child [ ACTIONS ]; thread [ ACTIONS ]; daemon [ ACTIONS ] (double fork); setsid; setpgid
 *   tree DEPTH WIDTH (all sleep); zombies N (never reaped); orphans N MAXMS (random lifetimes)
 *   stream N (orphans one after another); batch N (N zombies handed over at once)
 *   touch FILE; append FILE TEXT; pidfile FILE; reuid UID; close FDS; open N (hold N files)
 *   detach (daemon(3)); chains N DEPTH (all sleep); spawn N MS (a child every MS, all sleep)
 *   relay (fork and end, for ever); storm N (N that vfork for ever); bomb FILE (all
 *   fork for ever; FILE: pids.max of their cgroup, a small number)
 *   chatter TEXT MS (prints for ever); exec ARGV (the rest)
 *   stamp FILE TEXT (appends a line "NANOSECONDS TEXT", CLOCK_MONOTONIC)
 *   serve FILE NAME FD MS (a service: stamps "begin NAME", after MS "ready NAME", tells FD by a
 *   newline; at TERM it stamps "term NAME", after MS "gone NAME", and exits with 0)
 *   stopall (stop all others for ever; only where PID 1 is sandbox-init)
 *   refuse openat2|renameat|tmpfile ERRNO (that system call, or open with O_TMPFILE, fails from now
 *     on; ERRNO 0: who calls it is killed)
 *   pour OUT ERR SEED (the files' bytes to stdout and stderr, by turns in pieces of random size)
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char **run(char **argv, char **end);

static void fail(const char *what)
{
    dprintf(2, "misbehave: %s: %s\n", what, strerror(errno));
    _exit(99);
}

/* As a runtime's seccomp filter does, or a file system without files that have no name. */
static void refuse(const char *what, int error)
{
    unsigned int denied =
        error ? SECCOMP_RET_ERRNO | ((unsigned)error & SECCOMP_RET_DATA) : SECCOMP_RET_KILL_PROCESS;
    unsigned int call = strcmp(what, "renameat") == 0 ? SYS_renameat : SYS_openat2;
    unsigned int flag = O_TMPFILE & ~O_DIRECTORY;
    struct sock_filter call_code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, denied),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_filter tmpfile_code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flag, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, denied),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = {sizeof call_code / sizeof *call_code, call_code};
    if (strcmp(what, "tmpfile") == 0)
        p = (struct sock_fprog){sizeof tmpfile_code / sizeof *tmpfile_code, tmpfile_code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) < 0)
        fail("seccomp");
}

static const struct {
    const char *name;
    int number;
} signals[] = {
    {"HUP", SIGHUP},   {"INT", SIGINT},       {"QUIT", SIGQUIT}, {"ILL", SIGILL},
    {"TRAP", SIGTRAP}, {"ABRT", SIGABRT},     {"BUS", SIGBUS},   {"FPE", SIGFPE},
    {"KILL", SIGKILL}, {"USR1", SIGUSR1},     {"SEGV", SIGSEGV}, {"USR2", SIGUSR2},
    {"PIPE", SIGPIPE}, {"ALRM", SIGALRM},     {"TERM", SIGTERM}, {"STKFLT", SIGSTKFLT},
    {"CHLD", SIGCHLD}, {"CONT", SIGCONT},     {"STOP", SIGSTOP}, {"TSTP", SIGTSTP},
    {"TTIN", SIGTTIN}, {"TTOU", SIGTTOU},     {"URG", SIGURG},   {"XCPU", SIGXCPU},
    {"XFSZ", SIGXFSZ}, {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF}, {"WINCH", SIGWINCH},
    {"IO", SIGIO},     {"PWR", SIGPWR},       {"SYS", SIGSYS},
};
enum { SIGNAL_COUNT = sizeof signals / sizeof *signals };

static const char *signal_name(int n)
{
    for (size_t i = 0; i < SIGNAL_COUNT; i++)
        if (signals[i].number == n)
            return signals[i].name;
    return "RT";
}

static int signal_number(const char *s)
{
    for (size_t i = 0; i < SIGNAL_COUNT; i++)
        if (strcmp(signals[i].name, s) == 0)
            return signals[i].number;
    return (int)strtol(s, NULL, 10);
}

/* Call each(n) for a comma list of names or numbers, or "all" (1..31 but KILL, STOP, CHLD). */
static void each_signal(const char *list, void (*each)(int))
{
    if (strcmp(list, "all") == 0) {
        for (int n = 1; n < 32; n++)
            if (n != SIGKILL && n != SIGSTOP && n != SIGCHLD)
                each(n);
        return;
    }
    char *copy = strdup(list), *save = NULL;
    for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save))
        each(signal_number(w));
    free(copy);
}

static volatile sig_atomic_t arrived[65];

static void on_signal(int n)
{
    int saved = errno;
    char line[32] = "got ";
    const char *name = signal_name(n);
    size_t len = strlen(name);
    memcpy(line + 4, name, len);
    line[4 + len] = '\n';
    if (write(1, line, len + 5) < 0) {
    }
    arrived[n]++;
    errno = saved;
}

static void do_ignore(int n)
{
    signal(n, SIG_IGN);
}
static void do_default(int n)
{
    signal(n, SIG_DFL);
}
static void do_catch(int n)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigfillset(&a.sa_mask);
    sigaction(n, &a, NULL);
}
static void do_block(int n)
{
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, n);
    sigprocmask(SIG_BLOCK, &s, NULL);
}

static void nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t) < 0 && errno == EINTR) {
    }
}

static pid_t must_fork(void)
{
    pid_t p = fork();
    if (p < 0)
        fail("fork");
    return p;
}

static void status_line(const char *key, const char *label)
{
    char line[512];
    FILE *f = fopen("/proc/thread-self/status", "re");
    if (!f)
        f = fopen("/proc/self/status", "re");
    if (!f)
        return;
    size_t n = strlen(key);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            char *v = line + n + 1;
            while (isspace((unsigned char)*v))
                v++;
            printf("%s=%s", label, v);
        }
    fclose(f);
}

static int compare_int(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void report(void)
{
    char cwd[4096];
    int fds[1024], count = 0, reaper = 0;
    DIR *d = opendir("/proc/self/fd");
    if (d) {
        for (struct dirent *e; (e = readdir(d)) && count < 1024;)
            if (e->d_name[0] != '.' && (int)strtol(e->d_name, NULL, 10) != dirfd(d))
                fds[count++] = (int)strtol(e->d_name, NULL, 10);
        closedir(d);
    }
    qsort(fds, (size_t)count, sizeof *fds, compare_int);
    printf("pid=%d\nppid=%d\npgrp=%d\nsid=%d\n", getpid(), getppid(), getpgrp(), getsid(0));
    printf("uid=%d\ngid=%d\n", getuid(), getgid());
    printf("cwd=%s\n", getcwd(cwd, sizeof cwd) ? cwd : "?");
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    printf("tpgid=%d\n", tty < 0 ? -1 : tcgetpgrp(tty));
    if (tty >= 0)
        close(tty);
    status_line("SigBlk", "blocked");
    status_line("SigIgn", "ignored");
    status_line("SigCgt", "caught");
    status_line("NoNewPrivs", "no_new_privs");
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    printf("subreaper=%d\nfds=", reaper);
    for (int i = 0; i < count; i++)
        printf("%s%d", i ? "," : "", fds[i]);
    printf("\n");
    fflush(stdout);
}

static char **closing(char **a, char **end)
{
    int depth = 0;
    for (; a < end; a++) {
        if (strcmp(*a, "[") == 0)
            depth++;
        else if (strcmp(*a, "]") == 0 && --depth == 0)
            return a;
    }
    dprintf(2, "misbehave: no closing ]\n");
    _exit(98);
}

static void tree(int depth, int width)
{
    for (int i = 0; depth > 0 && i < width; i++)
        if (must_fork() == 0) {
            tree(depth - 1, width);
            for (;;)
                pause();
        }
}

static void chains(int n, int depth)
{
    for (int i = 0; i < n; i++)
        if (must_fork() == 0) {
            for (int d = 1; d < depth && must_fork() == 0; d++) {
            }
            for (;;)
                pause();
        }
}

static void spawn(int n, double ms)
{
    for (int i = 0; i < n; i++) {
        if (must_fork() == 0)
            for (;;)
                pause();
        nap(ms / 1000.0);
    }
}

static void relay(void)
{
    for (;;)
        if (fork() > 0)
            _exit(0);
}

static void storm(int n)
{
    for (int i = 1; i < n && must_fork() == 0; i++) {
    }
    for (;;) {
        pid_t p = vfork();
        if (p == 0)
            _exit(0);
        if (p > 0)
            waitpid(p, NULL, 0);
    }
}

/* One that gets out of hand takes the machine with it. So it wants to see the limit: the file
 * pids.max of the cgroup that it is in, which its caller names. */
static void bomb(const char *pids_max)
{
    char text[32] = "";
    int fd = open(pids_max, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    long limit = n > 0 ? strtol(text, NULL, 10) : 0;
    if (limit < 10 || limit > 1000) {
        dprintf(2, "misbehave: bomb: not without a small pids.max\n");
        _exit(98);
    }
    for (;;)
        fork();
}

static void orphans(int n, int max_ms)
{
    for (int i = 0; i < n; i++) {
        pid_t p = must_fork();
        if (p == 0) {
            if (must_fork() == 0) {
                srand((unsigned)getpid() ^ (unsigned)i);
                nap(max_ms ? (double)(rand() % max_ms) / 1000.0 : 0);
                _exit(i & 0x7f);
            }
            _exit(0);
        }
        waitpid(p, NULL, 0);
    }
}

static void batch(int n)
{
    pid_t p = must_fork();
    if (p == 0) {
        int ends[2];
        char c;
        if (pipe(ends) < 0)
            fail("pipe");
        for (int i = 0; i < n; i++)
            if (must_fork() == 0)
                _exit(0);
        close(ends[1]);
        /* End of file comes when the last child has let go of its end: all are ready to be reaped.
         */
        if (read(ends[0], &c, 1) < 0)
            fail("read");
        _exit(0);
    }
    waitpid(p, NULL, 0);
}

struct source {
    char *bytes;
    size_t size, at;
    int to;
};

static void load(struct source *s, const char *path, int to)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !(s->bytes = malloc((size_t)st.st_size + 1)))
        fail(path);
    s->to = to;
    for (ssize_t n; (n = read(fd, s->bytes + s->size, (size_t)st.st_size - s->size)) > 0;)
        s->size += (size_t)n;
    close(fd);
}

/* The pieces have 1 to 2^18 bytes, small ones as often as large ones. */
static void pour(const char *out, const char *err, unsigned seed)
{
    struct source sources[2] = {0};
    load(&sources[0], out, 1);
    load(&sources[1], err, 2);
    srand(seed);
    while (sources[0].at < sources[0].size || sources[1].at < sources[1].size) {
        struct source *s = &sources[rand() & 1];
        size_t n = 1 + (size_t)rand() % ((size_t)1 << rand() % 19), left = s->size - s->at;
        for (n = n < left ? n : left; n > 0;) {
            ssize_t k = write(s->to, s->bytes + s->at, n);
            if (k < 0)
                fail("write");
            s->at += (size_t)k;
            n -= (size_t)k;
        }
    }
    free(sources[0].bytes);
    free(sources[1].bytes);
}

static void stop_all(void)
{
    char name[32] = "";
    int fd = open("/proc/1/comm", O_RDONLY);
    if (fd < 0 || read(fd, name, sizeof name - 1) < 0 || strcmp(name, "sandbox-init\n") != 0)
        _exit(98);
    for (;;)
        kill(-1, SIGSTOP);
}

struct thread_plan {
    char **from, **to;
};

static void *thread_main(void *arg)
{
    struct thread_plan *p = arg;
    run(p->from, p->to);
    return NULL;
}

static int writable(const char *path, int flags)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    if (fd < 0)
        fail(path);
    return fd;
}

/* One line, appended whole, so that many can write to the same file. */
static void stamp(const char *path, const char *what, const char *name)
{
    struct timespec t;
    char line[256];
    int fd = writable(path, O_APPEND);
    clock_gettime(CLOCK_MONOTONIC, &t);
    int n = snprintf(line, sizeof line, "%lld %s%s%s\n",
                     (long long)t.tv_sec * 1000000000 + t.tv_nsec, what, *name ? " " : "", name);
    if (write(fd, line, (size_t)n) != n)
        fail(path);
    close(fd);
}

static void serve(const char *path, const char *name, int fd, double ms)
{
    sigset_t term;
    int got;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    stamp(path, "begin", name);
    nap(ms / 1000.);
    stamp(path, "ready", name); /* before init can know of it */
    if (write(fd, "\n", 1) != 1)
        fail("ready");
    close(fd);
    sigwait(&term, &got);
    stamp(path, "term", name);
    nap(ms / 1000.);
    stamp(path, "gone", name);
    _exit(0);
}

static void write_bytes(long n, char c)
{
    char block[65536];
    memset(block, c, sizeof block);
    while (n > 0) {
        ssize_t w = write(1, block, n < (long)sizeof block ? (size_t)n : sizeof block);
        if (w < 0 && errno != EINTR)
            fail("write");
        if (w > 0)
            n -= w;
    }
}

static char *next(const char *verb, char ***at, char **end)
{
    if (*at >= end) {
        dprintf(2, "misbehave: %s: argument missing\n", verb);
        _exit(98);
    }
    return *(*at)++;
}

static char **run(char **a, char **end)
{
#define IS(word) (strcmp(verb, word) == 0)
#define NEXT()   next(verb, &a, end)
    while (a < end) {
        const char *verb = *a++;
        if (IS("exit")) {
            _exit((int)strtol(NEXT(), NULL, 10));
        } else if (IS("die")) {
            int n = signal_number(NEXT());
            signal(n, SIG_DFL);
            kill(getpid(), n);
            nap(1);
        } else if (IS("say")) {
            dprintf(1, "%s\n", NEXT());
        } else if (IS("err")) {
            dprintf(2, "%s\n", NEXT());
        } else if (IS("write")) {
            long n = strtol(NEXT(), NULL, 10);
            write_bytes(n, *NEXT());
        } else if (IS("argv")) {
            while (a < end)
                dprintf(1, "[%s]\n", *a++);
        } else if (IS("sleep")) {
            nap(strtod(NEXT(), NULL));
        } else if (IS("forever")) {
            for (;;)
                pause();
        } else if (IS("wait")) {
            while (wait(NULL) > 0 || errno == EINTR) {
            }
        } else if (IS("eat")) {
            char block[4096];
            long total = 0;
            ssize_t n;
            while ((n = read(0, block, sizeof block)) > 0)
                total += n;
            dprintf(1, "stdin=%ld\n", total);
        } else if (IS("ignore")) {
            each_signal(NEXT(), do_ignore);
        } else if (IS("default")) {
            each_signal(NEXT(), do_default);
        } else if (IS("block")) {
            each_signal(NEXT(), do_block);
        } else if (IS("catch")) {
            each_signal(NEXT(), do_catch);
        } else if (IS("until")) {
            int n = signal_number(NEXT());
            while (!arrived[n])
                nap(0.005);
        } else if (IS("raise")) {
            raise(signal_number(NEXT()));
        } else if (IS("kill")) {
            pid_t p = (pid_t)strtol(NEXT(), NULL, 10);
            if (kill(p, signal_number(NEXT())) < 0)
                fail("kill");
        } else if (IS("report")) {
            report();
        } else if (IS("child") || IS("thread") || IS("daemon")) {
            char **from = a + 1, **to = closing(a, end);
            a = to + 1;
            if (IS("thread")) {
                struct thread_plan *plan = malloc(sizeof *plan);
                pthread_t t;
                *plan = (struct thread_plan){from, to};
                if (pthread_create(&t, NULL, thread_main, plan) != 0)
                    fail("pthread_create");
            } else {
                pid_t p = must_fork();
                if (p == 0) {
                    if (IS("daemon")) {
                        setsid();
                        if (must_fork() != 0)
                            _exit(0);
                    }
                    run(from, to);
                    _exit(0);
                }
                if (IS("daemon"))
                    waitpid(p, NULL, 0);
            }
        } else if (IS("setsid")) {
            if (setsid() < 0)
                fail("setsid");
        } else if (IS("setpgid")) {
            if (setpgid(0, 0) < 0)
                fail("setpgid");
        } else if (IS("tree")) {
            int depth = (int)strtol(NEXT(), NULL, 10);
            tree(depth, (int)strtol(NEXT(), NULL, 10));
        } else if (IS("zombies")) {
            for (long n = strtol(NEXT(), NULL, 10); n > 0; n--)
                if (must_fork() == 0)
                    _exit(0);
        } else if (IS("detach")) {
            if (daemon(1, 1) < 0)
                fail("daemon");
        } else if (IS("chains")) {
            int n = (int)strtol(NEXT(), NULL, 10);
            chains(n, (int)strtol(NEXT(), NULL, 10));
        } else if (IS("spawn")) {
            int n = (int)strtol(NEXT(), NULL, 10);
            spawn(n, strtod(NEXT(), NULL));
        } else if (IS("relay")) {
            relay();
        } else if (IS("storm")) {
            storm((int)strtol(NEXT(), NULL, 10));
        } else if (IS("bomb")) {
            bomb(NEXT());
        } else if (IS("orphans")) {
            int n = (int)strtol(NEXT(), NULL, 10);
            orphans(n, (int)strtol(NEXT(), NULL, 10));
        } else if (IS("stream")) {
            orphans((int)strtol(NEXT(), NULL, 10), 0);
        } else if (IS("batch")) {
            batch((int)strtol(NEXT(), NULL, 10));
        } else if (IS("touch")) {
            close(writable(NEXT(), 0));
        } else if (IS("append")) {
            int fd = writable(NEXT(), O_APPEND);
            dprintf(fd, "%s\n", NEXT());
            close(fd);
        } else if (IS("pidfile")) {
            char *path = NEXT(), temporary[4096];
            snprintf(temporary, sizeof temporary, "%s.new", path);
            int fd = writable(temporary, O_TRUNC);
            dprintf(fd, "%d\n", getpid());
            close(fd);
            if (rename(temporary, path) < 0)
                fail(path);
        } else if (IS("reuid")) {
            uid_t u = (uid_t)strtol(NEXT(), NULL, 10);
            if (setresuid(u, u, u) < 0)
                fail("setresuid");
        } else if (IS("close")) {
            char *copy = strdup(NEXT()), *save = NULL;
            for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save))
                close((int)strtol(w, NULL, 10));
            free(copy);
        } else if (IS("open")) {
            for (long n = strtol(NEXT(), NULL, 10); n > 0; n--)
                if (open("/dev/null", O_RDONLY) < 0)
                    fail("/dev/null");
        } else if (IS("stamp")) {
            char *path = NEXT();
            stamp(path, NEXT(), "");
        } else if (IS("serve")) {
            char *path = NEXT(), *name = NEXT();
            int fd = (int)strtol(NEXT(), NULL, 10);
            serve(path, name, fd, strtod(NEXT(), NULL));
        } else if (IS("pour")) {
            char *out = NEXT(), *err = NEXT();
            pour(out, err, (unsigned)strtoul(NEXT(), NULL, 10));
        } else if (IS("stopall")) {
            stop_all();
        } else if (IS("refuse")) {
            char *what = NEXT();
            refuse(what, (int)strtol(NEXT(), NULL, 10));
        } else if (IS("chatter")) {
            char *text = NEXT();
            double ms = strtod(NEXT(), NULL);
            for (;;) {
                if (dprintf(1, "%s\n", text) < 0)
                    _exit(97);
                nap(ms / 1000.0);
            }
        } else if (IS("exec")) {
            if (a >= end)
                _exit(98);
            *end = NULL;
            execvp(*a, a);
            fail(*a);
        } else {
            dprintf(2, "misbehave: unknown action %s\n", verb);
            _exit(98);
        }
    }
    return a;
}

int main(int argc, char **argv)
{
    run(argv + 1, argv + argc);
    return 0;
}
