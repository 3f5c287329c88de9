/*
 * How fast the control socket answers: asks for `status` every PERIOD_MS until stdin ends, and
 * prints the median and the longest time from connect to answer.
 *
 *     bench_probe SOCKET PERIOD_MS
 */
#include "base/clock.h"
#include "control/client.h"
#include "control/wire.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define SAMPLES 100000

static double ms[SAMPLES];

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double ask(const char *socket, const struct client_request *q)
{
    struct error e = {0};
    const char *payload;
    size_t n;
    int channel;
    uint64_t at = clock_mono_ns();
    struct client *c = client_open(socket, q, &e);
    while ((channel = c ? client_receive(c, &payload, &n, &e) : -1) > 0)
        if (channel == WIRE_RESULT || channel == WIRE_ERROR)
            break;
    double took = (double)(clock_mono_ns() - at) / 1e6;
    if (channel != WIRE_RESULT) {
        fprintf(stderr, "bench_probe: %s\n", e.text);
        exit(1);
    }
    client_free(c);
    return took;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: bench_probe SOCKET PERIOD_MS\n");
        return 2;
    }
    struct client_request q;
    struct pollfd in = {.fd = 0, .events = POLLIN};
    size_t count = 0;
    client_request_init(&q, "status");
    do
        ms[count++] = ask(argv[1], &q);
    while (count < SAMPLES && poll(&in, 1, atoi(argv[2])) == 0);
    client_request_free(&q);
    qsort(ms, count, sizeof ms[0], by_value);
    printf("count=%zu\np50_ms=%.3f\nmax_ms=%.3f\n", count, ms[count / 2], ms[count - 1]);
    return 0;
}
