/*
 * Files over HTTP, the parts that can be tried without a box: the wire of the file helper, the
 * gateway's side of it against a helper that lies, dies and floods, ranges, tar headers.
 */
#include "base/fd.h"
#include "gateway/files.h"
#include "gateway/helper_tar.h"
#include "gateway/helper_wire.h"
#include "gateway/http_range.h"
#include "tests/unit/check.h"
#include "tests/unit/run_loop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static unsigned long long seed = 20261130;
static unsigned draw(unsigned below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((seed >> 33) % below);
}

static unsigned open_descriptors(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* ---- the wire ------------------------------------------------------------------------------- */

static int pair[2];
static void open_pair(void)
{
    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair);
}

/* A packet with any number of descriptors. */
static void send_descriptors(int sock, const char *bytes, size_t n, unsigned count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {0};
    struct iovec iov = {(void *)(size_t)bytes, n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count > 0) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        for (unsigned i = 0; i < count; i++)
            memcpy(CMSG_DATA(c) + i * sizeof(int), &(int){2}, sizeof(int));
    }
    (void)!sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static char packet[HELPER_PACKET_MAX];

static void takes_packets_and_descriptors(void)
{
    int fd;
    unsigned before = open_descriptors();
    open_pair();
    CHECK(helper_receive(pair[0], packet, &fd) < 0 && errno == EAGAIN && fd == -1);
    CHECK(helper_send(pair[1], HELPER_DATA, "abc", 3, -1) == 0);
    CHECK(helper_receive(pair[0], packet, &fd) == 4 && fd == -1 && memcmp(packet, "dabc", 4) == 0);
    CHECK(helper_send(pair[1], HELPER_BEGIN, NULL, 0, 2) == 0);
    CHECK(helper_receive(pair[0], packet, &fd) == 1 && fd > 2);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    fd_close(&fd);
    CHECK(helper_send(pair[1], HELPER_DATA, packet, HELPER_DATA_MAX, -1) == 0);
    CHECK(helper_receive(pair[0], packet, &fd) == HELPER_PACKET_MAX);
    CHECK(helper_send(pair[1], HELPER_DATA, packet, HELPER_DATA_MAX + 1, -1) < 0);
    close(pair[1]);
    CHECK(helper_receive(pair[0], packet, &fd) == 0);
    CHECK(helper_send(pair[0], HELPER_DATA, "x", 1, -1) < 0 && errno == EPIPE);
    close(pair[0]);
    CHECK(open_descriptors() == before);
}

static void refuses_what_is_no_packet(void)
{
    static char large[HELPER_PACKET_MAX + 1];
    unsigned before = open_descriptors();
    int fd;
    open_pair();
    send_descriptors(pair[1], large, sizeof large, 0);
    CHECK(helper_receive(pair[0], packet, &fd) < 0 && errno == EPROTO);
    send_descriptors(pair[1], large, sizeof large, 1);
    CHECK(helper_receive(pair[0], packet, &fd) < 0 && errno == EPROTO && fd == -1);
    for (unsigned count = 2; count <= 16; count++) {
        send_descriptors(pair[1], "b", 1, count);
        CHECK(helper_receive(pair[0], packet, &fd) < 0 && errno == EPROTO && fd == -1);
    }
    close(pair[0]);
    close(pair[1]);
    CHECK(open_descriptors() == before);
}

static void reads_numbers(void)
{
    static const char r[] = "a:=5\0b=-1\0c=x\0d:=99999999999999999999\0e=7\0";
    size_t n = sizeof r - 1;
    CHECK(helper_is_record(r, n) && !helper_is_record(r, n - 1) && helper_is_record("", 0));
    CHECK(!helper_is_record("novalue", 8) && !helper_is_record("=x", 3));
    CHECK(helper_number(r, n, "a", 10, -1) == 5 && helper_number(r, n, "a", 4, -1) == -1);
    CHECK(helper_number(r, n, "b", 10, 3) == 3 && helper_number(r, n, "c", 10, 3) == 3);
    CHECK(helper_number(r, n, "d", INT64_MAX, 3) == 3 && helper_number(r, n, "e", 7, 3) == 7);
    CHECK(helper_number(r, n, "none", 7, 3) == 3);
}

/* ---- a helper that lies --------------------------------------------------------------------- */

static struct ev_loop *loop;
static int hand_overs, to_gateway = -1; /* the helper's end */
static bool has_no_init;

/* In the place of upstream.c: init starts the helper, which is this test. */
int upstream_hand_over(struct upstream *u, char what, struct error *e)
{
    int fds[2];
    (void)u;
    if (what != UPSTREAM_FILES || has_no_init)
        return error_set(e, ERR_UNAVAILABLE, "no init");
    hand_overs++;
    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds);
    fd_close(&to_gateway);
    to_gateway = fds[1];
    return fds[0];
}

void upstream_tell_trouble(struct upstream *u, const char *text)
{
    (void)u;
    (void)text;
}

static struct heard {
    unsigned begins, packets, ends;
    bool has_error, is_closing;
    int sys;
    char text[640];
    struct file_call *call;
} heard;

static void on_begin(void *owner, const char *record, size_t n, int fd)
{
    struct heard *h = owner;
    (void)record;
    (void)n;
    h->begins++;
    fd_close(&fd);
    if (h->is_closing)
        file_call_close(h->call);
}

static bool on_packet(void *owner, char channel, const char *bytes, size_t n)
{
    struct heard *h = owner;
    h->packets++;
    h->has_error |= channel != HELPER_DATA && channel != HELPER_ROW;
    for (size_t i = 0; i < n; i++)
        h->sys += bytes[i]; /* touched, for the sanitizer */
    return true;
}

static void on_end(void *owner, const char *record, size_t n, const struct error *e)
{
    struct heard *h = owner;
    (void)record;
    (void)n;
    h->ends++;
    h->call = NULL;
    h->has_error = e != NULL;
    h->sys = e ? e->sys : 0;
    snprintf(h->text, sizeof h->text, "%s", e ? e->text : "");
}

static const struct file_events events = {
    .on_begin = on_begin, .on_packet = on_packet, .on_end = on_end};
static struct files *files;

static struct file_call *ask(void)
{
    struct record q = {0};
    struct error e = {0};
    record_str(&q, "op", "open");
    heard = (struct heard){0};
    heard.call = files_call(files, &q, &events, &heard, &e);
    return heard.call;
}

/* The worker's end of the last call, its request read. */
static int take_connection(void)
{
    int fd, none;
    static char bytes[HELPER_PACKET_MAX];
    if (helper_receive(to_gateway, bytes, &fd) != 1 || bytes[0] != HELPER_CONNECTION)
        return -1;
    if (helper_receive(fd, bytes, &none) < 1 || bytes[0] != HELPER_REQUEST)
        fd_close(&fd);
    if (fd >= 0)
        fd_set_nonblock(fd);
    return fd;
}

static const struct {
    const char *packets[5]; /* "!" hangs up */
    const char *text;       /* of the error; NULL: fine */
} conversations[] = {
    {{"e"}, NULL},
    {{"b", "ddata", "la=b", "e"}, NULL},
    {{"!"}, "the file helper has ended"},
    {{"b", "!"}, "the file helper has ended"},
    {{"xerrno:=13"}, "the file helper failed"},
    {{"ddata"}, "the file helper answered out of order"},
    {{"b", "b"}, "the file helper answered out of order"},
    {{"b", "lmalformed"}, "the file helper answered out of order"},
    {{"bmalformed"}, "the file helper answered out of order"},
    {{"emalformed"}, "the file helper answered out of order"},
    {{"z"}, "the file helper answered out of order"},
    {{"q"}, "the file helper answered out of order"},
};

static void believes_no_helper(void)
{
    for (size_t i = 0; i < sizeof conversations / sizeof conversations[0]; i++) {
        CHECK(ask());
        int fd = take_connection();
        CHECK(fd >= 0);
        for (size_t k = 0; k < 5 && conversations[i].packets[k]; k++) {
            const char *p = conversations[i].packets[k];
            if (strcmp(p, "!") == 0)
                fd_close(&fd);
            else /* records end with a NUL */
                send_descriptors(fd, p, strlen(p) + (p[1] && strchr(p, '=') ? 1 : 0), 0);
        }
        run_loop(loop, 0.01);
        if (heard.ends != 1 || heard.has_error != (conversations[i].text != NULL))
            CHECK_FAIL("conversation %zu: %u ends, error %d", i, heard.ends, heard.has_error);
        if (conversations[i].text)
            CHECK_STR(heard.text, conversations[i].text);
        fd_close(&fd);
    }
}

/* Any packets, descriptors among them, from any number of workers; the gateway may hang up, too. */
static void survives_any_packets(void)
{
    static const char channels[] = "bbbddlleexzq";
    static char bytes[70000];
    unsigned before = open_descriptors();
    for (unsigned i = 0; i < 600; i++) {
        CHECK(ask());
        heard.is_closing = draw(8) == 0;
        int fd = take_connection();
        CHECK(fd >= 0);
        for (unsigned k = draw(6); k > 0; k--) {
            size_t n = 1 + draw(draw(20) ? 40 : 70000);
            for (size_t at = 0; at < n && at < 200; at++)
                bytes[at] = (char)draw(256);
            bytes[0] = channels[draw(sizeof channels - 1)];
            if (draw(3) && n < 40) {
                n = (size_t)snprintf(bytes + 1, 60, "errno:=%u", draw(100000)) + 2;
            }
            send_descriptors(fd, bytes, n, draw(10) == 0 ? draw(4) : draw(2));
        }
        if (draw(50) == 0) /* the helper itself dies */
            fd_close(&to_gateway);
        fd_close(&fd);
        if (draw(4) == 0 && heard.call && !heard.is_closing) {
            file_call_close(heard.call);
            continue;
        }
        ev_run(loop, EVRUN_NOWAIT);
        ev_run(loop, EVRUN_NOWAIT);
        run_loop(loop, 0.0005);
        CHECK(heard.ends == 1 || heard.is_closing || heard.begins > 0);
        if (heard.call && !(heard.is_closing && heard.begins > 0))
            run_loop(loop, 0.01);
        CHECK(heard.ends <= 1 && (heard.is_closing || heard.ends == 1));
    }
    run_loop(loop, 0.01);
    CHECK(open_descriptors() <= before + 2);
}

static void starts_a_new_helper(void)
{
    CHECK(ask());
    fd_close(&to_gateway); /* with the connection in its socket */
    run_loop(loop, 0.01);
    CHECK(heard.ends == 1 && heard.has_error);
    int count = hand_overs;
    CHECK(ask() && hand_overs == count + 1);
    int fd = take_connection();
    CHECK(fd >= 0);
    send_descriptors(fd, "e", 1, 0);
    run_loop(loop, 0.01);
    CHECK(heard.ends == 1 && !heard.has_error);
    close(fd);
    /* without the loop having seen that it is gone */
    fd_close(&to_gateway);
    CHECK(ask() && hand_overs == count + 2);
    file_call_close(heard.call);
    fd_close(&to_gateway);
    has_no_init = true;
    run_loop(loop, 0.01);
    CHECK(!ask() && heard.ends == 0);
    has_no_init = false;
}

static void queues_what_has_no_room(void)
{
    enum { MANY = 2000 };
    static struct heard all[MANY];
    unsigned served = 0;
    for (unsigned i = 0; i < MANY; i++) {
        struct record q = {0};
        struct error e = {0};
        record_str(&q, "op", "stat");
        all[i] = (struct heard){0};
        all[i].call = files_call(files, &q, &events, &all[i], &e);
        CHECK(all[i].call);
    }
    for (unsigned turn = 0; turn < 1000 && served < MANY; turn++) {
        int fd;
        while ((fd = take_connection()) >= 0) {
            send_descriptors(fd, "e", 1, 0);
            close(fd);
            served++;
        }
        run_loop(loop, 0.002);
    }
    CHECK(served == MANY);
    run_loop(loop, 0.05);
    for (unsigned i = 0; i < MANY; i++)
        CHECK(all[i].ends == 1 && !all[i].has_error);
}

static void sends_content_in_order(void)
{
    static char content[32 << 20];
    static char bytes[HELPER_PACKET_MAX];
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (char)(i * 7 + i / 251);
    CHECK(ask());
    int fd = take_connection();
    CHECK(fd >= 0);
    CHECK(!file_call_send(heard.call, content, sizeof content)); /* more than a socket holds */
    file_call_finish(heard.call);
    size_t at = 0;
    bool has_ended = false;
    for (unsigned turn = 0; turn < 20000 && !has_ended; turn++) {
        int none;
        ssize_t n;
        while ((n = helper_receive(fd, bytes, &none)) > 0 && bytes[0] == HELPER_DATA) {
            CHECK(at + (size_t)n - 1 <= sizeof content);
            CHECK(memcmp(content + at, bytes + 1, (size_t)n - 1) == 0);
            at += (size_t)n - 1;
        }
        has_ended = n == 1 && bytes[0] == HELPER_END;
        run_loop(loop, 0.001);
    }
    CHECK(has_ended && at == sizeof content);
    send_descriptors(fd, "e", 1, 0);
    close(fd);
    run_loop(loop, 0.01);
    CHECK(heard.ends == 1 && !heard.has_error);
}

/* ---- ranges --------------------------------------------------------------------------------- */

static void parses_ranges(void)
{
    static const struct {
        const char *header;
        int64_t size;
        int rc;
        int64_t offset, length;
    } rows[] = {{"bytes=0-", 10, 1, 0, 10},
                {"BYTES=9-9", 10, 1, 9, 1},
                {"bytes=-3", 10, 1, 7, 3},
                {"bytes=-30", 10, 1, 0, 10},
                {"bytes=2-100", 10, 1, 2, 8},
                {"bytes=10-", 10, -1, 0, 0},
                {"bytes=-0", 10, -1, 0, 0},
                {"bytes=0-0", 0, -1, 0, 0},
                {"bytes=-5", 0, -1, 0, 0},
                {"bytes=5-4", 10, 0, 0, 0},
                {"bytes=-", 10, 0, 0, 0},
                {"bytes=", 10, 0, 0, 0},
                {"bytes=1", 10, 0, 0, 0},
                {"bytes=1-2,4-5", 10, 0, 0, 0},
                {"bytes=1-2x", 10, 0, 0, 0},
                {"bytes=--1", 10, 0, 0, 0},
                {"items=0-1", 10, 0, 0, 0},
                {"bytes=9223372036854775807-", 10, -1, 0, 0},
                {"bytes=0-9223372036854775807", 10, 1, 0, 10},
                {"bytes=9223372036854775808-", 10, 0, 0, 0},
                {"bytes= 1-2 ", 10, 1, 1, 2},
                {NULL, 10, 0, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct range r = {0, 0};
        if (range_parse(rows[i].header, rows[i].size, &r) != rows[i].rc ||
            r.offset != rows[i].offset || r.length != rows[i].length)
            CHECK_FAIL("%s of %d", rows[i].header ? rows[i].header : "(none)", (int)rows[i].size);
    }
    CHECK(etag_matches("\"a\"", "\"a\"") && etag_matches(" \"b\" , W/\"a\"", "\"a\""));
    CHECK(etag_matches("*", "\"a\"") && !etag_matches("\"ab\", \"\"", "\"a\""));
    CHECK(!etag_matches("", "\"a\"") && !etag_matches(NULL, "\"a\""));
    char t[HTTP_TIME_SIZE];
    CHECK_STR(http_time(784111777, t), "Sun, 06 Nov 1994 08:49:37 GMT");
    CHECK_STR(http_time(-5, t), "Thu, 01 Jan 1970 00:00:00 GMT");
}

/* ---- tar ------------------------------------------------------------------------------------ */

static void writes_tar_headers(void)
{
    struct stat st = {
        .st_mode = S_IFREG | 04755, .st_size = 5, .st_mtime = 1000000000, .st_uid = 1};
    char path[2000] = "./";
    for (size_t n = 1; n < sizeof path - 3; n++) {
        path[1 + n] = n % 90 == 0 ? '/' : 'p';
        path[2 + n] = '\0';
        if (path[1 + n] == '/')
            continue;
        struct strbuf out = {0};
        CHECK(tar_add_member(&out, path, &st, NULL) == 0 && out.len % TAR_BLOCK == 0);
        const char *last = out.data + out.len - TAR_BLOCK;
        if (out.len == TAR_BLOCK) { /* prefix and name make the path */
            char whole[300];
            snprintf(whole, sizeof whole, "%.155s%s%.100s", last + 345, last[345] ? "/" : "", last);
            CHECK_STR(whole, path);
        } else {
            CHECK(out.data[156] == 'x' && memmem(out.data, out.len, path, strlen(path)));
            CHECK(n + 2 > 100);
        }
        CHECK(last[156] == '0' && strcmp(last + 100, "0004755") == 0);
        CHECK(strcmp(last + 124, "00000000005") == 0 && strcmp(last + 136, "07346545000") == 0);
        strbuf_free(&out);
    }
    struct strbuf out = {0};
    st.st_size = (int64_t)9 << 30;
    CHECK(tar_add_member(&out, "./big", &st, NULL) == 0 && out.len == TAR_BLOCK);
    CHECK((unsigned char)out.data[124] == 0x80 && out.data[131] == 2 && out.data[132] == 0x40);
    strbuf_free(&out);
}

int main(void)
{
    struct error e = {0};
    loop = ev_loop_new(EVFLAG_AUTO);
    files = files_new(loop, (struct upstream *)&e, &e);
    RUN(takes_packets_and_descriptors);
    RUN(refuses_what_is_no_packet);
    RUN(reads_numbers);
    RUN(believes_no_helper);
    RUN(starts_a_new_helper);
    RUN(queues_what_has_no_room);
    RUN(sends_content_in_order);
    RUN(survives_any_packets);
    RUN(parses_ranges);
    RUN(writes_tar_headers);
    files_free(files);
    fd_close(&to_gateway);
    ev_loop_destroy(loop);
    return check_failures;
}
