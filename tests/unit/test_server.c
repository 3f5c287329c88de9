/*
 * The server of the control socket on a real loop: clients that send half a request, too much,
 * nothing, or read nothing; many at once; killed ones; no descriptors left. Raw clients live in
 * this process, and the loop is turned by hand between their calls, so the order is fixed. The
 * client library blocks, so it runs in a child.
 */
#include "tests/unit/check.h"
#include "tests/unit/failing_memory.h"

#include "control/client.h"
#include "control/server.h"
#include "control/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sys/syscall.h>

#define FLOOD_BYTES ((size_t)32 << 20)

/* ---- failing calls ----------------------------------------------------------------------- */

static int failing_sends; /* so many sendmsg() fail with ENOBUFS */

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    if (failing_sends > 0) {
        failing_sends--;
        errno = ENOBUFS;
        return -1;
    }
    return syscall(SYS_sendmsg, fd, m, flags);
}

/* ---- the toy behind the server ----------------------------------------------------------- */

struct toy {
    struct ev_loop *loop;
    struct server *server;
    char dir[64], path[96];
    unsigned requests, closed, notes;
    size_t input;
    size_t flood_left;
    struct conn *conn; /* of the last request that stays */
    ev_timer resume;
    bool is_inside_call; /* the toy is calling into a connection */
    bool was_called_back;
    bool stays_paused; /* take no more input */
    char last[256];    /* verb and some arguments of the last request */
};

static struct toy toy;

static void on_closed(void *owner)
{
    struct toy *t = owner;
    t->was_called_back |= t->is_inside_call;
    t->closed++;
    t->conn = NULL;
}

static void flood(struct toy *t)
{
    static char bytes[WIRE_PAYLOAD_MAX];
    enum conn_sent sent = CONN_SENT;
    t->is_inside_call = true;
    while (t->flood_left > 0 && sent == CONN_SENT) {
        size_t n = t->flood_left < sizeof bytes ? t->flood_left : sizeof bytes;
        sent = conn_send(t->conn, WIRE_STDOUT, bytes, n);
        if (sent == CONN_SENT)
            t->flood_left -= n;
    }
    if (t->flood_left == 0) {
        struct record r = {0};
        record_int(&r, "status", 0);
        conn_result(t->conn, &r);
        record_free(&r);
        t->conn = NULL;
    }
    t->is_inside_call = false;
}

static void on_writable(void *owner)
{
    struct toy *t = owner;
    t->was_called_back |= t->is_inside_call;
    if (t->conn)
        flood(t);
}

/* Takes one packet, then looks away for a millisecond. */
static bool on_data(void *owner, char channel, const char *bytes, size_t n)
{
    struct toy *t = owner;
    (void)bytes;
    t->was_called_back |= t->is_inside_call;
    if (channel == WIRE_SIGNAL) {
        struct record r = {0};
        record_str(&r, "verdict", "killed_by_client");
        record_int(&r, "input", (long)t->input);
        conn_result(t->conn, &r);
        record_free(&r);
        t->conn = NULL;
        return true;
    }
    t->input += n;
    ev_timer_stop(t->loop, &t->resume);
    ev_timer_set(&t->resume, 0.001, 0.0);
    ev_timer_start(t->loop, &t->resume);
    return false;
}

static void on_resume(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop;
    (void)w;
    (void)revents;
    toy.is_inside_call = true;
    if (toy.conn && !toy.stays_paused)
        conn_resume_input(toy.conn);
    toy.is_inside_call = false;
}

static void on_input_end(void *owner)
{
    struct toy *t = owner;
    struct record r = {0};
    record_int(&r, "bytes", (long)t->input);
    conn_result(t->conn, &r);
    record_free(&r);
    t->conn = NULL;
}

static const struct conn_events stay = {.on_closed = on_closed};
static const struct conn_events floods = {.on_closed = on_closed, .on_writable = on_writable};
static const struct conn_events takes = {
    .on_closed = on_closed, .on_data = on_data, .on_input_end = on_input_end};

static long sum_of(const char *bytes, size_t n)
{
    unsigned long sum = 5381;
    for (size_t i = 0; i < n; i++)
        sum = (sum * 33 + (unsigned char)bytes[i]) & 0xffffffff;
    return (long)sum;
}

/* Answers with what it got: count of arguments, the beginning of the text on stdout (so much that
 * the smallest socket buffer takes it), its length and sum. */
static void echo(struct conn *c, struct request *q)
{
    struct record r = {0};
    struct field f;
    size_t at = 0, count = 0;
    while (record_next(strbuf_text(&q->args), q->args.len, &at, &f) > 0)
        count++;
    for (size_t sent = 0; sent < q->text.len && sent < 100000;) {
        size_t n = q->text.len - sent < 50000 ? q->text.len - sent : 50000;
        if (conn_send(c, WIRE_STDOUT, q->text.data + sent, n) != CONN_SENT)
            break;
        sent += n;
    }
    record_int(&r, "args", (long)count);
    record_int(&r, "text_len", q->has_text ? (long)q->text.len : -1);
    record_int(&r, "sum", sum_of(strbuf_text(&q->text), q->text.len));
    record_str(&r, "first", request_get(q, "a") ? request_get(q, "a") : "");
    conn_result(c, &r);
    record_free(&r);
}

static void rows(struct conn *c, long count, size_t size)
{
    struct record r = {0};
    static char value[100000];
    memset(value, 'v', sizeof value);
    record_bytes(&r, "value", value, size);
    for (long i = 0; i < count; i++)
        conn_row(c, &r);
    record_int(&r, "count", count);
    conn_result(c, &r);
    record_free(&r);
}

static void on_request(struct conn *c, struct request *q, void *context)
{
    struct toy *t = context;
    struct error e;
    t->requests++;
    snprintf(t->last, sizeof t->last, "%s", q->verb);
    if (strcmp(q->verb, "echo") == 0) {
        echo(c, q);
    } else if (strcmp(q->verb, "hold") == 0) {
        t->conn = c;
        conn_set_owner(c, &stay, t);
    } else if (strcmp(q->verb, "flood") == 0) {
        t->conn = c;
        t->flood_left = FLOOD_BYTES;
        conn_set_owner(c, &floods, t);
        flood(t);
    } else if (strcmp(q->verb, "take") == 0) {
        t->conn = c;
        t->input = 0;
        conn_set_owner(c, &takes, t);
    } else if (strcmp(q->verb, "rows") == 0) {
        rows(c, 4000, 200);
    } else if (strcmp(q->verb, "endless") == 0) {
        conn_set_owner(c, &stay, t);
        rows(c, 400000, 200);
    } else if (strcmp(q->verb, "big") == 0) {
        rows(c, 1, 100000);
    } else if (strcmp(q->verb, "steal") == 0) {
        struct strbuf text = request_take_text(q);
        struct record r = {0};
        record_int(&r, "text_len", (long)text.len);
        strbuf_free(&text);
        conn_result(c, &r);
        record_free(&r);
    } else {
        error_set(&e, ERR_NOT_FOUND, "no verb '%s'", q->verb);
        conn_fail(c, &e);
    }
}

static bool toy_start(struct server_config config)
{
    struct error e = {0};
    memset(&toy, 0, sizeof toy);
    snprintf(toy.dir, sizeof toy.dir, "/tmp/test_server.XXXXXX");
    if (!mkdtemp(toy.dir))
        return false;
    snprintf(toy.path, sizeof toy.path, "%s/s", toy.dir);
    toy.loop = ev_loop_new(EVFLAG_AUTO);
    ev_timer_init(&toy.resume, on_resume, 0.0, 0.0);
    config.path = toy.path;
    config.allowed_uid = getuid();
    config.on_request = on_request;
    config.context = &toy;
    if (!config.max_connections)
        config.max_connections = 300;
    if (!config.max_adopted)
        config.max_adopted = 300;
    if (!config.text_limit)
        config.text_limit = 1 << 20;
    if (!config.upload_limit)
        config.upload_limit = 4 << 20;
    toy.server = server_new(toy.loop, &config, &e);
    if (!toy.server)
        printf("# %s\n", e.text);
    return toy.server != NULL;
}

static void toy_end(void)
{
    server_free(toy.server);
    ev_loop_destroy(toy.loop);
    rmdir(toy.dir);
}

static void turn(int times)
{
    for (int i = 0; i < times; i++)
        ev_run(toy.loop, EVRUN_NOWAIT);
}

static void on_over(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)w;
    (void)revents;
    ev_break(loop, EVBREAK_ONE);
}

static void run_ms(int ms)
{
    ev_timer w;
    ev_now_update(toy.loop);
    ev_timer_init(&w, on_over, ms / 1000.0, 0.0);
    ev_timer_start(toy.loop, &w);
    ev_run(toy.loop, 0);
    ev_timer_stop(toy.loop, &w);
}

/* ---- raw clients ------------------------------------------------------------------------- */

static int raw_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    memcpy(address.sun_path, toy.path, strlen(toy.path));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static int raw_request(const char *packet, size_t n)
{
    int fd = raw_connect();
    if (fd >= 0)
        (void)send(fd, packet, n, MSG_NOSIGNAL);
    return fd;
}
#define REQUEST(literal) raw_request(literal, sizeof(literal)) /* with the final NUL */

static char packet[WIRE_PACKET_MAX + 1];
static size_t packet_len;

/* The channel of the next packet, 0 at the end, -errno. */
static int raw_receive(int fd)
{
    ssize_t n = recv(fd, packet, sizeof packet - 1, 0);
    if (n <= 0)
        return n == 0 ? 0 : -errno;
    packet[n] = '\0';
    packet_len = (size_t)n;
    return packet[0];
}

static const char *packet_get(const char *key)
{
    return record_get(packet + 1, packet_len - 1, key);
}

/* The next packets are an error with this code, then the end. */
static bool ends_with_error(int fd, const char *code)
{
    bool ok = raw_receive(fd) == WIRE_ERROR && packet_get("code") &&
              strcmp(packet_get("code"), code) == 0 && packet_get("message");
    if (!ok)
        printf("# got %d '%.200s'\n", packet[0], packet);
    return ok && raw_receive(fd) == 0;
}

static bool is_under_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload");
}

static int open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* ---- requests ---------------------------------------------------------------------------- */

static void answers_a_request(void)
{
    CHECK(toy_start((struct server_config){.request_timeout_ms = 1000}));
    int fd = REQUEST("echo\0a=1\0a=2\0text=hello");
    turn(3);
    CHECK(raw_receive(fd) == WIRE_STDOUT);
    CHECK_STR(packet, "ohello");
    CHECK(raw_receive(fd) == WIRE_RESULT);
    CHECK_STR(packet_get("args"), "2");
    CHECK_STR(packet_get("first"), "1");
    CHECK_STR(packet_get("text_len"), "5");
    CHECK(raw_receive(fd) == 0);
    close(fd);
    turn(2);
    CHECK(server_connection_count(toy.server) == 0);
    toy_end();
}

static void tells_empty_text_from_none(void)
{
    CHECK(toy_start((struct server_config){0}));
    int none = REQUEST("echo"), empty = REQUEST("echo\0text="),
        sized = REQUEST("echo\0text_size=0");
    turn(8);
    CHECK(raw_receive(none) == WIRE_RESULT);
    CHECK_STR(packet_get("text_len"), "-1");
    CHECK(raw_receive(empty) == WIRE_RESULT);
    CHECK_STR(packet_get("text_len"), "0");
    CHECK(raw_receive(sized) == WIRE_RESULT);
    CHECK_STR(packet_get("text_len"), "0");
    close(none);
    close(empty);
    close(sized);
    toy_end();
}

static void assembles_parts(void)
{
    CHECK(toy_start((struct server_config){.request_timeout_ms = 1000}));
    int fd = REQUEST("echo\0args_size=8\0text_size=5");
    turn(2);
    CHECK(toy.requests == 0);
    send(fd, "aa=1", 4, 0); /* the cut is in the middle of a string */
    send(fd, "a\0b=2\0", 6, 0);
    turn(2);
    CHECK(toy.requests == 0);
    send(fd, "ta\0b", 4, 0);
    send(fd, "tc", 2, 0);
    turn(2);
    CHECK(toy.requests == 0);
    send(fd, "td", 2, 0);
    turn(2);
    CHECK(toy.requests == 1);
    CHECK(raw_receive(fd) == WIRE_STDOUT && packet_len == 6);
    CHECK(memcmp(packet, "oa\0bcd", 6) == 0);
    CHECK(raw_receive(fd) == WIRE_RESULT);
    CHECK_STR(packet_get("args"), "2");
    close(fd);
    toy_end();
}

struct bad {
    const char *what;
    const char *bytes;
    size_t n;
    const char *code;
};
#define BAD(literal, code)                                                                         \
    {                                                                                              \
        literal, literal, sizeof(literal), code                                                    \
    }

static void refuses_malformed_requests(void)
{
    static const struct bad cases[] = {
        {"no NUL", "echo", 4, "protocol"},
        {"no verb", "\0a=b", 5, "protocol"},
        {"cut argument", "echo\0a=b", 8, "protocol"},
        BAD("ec ho", "protocol"),
        BAD("echo\0a", "protocol"),
        BAD("echo\0=b", "protocol"),
        BAD("echo\0text_size=x", "protocol"),
        BAD("echo\0text_size=-1", "protocol"),
        BAD("echo\0text_size=99999999999999999999999", "protocol"),
        BAD("echo\0text_size=1\0text_size=1", "protocol"),
        BAD("echo\0text=a\0text_size=1", "protocol"),
        BAD("echo\0text_size=4611686018427387903", "too_large"),
        BAD("echo\0text_size=1048577", "too_large"),
        BAD("echo\0args_size=4194305", "too_large"),
        BAD("echo\0args_size=4611686018427387903", "too_large"),
        BAD("nosuch", "not_found"),
    };
    CHECK(toy_start((struct server_config){0}));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = raw_request(cases[i].bytes, cases[i].n);
        turn(3);
        if (!ends_with_error(fd, cases[i].code))
            CHECK_FAIL("%s", cases[i].what);
        close(fd);
    }
    CHECK(toy.requests == 1);
    turn(2);
    CHECK(server_connection_count(toy.server) == 0);
    toy_end();
}

static void refuses_malformed_continuations(void)
{
    static const struct bad cases[] = {
        {"wrong channel", "ixx", 3, "protocol"},
        {"text before arguments", "txx", 3, "protocol"},
        {"more than announced", "aabcdefgh", 9, "protocol"},
        {"not an argument", "aabcd", 5, "protocol"},
        {"text= outside", "atext=xyz\0", 10, "protocol"},
    };
    CHECK(toy_start((struct server_config){0}));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = i == 4 ? REQUEST("echo\0args_size=9") : REQUEST("echo\0args_size=4");
        turn(2);
        send(fd, cases[i].bytes, cases[i].n, 0);
        turn(2);
        if (!ends_with_error(fd, cases[i].code))
            CHECK_FAIL("%s", cases[i].what);
        close(fd);
    }
    CHECK(toy.requests == 0);
    toy_end();
}

static void refuses_a_packet_too_large(void)
{
    static char big[WIRE_PACKET_MAX + 1] = "echo\0a=";
    CHECK(toy_start((struct server_config){0}));
    memset(big + 7, 'x', sizeof big - 8);
    int fd = raw_request(big, sizeof big);
    turn(3);
    CHECK(ends_with_error(fd, "protocol"));
    CHECK(strstr(packet_get("message"), "65537"));
    close(fd);
    big[sizeof big - 2] = '\0'; /* the largest that may be */
    fd = raw_request(big, sizeof big - 1);
    turn(3);
    CHECK(raw_receive(fd) == WIRE_RESULT);
    close(fd);
    toy_end();
}

/* The error is what the client finds, not a reset for the packets that nobody read. */
static void refuses_an_upload_under_way(void)
{
    CHECK(toy_start((struct server_config){0}));
    int fd = REQUEST("echo\0text_size=99999999");
    for (int i = 0; i < 3; i++)
        send(fd, "tabc", 4, MSG_NOSIGNAL);
    turn(3);
    CHECK(ends_with_error(fd, "too_large"));
    CHECK(send(fd, "tabc", 4, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    close(fd);
    toy_end();
}

static void bounds_all_uploads_together(void)
{
    static char text[60001];
    int fds[2];
    struct server_config config = {.text_limit = 100000, .upload_limit = 100000};
    text[0] = WIRE_TEXT;
    CHECK(toy_start(config));
    for (int i = 0; i < 2; i++)
        fds[i] = REQUEST("echo\0text_size=60001");
    turn(3);
    for (int i = 0; i < 2; i++) {
        send(fds[i], text, sizeof text, MSG_NOSIGNAL);
        turn(3);
    }
    CHECK(ends_with_error(fds[1], "limit"));
    CHECK(raw_receive(fds[0]) == -EAGAIN);
    close(fds[0]); /* gives its share back */
    turn(3);
    int fd = REQUEST("steal\0text_size=60000");
    turn(3);
    send(fd, text, sizeof text, MSG_NOSIGNAL);
    turn(3);
    CHECK(raw_receive(fd) == WIRE_RESULT);
    CHECK_STR(packet_get("text_len"), "60000");
    close(fd);
    close(fds[1]);
    toy_end();
}

/* ---- clients that misbehave -------------------------------------------------------------- */

static void times_out_silent_clients(void)
{
    CHECK(toy_start((struct server_config){.request_timeout_ms = 400}));
    int silent = raw_connect(), half = REQUEST("echo\0text_size=5");
    turn(4);
    CHECK(server_connection_count(toy.server) == 2);
    for (int i = 0; i < 250 && server_connection_count(toy.server) > 0; i++)
        run_ms(20);
    CHECK(ends_with_error(silent, "protocol"));
    CHECK(ends_with_error(half, "protocol"));
    CHECK(server_connection_count(toy.server) == 0);
    CHECK(toy.requests == 0);
    close(silent);
    close(half);
    toy_end();
}

static void drops_a_client_that_never_reads(void)
{
    CHECK(toy_start((struct server_config){.client_stall_ms = 400}));
    int fd = REQUEST("flood");
    turn(4);
    CHECK(toy.flood_left > 0 && toy.closed == 0);
    for (int i = 0; i < 250 && toy.closed == 0; i++)
        run_ms(20);
    CHECK(toy.closed == 1 && !toy.was_called_back);
    CHECK(server_connection_count(toy.server) == 0);
    close(fd);
    toy_end();
}

static void keeps_a_client_that_reads_slowly(void)
{
    CHECK(toy_start((struct server_config){.client_stall_ms = 300}));
    int fd = REQUEST("flood");
    for (int i = 0; i < 20; i++) { /* far from emptying the buffer */
        run_ms(40);
        CHECK(raw_receive(fd) == WIRE_STDOUT);
    }
    CHECK(toy.closed == 0);
    run_ms(700);
    CHECK(toy.closed == 1);
    close(fd);
    toy_end();
}

static void sends_everything_to_a_reader(void)
{
    size_t got = 0;
    int channel = -EAGAIN;
    CHECK(toy_start((struct server_config){.client_stall_ms = 5000}));
    int fd = REQUEST("flood");
    for (int i = 0; i < 100000 && channel != WIRE_RESULT; i++) {
        turn(1);
        while ((channel = raw_receive(fd)) == WIRE_STDOUT)
            got += packet_len - 1;
    }
    CHECK(channel == WIRE_RESULT && got == FLOOD_BYTES);
    CHECK(toy.closed == 0 && !toy.was_called_back);
    close(fd);
    toy_end();
}

static void notices_a_client_that_leaves(void)
{
    CHECK(toy_start((struct server_config){0}));
    int fd = REQUEST("hold");
    turn(3);
    CHECK(toy.conn && toy.closed == 0);
    close(fd);
    turn(3);
    CHECK(toy.closed == 1 && !toy.conn);
    fd = REQUEST("flood"); /* while it is blocked */
    turn(3);
    close(fd);
    turn(3);
    CHECK(toy.closed == 2);
    toy.stays_paused = true;
    fd = REQUEST("take"); /* while its input is paused */
    turn(3);
    send(fd, "ix", 2, 0);
    turn(2);
    CHECK(toy.input == 1);
    send(fd, "iy", 2, 0);
    turn(2);
    close(fd);
    turn(3);
    CHECK(toy.closed == 3 && toy.input == 1);
    CHECK(server_connection_count(toy.server) == 0);
    toy_end();
}

static void half_close_is_not_leaving(void)
{
    CHECK(toy_start((struct server_config){0}));
    int hold = REQUEST("hold");
    turn(2);
    shutdown(hold, SHUT_WR);
    turn(3);
    CHECK(toy.closed == 0);
    struct record r = {0};
    conn_result(toy.conn, &r);
    CHECK(raw_receive(hold) == WIRE_RESULT);
    close(hold);
    int fd = REQUEST("take");
    turn(2);
    send(fd, "iabc", 4, 0);
    send(fd, "ide", 3, 0);
    shutdown(fd, SHUT_WR);
    run_ms(30);
    CHECK(raw_receive(fd) == WIRE_RESULT);
    CHECK_STR(packet_get("bytes"), "5");
    close(fd);
    int incomplete = REQUEST("echo\0text_size=3");
    shutdown(incomplete, SHUT_WR);
    turn(4);
    CHECK(ends_with_error(incomplete, "protocol"));
    close(incomplete);
    toy_end();
}

static void ends_a_half_closed_client_that_leaves(void)
{
    CHECK(toy_start((struct server_config){0}));
    int fd = REQUEST("hold");
    turn(2);
    shutdown(fd, SHUT_WR);
    turn(3);
    close(fd);
    turn(3);
    CHECK(toy.closed == 1);
    CHECK(server_connection_count(toy.server) == 0);
    toy_end();
}

static void breaks_with_a_client_on_an_unknown_channel(void)
{
    CHECK(toy_start((struct server_config){0}));
    int fd = REQUEST("hold");
    turn(2);
    send(fd, "?x", 2, 0);
    turn(3);
    CHECK(ends_with_error(fd, "protocol"));
    CHECK(toy.closed == 1);
    close(fd);
    fd = REQUEST("hold");
    turn(2);
    send(fd, "", 0, 0); /* an empty packet is not the end */
    turn(3);
    CHECK(ends_with_error(fd, "protocol"));
    CHECK(toy.closed == 2);
    close(fd);
    toy_end();
}

static void queues_rows_behind_a_full_socket(void)
{
    CHECK(toy_start((struct server_config){.client_stall_ms = 1000}));
    int fd = REQUEST("rows");
    int count = 0, channel;
    turn(3);
    for (int i = 0; i < 1000; i++) {
        while ((channel = raw_receive(fd)) == WIRE_ROW)
            count++;
        if (channel != -EAGAIN)
            break;
        turn(1);
    }
    CHECK(count == 4000 && channel == WIRE_RESULT);
    CHECK_STR(packet_get("count"), "4000");
    close(fd);
    turn(2);
    CHECK(server_connection_count(toy.server) == 0);
    fd = REQUEST("endless");
    turn(3);
    CHECK(server_connection_count(toy.server) == 0); /* the queue ran over: dropped */
    close(fd);
    toy_end();
}

static void cuts_records_to_a_packet(void)
{
    CHECK(toy_start((struct server_config){0}));
    int fd = REQUEST("big");
    turn(3);
    CHECK(raw_receive(fd) == WIRE_ROW);
    CHECK_STR(packet_get("truncated"), "true");
    CHECK(raw_receive(fd) == WIRE_RESULT);
    CHECK_STR(packet_get("truncated"), "true");
    CHECK_STR(packet_get("count"), "1");
    close(fd);
    toy_end();
}

static void waits_for_kernel_memory(void)
{
    CHECK(toy_start((struct server_config){.client_stall_ms = 1000}));
    int fd = REQUEST("echo\0text=x");
    failing_sends = 3;
    turn(3);
    CHECK(raw_receive(fd) == -EAGAIN);
    unsigned before = ev_iteration(toy.loop);
    run_ms(220);
    CHECK(failing_sends == 0 && ev_iteration(toy.loop) - before < 20);
    CHECK(raw_receive(fd) == WIRE_RESULT);
    close(fd);
    fd = REQUEST("flood");
    failing_sends = 1;
    turn(3);
    CHECK(raw_receive(fd) == -EAGAIN);
    run_ms(100);
    CHECK(raw_receive(fd) == WIRE_STDOUT);
    close(fd);
    turn(3);
    CHECK(toy.closed == 1 && server_connection_count(toy.server) == 0);
    toy_end();
}

#if HAS_FAILING_MEMORY
/* Each allocation fails in turn: that request fails, with a reason where one can be sent, and the
 * next one is served. */
static void survives_without_memory(void)
{
    if (is_under_valgrind())
        return; /* it has an allocator of its own */
    CHECK(toy_start((struct server_config){.client_stall_ms = 1000}));
    int first = open_fds(), failed = 0;
    for (int n = 1; n < 30; n++) {
        int fd =
            n % 2 ? REQUEST("rows\0a=1\0text=hello") : REQUEST("echo\0args_size=4\0text_size=5");
        memory_until_failure = n;
        turn(4);
        if (n % 2 == 0) {
            send(fd, "aa=1", 5, MSG_NOSIGNAL);
            send(fd, "thello", 6, MSG_NOSIGNAL);
            turn(4);
        }
        memory_until_failure = -1;
        int channel;
        for (int i = 0; i < 100; i++) {
            while ((channel = raw_receive(fd)) > 0)
                failed += channel == WIRE_ERROR;
            turn(1);
        }
        CHECK(channel == 0); /* the connection has ended, one way or the other */
        close(fd);
        turn(2);
        CHECK(server_connection_count(toy.server) == 0 && open_fds() == first);
    }
    CHECK(failed > 0);
    int fd = REQUEST("echo");
    turn(3);
    CHECK(raw_receive(fd) == WIRE_RESULT);
    close(fd);
    toy_end();
}
#endif

/* ---- limits ------------------------------------------------------------------------------ */

static void serves_200_at_once(void)
{
    int fds[200];
    CHECK(toy_start((struct server_config){.max_connections = 200}));
    for (int i = 0; i < 200; i++)
        fds[i] = REQUEST("hold");
    turn(60);
    CHECK(toy.requests == 200);
    CHECK(server_connection_count(toy.server) == 200);
    int more = REQUEST("echo");
    turn(3);
    CHECK(ends_with_error(more, "limit"));
    close(more);
    for (int i = 0; i < 200; i++)
        close(fds[i]);
    turn(10);
    CHECK(toy.closed == 200 && server_connection_count(toy.server) == 0);
    toy_end();
}

static void pauses_accepting_without_descriptors(void)
{
    struct rlimit old, low;
    if (is_under_valgrind())
        return; /* valgrind accepts and closes beyond the limit where the kernel refuses */
    CHECK(toy_start((struct server_config){0}));
    int fd = REQUEST("echo");
    getrlimit(RLIMIT_NOFILE, &old);
    low = old;
    low.rlim_cur = (rlim_t)fd + 1;
    setrlimit(RLIMIT_NOFILE, &low);
    unsigned before = ev_iteration(toy.loop);
    run_ms(60);
    unsigned turns = ev_iteration(toy.loop) - before;
    setrlimit(RLIMIT_NOFILE, &old);
    CHECK(turns < 10); /* it does not spin */
    CHECK(toy.requests == 0);
    run_ms(150);
    CHECK(raw_receive(fd) == WIRE_RESULT);
    close(fd);
    toy_end();
}

static void refuses_other_users(void)
{
    CHECK(toy_start((struct server_config){0}));
    if (getuid() == 0) { /* for real, with a child of another user */
        chmod(toy.dir, 0755);
        chmod(toy.path, 0666);
        pid_t pid = fork();
        if (pid == 0) {
            if (setuid(12345) < 0)
                _exit(1);
            int fd = REQUEST("echo");
            fcntl(fd, F_SETFL, 0);
            _exit(ends_with_error(fd, "denied") ? 0 : 2);
        }
        int status;
        do
            run_ms(10);
        while (waitpid(pid, &status, WNOHANG) == 0);
        CHECK(status == 0);
    }
    CHECK(server_connection_count(toy.server) == 0);
    toy_end();
}

static void serves_an_adopted_descriptor(void)
{
    int pair[2];
    CHECK(toy_start((struct server_config){0}));
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    send(pair[1], "echo\0a=9", 9, 0);
    CHECK(server_adopt(toy.server, pair[0], 0, 1, NULL) == 0);
    CHECK(toy.requests == 1); /* at once: another may be handed over next */
    turn(2);
    CHECK(raw_receive(pair[1]) == WIRE_RESULT);
    CHECK_STR(packet_get("first"), "9");
    close(pair[1]);
    toy_end();
}

/* Who hands a connection over vouches for its user; there is a limit of their own. */
static void adopted_ones_have_a_limit_of_their_own(void)
{
    struct error e = {0};
    int pair[3][2];
    CHECK(toy_start((struct server_config){.max_connections = 1, .max_adopted = 2}));
    int fd = raw_connect();
    turn(2);
    for (int i = 0; i < 3; i++)
        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair[i]) == 0);
    CHECK(server_adopt(toy.server, pair[0][0], getuid() + 77, 1, &e) == 0);
    CHECK(server_adopt(toy.server, pair[1][0], getuid() + 77, 1, &e) == 0);
    CHECK(server_connection_count(toy.server) == 3);
    CHECK(server_adopt(toy.server, pair[2][0], getuid() + 77, 1, &e) == -1);
    CHECK(e.code == ERR_LIMIT);
    CHECK(ends_with_error(pair[2][1], "limit"));
    send(pair[1][1], "echo\0a=9", 9, 0);
    turn(2);
    CHECK(raw_receive(pair[1][1]) == WIRE_RESULT);
    /* The place of one that has ended is free again; those of the socket are not touched. */
    close(pair[0][1]);
    turn(4);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair[0]) == 0);
    CHECK(server_adopt(toy.server, pair[0][0], 0, 1, &e) == 0);
    close(fd);
    turn(4);
    fd = REQUEST("echo");
    turn(2);
    CHECK(raw_receive(fd) == WIRE_RESULT);
    close(fd);
    for (int i = 0; i < 3; i++)
        close(pair[i][1]);
    toy_end();
}

static void leaks_no_descriptor(void)
{
    CHECK(toy_start((struct server_config){.client_stall_ms = 50}));
    int first = open_fds();
    for (int i = 0; i < 300; i++) {
        int fd = i % 3 == 0   ? REQUEST("echo\0text=x")
                 : i % 3 == 1 ? REQUEST("hold")
                              : REQUEST("echo\0text_size=3");
        turn(1 + i % 3);
        close(fd);
        turn(2);
    }
    run_ms(5);
    CHECK(open_fds() == first);
    toy_end();
}

/* ---- the socket's file ------------------------------------------------------------------- */

static void guards_the_socket_file(void)
{
    struct error e = {0};
    struct stat st;
    CHECK(toy_start((struct server_config){0}));
    CHECK(lstat(toy.path, &st) == 0 && (st.st_mode & 07777) == 0600);
    struct server_config second = {.path = toy.path, .on_request = on_request};
    CHECK(server_new(toy.loop, &second, &e) == NULL);
    CHECK(e.code == ERR_EXISTS && strstr(e.text, toy.path));
    unlink(toy.path);
    CHECK(server_rebind(toy.server, &e) == 0); /* gone: bound anew */
    int fd = REQUEST("echo");
    turn(3);
    CHECK(raw_receive(fd) == WIRE_RESULT);
    close(fd);
    unlink(toy.path);
    int file = open(toy.path, O_CREAT | O_WRONLY, 0600);
    close(file);
    CHECK(server_rebind(toy.server, &e) == -1); /* not a socket: never replaced */
    CHECK(e.code == ERR_EXISTS);
    toy_end(); /* leaves what is not ours */
    CHECK(lstat(toy.path, &st) == 0);
    unlink(toy.path);
    rmdir(toy.dir);
}

static void replaces_a_stale_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/tmp/test_server.stale"};
    struct error e = {0};
    struct ev_loop *loop = ev_loop_new(0);
    unlink(address.sun_path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    bind(fd, (struct sockaddr *)&address, sizeof address);
    listen(fd, 1);
    close(fd);
    struct server_config config = {.path = address.sun_path, .on_request = on_request};
    struct server *s = server_new(loop, &config, &e);
    CHECK_STR(e.text, "");
    CHECK(s != NULL);
    server_free(s);
    CHECK(access(address.sun_path, F_OK) < 0);
    char longer[200] = "/tmp/";
    memset(longer + 5, 'x', 110);
    config.path = longer;
    CHECK(server_new(loop, &config, &e) == NULL);
    CHECK(e.code == ERR_INVALID && strstr(e.text, "107"));
    ev_loop_destroy(loop);
}

/* ---- the client library ------------------------------------------------------------------ */

/* Run f in a child against the toy; true if it returns 0. */
static bool in_child(int (*f)(void))
{
    int status = -1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(f());
    do
        run_ms(5);
    while (waitpid(pid, &status, WNOHANG) == 0);
    if (status != 0)
        printf("# child: %d\n", status);
    return status == 0;
}

static char long_text[900000];

/* 200 kB of arguments and 900 kB of text, with NULs. */
static int call_echo(void)
{
    struct client_request q;
    struct error e = {0};
    const char *bytes;
    size_t n, got = 0;
    int channel;
    char value[1001];
    client_request_init(&q, "echo");
    memset(value, 'a', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < 200; i++)
        client_request_add(&q, "arg", value);
    q.text = long_text;
    q.text_len = sizeof long_text;
    struct client *c = client_open(toy.path, &q, &e);
    client_request_free(&q);
    if (!c)
        return 1;
    while ((channel = client_receive(c, &bytes, &n, &e)) == WIRE_STDOUT) {
        if (memcmp(bytes, long_text + got, n) != 0)
            return 2;
        got += n;
    }
    int ok = channel == WIRE_RESULT && strcmp(record_get(bytes, n, "args"), "200") == 0 &&
             strcmp(record_get(bytes, n, "text_len"), "900000") == 0 &&
             strtol(record_get(bytes, n, "sum"), NULL, 10) == sum_of(long_text, sizeof long_text);
    ok = ok && got == 100000;
    ok = ok && client_receive(c, &bytes, &n, &e) == 0;
    client_free(c);
    return ok ? 0 : 3;
}

/* The text is over the limit: init's own reason arrives although the upload breaks. */
static int call_too_long(void)
{
    struct client_request q;
    struct error e = {0};
    const char *bytes;
    size_t n;
    client_request_init(&q, "echo");
    char *text = calloc(8, 1 << 20);
    q.text = text;
    q.text_len = (size_t)8 << 20;
    struct client *c = client_open(toy.path, &q, &e);
    free(text);
    if (!c)
        return 1;
    if (client_receive(c, &bytes, &n, &e) != WIRE_ERROR)
        return 2;
    client_error(bytes, n, &e);
    client_free(c);
    client_request_free(&q);
    return e.code == ERR_TOO_LARGE && strstr(e.text, "8388608") && strstr(e.text, "1048576") ? 0
                                                                                             : 3;
}

/* Input with pauses; then a signal packet ends the run. */
static int call_input(void)
{
    struct client_request q;
    struct error e = {0};
    const char *bytes;
    size_t n;
    client_request_init(&q, "take");
    struct client *c = client_open(toy.path, &q, &e);
    client_request_free(&q);
    for (int i = 0; c && i < 100; i++)
        if (client_send(c, WIRE_STDIN, long_text, 10000, &e) < 0)
            return 1;
    if (!c || client_send(c, WIRE_SIGNAL, NULL, 0, &e) < 0)
        return 2;
    if (client_receive(c, &bytes, &n, &e) != WIRE_RESULT)
        return 3;
    int rc = strcmp(record_get(bytes, n, "input"), "1000000") == 0 ? 0 : 4;
    client_free(c);
    return rc;
}

static void client_library_talks(void)
{
    for (size_t i = 0; i < sizeof long_text; i++)
        long_text[i] = (char)(i * 7 + i / 251);
    CHECK(toy_start((struct server_config){.request_timeout_ms = 5000}));
    CHECK(in_child(call_echo));
    CHECK(in_child(call_too_long));
    CHECK(in_child(call_input));
    CHECK(!toy.was_called_back);
    toy_end();
}

static void client_library_explains(void)
{
    struct client_request q;
    struct error e = {0};
    client_request_init(&q, "status");
    CHECK(client_open("/nonexistent/control.sock", &q, &e) == NULL);
    CHECK_STR(e.text, "cannot reach sandbox-init at /nonexistent/control.sock: No such file or "
                      "directory; is it running? give its socket with -S SOCKET or "
                      "SANDBOX_SOCKET");
    CHECK(e.code == ERR_UNAVAILABLE && e.sys == ENOENT);
    CHECK(client_open("", &q, &e) == NULL);
    client_request_free(&q);
}

/* Clients that die with -9 in the middle of an upload, again and again. */
static void survives_killed_uploads(void)
{
    CHECK(toy_start((struct server_config){.request_timeout_ms = 5000}));
    int first = open_fds();
    for (int i = 0; i < 40; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (;;) {
                int fd = REQUEST("echo\0text_size=1000000");
                fcntl(fd, F_SETFL, 0);
                for (int k = 0; k < 10; k++)
                    (void)send(fd, long_text, 40000, MSG_NOSIGNAL);
                close(fd);
            }
        }
        CHECK(pid > 0); /* kill(-1) would be everybody */
        run_ms(1 + i % 7);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    run_ms(20);
    CHECK(server_connection_count(toy.server) == 0);
    CHECK(open_fds() == first);
    toy_end();
}

int main(void)
{
#if HAS_FAILING_MEMORY
    ev_set_allocator(allocate_for_libev);
#endif
    RUN(answers_a_request);
    RUN(tells_empty_text_from_none);
    RUN(assembles_parts);
    RUN(refuses_malformed_requests);
    RUN(refuses_malformed_continuations);
    RUN(refuses_a_packet_too_large);
    RUN(refuses_an_upload_under_way);
    RUN(bounds_all_uploads_together);
    RUN(times_out_silent_clients);
    RUN(drops_a_client_that_never_reads);
    RUN(keeps_a_client_that_reads_slowly);
    RUN(sends_everything_to_a_reader);
    RUN(notices_a_client_that_leaves);
    RUN(half_close_is_not_leaving);
    RUN(ends_a_half_closed_client_that_leaves);
    RUN(breaks_with_a_client_on_an_unknown_channel);
    RUN(queues_rows_behind_a_full_socket);
    RUN(cuts_records_to_a_packet);
    RUN(waits_for_kernel_memory);
#if HAS_FAILING_MEMORY
    RUN(survives_without_memory);
#endif
    RUN(serves_200_at_once);
    RUN(pauses_accepting_without_descriptors);
    RUN(refuses_other_users);
    RUN(serves_an_adopted_descriptor);
    RUN(adopted_ones_have_a_limit_of_their_own);
    RUN(leaks_no_descriptor);
    RUN(guards_the_socket_file);
    RUN(replaces_a_stale_socket);
    RUN(client_library_talks);
    RUN(client_library_explains);
    RUN(survives_killed_uploads);
    return check_failures != 0;
}
