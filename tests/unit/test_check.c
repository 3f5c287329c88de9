/*
 * services/check on a loop of its own, against servers that live on the same loop and against real
 * commands. As root the program has a network of its own.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "services/check.h"
#include "services/check_http.h"
#include "sessions/look.h"
#include "sessions/child.h"
#include "sessions/proc.h"
#include "sessions/spawn.h"
#include "tests/unit/check.h"
#include "tests/unit/run_loop.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MS 1000000ull
/* A struct check owns its texts, and changes none. */
#define TEXT(text) ((char *)(uintptr_t)(text))

static struct ev_loop *loop;
static char folder[64];
static bool has_network;

/* ---- what is there ---- */

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

static bool count_one(void *context, pid_t pid)
{
    struct proc_stat s;
    if (proc_stat_read(pid, &s) == 0 && !proc_stat_is_dead(&s))
        ++*(int *)context;
    return true;
}

static int count_children(void)
{
    int n = 0;
    proc_children(getpid(), count_one, &n);
    return n;
}

/* True once init has no child, dead or alive. */
static bool is_alone(void)
{
    for (int i = 0; i < 200; i++) {
        children_sweep();
        if (!children_exist())
            return true;
        run_loop(loop, 0.02);
    }
    return false;
}

/* ---- one attempt ---- */

struct tried {
    unsigned done;
    bool is_ok;
    char why[700];
    struct error begin; /* code is set if it was not even begun */
    int64_t took_ms;
    struct check_attempt *attempt;
};

static void on_done(void *context, bool is_ok, const char *why)
{
    struct tried *t = context;
    t->done++;
    t->is_ok = is_ok;
    snprintf(t->why, sizeof t->why, "%s", why);
    check_cancel(t->attempt); /* harmless here */
    t->attempt = NULL;
    ev_break(loop, EVBREAK_ONE);
}

static void begin(struct tried *t, const struct check *c, uint64_t timeout_ms)
{
    static const char *const envp[] = {"PATH=/usr/bin:/bin", "COLOUR=green", NULL};
    struct check_plan plan = {.loop = loop,
                              .check = c,
                              .timeout_ms = timeout_ms,
                              .envp = envp,
                              .cwd = folder,
                              .on_done = on_done,
                              .context = t};
    *t = (struct tried){0};
    t->attempt = check_start(&plan, &t->begin);
}

static struct tried try(const struct check *c, uint64_t timeout_ms)
{
    struct tried t;
    uint64_t began = clock_mono_ns();
    begin(&t, c, timeout_ms);
    if (t.attempt && t.done == 0)
        run_loop(loop, 20);
    if (t.attempt && t.done == 0)
        check_cancel(t.attempt);
    t.took_ms = (int64_t)((clock_mono_ns() - began) / MS);
    return t;
}

static bool says(const struct tried *t, const char *text)
{
    if (t->done == 1 && !t->is_ok && strstr(t->why, text))
        return true;
    printf("  done %u, ok %d, why: %s (%s)\n", t->done, t->is_ok, t->why, t->begin.text);
    return false;
}

static bool is_fine(const struct tried *t)
{
    if (t->done == 1 && t->is_ok)
        return true;
    printf("  done %u, why: %s (%s)\n", t->done, t->why, t->begin.text);
    return false;
}

/* ---- servers ---- */

enum manner {
    SILENT,  /* accepts and says nothing */
    DEAF,    /* does not even accept */
    ANSWERS, /* says its text when asked, and closes */
    HURRIES, /* says its text before it is asked, and closes */
    STAYS,   /* says its text and keeps the connection open */
    DRIPS,   /* a byte a turn */
    REPEATS, /* its text without end */
    RESETS,  /* closes with a reset */
    CLOSES,  /* closes when asked */
};

struct server {
    int fd, client;
    unsigned port;
    enum manner manner;
    const char *text;
    size_t said;
    char asked[20000];
    size_t asked_len;
    unsigned accepted;
    ev_io accept_io, client_io;
    ev_timer drip;
};

static void server_hang_up(struct server *s)
{
    ev_io_stop(loop, &s->client_io);
    ev_timer_stop(loop, &s->drip);
    fd_close(&s->client);
}

static void on_drip(struct ev_loop *l, ev_timer *w, int events)
{
    (void)l;
    (void)events;
    struct server *s = w->data;
    size_t n = strlen(s->text);
    if (s->manner == REPEATS) {
        for (int i = 0; i < 64; i++)
            if (send(s->client, s->text, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
                server_hang_up(s);
    } else if (s->said == n) {
        server_hang_up(s);
    } else {
        (void)!send(s->client, s->text + s->said++, 1, MSG_NOSIGNAL);
    }
}

static void server_speak(struct server *s)
{
    const struct linger now = {.l_onoff = 1};
    switch (s->manner) {
    case SILENT:
    case DEAF:
        break;
    case ANSWERS:
    case HURRIES:
        (void)!send(s->client, s->text, strlen(s->text), MSG_NOSIGNAL);
        server_hang_up(s);
        break;
    case STAYS:
        (void)!send(s->client, s->text, strlen(s->text), MSG_NOSIGNAL);
        break;
    case DRIPS:
    case REPEATS:
        ev_timer_again(loop, &s->drip);
        break;
    case RESETS:
        setsockopt(s->client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        server_hang_up(s);
        break;
    case CLOSES:
        server_hang_up(s);
        break;
    }
}

static void on_client(struct ev_loop *l, ev_io *w, int events)
{
    (void)l;
    (void)events;
    struct server *s = w->data;
    ssize_t k = recv(s->client, s->asked + s->asked_len, sizeof s->asked - 1 - s->asked_len, 0);
    if (k <= 0) {
        server_hang_up(s);
        return;
    }
    s->asked_len += (size_t)k;
    if (s->asked_len >= 4 && memcmp(s->asked + s->asked_len - 4, "\r\n\r\n", 4) == 0)
        server_speak(s);
}

static void on_accept(struct ev_loop *l, ev_io *w, int events)
{
    (void)events;
    struct server *s = w->data;
    server_hang_up(s);
    s->client = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (s->client < 0)
        return;
    s->accepted++;
    s->said = s->asked_len = 0;
    ev_io_set(&s->client_io, s->client, EV_READ);
    ev_io_start(l, &s->client_io);
    if (s->manner == HURRIES || s->manner == RESETS)
        server_speak(s);
}

static void server_serve(struct server *s, int fd, enum manner manner, const char *text)
{
    *s = (struct server){.fd = fd, .client = -1, .manner = manner, .text = text};
    ev_io_init(&s->accept_io, on_accept, fd, EV_READ);
    ev_io_init(&s->client_io, on_client, -1, 0);
    ev_timer_init(&s->drip, on_drip, 0.001, 0.001);
    s->accept_io.data = s->client_io.data = s->drip.data = s;
    if (manner != DEAF)
        ev_io_start(loop, &s->accept_io);
}

static void server_end(struct server *s)
{
    server_hang_up(s);
    ev_io_stop(loop, &s->accept_io);
    fd_close(&s->fd);
}

/* On a port that the kernel chooses. */
static unsigned listen_tcp(struct server *s, const char *host, enum manner manner, const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    bool is_v6 = strchr(host, ':');
    inet_pton(is_v6 ? AF_INET6 : AF_INET, host,
              is_v6 ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr);
    struct sockaddr *to = is_v6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t size = is_v6 ? sizeof v6 : sizeof v4;
    int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (has_network) {
        static unsigned next = 1000; /* not one that is in TIME_WAIT */
        v4.sin_port = v6.sin6_port = htons((uint16_t)++next);
    }
    if (bind(fd, to, size) < 0 || listen(fd, manner == DEAF ? 0 : 16) < 0 ||
        getsockname(fd, to, &size) < 0)
        printf("  listen on %s: %s\n", host, strerror(errno));
    server_serve(s, fd, manner, text);
    s->port = ntohs(is_v6 ? v6.sin6_port : v4.sin_port);
    return s->port;
}

static void listen_unix(struct server *s, const char *name, int type, int backlog,
                        enum manner manner)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s/%s", folder, name);
    unlink(to.sun_path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(fd, (struct sockaddr *)&to, sizeof to) < 0 ||
        (type != SOCK_DGRAM && listen(fd, backlog) < 0))
        printf("  listen on %s: %s\n", name, strerror(errno));
    server_serve(s, fd, manner, "");
}

/* ---- checks ---- */

static struct check tcp(const char *host, unsigned port)
{
    return (struct check){
        .kind = CHECK_TCP, .text = TEXT("tcp"), .target = TEXT(host), .port = port};
}

static struct check http(unsigned port, const char *path)
{
    return (struct check){.kind = CHECK_HTTP,
                          .text = TEXT("http"),
                          .target = TEXT("127.0.0.1"),
                          .http_path = TEXT(path),
                          .http_host = TEXT("shop.example:8080"),
                          .port = port};
}

static char path_buffer[256];

static struct check of_path(enum check_kind kind, const char *name)
{
    snprintf(path_buffer, sizeof path_buffer, "%s/%s", folder, name);
    return (struct check){.kind = kind, .text = path_buffer, .target = path_buffer};
}

static struct check command(const char *script)
{
    static char *shell_argv[4];
    shell_argv[0] = TEXT("sh");
    shell_argv[1] = TEXT("-c");
    shell_argv[2] = TEXT(script);
    return (struct check){.kind = CHECK_COMMAND, .text = TEXT("command"), .argv = shell_argv};
}

/* ---- tcp ---- */

static void test_tcp_accepts(void)
{
    struct server s;
    for (int i = 0; i < 3; i++) {
        const char *host = (const char *[]){"127.0.0.1", "127.0.0.1", "::1"}[i];
        struct check c = tcp(i == 1 ? NULL : host, listen_tcp(&s, host, SILENT, ""));
        struct tried t = try(&c, 15000);
        server_end(&s);
        CHECK(is_fine(&t));
        CHECK_STR(t.why, "ok");
    }
}

static void test_tcp_refused(void)
{
    struct server s;
    char want[100];
    unsigned port = listen_tcp(&s, "127.0.0.1", SILENT, "");
    server_end(&s);
    struct check c = tcp("127.0.0.1", port);
    struct tried t = try(&c, 15000);
    snprintf(want, sizeof want, "connect to 127.0.0.1:%u: Connection refused", port);
    CHECK(says(&t, want));
    CHECK(t.took_ms < 4000);
    c = tcp("::1", port);
    t = try(&c, 15000);
    snprintf(want, sizeof want, "connect to [::1]:%u: Connection refused", port);
    CHECK(says(&t, want));
}

static void test_tcp_localhost_is_both(void)
{
    struct server s;
    struct check c = tcp("localhost", listen_tcp(&s, "::1", SILENT, ""));
    struct tried six = try(&c, 15000);
    server_end(&s);
    struct tried none = try(&c, 15000);
    c = tcp("localhost", listen_tcp(&s, "127.0.0.1", SILENT, ""));
    struct tried four = try(&c, 15000);
    server_end(&s);
    CHECK(is_fine(&six) && is_fine(&four));
    CHECK(says(&none, "connect to localhost:") && says(&none, "refused"));
}

static void test_tcp_wants_an_address(void)
{
    const char *const hosts[] = {"db.example", "", "127.0.0.1.2", "::g", "[::1", "localhost."};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        struct check c = tcp(hosts[i], 80);
        struct tried t = try(&c, 100);
        CHECK(!t.attempt && t.done == 0 && t.begin.code == ERR_INVALID);
        CHECK(strstr(t.begin.text, "not an address"));
    }
}

/* Nobody takes connections out of the queue, and it is full. */
static void test_tcp_no_answer(void)
{
    struct server s;
    struct tried first[3];
    struct check c = tcp("127.0.0.1", listen_tcp(&s, "127.0.0.1", DEAF, ""));
    int clients[3];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s.port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 3; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)!connect(clients[i], (struct sockaddr *)&to, sizeof to);
    }
    first[0] = try(&c, 200);
    for (int i = 0; i < 3; i++)
        fd_close(&clients[i]);
    server_end(&s);
    CHECK(says(&first[0], "no answer within 200ms"));
    CHECK(first[0].took_ms >= 190);
}

/* True in a network of our own only. */
static bool set_free_ports(const char *range)
{
    CLEANUP_FD int fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
    return has_network && fd >= 0 && write(fd, range, strlen(range)) == (ssize_t)strlen(range);
}

/* With two free ports a connection to one that nobody listens on soon comes from itself. */
static void test_tcp_not_to_itself(void)
{
    if (!set_free_ports("40000 40001"))
        return;
    struct check c = tcp("127.0.0.1", 40000);
    for (int i = 0; i < 50; i++) {
        struct tried t = try(&c, 2000);
        CHECK(says(&t, "Connection refused"));
    }
    CHECK(set_free_ports("32768 60999"));
}

/* ---- unix ---- */

static void test_unix_kinds(void)
{
    const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
    for (int i = 0; i < 3; i++) {
        struct server s;
        listen_unix(&s, "sock", types[i], 4, SILENT);
        struct check c = of_path(CHECK_UNIX, "sock");
        struct tried t = try(&c, 15000);
        server_end(&s);
        struct tried dead = try(&c, 15000);
        CHECK(is_fine(&t));
        CHECK(says(&dead, "/sock: Connection refused"));
    }
}

static void test_unix_missing(void)
{
    char text[300];
    struct check c = of_path(CHECK_UNIX, "none");
    struct tried t = try(&c, 15000);
    snprintf(text, sizeof text, "connect to %s/none: No such file or directory", folder);
    CHECK(says(&t, text));
    memset(text, 'x', 200);
    text[0] = '/';
    text[200] = '\0';
    c = (struct check){.kind = CHECK_UNIX, .text = text, .target = text};
    t = try(&c, 15000);
    CHECK(!t.attempt && strstr(t.begin.text, "the path has 200 bytes, at most 107 do"));
}

static void on_later(struct ev_loop *l, ev_timer *w, int events)
{
    (void)events;
    struct server *s = w->data;
    ev_io_start(l, &s->accept_io);
}

static void test_unix_queue_full(void)
{
    struct server s;
    listen_unix(&s, "full", SOCK_STREAM, 0, DEAF);
    struct check c = of_path(CHECK_UNIX, "full");
    struct tried first = try(&c, 15000); /* takes the one place */
    struct tried t = try(&c, 1000);
    ev_timer later;
    ev_timer_init(&later, on_later, 0.3, 0.);
    later.data = &s;
    ev_timer_start(loop, &later);
    struct tried then = try(&c, 15000);
    server_end(&s);
    CHECK(is_fine(&first));
    CHECK(says(&t, "its queue was full for 1s"));
    CHECK(is_fine(&then));
}

/* ---- http ---- */

struct exchange {
    enum manner manner;
    const char *text;
    const char *why; /* NULL: ok */
};

static void test_http_answers(void)
{
    static const struct exchange all[] = {
        {ANSWERS, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", NULL},
        {ANSWERS, "HTTP/1.1 204 No Content\r\n\r\n", NULL},
        {ANSWERS, "HTTP/1.0 301 Moved\nLocation: /x\n\n", NULL},
        {ANSWERS, "HTTP/1.1 399\r\n\r\n", NULL},
        {ANSWERS, "HTTP/1.1 404 Not Found\r\n\r\n", "answered 'HTTP/1.1 404 Not Found'"},
        {ANSWERS, "HTTP/1.1 500 Oh\r\n\r\n", "answered 'HTTP/1.1 500 Oh'"},
        {ANSWERS, "HTTP/1.1 400 a\001b\r\n\r\n", "answered 'HTTP/1.1 400 a?b'"},
        {ANSWERS, "HTTP/1.1 101 Switching\r\n\r\n", "101 Switching"},
        {ANSWERS, "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", NULL},
        {ANSWERS, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\n\r\n", "503 No"},
        {ANSWERS, "HTTP/1.1 100 Continue\r\n\r\n", "closed the connection without an answer"},
        {ANSWERS, "HTTP/1.1 2x0 OK\r\n\r\n", "not HTTP: 'HTTP/1.1 2x0 OK'"},
        {ANSWERS, "HTTP/1.1 2000 OK\r\n\r\n", "not HTTP"},
        {ANSWERS, "HTTP/1.1\r\n\r\n", "not HTTP"},
        {ANSWERS, "HTTP/ 200 OK\r\n\r\n", "not HTTP"},
        {ANSWERS, "\r\nHTTP/1.1 200 OK\r\n\r\n", "not HTTP"},
        {ANSWERS, "-ERR unknown command\r\n", "not HTTP: '-ERR unknown command?'"},
        {ANSWERS, "HTTP", "closed the connection without an answer"},
        {HURRIES, "SSH-2.0-OpenSSH_9.2\r\n", "not HTTP: 'SSH-2.0-OpenSSH_9.2?'"},
        {HURRIES, "\025\003\001", "not HTTP: '?"},
        {STAYS, "HTTP/1.1 200 OK\r\n\r\nand I stay", NULL},
        {STAYS, "HTTP/1.1 502 OK\r\n\r\n", "502"},
        {DRIPS, "HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody", NULL},
        {DRIPS, "HTTP/1.1 404 Gone\r\nA: b\r\n\r\nbody", "404 Gone"},
        {REPEATS, "HTTP/1.1 200 OK\r\n\r\nwithout end", NULL},
        {REPEATS, "HTTP/1.1 103 Early\r\nA: b\r\n\r\n", "sent 16384 bytes and no status"},
        {REPEATS, "HTTP/1.1 200 ", "sent 16384 bytes and no status"},
        {CLOSES, "", "closed the connection without an answer"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct server s;
        struct check c = http(listen_tcp(&s, "127.0.0.1", all[i].manner, all[i].text), "/x?y=1");
        struct tried t = try(&c, 15000);
        server_end(&s);
        if (all[i].why ? !says(&t, all[i].why) : !is_fine(&t))
            CHECK_FAIL("answer %zu: %s", i, all[i].text);
        CHECK(t.took_ms < 4500);
    }
}

static void test_http_request(void)
{
    struct server s;
    struct check c =
        http(listen_tcp(&s, "127.0.0.1", ANSWERS, "HTTP/1.1 200 OK\r\n\r\n"), "/x?y=1");
    struct tried t = try(&c, 15000);
    s.asked[s.asked_len] = '\0';
    server_end(&s);
    CHECK(is_fine(&t) && s.accepted == 1);
    CHECK_STR(s.asked, "GET /x?y=1 HTTP/1.1\r\nHost: shop.example:8080\r\n"
                       "User-Agent: sandbox-init\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    c = http(1, "/a b");
    t = try(&c, 15000);
    CHECK(!t.attempt && strstr(t.begin.text, "cannot be asked for"));
    c = http(1, "/a\r\nHost: other");
    t = try(&c, 15000);
    CHECK(!t.attempt);
    static char long_path[20000] = "/";
    memset(long_path + 1, 'x', sizeof long_path - 2);
    c = http(1, long_path);
    t = try(&c, 15000);
    CHECK(!t.attempt && t.begin.text[0]);
}

static void test_http_silence(void)
{
    struct server s;
    struct check c = http(listen_tcp(&s, "127.0.0.1", SILENT, ""), "/");
    struct tried t = try(&c, 200);
    server_end(&s);
    CHECK(says(&t, "took the connection and did not answer within 200ms"));
    c = http(listen_tcp(&s, "127.0.0.1", RESETS, ""), "/");
    t = try(&c, 15000);
    server_end(&s);
    CHECK(says(&t, "Connection reset by peer"));
    t = try(&c, 15000);
    CHECK(says(&t, "Connection refused"));
}

/* However the bytes are cut, the answer is the same. */
static void test_http_answer_cuts(void)
{
    static const char *const all[] = {"HTTP/1.1 200 OK\r\n",
                                      "HTTP/1.1 100 C\r\nA: b\r\n\r\nHTTP/1.1 418 Tea\r\n",
                                      "HTTP/2 204\n", "HTTQ/1.1 200 OK\r\n"};
    static const unsigned status[] = {200, 418, 204, 0};
    for (size_t i = 0; i < 4; i++)
        for (size_t step = 1; step < 30; step++) {
            struct http_answer a = {0};
            enum http_result r = HTTP_MORE;
            size_t n = strlen(all[i]);
            for (size_t at = 0; at < n && r == HTTP_MORE; at += step)
                r = http_answer_take(&a, all[i] + at, n - at < step ? n - at : step);
            CHECK(r == (status[i] ? HTTP_STATUS : HTTP_GARBAGE) && a.status == status[i]);
        }
}

/* ---- file ---- */

static void test_file(void)
{
    struct check c = of_path(CHECK_FILE, "flag");
    struct tried missing = try(&c, 15000);
    int fd = open(path_buffer, O_CREAT | O_WRONLY | O_CLOEXEC, 0000);
    fd_close(&fd);
    struct tried there = try(&c, 15000);
    CHECK(says(&missing, "/flag: No such file or directory"));
    CHECK(is_fine(&there));
    c = of_path(CHECK_FILE, "flag/x");
    struct tried below = try(&c, 15000);
    CHECK(says(&below, "/flag/x: Not a directory"));
    c = of_path(CHECK_FILE, "dangling");
    (void)!symlink("/nowhere", path_buffer);
    struct tried dangling = try(&c, 15000);
    CHECK(says(&dangling, "/dangling: No such file or directory"));
    c = of_path(CHECK_FILE, "");
    struct tried directory = try(&c, 15000);
    CHECK(is_fine(&directory));
}

/* ---- command ---- */

static void test_command_ends(void)
{
    static const struct {
        const char *script, *why;
    } all[] = {
        {"exit 0", NULL},
        {"exit 3", "command 'sh' exited with 3"},
        {"echo one; echo 'no such host' >&2; exit 1", "command 'sh' exited with 1: no such host"},
        {"printf 'a\\tb\\001c\\n\\n\\r\\n'; exit 1", "exited with 1: a b c"},
        {"kill -SEGV $$", "command 'sh' ended by SIGSEGV"},
        {"[ $COLOUR = green ]", NULL},
        {"[ -z \"$HOME\" ]", NULL},
        {"head -c 3000000 /dev/zero; exit 0", NULL},
        {"head -c 3000000 /dev/zero >&2; exit 9", "exited with 9"},
        {"read x; [ $? = 1 ]", NULL}, /* its input is empty */
        {"exec >&- 2>&-; exit 4", "exited with 4"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct check c = command(all[i].script);
        struct tried t = try(&c, 15000);
        if (all[i].why ? !says(&t, all[i].why) : !is_fine(&t))
            CHECK_FAIL("script %zu: %s", i, all[i].script);
    }
    CHECK(is_alone());
}

static void test_command_place(void)
{
    char script[128];
    snprintf(script, sizeof script, "[ \"$(pwd -P)\" = \"$(cd %s; pwd -P)\" ]", folder);
    struct check c = command(script);
    struct tried t = try(&c, 15000);
    CHECK(is_fine(&t));
    char *argv[] = {TEXT("/nowhere/program"), TEXT("x"), NULL};
    c.argv = argv;
    t = try(&c, 15000);
    CHECK(says(&t, "command '/nowhere/program': exec: No such file or directory"));
    if (geteuid() != 0)
        return;
    struct error e;
    struct user user;
    struct check_plan plan = {.loop = loop,
                              .timeout_ms = 15000,
                              .user = &user,
                              .envp = (const char *const[]){"PATH=/bin:/usr/bin", NULL},
                              .on_done = on_done,
                              .context = &t};
    CHECK(user_lookup("54321:54322", &user, &e) == 0);
    c = command("[ $(id -u)/$(id -g) = 54321/54322 ]");
    plan.check = &c;
    t = (struct tried){0};
    t.attempt = check_start(&plan, &e);
    run_loop(loop, 20);
    CHECK(is_fine(&t));
}

/* What it started dies with it, wherever that has gone. */
static void test_command_timeout(void)
{
    const char *const scripts[] = {
        "sleep 987",
        "trap '' TERM INT HUP; sleep 987 & sleep 987",
        "setsid sleep 987 & sleep 987",
        "(setsid sh -c 'sleep 987 & sleep 987' &); sleep 987",
        "while :; do sleep 0.01 & done",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        struct check c = command(scripts[i]);
        struct tried t = try(&c, 150);
        CHECK(says(&t, "command 'sh' was killed after 150ms"));
        CHECK(count_children() == 0);
        CHECK(is_alone());
    }
}

static void test_command_leaves_nothing(void)
{
    const char *const scripts[] = {
        "sleep 987 & exit 0", "setsid sleep 987 & exit 0",
        "(setsid sh -c 'sleep 987 & exit 0' &); sleep 0.05",
        "env -i sleep 987 & exit 0", /* no mark, but the same session */
    };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        struct check c = command(scripts[i]);
        struct tried t = try(&c, 15000);
        CHECK(is_fine(&t));
        CHECK(count_children() == 0);
        CHECK(is_alone());
    }
}

/* ---- cancel, and what init lacks ---- */

static void test_cancel(void)
{
    struct server s;
    unsigned port = listen_tcp(&s, "127.0.0.1", DRIPS, "HTTP/1.1 200 OK\r\n\r\nbody");
    struct server full;
    listen_unix(&full, "full", SOCK_STREAM, 0, DEAF);
    struct check local = of_path(CHECK_UNIX, "full"), first = local;
    struct tried place = try(&first, 1000);
    struct check all[] = {tcp("127.0.0.1", port),
                          tcp("127.0.0.1", 1),
                          http(port, "/"),
                          local,
                          of_path(CHECK_FILE, "full"),
                          command("sleep 987 & sleep 987"),
                          command("sleep 987 & sleep 987")};
    int fds = count_fds();
    CHECK(is_fine(&place));
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int turns = 0; turns < 12; turns++) {
            struct tried t;
            begin(&t, &all[i], i == 6 ? 1 : 5000); /* the last one is being killed */
            CHECK(t.attempt);
            for (int k = 0; k < turns && t.done == 0; k++)
                ev_run(loop, EVRUN_NOWAIT);
            if (i == 6 && turns == 11)
                run_loop(loop, 0.002);
            unsigned done = t.done;
            check_cancel(t.attempt);
            memset(&t, 0, sizeof t);
            run_loop(loop, 0.003);
            CHECK(done <= 1 && t.done == 0);
        }
    server_hang_up(&s);
    run_loop(loop, 0.05);
    server_hang_up(&s);
    CHECK(is_alone());
    run_loop(loop, 0.05);
    CHECK(count_fds() == fds);
    server_end(&s);
    server_end(&full);
    check_cancel(NULL);
}

/* Without descriptors it says so, says nothing of the service, and keeps none. */
static void test_no_descriptors(void)
{
    struct server s;
    struct rlimit old, low;
    unsigned port = listen_tcp(&s, "127.0.0.1", SILENT, "");
    struct check all[] = {tcp("127.0.0.1", port), http(port, "/"), command("exit 0")};
    int fds = count_fds();
    getrlimit(RLIMIT_NOFILE, &old);
    int probe = dup(0);
    for (int room = 0; room < 16; room++) {
        low = (struct rlimit){.rlim_cur = (rlim_t)(probe + room), .rlim_max = old.rlim_max};
        for (size_t i = 0; i < 3; i++) {
            if (i < 2 && room > 8)
                continue;
            setrlimit(RLIMIT_NOFILE, &low);
            struct tried t;
            begin(&t, &all[i], 15000);
            setrlimit(RLIMIT_NOFILE, &old);
            if (t.attempt)
                run_loop(loop, 10);
            CHECK(!t.attempt && t.done == 0 && t.begin.text[0]);
        }
    }
    fd_close(&probe);
    CHECK(count_fds() == fds);
    struct tried t = try(&all[2], 15000);
    CHECK(is_fine(&t));
    server_end(&s);
    CHECK(is_alone());
}

static void test_nothing_to_ask(void)
{
    struct check c = {.kind = CHECK_FD, .text = TEXT("fd:3"), .fd = 3};
    struct tried t = try(&c, 100);
    CHECK(!t.attempt && t.begin.code == ERR_INVALID);
    c.kind = CHECK_NONE;
    t = try(&c, 100);
    CHECK(!t.attempt && t.begin.code == ERR_INVALID);
}

/* Many at once do not mix. */
static void test_many_at_once(void)
{
    static struct tried t[60];
    struct server s;
    struct check yes = tcp("127.0.0.1", listen_tcp(&s, "127.0.0.1", SILENT, ""));
    struct check no = command("exit 7"), file = of_path(CHECK_FILE, "flag-missing");
    const struct check *kinds[] = {&yes, &no, &file};
    for (int i = 0; i < 60; i++)
        begin(&t[i], kinds[i % 3], 15000);
    uint64_t end = clock_mono_ns() + 15000 * MS;
    for (int left = 60; left > 0 && clock_mono_ns() < end;) {
        run_loop(loop, 1);
        left = 0;
        for (int i = 0; i < 60; i++)
            left += t[i].done == 0;
    }
    for (int i = 0; i < 60; i++) {
        CHECK(t[i].done == 1 && t[i].is_ok == (i % 3 == 0));
        CHECK(i % 3 != 1 || strstr(t[i].why, "exited with 7"));
    }
    server_end(&s);
    CHECK(is_alone());
}

/* ---- all of them ---- */

/* A network of our own. Not as any user. */
static void isolate(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    if (unshare(CLONE_NEWNET) < 0)
        return;
    CLEANUP_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
        printf("# no loopback: %s\n", strerror(errno));
    has_network = true;
}

static void reap_strangers(struct ev_loop *l, ev_signal *w, int events)
{
    (void)l;
    (void)w;
    (void)events;
    children_sweep();
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], LOOK_OPTION) == 0)
        return look_main(argc - 2, argv + 2);

    static const struct check_test tests[] = {
        CHECK_TEST(test_tcp_accepts),
        CHECK_TEST(test_tcp_refused),
        CHECK_TEST(test_tcp_localhost_is_both),
        CHECK_TEST(test_tcp_wants_an_address),
        CHECK_TEST(test_tcp_no_answer),
        CHECK_TEST(test_tcp_not_to_itself),
        CHECK_TEST(test_unix_kinds),
        CHECK_TEST(test_unix_missing),
        CHECK_TEST(test_unix_queue_full),
        CHECK_TEST(test_http_answers),
        CHECK_TEST(test_http_request),
        CHECK_TEST(test_http_silence),
        CHECK_TEST(test_http_answer_cuts),
        CHECK_TEST(test_file),
        CHECK_TEST(test_command_ends),
        CHECK_TEST(test_command_place),
        CHECK_TEST(test_command_timeout),
        CHECK_TEST(test_command_leaves_nothing),
        CHECK_TEST(test_cancel),
        CHECK_TEST(test_no_descriptors),
        CHECK_TEST(test_nothing_to_ask),
        CHECK_TEST(test_many_at_once),
    };
    char command_line[128];
    ev_signal child;
    isolate();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    snprintf(folder, sizeof folder, "/tmp/check.XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    chmod(folder, 0755);
    loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
    children_init(loop);
    ev_signal_init(&child, reap_strangers, SIGCHLD);
    ev_signal_start(loop, &child);
    ev_unref(loop);
    int rc = check_run(tests, sizeof tests / sizeof tests[0]);
    ev_ref(loop);
    ev_signal_stop(loop, &child);
    ev_loop_destroy(loop);
    snprintf(command_line, sizeof command_line, "rm -rf %s", folder);
    (void)!system(command_line);
    return rc;
}
