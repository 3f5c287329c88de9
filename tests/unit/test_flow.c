/* gateway/flow and gateway/relay, against socket pairs and listeners of this program. */
#include "base/fd.h"
#include "gateway/flow.h"
#include "gateway/relay.h"
#include "tests/unit/check.h"
#include "tests/unit/run_loop.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ev_loop *loop;

/* ---- an owner ---- */

struct ear {
    struct flow *flow;
    char heard[64]; /* a letter a callback; bytes count once */
    size_t bytes;
    struct error error;
    size_t stop_after; /* of bytes: on_bytes says false from then on; 0: never */
    char close_at;     /* flow_close() in the callback of this letter */
    char break_at;     /* the loop ends at this letter */
};

static void hear(struct ear *e, char letter)
{
    size_t n = strlen(e->heard);
    if (n + 1 < sizeof e->heard && !(letter == 'b' && n > 0 && e->heard[n - 1] == 'b'))
        e->heard[n] = letter;
    if (letter == e->close_at) {
        flow_close(e->flow);
        e->flow = NULL;
    }
    if (letter == e->break_at)
        ev_break(loop, EVBREAK_ONE);
}

static void on_open(void *owner)
{
    hear(owner, 'o');
}

static bool on_bytes(void *owner, const char *bytes, size_t n)
{
    struct ear *e = owner;
    (void)bytes;
    e->bytes += n;
    hear(e, 'b');
    return e->stop_after == 0 || e->bytes < e->stop_after;
}

static void on_end(void *owner)
{
    hear(owner, 'e');
}

static void on_writable(void *owner)
{
    hear(owner, 'w');
}

static void on_broken(void *owner, const struct error *error)
{
    struct ear *e = owner;
    e->error = *error;
    hear(e, 'x');
}

static const struct flow_events events = {.on_open = on_open,
                                          .on_bytes = on_bytes,
                                          .on_end = on_end,
                                          .on_writable = on_writable,
                                          .on_broken = on_broken};

static int make_pair(int fds[2])
{
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds);
}

/* A TCP listener on this address; its port into *port. */
static int listener(int family, uint16_t *port)
{
    struct sockaddr_storage a = {.ss_family = (sa_family_t)family};
    if (family == AF_INET)
        ((struct sockaddr_in *)&a)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        ((struct sockaddr_in6 *)&a)->sin6_addr = in6addr_loopback;
    socklen_t n = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) < 0 || listen(fd, 8) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0) {
        fd_close(&fd);
        return -1;
    }
    *port = ntohs(family == AF_INET ? ((struct sockaddr_in *)&a)->sin_port
                                    : ((struct sockaddr_in6 *)&a)->sin6_port);
    return fd;
}

/* ---- connecting ---- */

static void check_connects(int family)
{
    uint16_t port;
    int fd = listener(family, &port);
    if (fd < 0)
        return; /* no IPv6 here */
    struct error e = {0};
    struct ear ear = {.break_at = 'o'};
    ear.flow = flow_connect(loop, "localhost", port, 5000, &events, &ear, &e);
    CHECK(ear.flow);
    CHECK_STR(ear.heard, "");
    CHECK(flow_write(ear.flow, "early", 5));
    run_loop(loop, 10.);
    CHECK_STR(ear.heard, "o");
    char got[16] = "";
    int other = accept(fd, NULL, NULL);
    run_loop(loop, 0.01);
    CHECK(read(other, got, sizeof got) == 5 && memcmp(got, "early", 5) == 0);
    flow_close(ear.flow);
    CHECK(read(other, got, sizeof got) == 0);
    close(other);
    close(fd);
}

static void test_connects_to_v4(void)
{
    check_connects(AF_INET);
}

static void test_connects_to_v6_where_v4_refuses(void)
{
    check_connects(AF_INET6);
}

static void test_refused(void)
{
    uint16_t port;
    int fd = listener(AF_INET, &port);
    close(fd); /* nobody listens there now */
    struct error e = {0};
    struct ear ear = {.break_at = 'x', .close_at = 'x'};
    ear.flow = flow_connect(loop, "127.0.0.1", port, 5000, &events, &ear, &e);
    CHECK(ear.flow);
    CHECK_STR(ear.heard, ""); /* never from inside */
    run_loop(loop, 10.);
    CHECK_STR(ear.heard, "x");
    char want[64];
    snprintf(want, sizeof want, "connect to 127.0.0.1:%u: Connection refused", port);
    CHECK_STR(ear.error.text, want);
    CHECK(ear.error.sys == ECONNREFUSED && ear.error.code == ERR_UNAVAILABLE);
}

static void test_late(void)
{
    /* given a listener whose queue is full, when one connects, then it ends with the deadline */
    uint16_t port;
    int fd = listener(AF_INET, &port);
    CHECK(listen(fd, 0) == 0);
    struct ear fillers[4] = {0};
    struct error e = {0};
    for (int i = 0; i < 4; i++)
        fillers[i].flow = flow_connect(loop, "127.0.0.1", port, 60000, &events, &fillers[i], &e);
    run_loop(loop, 0.02);
    struct ear ear = {.break_at = 'x'};
    ear.flow = flow_connect(loop, "127.0.0.1", port, 50, &events, &ear, &e);
    run_loop(loop, 10.);
    CHECK_STR(ear.heard, "x");
    CHECK(ear.error.sys == ETIMEDOUT);
    flow_close(ear.flow);
    for (int i = 0; i < 4; i++)
        flow_close(fillers[i].flow);
    close(fd);
}

static void test_bad_host(void)
{
    struct error e = {0};
    struct ear ear = {0};
    CHECK(!flow_connect(loop, "example.com", 80, 10, &events, &ear, &e));
    CHECK_STR(e.text, "host 'example.com': want localhost or an address in numbers");
}

/* ---- bytes ---- */

static void test_back_pressure(void)
{
    /* given a peer that reads nothing, when much is written, then it is told to stop, and to go on
     * when the peer reads */
    int fds[2];
    CHECK(make_pair(fds) == 0);
    struct error e = {0};
    struct ear ear = {.break_at = 'w'};
    ear.flow = flow_adopt(loop, fds[0], &events, &ear, &e);
    static char block[65536];
    size_t written = 0;
    while (flow_write(ear.flow, block, sizeof block)) {
        written += sizeof block;
        CHECK(written < 64u << 20);
    }
    written += sizeof block;
    CHECK(flow_waiting(ear.flow) >= FLOW_HIGH && flow_waiting(ear.flow) < FLOW_HIGH + sizeof block);
    run_loop(loop, 0.02);
    CHECK_STR(ear.heard, "");
    size_t got = 0;
    while (got < written) {
        ssize_t k = read(fds[1], block, sizeof block);
        got += k > 0 ? (size_t)k : 0;
        run_loop(loop, 0.001);
        CHECK(k >= 0 || errno == EAGAIN);
    }
    CHECK_STR(ear.heard, "w");
    CHECK(flow_waiting(ear.flow) == 0);
    flow_close(ear.flow);
    close(fds[1]);
}

static void test_pause(void)
{
    int fds[2];
    CHECK(make_pair(fds) == 0);
    struct error e = {0};
    struct ear ear = {.stop_after = 1};
    ear.flow = flow_adopt(loop, fds[0], &events, &ear, &e);
    CHECK(write(fds[1], "a", 1) == 1);
    run_loop(loop, 0.01);
    CHECK(write(fds[1], "b", 1) == 1);
    run_loop(loop, 0.01);
    CHECK(ear.bytes == 1);
    ear.stop_after = 0;
    flow_resume(ear.flow);
    run_loop(loop, 0.01);
    CHECK(ear.bytes == 2);
    flow_pause(ear.flow);
    CHECK(write(fds[1], "c", 1) == 1);
    run_loop(loop, 0.01);
    CHECK(ear.bytes == 2);
    flow_close(ear.flow);
    close(fds[1]);
}

static void test_ends(void)
{
    /* given queued bytes, when the flow is ended, then the peer gets them, then the end; its own
     * end is heard once */
    int fds[2];
    CHECK(make_pair(fds) == 0);
    struct error e = {0};
    struct ear ear = {0};
    ear.flow = flow_adopt(loop, fds[0], &events, &ear, &e);
    static char block[1 << 20];
    flow_write(ear.flow, block, sizeof block);
    flow_end(ear.flow);
    size_t got = 0;
    ssize_t k = 1;
    for (int i = 0; i < 10000 && k != 0; i++) {
        k = read(fds[1], block, sizeof block);
        got += k > 0 ? (size_t)k : 0;
        run_loop(loop, 0.001);
    }
    CHECK(got == sizeof block && k == 0);
    CHECK_STR(ear.heard, "w");
    close(fds[1]);
    run_loop(loop, 0.02);
    CHECK_STR(ear.heard, "we");
    flow_close(ear.flow);
}

static void test_broken_while_writing(void)
{
    int fds[2];
    CHECK(make_pair(fds) == 0);
    struct error e = {0};
    struct ear ear = {.break_at = 'x', .close_at = 'x'};
    ear.flow = flow_adopt(loop, fds[0], &events, &ear, &e);
    close(fds[1]);
    CHECK(flow_write(ear.flow, "x", 1));
    CHECK_STR(ear.heard, "");
    run_loop(loop, 10.);
    CHECK_STR(ear.heard, "x");
    CHECK_STR(ear.error.text, "send: Broken pipe");
}

static void test_broken_behind_the_last_word(void)
{
    /* given a peer that has said something and left, when it is written to, then its word is heard
     * first, also by an owner who has paused, once he goes on */
    int fds[2];
    CHECK(make_pair(fds) == 0);
    struct error e = {0};
    struct ear ear = {.break_at = 'x', .close_at = 'x'};
    ear.flow = flow_adopt(loop, fds[0], &events, &ear, &e);
    flow_pause(ear.flow);
    CHECK(write(fds[1], "bye", 3) == 3);
    close(fds[1]);
    CHECK(flow_write(ear.flow, "x", 1));
    CHECK(flow_write(ear.flow, "y", 1));
    run_loop(loop, 0.02);
    CHECK_STR(ear.heard, "");
    flow_resume(ear.flow);
    CHECK_STR(ear.heard, "");
    run_loop(loop, 10.);
    CHECK_STR(ear.heard, "bx");
    CHECK(ear.bytes == 3);
}

static void test_close_in_each_callback(void)
{
    for (const char *at = "be"; *at; at++) {
        int fds[2];
        CHECK(make_pair(fds) == 0);
        struct error e = {0};
        struct ear ear = {.close_at = *at, .break_at = *at};
        ear.flow = flow_adopt(loop, fds[0], &events, &ear, &e);
        CHECK(write(fds[1], "bytes", 5) == 5);
        close(fds[1]);
        run_loop(loop, 10.);
        CHECK(!ear.flow);
        run_loop(loop, 0.005);
        CHECK_STR(ear.heard, *at == 'b' ? "b" : "be");
    }
}

/* ---- relays ---- */

/* Two flows in a relay; the outer ends are ours. */
static int make_relay(int *one, int *other)
{
    int a[2], b[2];
    struct error e = {0};
    if (make_pair(a) < 0 || make_pair(b) < 0)
        return -1;
    *one = a[1];
    *other = b[1];
    return relay_start(loop, NULL, flow_adopt(loop, a[0], NULL, NULL, &e),
                       flow_adopt(loop, b[0], NULL, NULL, &e));
}

/* Up to n bytes that come within a second; -1 at an error, 0 at the end. */
static ssize_t read_soon(int fd, char *to, size_t n)
{
    for (int i = 0; i < 1000; i++) {
        ssize_t k = read(fd, to, n);
        if (k >= 0 || errno != EAGAIN)
            return k;
        run_loop(loop, 0.001);
    }
    return -2;
}

static void test_relay_passes_on(void)
{
    int one, other;
    char got[8];
    CHECK(make_relay(&one, &other) == 0);
    CHECK(write(one, "ping", 4) == 4);
    CHECK(read_soon(other, got, sizeof got) == 4 && memcmp(got, "ping", 4) == 0);
    CHECK(write(other, "pong!", 5) == 5);
    CHECK(read_soon(one, got, sizeof got) == 5 && memcmp(got, "pong!", 5) == 0);
    /* the end of one is an end for the other, who may say his last word */
    CHECK(shutdown(one, SHUT_WR) == 0);
    CHECK(read_soon(other, got, sizeof got) == 0);
    CHECK(write(other, "bye", 3) == 3);
    CHECK(read_soon(one, got, sizeof got) == 3);
    close(other);
    CHECK(read_soon(one, got, sizeof got) == 0);
    close(one);
    run_loop(loop, 0.01);
}

static void test_relay_holds_little(void)
{
    /* given a side that reads nothing, then the other can write only so much */
    int one, other;
    static char block[65536];
    CHECK(make_relay(&one, &other) == 0);
    size_t written = 0;
    for (int idle = 0; idle < 20;) {
        ssize_t k = write(one, block, sizeof block);
        written += k > 0 ? (size_t)k : 0;
        idle = k > 0 ? 0 : idle + 1;
        run_loop(loop, 0.001);
        CHECK(written < 16u << 20);
    }
    size_t got = 0;
    while (got < written) {
        ssize_t k = read_soon(other, block, sizeof block);
        CHECK(k > 0);
        got += (size_t)k;
    }
    close(one);
    CHECK(read_soon(other, block, sizeof block) == 0);
    close(other);
    run_loop(loop, 0.01);
}

static void test_relay_breaks(void)
{
    int one, other;
    char got[8];
    CHECK(make_relay(&one, &other) == 0);
    close(other);
    CHECK(write(one, "x", 1) == 1);
    CHECK(read_soon(one, got, sizeof got) <= 0);
    close(one);
    run_loop(loop, 0.01);
}

int main(void)
{
    static const struct check_test tests[] = {CHECK_TEST(test_connects_to_v4),
                                              CHECK_TEST(test_connects_to_v6_where_v4_refuses),
                                              CHECK_TEST(test_refused),
                                              CHECK_TEST(test_late),
                                              CHECK_TEST(test_bad_host),
                                              CHECK_TEST(test_back_pressure),
                                              CHECK_TEST(test_pause),
                                              CHECK_TEST(test_ends),
                                              CHECK_TEST(test_broken_while_writing),
                                              CHECK_TEST(test_broken_behind_the_last_word),
                                              CHECK_TEST(test_close_in_each_callback),
                                              CHECK_TEST(test_relay_passes_on),
                                              CHECK_TEST(test_relay_holds_little),
                                              CHECK_TEST(test_relay_breaks)};
    loop = ev_loop_new(EVFLAG_NOSIGMASK);
    int rc = check_run(tests, sizeof tests / sizeof tests[0]);
    ev_loop_destroy(loop);
    return rc;
}
