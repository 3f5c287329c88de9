/*
 * Feeds sequences of packets to the server, through a socketpair and its loop. The input is cut
 * into packets by two length bytes each; a length of 0xffff half-closes, and a first byte below 64
 * lowers the limits so that they are reached. The toy behind the server answers, takes input and
 * pauses it, so that every state of a connection is met.
 */
#include "control/server.h"
#include "control/wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct toy {
    struct conn *conn;
    unsigned packets;
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void on_closed(void *owner)
{
    ((struct toy *)owner)->conn = NULL;
}

static bool on_data(void *owner, char channel, const char *bytes, size_t n)
{
    struct toy *t = owner;
    volatile char sum = channel;
    for (size_t i = 0; i < n; i++)
        sum = (char)(sum ^ bytes[i]);
    if (++t->packets % 5 == 0) {
        struct record r = {0};
        record_int(&r, "packets", t->packets);
        conn_result(t->conn, &r);
        record_free(&r);
        t->conn = NULL;
        return true;
    }
    return t->packets % 3 != 0;
}

static const struct conn_events events = {.on_closed = on_closed, .on_data = on_data};

/* Reads everything that a request promises to hold. */
static void on_request(struct conn *c, struct request *q, void *context)
{
    struct toy *t = context;
    struct field f;
    struct record r = {0};
    size_t at = 0;
    int rc;
    while ((rc = record_next(strbuf_text(&q->args), q->args.len, &at, &f)) > 0)
        record_bytes(&r, "field[]", f.value, strlen(f.value));
    if (rc < 0 || strlen(q->verb) > 64 || q->verb[0] == '\0')
        abort();
    volatile char sum = 0;
    for (size_t i = 0; i < q->text.len; i++)
        sum = (char)(sum ^ q->text.data[i]);
    if (q->verb[0] == 'h') {
        t->conn = c;
        conn_set_owner(c, &events, t);
        conn_note(c, &r);
    } else if (q->verb[0] == 't') {
        struct strbuf text = request_take_text(q);
        strbuf_free(&text);
        conn_result(c, &r);
    } else if (q->verb[0] != 'n') {
        conn_row(c, &r);
        conn_result(c, &r);
    }
    record_free(&r);
}

static void drain(int fd)
{
    static char packet[WIRE_PACKET_MAX];
    while (recv(fd, packet, sizeof packet, MSG_DONTWAIT) > 0)
        ;
}

static void feed(struct ev_loop *loop, struct toy *toy, int fd, const uint8_t *bytes, size_t n)
{
    for (size_t at = 0; at + 2 <= n;) {
        size_t len = (size_t)bytes[at] << 8 | bytes[at + 1];
        at += 2;
        if (len == 0xffff)
            shutdown(fd, SHUT_WR);
        len = len < n - at ? len : n - at;
        (void)send(fd, bytes + at, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        at += len;
        ev_run(loop, EVRUN_NOWAIT);
        if (toy->conn && len % 2)
            conn_resume_input(toy->conn);
        drain(fd);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct ev_loop *loop;
    struct toy toy = {0};
    int pair[2];
    if (!loop)
        loop = ev_loop_new(EVFLAG_AUTO);
    bool is_small = n > 0 && bytes[0] < 64;
    struct server_config config = {.max_adopted = 2,
                                   .text_limit = is_small ? 8 : 1 << 20,
                                   .upload_limit = is_small ? 32 : 1 << 21,
                                   .on_request = on_request,
                                   .context = &toy};
    struct server *s = server_new(loop, &config, NULL);
    if (!s || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    server_adopt(s, pair[0], 0, 1, NULL);
    if (n > 1)
        feed(loop, &toy, pair[1], bytes + 1, n - 1);
    close(pair[1]);
    for (int i = 0; i < 4; i++)
        ev_run(loop, EVRUN_NOWAIT);
    if (server_connection_count(s) != 0) /* whatever it was: the client has left */
        abort();
    server_free(s);
    return 0;
}
