/* See http_client.h. */
#include "tests/bench/http_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "http client: %s: %s\n", what, strerror(errno));
    exit(1);
}

void bench_http_open(struct bench_http *h, const char *socket_path, const char *token)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", socket_path);
    *h = (struct bench_http){.token = token, .sandbox = "benchbenchbenchbenchbench2"};
    h->buffer = malloc(BENCH_HTTP_BUFFER);
    h->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!h->buffer || h->fd < 0 || connect(h->fd, (struct sockaddr *)&a, sizeof a) < 0)
        die(socket_path);
}

void bench_http_close(struct bench_http *h)
{
    close(h->fd);
    free(h->buffer);
}

static void write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, bytes, n, MSG_NOSIGNAL);
        if (k < 0 && errno != EINTR)
            die("send");
        if (k > 0) {
            bytes += k;
            n -= (size_t)k;
        }
    }
}

void bench_http_send(struct bench_http *h, const char *method, const char *path,
                     const char *headers, const char *body, uint64_t length)
{
    char request[8192];
    int n = snprintf(request, sizeof request,
                     "%s /v1/sandbox/%s/%s HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer %s\r\n%s"
                     "Content-Length: %llu\r\n\r\n",
                     method, h->sandbox, path, h->token, headers, (unsigned long long)length);
    if (n < 0 || (size_t)n + (body ? length : 0) >= sizeof request) {
        errno = E2BIG;
        die(path);
    }
    if (body)
        memcpy(request + n, body, length);
    write_all(h->fd, request, (size_t)n + (body ? (size_t)length : 0));
    if (body)
        return;
    static char zeros[(size_t)1 << 18];
    for (uint64_t left = length; left > 0;) {
        size_t k = left < sizeof zeros ? (size_t)left : sizeof zeros;
        write_all(h->fd, zeros, k);
        left -= k;
    }
}

/* More bytes behind those that are there; the first ones move down if there is no room. */
static void fill(struct bench_http *h)
{
    if (h->from == h->to)
        h->from = h->to = 0;
    if (h->to == BENCH_HTTP_BUFFER) {
        memmove(h->buffer, h->buffer + h->from, h->to - h->from);
        h->to -= h->from;
        h->from = 0;
    }
    ssize_t k = recv(h->fd, h->buffer + h->to, BENCH_HTTP_BUFFER - h->to, 0);
    if (k <= 0)
        die("the connection ended");
    h->to += (size_t)k;
}

static char *line(struct bench_http *h)
{
    for (;;) {
        char *at = h->buffer + h->from;
        char *end = memmem(at, h->to - h->from, "\r\n", 2);
        if (end) {
            *end = '\0';
            h->from = (size_t)(end - h->buffer) + 2;
            return at;
        }
        fill(h);
    }
}

static void keep_tail(char *tail, size_t size, const char *bytes, size_t n)
{
    size_t room = size - 1, have = strlen(tail);
    if (n >= room) {
        memcpy(tail, bytes + n - room, room);
        tail[room] = '\0';
        return;
    }
    size_t drop = have + n > room ? have + n - room : 0;
    memmove(tail, tail + drop, have - drop);
    memcpy(tail + have - drop, bytes, n);
    tail[have - drop + n] = '\0';
}

static void body(struct bench_http *h, uint64_t length, char *tail, size_t n)
{
    while (length > 0) {
        if (h->from == h->to)
            fill(h);
        size_t k = h->to - h->from < length ? h->to - h->from : (size_t)length;
        keep_tail(tail, n, h->buffer + h->from, k);
        h->from += k;
        length -= k;
    }
}

uint64_t bench_http_answer(struct bench_http *h, char *tail, size_t n)
{
    uint64_t length = 0, sum = 0;
    int is_chunked = 0;
    const char *at = line(h);
    *tail = '\0';
    if (strncmp(at, "HTTP/1.1 200", 12) != 0) {
        errno = EPROTO;
        die(at);
    }
    while (*(at = line(h)))
        if (strncasecmp(at, "content-length:", 15) == 0)
            length = strtoull(at + 15, NULL, 10);
        else if (strncasecmp(at, "transfer-encoding:", 18) == 0)
            is_chunked = 1;
    if (!is_chunked) {
        body(h, length, tail, n);
        return length;
    }
    while ((length = strtoull(line(h), NULL, 16)) > 0) {
        body(h, length, tail, n);
        sum += length;
        line(h);
    }
    line(h);
    return sum;
}
