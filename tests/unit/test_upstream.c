/* gateway/upstream.h over a socketpair, with the server of the control socket and with a scripted
 * peer in the place of init. */
#include "base/fd.h"
#include "control/record.h"
#include "control/server.h"
#include "control/wire.h"
#include "gateway/upstream.h"
#include "tests/unit/check.h"
#include "tests/unit/run_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* The two ends, and what the owner of a call heard. */
static struct ev_loop *loop;
static struct upstream *upstream;
static struct server *server;
static int ends[2];
static int lost;

struct heard {
    struct call *call;
    struct strbuf packets; /* "o:text " … */
    char end;              /* channel + 1; 0: none yet */
    int ends, idles;
    char error[640];
    size_t bytes;
    bool pauses, closes;
    int writable;
};

static bool on_packet(void *owner, char channel, const char *bytes, size_t n)
{
    struct heard *h = owner;
    h->bytes += n;
    if (n < 40)
        strbuf_addf(&h->packets, "%c:%.*s ", channel, (int)n, bytes);
    if (h->closes)
        call_close(h->call);
    return !h->pauses;
}

static void on_end(void *owner, char channel, const char *bytes, size_t n, const struct error *e)
{
    struct heard *h = owner;
    h->ends++;
    h->end = (char)(channel + 1);
    snprintf(h->error, sizeof h->error, "%s", e ? e->text : "");
    if (channel)
        strbuf_addf(&h->packets, "%c:%.*s", channel, (int)n, bytes);
    ev_break(loop, EVBREAK_ONE);
}

static void on_writable(void *owner)
{
    struct heard *h = owner;
    h->writable++;
}

static void on_idle(void *owner)
{
    struct heard *h = owner;
    h->idles++;
}

static const struct call_events events = {
    .on_packet = on_packet, .on_end = on_end, .on_writable = on_writable, .on_idle = on_idle};

static void on_lost(void *context)
{
    (void)context;
    lost++;
}

static void begin(void)
{
    struct error e;
    lost = 0;
    loop = ev_loop_new(0);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0)
        upstream = upstream_new(loop, ends[0], on_lost, NULL, &e);
}

static void end(void)
{
    upstream_free(upstream);
    server_free(server);
    server = NULL;
    fd_close(&ends[0]);
    fd_close(&ends[1]);
    ev_loop_destroy(loop);
}

/* What init does: take a descriptor off its socket; -1 if there is none. */
static int take(char *what)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {what, 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    int fd = -1;
    if (recvmsg(ends[1], &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1)
        return -1;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static struct call *ask(struct heard *h, const char *verb, const char *text, size_t n)
{
    struct client_request q;
    struct error e = {0};
    client_request_init(&q, verb);
    client_request_add(&q, "k", "v");
    q.text = text;
    q.text_len = n;
    h->call = call_open(upstream, &q, &events, h, &e);
    client_request_free(&q);
    return h->call;
}

static void say(int fd, const char *packet, size_t n)
{
    if (send(fd, packet, n, MSG_NOSIGNAL) < 0)
        perror("send");
}

static void test_a_request_is_there_when_its_descriptor_comes(void)
{
    struct heard h = {0};
    char what = 0, packet[100] = {0};
    begin();
    CHECK(ask(&h, "status", "hi", 2));
    int fd = take(&what);
    CHECK(fd >= 0 && what == 'c');
    CHECK(recv(fd, packet, sizeof packet, 0) == 19);
    CHECK(memcmp(packet, "status\0k=v\0text=hi", 19) == 0);
    say(fd, "oout", 4);
    say(fd, "eerr", 4);
    say(fd, "rstatus:=0", 11);
    run_loop(loop, 5);
    CHECK_STR(strbuf_text(&h.packets), "o:out e:err r:status:=0");
    CHECK(h.ends == 1 && h.end == WIRE_RESULT + 1);
    CHECK(recv(fd, packet, sizeof packet, MSG_DONTWAIT) == 0); /* hung up */
    close(fd);
    strbuf_free(&h.packets);
    end();
}

static void test_ends_that_are_errors(void)
{
    struct heard refused = {0}, cut = {0}, broken = {0};
    static const char error[] = "xcode=not_found\0errno:=0\0message=no such thing";
    char what;
    begin();
    CHECK(ask(&refused, "a", NULL, 0) && ask(&cut, "b", NULL, 0) && ask(&broken, "c", NULL, 0));
    int fds[3] = {take(&what), take(&what), take(&what)};
    say(fds[0], error, sizeof error);
    close(fds[0]);
    close(fds[1]);
    say(fds[2], "\x01x", 2);
    for (int i = 0; i < 3; i++)
        run_loop(loop, 5);
    CHECK(refused.ends == 1 && cut.ends == 1 && broken.ends == 1);
    CHECK(refused.end == 1 && cut.end == 1 && broken.end == 1);
    CHECK_STR(refused.error, "no such thing");
    CHECK_STR(cut.error, "sandbox-init closed the connection without an answer");
    CHECK(strstr(broken.error, "malformed packet"));
    close(fds[2]);
    end();
}

static void test_a_paused_call_takes_nothing_until_it_is_resumed(void)
{
    struct heard h = {.pauses = true};
    char what;
    begin();
    CHECK(ask(&h, "logs", NULL, 0));
    int fd = take(&what);
    say(fd, "o1", 2);
    say(fd, "o2", 2);
    say(fd, "r", 1);
    run_loop(loop, 0.05);
    CHECK_STR(strbuf_text(&h.packets), "o:1 ");
    CHECK(h.idles == 1);
    h.pauses = false;
    call_resume(h.call);
    run_loop(loop, 5);
    CHECK_STR(strbuf_text(&h.packets), "o:1 o:2 r:");
    close(fd);
    strbuf_free(&h.packets);
    end();
}

static void test_a_call_may_be_closed_from_inside(void)
{
    struct heard h = {.closes = true};
    char what, byte;
    begin();
    CHECK(ask(&h, "logs", NULL, 0));
    int fd = take(&what);
    CHECK(recv(fd, &byte, 1, 0) == 1);
    say(fd, "o1", 2);
    say(fd, "r", 1);
    run_loop(loop, 0.05);
    CHECK(h.ends == 0 && h.bytes == 1);
    errno = 0;
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN);
    close(fd);
    strbuf_free(&h.packets);
    end();
}

static void on_request(struct conn *c, struct request *r, void *context)
{
    struct record answer = {0};
    size_t *length = context;
    *length = r->text.len;
    record_str(&answer, "verb", r->verb);
    record_int(&answer, "bytes", (int64_t)r->text.len);
    conn_result(c, &answer);
    record_free(&answer);
}

static void on_socket(struct ev_loop *l, ev_io *w, int revents)
{
    (void)l;
    (void)revents;
    struct error e;
    char what;
    for (int fd; (fd = take(&what)) >= 0;)
        if (server_adopt(w->data, fd, getuid(), getpid(), &e) < 0)
            fprintf(stderr, "adopt: %s\n", e.text);
}

static struct server *serve(ev_io *io, size_t *length)
{
    struct error e;
    struct server_config config = {.allowed_uid = getuid(),
                                   .max_connections = 4096,
                                   .max_adopted = 4096,
                                   .text_limit = 8 << 20,
                                   .upload_limit = 16 << 20,
                                   .request_timeout_ms = 10000,
                                   .client_stall_ms = 10000,
                                   .on_request = on_request,
                                   .context = length};
    server = server_new(loop, &config, &e);
    ev_io_init(io, on_socket, ends[1], EV_READ);
    io->data = server;
    ev_io_start(loop, io);
    return server;
}

/* Longer than a socket's buffer, with NUL bytes; the caller's copy goes at once. */
static void test_a_long_text_goes_in_pieces(void)
{
    struct heard h = {0};
    size_t length = 0, n = 3 << 20;
    ev_io io;
    begin();
    CHECK(serve(&io, &length));
    char *text = calloc(1, n);
    CHECK(ask(&h, "exec", text, n));
    memset(text, 'x', n);
    free(text);
    CHECK(!call_send(h.call, WIRE_STDIN, "x", 1)); /* not before the request is sent */
    run_loop(loop, 10);
    CHECK(h.end == WIRE_RESULT + 1);
    CHECK(h.writable == 1 && length == n);
    ev_io_stop(loop, &io);
    strbuf_free(&h.packets);
    end();
}

/* More than init's socket holds before init looks. */
static void test_many_calls_at_once(void)
{
    enum { COUNT = 600 };
    static struct heard h[COUNT];
    size_t length;
    ev_io io;
    begin();
    for (int i = 0; i < COUNT; i++)
        CHECK(ask(&h[i], "status", NULL, 0));
    CHECK(serve(&io, &length));
    int done = 0;
    for (int round = 0; round < 2 * COUNT && done < COUNT; round++) {
        run_loop(loop, 1);
        done = 0;
        for (int i = 0; i < COUNT; i++)
            done += h[i].ends;
    }
    CHECK(done == COUNT);
    for (int i = 0; i < COUNT; i++) {
        CHECK(h[i].ends == 1 && h[i].end == WIRE_RESULT + 1);
        strbuf_free(&h[i].packets);
    }
    ev_io_stop(loop, &io);
    end();
}

static void test_the_loss_of_init_is_told_once(void)
{
    struct heard h = {0};
    struct error e = {0};
    begin();
    CHECK(ask(&h, "wait", NULL, 0));
    fd_close(&ends[1]); /* with the call's descriptor in it */
    for (int i = 0; i < 3; i++)
        run_loop(loop, 0.02);
    CHECK(lost == 1 && h.ends == 1 && h.end == 1);
    CHECK(!ask(&h, "wait", NULL, 0));
    CHECK(upstream_hand_over(upstream, UPSTREAM_FILES, &e) < 0 && e.code == ERR_UNAVAILABLE);
    end();
}

static void test_a_helper_is_asked_for(void)
{
    struct error e;
    char what = 0, byte;
    begin();
    int mine = upstream_hand_over(upstream, UPSTREAM_FILES, &e);
    int theirs = take(&what);
    CHECK(mine >= 0 && theirs >= 0 && what == 'f');
    CHECK(fcntl(mine, F_GETFD) == FD_CLOEXEC && (fcntl(mine, F_GETFL) & O_NONBLOCK));
    say(theirs, "x", 1);
    CHECK(recv(mine, &byte, 1, 0) == 1 && byte == 'x');
    close(mine);
    close(theirs);
    end();
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_a_request_is_there_when_its_descriptor_comes),
        CHECK_TEST(test_ends_that_are_errors),
        CHECK_TEST(test_a_paused_call_takes_nothing_until_it_is_resumed),
        CHECK_TEST(test_a_call_may_be_closed_from_inside),
        CHECK_TEST(test_a_long_text_goes_in_pieces),
        CHECK_TEST(test_many_calls_at_once),
        CHECK_TEST(test_the_loss_of_init_is_told_once),
        CHECK_TEST(test_a_helper_is_asked_for),
    };
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
