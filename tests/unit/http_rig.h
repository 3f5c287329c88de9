/*
 * The HTTP server of the gateway over socketpairs, with toy handlers behind it: what the tests of
 * gateway/http*.c share. The loop is turned by hand between a client's moves, so the order is
 * fixed.
 */
#ifndef TESTS_UNIT_HTTP_RIG_H
#define TESTS_UNIT_HTTP_RIG_H

#include "tests/unit/check.h"
#include "tests/unit/run_loop.h"

#include "base/strbuf.h"
#include "gateway/http.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the handlers ------------------------------------------------------------------------ */

static struct {
    unsigned begun, closed, ended, writable, too_large, pieces;
    uint64_t said_length;
    struct strbuf body; /* of the streamed route */
    bool pauses;        /* at each piece */
    bool pauses_first;  /* in begin */
    struct exchange *x; /* of a route that answers later */
    char segment[256], rest[256], path[256], query[64];
    int taken;
    struct http_server *server_of_taken;
    struct strbuf early;
    size_t announces; /* of /lies */
    size_t floods;    /* bytes still to write */
    int file;
    int64_t file_length, file_says;
} toy;

static inline void on_closed(void *owner)
{
    (void)owner;
    toy.closed++;
    toy.x = NULL;
}

static inline void on_body(void *owner, const char *bytes, size_t n)
{
    toy.pieces++;
    strbuf_add(&toy.body, bytes, n);
    if (toy.pauses)
        exchange_pause_body(owner);
}

static inline void on_body_end(void *owner)
{
    toy.ended++;
    toy.x = NULL;
    exchange_json(owner, 200, "{\"put\":true}");
}

static inline void flood(struct exchange *x)
{
    static char bytes[64 * 1024];
    bool goes_on = true;
    memset(bytes, 'f', sizeof bytes);
    while (goes_on && toy.floods > 0) {
        size_t n = toy.floods < sizeof bytes ? toy.floods : sizeof bytes;
        toy.floods -= n;
        goes_on = exchange_write(x, bytes, n);
    }
    if (toy.floods == 0) {
        toy.x = NULL;
        exchange_end(x);
    }
}

static inline void on_writable(void *owner)
{
    toy.writable++;
    flood(owner);
}

static const struct exchange_events events = {on_body, on_body_end, on_writable, on_closed};

static inline void hello(struct exchange *x)
{
    toy.begun++;
    snprintf(toy.path, sizeof toy.path, "%s", exchange_path(x));
    snprintf(toy.query, sizeof toy.query, "%s", exchange_query(x));
    exchange_json(x, 200, "{\"hello\":1}");
}

static inline void whole(struct exchange *x)
{
    size_t n;
    const char *body = exchange_body(x, &n);
    toy.begun++;
    snprintf(toy.segment, sizeof toy.segment, "%s", exchange_segment(x, "id"));
    exchange_answer(x, 200, "text/plain", body, n);
}

static inline void stream(struct exchange *x)
{
    toy.begun++;
    toy.x = x;
    snprintf(toy.rest, sizeof toy.rest, "%s", exchange_segment(x, "*"));
    exchange_own(x, &events, x);
    if (toy.pauses_first)
        exchange_pause_body(x);
}

static inline void refused(struct exchange *x)
{
    exchange_error(x, 403, "invalid_request", "not %s", "here");
}

static inline void later(struct exchange *x)
{
    toy.begun++;
    toy.x = x;
    exchange_own(x, &events, x);
}

static inline void big(struct exchange *x)
{
    toy.x = x;
    exchange_own(x, &events, x);
    exchange_begin(x, 200, "text/plain", -1);
    flood(x);
}

static inline void lies(struct exchange *x)
{
    exchange_begin(x, 200, "text/plain", (int64_t)toy.announces);
    exchange_write(x, "12345", 5);
    exchange_end(x);
}

static inline void file(struct exchange *x)
{
    int fd = dup(toy.file);
    exchange_begin(x, 200, "text/plain", toy.file_says);
    exchange_end_with_file(x, fd, 3, toy.file_length);
}

static inline void take(struct exchange *x)
{
    toy.taken = exchange_take_socket(x, &toy.early, &toy.server_of_taken);
}

static inline void injects(struct exchange *x)
{
    exchange_add_header(x, "X-Fine", "yes");
    exchange_add_header(x, "X-Bad", "a\r\nX-Injected: 1");
    exchange_json(x, 200, "{}");
}

static inline void headers(struct exchange *x)
{
    const char *value = exchange_header(x, "x-many");
    exchange_answer(x, 200, "text/plain", value ? value : "(none)", value ? strlen(value) : 6);
}

static inline void say_too_large(struct exchange *x, uint64_t length, uint64_t limit)
{
    toy.too_large++;
    toy.said_length = length;
    exchange_error(x, 400, "invalid_request", "tar over %llu", (unsigned long long)limit);
}

static const struct route table_a[] = {
    {"GET", "/health", BODY_IGNORED, ROUTE_OPEN, 0, NULL, hello},
    {"POST", "/v1/sandbox", BODY_IGNORED, 0, 0, NULL, hello},
    {"POST", "/v1/sandbox/:id/whole", BODY_WHOLE, 0, 0, NULL, whole},
    {"PUT", "/v1/sandbox/:id/file/*", BODY_STREAMED, 0, 1000000, NULL, stream},
    {"PUT", "/v1/sandbox/:id/refused", BODY_STREAMED, 0, 0, NULL, refused},
    {"POST", "/v1/sandbox/:id/tar", BODY_STREAMED, 0, 100, say_too_large, stream},
    {"GET", "/v1/sandbox/:id/pty", BODY_IGNORED, ROUTE_UPGRADE, 0, NULL, hello},
    {"GET", "/v1/pool/stats", BODY_IGNORED, ROUTE_EXACT_BEARER, 0, NULL, hello},
    {"GET", "/v1/openapi.json", BODY_IGNORED, ROUTE_EXACT_BEARER | ROUTE_QUERY_TOKEN, 0, NULL,
     hello},
    {0},
};
static const struct route table_b[] = {
    {"GET", "/later", BODY_IGNORED, ROUTE_OPEN, 0, NULL, later},
    {"GET", "/big", BODY_IGNORED, ROUTE_OPEN, 0, NULL, big},
    {"GET", "/lies", BODY_IGNORED, ROUTE_OPEN, 0, NULL, lies},
    {"GET", "/file", BODY_IGNORED, ROUTE_OPEN, 0, NULL, file},
    {"GET", "/take", BODY_IGNORED, ROUTE_OPEN, 0, NULL, take},
    {"GET", "/injects", BODY_IGNORED, ROUTE_OPEN, 0, NULL, injects},
    {"GET", "/headers", BODY_IGNORED, ROUTE_OPEN, 0, NULL, headers},
    {0},
};
static const struct route *const tables[] = {table_a, table_b, NULL};

/* ---- the rig ----------------------------------------------------------------------------- */

static struct ev_loop *loop;
static struct http_server *server;
static struct strbuf got; /* of the client */
static bool got_end;      /* it has seen the end of the connection */

static inline struct http_config plain(void)
{
    return (struct http_config){
        .routes = tables, .max_body = 1000, .max_connections = 50, .token = NULL};
}

static inline void begin(const struct http_config *config)
{
    server = http_server_new(loop, config, NULL);
    strbuf_free(&toy.body);
    strbuf_free(&toy.early);
    memset(&toy, 0, sizeof toy);
    toy.taken = -2;
}

static inline void end(void)
{
    http_server_free(server);
    strbuf_free(&got);
    strbuf_free(&toy.body);
    strbuf_free(&toy.early);
    server = NULL;
}

static inline int client(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -1;
    http_server_adopt(server, pair[1], NULL);
    strbuf_clear(&got);
    got_end = false;
    return pair[0];
}

static inline void turn(void)
{
    for (int i = 0; i < 6; i++)
        ev_run(loop, EVRUN_NOWAIT);
}

static inline const char *receive(int fd)
{
    char bytes[65536];
    ssize_t k;
    do {
        turn();
        while ((k = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
            strbuf_add(&got, bytes, (size_t)k);
        got_end |= k == 0 || (k < 0 && errno != EAGAIN);
        turn();
        k = recv(fd, bytes, 1, MSG_DONTWAIT | MSG_PEEK);
    } while (k > 0);
    return strbuf_text(&got);
}

static inline void say(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno != EAGAIN)
            return;
        bytes += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
        turn();
    }
}

static inline void say_text(int fd, const char *text)
{
    say(fd, text, strlen(text));
}

/* Say it on the connection and return all that came back so far. */
static inline const char *ask_on(int fd, const char *text)
{
    strbuf_clear(&got);
    say(fd, text, strlen(text));
    return receive(fd);
}

static inline int status_of(const char *answer)
{
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : 0;
}

static inline bool has(const char *answer, const char *text)
{
    return strstr(answer, text) != NULL;
}

static inline unsigned count(const char *answer, const char *text)
{
    unsigned n = 0;
    for (; (answer = strstr(answer, text)); answer += strlen(text))
        n++;
    return n;
}

#define CHECK_ANSWER(answer, status)                                                               \
    do {                                                                                           \
        const char *seen = (answer);                                                               \
        if (status_of(seen) != (status))                                                           \
            CHECK_FAIL("status %d, want %d: %.200s", status_of(seen), status, seen);               \
    } while (0)

#define H "Host: x\r\n" /* what every request has */

struct sample {
    const char *bytes;
    int status; /* that they are answered with */
};

static inline int run_http_tests(const struct check_test *tests, size_t count)
{
    loop = ev_loop_new(EVFLAG_AUTO);
    return check_run(tests, count);
}

#endif
