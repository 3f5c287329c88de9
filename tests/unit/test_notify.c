/*
 * services/notify, with senders of every kind: threads of this program, forked processes that stay
 * or have ended, other users, floods. is_own() says of whom the test wants it.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "services/notify.h"
#include "tests/unit/check.h"
#include "tests/unit/run_loop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS        1000000ull
#define OTHER_UID 54321

static struct ev_loop *loop;
static char folder[64];
static int folder_fd;

/* ---- the owner ---- */

static struct notify *notify;
static char heard[8192]; /* a letter a callback; STATUS with its text */
static pid_t own;        /* 0: everybody is */
static char free_at;     /* notify_free() in the callback with this letter */

static void hear(char letter, const char *text)
{
    size_t n = strlen(heard);
    if (n + 2 + strlen(text) < sizeof heard)
        snprintf(heard + n, sizeof heard - n, "%c%s", letter, text);
    if (letter == free_at) {
        notify_free(notify);
        notify = NULL;
    }
}

static void on_ready(void *context)
{
    (void)context;
    hear('r', "");
}

static void on_reloading(void *context)
{
    (void)context;
    hear('l', "");
}

static void on_stopping(void *context)
{
    (void)context;
    hear('s', "");
}

static void on_status(void *context, const char *text)
{
    char quoted[NOTIFY_STATUS_MAX + 4];
    (void)context;
    snprintf(quoted, sizeof quoted, "(%s)", text);
    hear('t', quoted);
}

static void on_watchdog(void *context)
{
    (void)context;
    hear('w', "");
}

static void on_closed(void *context)
{
    (void)context;
    hear('c', "");
}

static bool is_own(void *context, pid_t pid)
{
    (void)context;
    return own == 0 || pid == own;
}

static const struct notify_events events = {.on_ready = on_ready,
                                            .on_reloading = on_reloading,
                                            .on_stopping = on_stopping,
                                            .on_status = on_status,
                                            .on_watchdog = on_watchdog,
                                            .on_closed = on_closed,
                                            .is_own = is_own};

static bool make(bool is_abstract, bool wants_pipe)
{
    struct error e = {0};
    heard[0] = '\0';
    own = 0;
    free_at = '\0';
    notify = notify_new(loop, is_abstract ? -1 : folder_fd, folder, "web@1", geteuid(), wants_pipe,
                        &events, NULL, &e);
    if (!notify)
        printf("  %s\n", e.text);
    return notify;
}

static void end(void)
{
    notify_free(notify);
    notify = NULL;
}

/* ---- senders ---- */

static socklen_t address_of(const char *text, struct sockaddr_un *to)
{
    size_t n = strlen(text);
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(to->sun_path, text, n);
    if (text[0] == '@')
        to->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (text[0] == '@' ? 0 : 1));
}

/* As sd_notify(3), with any bytes and descriptors. */
static bool send_bytes(const char *bytes, size_t n, const int *fds, size_t fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(253 * sizeof(int))];
    } control = {0};
    struct sockaddr_un to;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_name = &to};
    m.msg_namelen = address_of(notify_address(notify), &to);
    if (fd_count) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
    }
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ssize_t k = sendmsg(fd, &m, MSG_NOSIGNAL);
    if (k < 0)
        printf("  send to %s: %s\n", notify_address(notify), strerror(errno));
    return k == (ssize_t)n;
}

static bool say(const char *text)
{
    return send_bytes(text, strlen(text), NULL, 0);
}

static void turn(void)
{
    ev_run(loop, EVRUN_NOWAIT);
}

/* A process of that user that says it, and has ended and been waited for when this returns, or
 * stays until it is killed. */
static pid_t sender(const char *text, uid_t uid, bool stays)
{
    int ready[2];
    char byte;
    (void)!pipe2(ready, O_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0) {
        if (uid != geteuid() && (setgid(uid) < 0 || setuid(uid) < 0))
            _exit(1);
        bool is_sent = say(text);
        (void)!write(ready[1], is_sent ? "y" : "n", 1);
        while (stays)
            pause();
        _exit(0);
    }
    fd_close(&ready[1]);
    (void)!read(ready[0], &byte, 1);
    fd_close(&ready[0]);
    if (!stays)
        waitpid(pid, NULL, 0);
    return pid;
}

static void end_sender(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

/* ---- what is said ---- */

static void test_messages(void)
{
    static const struct {
        const char *text, *heard;
    } all[] = {
        {"READY=1", "r"},
        {"READY=1\n", "r"},
        {"STATUS=on my way", "t(on my way)"},
        {"READY=1\nSTATUS=here\nWATCHDOG=1\n", "t(here)wr"},
        {"RELOADING=1\nMONOTONIC_USEC=123", "l"},
        {"STOPPING=1", "s"},
        {"RELOADING=1\nREADY=1", "r"}, /* the last word counts */
        {"READY=1\nREADY=1\nREADY=1", "r"},
        {"STATUS=a\nSTATUS=b", "t(b)"},
        {"STATUS=", "t()"},
        {"WATCHDOG=1", "w"},
        {"\n\n\nREADY=1\n\n", "r"},
        {"X_UNKNOWN=1\nMAINPID=1\nFDSTORE=1\nERRNO=2\nREADY=1", "r"},
        {"READY=10", ""},
        {"READY=0", ""},
        {" READY=1", ""},
        {"ready=1", ""},
        {"READY", ""},
        {"WATCHDOG=trigger", ""},
        {"=", ""},
        {"\n", ""},
        {"STATUS=a\tb\001\x7f\x1b[31m", "t(a b   [31m)"},
        {"READY=1\r\n", ""},
        {"MAINPID=99999999999999999999", ""},
    };
    for (int is_abstract = 0; is_abstract < 2; is_abstract++) {
        CHECK(make(is_abstract, false));
        CHECK((notify_address(notify)[0] == '@') == is_abstract);
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            heard[0] = '\0';
            CHECK(say(all[i].text));
            run_loop(loop, 0.002); /* slow enough not to be a flood */
            CHECK_STR(heard, all[i].heard);
        }
        end();
    }
}

static void test_bytes(void)
{
    static char big[5000];
    CHECK(make(false, false));
    CHECK(send_bytes("", 0, NULL, 0) && send_bytes("READY=1\0", 8, NULL, 0));
    turn();
    CHECK_STR(heard, "r");
    CHECK(send_bytes("READY=1\0x", 9, NULL, 0) && send_bytes("\0READY=1", 8, NULL, 0));
    turn();
    CHECK_STR(heard, "r");
    memset(big, 'x', sizeof big);
    memcpy(big, "READY=1\n", 8);
    CHECK(send_bytes(big, 4096, NULL, 0));
    turn();
    CHECK_STR(heard, "rr");
    CHECK(send_bytes(big, 4097, NULL, 0) && send_bytes(big, 5000, NULL, 0));
    turn();
    CHECK_STR(heard, "rr");
    for (size_t i = 0; i + 8 <= 4096; i += 8)
        memcpy(big + i, "READY=1\n", 8);
    CHECK(send_bytes(big, 4096, NULL, 0));
    turn();
    CHECK_STR(heard, "rrr");
    end();
}

static void test_long_status(void)
{
    char text[1000] = "STATUS=";
    for (size_t i = 7; i + 2 < 900; i += 2)
        memcpy(text + i, "ä", 3);
    CHECK(make(false, false) && say(text));
    turn();
    size_t n = strlen(heard);
    CHECK(n > 200 && n < NOTIFY_STATUS_MAX + 4);
    CHECK(strstr(heard, "ä…)"));
    end();
}

/* ---- who says it ---- */

static void test_senders(void)
{
    CHECK(make(false, false));
    own = 1; /* nobody of ours */
    pid_t stranger = sender("READY=1", geteuid(), true);
    turn();
    end_sender(stranger);
    CHECK_STR(heard, "");
    sender("READY=1", geteuid(), false); /* as systemd-notify: it has ended when it is heard */
    turn();
    CHECK_STR(heard, "r");
    pid_t mine = sender("STATUS=mine", geteuid(), true);
    own = mine;
    turn();
    end_sender(mine);
    CHECK_STR(heard, "rt(mine)");
    end();
}

static void test_senders_of_other_users(void)
{
    if (geteuid() != 0)
        return;
    CHECK(make(false, false));
    own = 1;
    sender("READY=1", OTHER_UID, false);
    turn();
    CHECK_STR(heard, "");
    pid_t mine = sender("STATUS=fell", OTHER_UID, true); /* a service may become another user */
    own = mine;
    turn();
    end_sender(mine);
    CHECK_STR(heard, "t(fell)");
    end();
}

/* ---- descriptors that come along ---- */

static void test_descriptors_are_closed(void)
{
    int ends[2], many[253];
    char byte;
    int before = count_fds();
    CHECK(make(false, false));
    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    CHECK(send_bytes("BARRIER=1", 9, &ends[1], 1));
    fd_close(&ends[1]);
    CHECK(read(ends[0], &byte, 1) < 0 && errno == EAGAIN);
    turn();
    CHECK(read(ends[0], &byte, 1) == 0); /* nobody holds the other end */
    for (int i = 0; i < 253; i++)
        many[i] = ends[0];
    CHECK(send_bytes("FDSTORE=1\nREADY=1", 17, many, 253));
    turn();
    CHECK_STR(heard, "r");
    own = 1; /* also of a stranger, and of what is never read */
    pid_t stranger = sender("X=1", geteuid(), true);
    CHECK(send_bytes("FDSTORE=1", 9, many, 253));
    turn();
    end_sender(stranger);
    CHECK(send_bytes("FDSTORE=1", 9, many, 253));
    fd_close(&ends[0]);
    end();
    CHECK(count_fds() == before);
}

static void test_descriptors_when_none_are_free(void)
{
    struct rlimit old, low;
    int many[200];
    int before = count_fds();
    CHECK(make(false, false));
    getrlimit(RLIMIT_NOFILE, &old);
    int probe = dup(0);
    for (int i = 0; i < 200; i++)
        many[i] = probe;
    for (int room = 0; room < 4; room++) {
        CHECK(send_bytes("FDSTORE=1\nREADY=1", 17, many, 200));
        low = (struct rlimit){.rlim_cur = (rlim_t)(probe + 1 + room), .rlim_max = old.rlim_max};
        setrlimit(RLIMIT_NOFILE, &low);
        turn();
        setrlimit(RLIMIT_NOFILE, &old);
    }
    fd_close(&probe);
    end();
    CHECK_STR(heard, "rrrr");
    CHECK(count_fds() == before);
}

/* A TCP socket whose close would wait for a peer that reads nothing. Its pid; port is its peer's.
 */
static int lingering_socket(int *peer)
{
    const struct linger wait = {.l_onoff = 1, .l_linger = 20};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char bytes[65536] = {0};
    CLEANUP_FD int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(l, (struct sockaddr *)&at, size) < 0 || listen(l, 1) < 0 ||
        getsockname(l, (struct sockaddr *)&at, &size) < 0 ||
        connect(fd, (struct sockaddr *)&at, size) < 0)
        return -1;
    *peer = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0)
        ;
    return fd;
}

static void test_a_lingering_socket_holds_nobody_up(void)
{
    for (int is_read = 0; is_read < 2; is_read++) {
        int peer = -1;
        CHECK(make(false, false));
        int fd = lingering_socket(&peer);
        CHECK(fd >= 0 && send_bytes("FDSTORE=1", 9, &fd, 1));
        fd_close(&fd); /* ours is the last one now */
        uint64_t began = clock_mono_ns();
        if (is_read)
            turn();
        end();
        CHECK(clock_mono_ns() - began < 5000 * MS);
        fd_close(&peer);
    }
}

/* ---- the socket's file ---- */

static void test_file(void)
{
    struct stat st;
    char path[200], deep[150];
    struct error e = {0};
    snprintf(path, sizeof path, "%s/notify.web@1", folder);
    CHECK(make(false, false));
    CHECK_STR(notify_address(notify), path);
    CHECK(stat(path, &st) == 0 && S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0666);
    end();
    CHECK(stat(path, &st) < 0);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* what stands there is replaced */
    fd_close(&fd);
    CHECK(make(false, false) && say("READY=1"));
    turn();
    CHECK_STR(heard, "r");
    struct notify *first = notify;
    CHECK(make(false, false)); /* the next run's */
    notify_free(first);
    CHECK(stat(path, &st) == 0 && say("READY=1"));
    turn();
    CHECK_STR(heard, "r");
    end();
    CHECK(mkdir(path, 0700) == 0); /* in the way: an abstract one */
    CHECK(make(false, false) && notify_address(notify)[0] == '@' && say("READY=1"));
    turn();
    CHECK_STR(heard, "r");
    end();
    CHECK(rmdir(path) == 0);
    memset(deep, 'd', sizeof deep); /* too long for a socket: an abstract one */
    memcpy(deep, folder, strlen(folder));
    deep[strlen(folder)] = '/';
    deep[120] = '\0';
    CHECK(mkdir(deep, 0700) == 0);
    notify = notify_new(loop, folder_fd, deep, "web", 0, false, &events, NULL, &e);
    CHECK(notify && notify_address(notify)[0] == '@' && say("READY=1"));
    turn();
    CHECK_STR(heard, "rr");
    end();
    rmdir(deep);
}

static void test_no_descriptors(void)
{
    struct rlimit old, low;
    struct error e = {0};
    int before = count_fds();
    getrlimit(RLIMIT_NOFILE, &old);
    int probe = dup(0);
    for (int room = 0; room < 10; room++) {
        low = (struct rlimit){.rlim_cur = (rlim_t)(probe + 1 + room), .rlim_max = old.rlim_max};
        setrlimit(RLIMIT_NOFILE, &low);
        struct notify *n = notify_new(loop, folder_fd, folder, "web", 0, true, &events, NULL, &e);
        setrlimit(RLIMIT_NOFILE, &old);
        CHECK(!n && e.text[0]);
    }
    fd_close(&probe);
    CHECK(count_fds() == before);
    CHECK(make(false, true));
    end();
    CHECK(count_fds() == before);
}

/* ---- the pipe ---- */

static void test_pipe(void)
{
    static const struct {
        const char *first, *second;
        bool is_closed;
        const char *heard;
    } all[] = {
        {"\n", "", false, "r"},        {"\n", "", true, "r"},
        {"", "", true, "c"},           {"", "", false, ""},
        {"garbage", "", false, ""},    {"garbage", "", true, "c"},
        {"gar", "bage\n", false, "r"}, {"a\nb\nc\n", "\n\n", true, "r"},
        {"\n", "more\n", true, "r"},
    };
    int before = count_fds();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        CHECK(make(false, true));
        int child = fcntl(notify_child_fd(notify), F_DUPFD_CLOEXEC, 3);
        notify_started(notify);
        CHECK(notify_child_fd(notify) == -1);
        CHECK(write(child, all[i].first, strlen(all[i].first)) == (ssize_t)strlen(all[i].first));
        turn();
        CHECK(write(child, all[i].second, strlen(all[i].second)) == (ssize_t)strlen(all[i].second));
        turn();
        if (all[i].is_closed)
            fd_close(&child);
        turn();
        turn();
        CHECK_STR(heard, all[i].heard);
        end();
        fd_close(&child);
    }
    CHECK(count_fds() == before);
    CHECK(make(false, true)); /* never started */
    end();
    CHECK(make(false, false));
    CHECK(notify_child_fd(notify) == -1);
    notify_started(notify);
    end();
    CHECK(count_fds() == before);
}

/* ---- floods ---- */

static volatile bool is_flooding;

static void *flood_socket(void *address)
{
    struct sockaddr_un to;
    socklen_t size = address_of(address, &to);
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    while (is_flooding)
        if (sendto(fd, "WATCHDOG=1", 10, MSG_DONTWAIT, (struct sockaddr *)&to, size) < 0)
            sched_yield();
    return NULL;
}

static void *flood_pipe(void *fd)
{
    char bytes[4096];
    memset(bytes, 'x', sizeof bytes);
    while (is_flooding)
        if (write(*(int *)fd, bytes, sizeof bytes) < 0)
            sched_yield();
    return NULL;
}

static unsigned ticks, turns;

static void on_tick(struct ev_loop *l, ev_timer *w, int revents)
{
    (void)revents;
    if (++ticks == 50)
        ev_break(l, EVBREAK_ONE);
    ev_timer_again(l, w);
}

static void on_turn(struct ev_loop *l, ev_check *w, int revents)
{
    (void)l;
    (void)w;
    (void)revents;
    turns++;
}

/* Other events of the loop come in time, and the flood is slowed down: 16 in a hundredth of a
 * second, whatever is sent. */
static void test_floods(void)
{
    pthread_t thread[2];
    char address[120];
    ev_timer tick;
    ev_check each;
    CHECK(make(false, true));
    int child = fcntl(notify_child_fd(notify), F_DUPFD_CLOEXEC, 3);
    notify_started(notify);
    fcntl(child, F_SETFL, O_NONBLOCK);
    snprintf(address, sizeof address, "%s", notify_address(notify));
    is_flooding = true;
    pthread_create(&thread[0], NULL, flood_socket, address);
    pthread_create(&thread[1], NULL, flood_pipe, &child);
    ticks = turns = 0;
    ev_timer_init(&tick, on_tick, 0.005, 0.005);
    ev_check_init(&each, on_turn);
    ev_timer_again(loop, &tick);
    ev_check_start(loop, &each);
    uint64_t began = clock_mono_ns();
    ev_run(loop, 0);
    uint64_t took_ms = (clock_mono_ns() - began) / MS;
    ev_timer_stop(loop, &tick);
    ev_check_stop(loop, &each);
    is_flooding = false;
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    fd_close(&child);
    end();
    CHECK(ticks == 50 && took_ms < 10000);
    CHECK(strlen(heard) >= 16 && strlen(heard) <= (took_ms / 10 + 2) * 16);
    CHECK(turns < took_ms + 100);
}

/* After a flood everything that was said is heard. */
static void test_nothing_is_lost(void)
{
    CHECK(make(false, false));
    int sent = 0;
    struct sockaddr_un to;
    socklen_t size = address_of(notify_address(notify), &to);
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    while (sent < 100 &&
           sendto(fd, "WATCHDOG=1", 10, MSG_DONTWAIT, (struct sockaddr *)&to, size) == 10)
        sent++;
    for (int i = 0; i < 200 && (int)strlen(heard) < sent; i++)
        run_loop(loop, 0.02);
    CHECK((int)strlen(heard) == sent && sent >= 8);
    end();
}

/* ---- the end from inside ---- */

static void test_free_inside(void)
{
    for (const char *at = "twrlsc"; *at; at++) {
        CHECK(make(false, true));
        int child = fcntl(notify_child_fd(notify), F_DUPFD_CLOEXEC, 3);
        notify_started(notify);
        free_at = *at;
        if (*at != 'c')
            CHECK(say("STATUS=x\nWATCHDOG=1\nREADY=1") && say("RELOADING=1") && say("STOPPING=1") &&
                  say("READY=1"));
        fd_close(&child);
        for (int i = 0; i < 20; i++)
            turn();
        CHECK(!notify);
        CHECK(heard[strlen(heard) - 1] == *at || (*at == 't' && strchr(heard, ')')));
    }
    CHECK(make(false, true));
    int child = fcntl(notify_child_fd(notify), F_DUPFD_CLOEXEC, 3);
    notify_started(notify);
    free_at = 'r';
    CHECK(write(child, "\n\n", 2) == 2);
    turn();
    fd_close(&child);
    turn();
    CHECK(!notify);
    CHECK_STR(heard, "r");
    notify_free(NULL);
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_messages),
        CHECK_TEST(test_bytes),
        CHECK_TEST(test_long_status),
        CHECK_TEST(test_senders),
        CHECK_TEST(test_senders_of_other_users),
        CHECK_TEST(test_descriptors_are_closed),
        CHECK_TEST(test_descriptors_when_none_are_free),
        CHECK_TEST(test_a_lingering_socket_holds_nobody_up),
        CHECK_TEST(test_file),
        CHECK_TEST(test_no_descriptors),
        CHECK_TEST(test_pipe),
        CHECK_TEST(test_floods),
        CHECK_TEST(test_nothing_is_lost),
        CHECK_TEST(test_free_inside),
    };
    snprintf(folder, sizeof folder, "/tmp/notify.XXXXXX");
    if (!mkdtemp(folder) || chmod(folder, 0711) < 0)
        return 1;
    signal(SIGPIPE, SIG_DFL);
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
    turn(); /* its own descriptors are there now */
    run_loop(loop, 0.001);
    int rc = check_run(tests, sizeof tests / sizeof tests[0]);
    ev_loop_destroy(loop);
    fd_close(&folder_fd);
    rmdir(folder);
    return rc;
}
