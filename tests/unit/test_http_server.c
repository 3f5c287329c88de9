/*
 * The HTTP server as a whole: clients that leave or dawdle, too many of them, addresses, want of
 * memory and descriptors, the stop.
 */
#include "tests/unit/failing_memory.h"
#include "tests/unit/http_rig.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- clients that leave or dawdle --------------------------------------------------------- */

static void test_client_gone_while_its_answer_is_made(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    ask_on(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    CHECK(toy.x && toy.closed == 0);
    close(fd);
    turn();
    CHECK(toy.closed == 1);
    end();
}

/* One that only sends no more (`nc -N`) still gets its answer. */
static void test_half_closed_client(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    say_text(fd, "GET /later HTTP/1.1\r\n" H "\r\nGET /health HTTP/1.1\r\n" H "\r\n");
    shutdown(fd, SHUT_WR);
    turn();
    CHECK(toy.closed == 0 && toy.x);
    exchange_json(toy.x, 200, "{\"late\":1}");
    receive(fd);
    CHECK(has(strbuf_text(&got), "{\"late\":1}") && has(strbuf_text(&got), "hello") && got_end);
    close(fd);
    end();
}

static bool ends_within(int fd, double seconds)
{
    for (double t = 0; t < seconds && !got_end; t += 0.02) {
        run_loop(loop, 0.02);
        receive(fd);
    }
    return got_end;
}

static void test_slow_head(void)
{
    struct http_config c = plain();
    c.head_timeout_ms = 100;
    c.idle_timeout_ms = 60000;
    begin(&c);
    int fd = client();
    /* a byte now and then does not help */
    for (int i = 0; i < 200 && !got_end; i++) {
        say(fd, i == 0 ? "G" : i == 1 ? "E" : "T", 1);
        run_loop(loop, 0.02);
        receive(fd);
    }
    CHECK(got_end);
    CHECK_ANSWER(strbuf_text(&got), 408);
    close(fd);
    end();
}

static void test_idle_and_stalled_connections_end(void)
{
    struct http_config c = plain();
    c.idle_timeout_ms = 100;
    c.stall_timeout_ms = 150;
    begin(&c);
    int fd = client();
    CHECK_ANSWER(ask_on(fd, "GET /health HTTP/1.1\r\n" H "\r\n"), 200);
    strbuf_clear(&got);
    CHECK(ends_within(fd, 10) && got.len == 0);
    close(fd);
    fd = client(); /* a body that does not come: */
    ask_on(fd, "PUT /v1/sandbox/a/file/x HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nabc");
    CHECK(ends_within(fd, 10) && toy.closed == 1);
    CHECK_ANSWER(strbuf_text(&got), 408);
    close(fd);
    fd = client(); /* an answer that is not read: */
    toy.floods = 20 << 20;
    say_text(fd, "GET /big HTTP/1.1\r\n" H "\r\n");
    for (int i = 0; i < 500 && toy.closed < 2; i++)
        run_loop(loop, 0.02);
    CHECK(toy.closed == 2);
    close(fd);
    fd = client(); /* but a handler may take its time, also with a body that it does not want yet */
    ask_on(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    run_loop(loop, 0.4);
    CHECK(toy.x && toy.closed == 2);
    exchange_json(toy.x, 200, "{}");
    CHECK_ANSWER(receive(fd), 200);
    close(fd);
    end();
}

/* ---- the server as a whole ---------------------------------------------------------------- */

static int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
        close(fd);
        return -1;
    }
    strbuf_clear(&got);
    got_end = false;
    return fd;
}

static void test_too_many_connections(void)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/test-gateway-%d.sock", (int)getpid());
    char address[80];
    snprintf(address, sizeof address, "unix:%s", path);
    struct http_config c = plain();
    c.max_connections = 2;
    begin(&c);
    struct error e;
    CHECK(http_server_listen(server, address, &e) == 0);
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = dial(path);
        turn();
    }
    CHECK_ANSWER(ask_on(fds[2], ""), 503);
    CHECK(has(strbuf_text(&got), "\"code\":\"capacity_exceeded\"}") && got_end);
    got_end = false;
    CHECK_ANSWER(ask_on(fds[0], "GET /health HTTP/1.1\r\n" H "\r\n"), 200);
    CHECK(!got_end);
    close(fds[1]);
    close(fds[2]);
    turn();
    int fd = dial(path);
    CHECK_ANSWER(ask_on(fd, "GET /health HTTP/1.1\r\n" H "\r\n"), 200);
    struct http_counts now;
    http_server_counts(server, &now);
    CHECK(now.connections == 2 && now.refused == 1 && now.requests == 2 && now.by_class[2] == 2);
    close(fd);
    close(fds[0]);
    end();
    CHECK(access(path, F_OK) < 0);
}

static void test_addresses(void)
{
    static const char *const bad[] = {
        "",        "1.2.3.4", "1.2.3.4:", "1.2.3.4:x",    "host:80",      "1.2.3.4:70000",
        "[::1:80", "unix:",   "[::1]80",  "1.2.3.999:80", "unix:/no/such"};
    static const char *const good[] = {"127.0.0.1:0", "localhost:0", ":0", "0.0.0.0:0"};
    struct http_config c = plain();
    struct error e;
    begin(&c);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (http_server_listen(server, bad[i], &e) == 0 || strncmp(e.text, "listen ", 7) != 0)
            CHECK_FAIL("%s", bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (http_server_listen(server, good[i], &e) < 0)
            CHECK_FAIL("%s: %.400s", good[i], e.text);
    end();
}

static unsigned turns; /* of the loop */

static void on_turn(struct ev_loop *l, ev_check *w, int revents)
{
    (void)l;
    (void)w;
    (void)revents;
    turns++;
}

static void test_no_descriptors_left(void)
{
    char path[64], address[80];
    snprintf(path, sizeof path, "/tmp/test-gateway-%d.sock", (int)getpid());
    snprintf(address, sizeof address, "unix:%s", path);
    struct http_config c = plain();
    begin(&c);
    CHECK(http_server_listen(server, address, NULL) == 0);
    int fd = dial(path);
    struct rlimit old, none;
    getrlimit(RLIMIT_NOFILE, &old);
    none = old;
    none.rlim_cur = (rlim_t)fd;
    setrlimit(RLIMIT_NOFILE, &none);
    ev_check check;
    ev_check_init(&check, on_turn);
    ev_check_start(loop, &check);
    turns = 0;
    run_loop(loop, 0.2);
    CHECK(turns < 20); /* it does not spin */
    setrlimit(RLIMIT_NOFILE, &old);
    strbuf_clear(&got);
    say_text(fd, "GET /health HTTP/1.1\r\n" H "\r\n");
    for (int i = 0; i < 500 && got.len == 0; i++) {
        run_loop(loop, 0.02);
        receive(fd);
    }
    ev_check_stop(loop, &check);
    CHECK_ANSWER(strbuf_text(&got), 200);
    close(fd);
    end();
}

static void test_idle_connections_are_cheap(void)
{
    enum { COUNT = 400 };
    int fds[COUNT];
    struct http_config c = plain();
    c.max_connections = COUNT;
    begin(&c);
    for (int i = 0; i < COUNT; i++)
        fds[i] = client();
    turn();
    size_t used = 0;
#if HAS_FAILING_MEMORY
    size_t before = mallinfo2().uordblks;
#endif
    for (int i = 0; i < COUNT; i++)
        CHECK_ANSWER(ask_on(fds[i], "POST /v1/sandbox/a/whole HTTP/1.1\r\n" H
                                    "Content-Length: 3\r\n\r\nabc"),
                     200);
#if HAS_FAILING_MEMORY
    used = mallinfo2().uordblks - before;
#endif
    CHECK(used < (size_t)COUNT * 64); /* nothing but what is there for libev and the rig */
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    turn();
    struct http_counts now;
    http_server_counts(server, &now);
    CHECK(now.connections == 0);
    end();
}

static void test_stop_ends_the_idle_and_lets_the_others_finish(void)
{
    struct http_config c = plain();
    begin(&c);
    int idle = client(), busy = client();
    ask_on(busy, "GET /later HTTP/1.1\r\n" H "\r\n");
    http_server_stop(server);
    receive(idle);
    CHECK(got_end);
    got_end = false;
    exchange_json(toy.x, 200, "{\"late\":1}");
    const char *answer = receive(busy);
    CHECK(has(answer, "late") && has(answer, "Connection: close") && got_end);
    close(idle);
    close(busy);
    end();
}

static void test_free_tells_owners(void)
{
    struct http_config c = plain();
    begin(&c);
    int fd = client();
    ask_on(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    http_server_free(server);
    server = NULL;
    CHECK(toy.closed == 1);
    close(fd);
    end();
}

#if HAS_FAILING_MEMORY
/* Each allocation fails in turn: that connection ends, or its answer comes; never anything else. */
static void test_without_memory(void)
{
    struct http_config c = plain();
    begin(&c);
    strbuf_reserve(&got, 1 << 16);
    unsigned answered = 0, ended = 0;
    for (int fails = 1; fails < 40; fails++) {
        int fd = client();
        say_text(fd, "POST /v1/sandbox/a/whole?x=y HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nabc");
        memory_until_failure = fails;
        say_text(fd, "def");
        say_text(fd, "ghiGET /headers HTTP/1.1\r\n" H "X-Many: a\r\nX-Many: b\r\n\r\n");
        turn();
        memory_until_failure = -1;
        receive(fd);
        unsigned answers = count(strbuf_text(&got), "HTTP/1.1 200");
        CHECK(answers == 2 || got_end);
        answered += answers == 2;
        ended += got_end;
        close(fd);
        turn();
    }
    CHECK(answered > 3 && ended > 3);
    struct http_counts now;
    http_server_counts(server, &now);
    CHECK(now.connections == 0);
    end();
}
#endif

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_client_gone_while_its_answer_is_made),
        CHECK_TEST(test_half_closed_client),
        CHECK_TEST(test_slow_head),
        CHECK_TEST(test_idle_and_stalled_connections_end),
        CHECK_TEST(test_too_many_connections),
        CHECK_TEST(test_addresses),
        CHECK_TEST(test_no_descriptors_left),
        CHECK_TEST(test_idle_connections_are_cheap),
        CHECK_TEST(test_stop_ends_the_idle_and_lets_the_others_finish),
        CHECK_TEST(test_free_tells_owners),
#if HAS_FAILING_MEMORY
        CHECK_TEST(test_without_memory),
#endif
    };
#if HAS_FAILING_MEMORY
    ev_set_allocator(allocate_for_libev);
#endif
    return run_http_tests(tests, sizeof tests / sizeof tests[0]);
}
