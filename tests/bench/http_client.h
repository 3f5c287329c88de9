/*
 * The least that an HTTP client of the benches needs: a keep-alive connection to a Unix socket, a
 * request, an answer whose body is counted. It costs little beside the server: one write for a
 * request, one read for what has come, no copies.
 */
#ifndef BENCH_HTTP_CLIENT_H
#define BENCH_HTTP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

struct bench_http {
    int fd;
    const char *token, *sandbox;
    char *buffer; /* of BENCH_HTTP_BUFFER bytes */
    size_t from, to;
};

#define BENCH_HTTP_BUFFER ((size_t)1 << 20)

/* All of these end the program with a message if something is wrong. */
void bench_http_open(struct bench_http *h, const char *socket, const char *token);
void bench_http_close(struct bench_http *h);
/* METHOD /v1/sandbox/ID/PATH with extra header lines ("" or "A: b\r\n") and the body's length. */
void bench_http_send(struct bench_http *h, const char *method, const char *path,
                     const char *headers, const char *body, uint64_t length);
/* Read the answer to its end. Its status must be 200. Returns the bytes of its body; the last ones
 * (at most n - 1) are put to *tail with a NUL. */
uint64_t bench_http_answer(struct bench_http *h, char *tail, size_t n);

#endif
