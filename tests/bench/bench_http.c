/*
 * Large bodies through the gateway: a file written, a file read, the output of a command.
 *
 *     bench_http SOCKET TOKEN put PATH BYTES
 *     bench_http SOCKET TOKEN get PATH
 *     bench_http SOCKET TOKEN exec BYTES       of output, as events
 *
 * Prints seconds= and, for get and exec, bytes= of the body.
 */
#include "base/clock.h"
#include "tests/bench/http_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(void)
{
    fprintf(stderr, "usage: bench_http SOCKET TOKEN put PATH BYTES | get PATH | exec BYTES\n");
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return usage();
    struct bench_http h;
    char tail[1024], text[512];
    bench_http_open(&h, argv[1], argv[2]);
    uint64_t begun_ns = clock_mono_ns();
    if (strcmp(argv[3], "put") == 0 && argc == 6) {
        bench_http_send(&h, "PUT", argv[4], "", NULL, strtoull(argv[5], NULL, 10));
    } else if (strcmp(argv[3], "get") == 0) {
        bench_http_send(&h, "GET", argv[4], "", NULL, 0);
    } else if (strcmp(argv[3], "exec") == 0) {
        int n = snprintf(text, sizeof text, "{\"argv\":[\"head\",\"-c\",\"%s\",\"/dev/zero\"]}",
                         argv[4]);
        bench_http_send(&h, "POST", "exec", "", text, (uint64_t)n);
    } else {
        return usage();
    }
    uint64_t bytes = bench_http_answer(&h, tail, sizeof tail);
    printf("seconds=%.6f\nbytes=%llu\n", (double)(clock_mono_ns() - begun_ns) / 1e9,
           (unsigned long long)bytes);
    if (strcmp(argv[3], "exec") == 0 && !strstr(tail, "\"exit_code\":0")) {
        fprintf(stderr, "bench_http: no good end: %s\n", tail);
        return 1;
    }
    bench_http_close(&h);
    return 0;
}
