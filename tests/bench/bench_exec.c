/*
 * What a command through init costs above the least that the design can cost: a program that drives
 * the same shell in the same way (a file with the text, two FIFOs, the orders of sessions/shell.c,
 * the status on a third FIFO) with nothing between. Both run the same text in turn, in blocks, so
 * that a busy machine slows both; medians are printed.
 *
 *     bench_exec SOCKET SESSION FOLDER TEXT SECONDS [HTTP_SOCKET TOKEN]
 *
 * Each command of the other side is a connection of its own, as sandboxctl makes it, without the
 * start of a process. FOLDER is made and removed: the floor's runtime folder, best on the same file
 * system as init's. The `status` verb's time tells how much of it is the control socket. With
 * HTTP_SOCKET the same goes through the gateway too, on one keep-alive connection, and as an argv
 * over the control socket, which is what the gateway asks for.
 */
#include "base/clock.h"
#include "control/client.h"
#include "control/record.h"
#include "control/wire.h"
#include "sessions/driver.h"
#include "tests/bench/http_client.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK   20
#define SAMPLES 200000

struct samples {
    uint32_t ns[SAMPLES];
    size_t count;
};

static struct samples floor_ns, init_ns, status_ns, argv_ns, http_ns;

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

static void add(struct samples *s, uint64_t ns)
{
    if (s->count < SAMPLES)
        s->ns[s->count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void tell(const char *name, struct samples *s)
{
    qsort(s->ns, s->count, sizeof s->ns[0], by_value);
    printf("%s_p50_us=%.1f\n%s_p99_us=%.1f\n%s_count=%zu\n", name, s->ns[s->count / 2] / 1e3, name,
           s->ns[s->count * 99 / 100] / 1e3, name, s->count);
}

/* ---- the floor ---- */

static struct {
    const char *folder;
    int control, status, text;
    pid_t shell;
    unsigned long long sequence;
} least;

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", least.folder, name);
    return path;
}

static void write_driver(void)
{
    FILE *f = fopen(path_of("driver"), "w");
    if (!f)
        die("driver");
    const char *from = driver_bash;
    for (const char *at; (at = strstr(from, "@DIR@")); from = at + 5)
        fprintf(f, "%.*s%s", (int)(at - from), from, least.folder);
    fputs(from, f);
    fclose(f);
}

static void order(const char *lines, int n)
{
    if (write(least.control, lines, (size_t)n) != n)
        die("order");
}

static void await_status(void)
{
    char line[128];
    if (read(least.status, line, sizeof line) <= 0)
        die("status");
    if (strtoull(line, NULL, 10) != least.sequence) {
        fprintf(stderr, "bench_exec: unexpected status %s\n", line);
        exit(1);
    }
}

static void run_shell(int script)
{
    int null = open("/dev/null", O_RDWR);
    char name[] = "bash", file[] = "/proc/self/fd/3", mark[] = "SANDBOX_SESSION=floor";
    char *argv[] = {name, file, NULL}, *envp[] = {mark, NULL};
    setsid();
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    dup2(script, 3);
    execve("/bin/bash", argv, envp);
    _exit(127);
}

static void floor_start(const char *folder)
{
    int ends[2];
    char lines[1024];
    least.folder = folder;
    if (mkdir(folder, 0700) < 0 || mkfifo(path_of("status"), 0600) < 0 ||
        mkfifo(path_of("out"), 0600) < 0 || mkfifo(path_of("err"), 0600) < 0)
        die(folder);
    write_driver();
    least.status = open(path_of("status"), O_RDWR | O_CLOEXEC);
    least.text = open(path_of("text"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (least.status < 0 || least.text < 0 || pipe2(ends, O_CLOEXEC) < 0)
        die("floor");
    least.control = ends[1];
    least.shell = fork();
    if (least.shell == 0)
        run_shell(ends[0]);
    close(ends[0]);
    least.sequence = 1;
    order(lines, snprintf(lines, sizeof lines,
                          "exec 3<&-\nexport PATH=%s\ncommand . %s/driver\n__sb_end 1\n",
                          "/usr/sbin:/usr/bin:/sbin:/bin", folder));
    await_status();
}

static void drain(int fd)
{
    static char bytes[65536];
    int left = 0;
    while (ioctl(fd, FIONREAD, &left) == 0 && left > 0 && read(fd, bytes, sizeof bytes) > 0)
        continue;
    close(fd);
}

static void floor_run(const char *text, size_t n)
{
    char lines[1024];
    const char *d = least.folder;
    /* Not truncated: freeing a block and taking a new one costs as much as the rest together. */
    if (pwrite(least.text, text, n, 0) != (ssize_t)n)
        die("text");
    int out = open(path_of("out"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int err = open(path_of("err"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    order(lines, snprintf(lines, sizeof lines,
                          "__sb_arm 0 ''\n{ \\command . %s/text </dev/null >%s/out 2>%s/err\n"
                          "__sb_end %llu \"$@\"\n}\n",
                          d, d, d, ++least.sequence));
    await_status();
    drain(out);
    drain(err);
}

static void floor_end(void)
{
    static const char *const names[] = {"status", "out", "err", "driver", "text", "state"};
    kill(least.shell, SIGKILL);
    waitpid(least.shell, NULL, 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path_of(names[i]));
    rmdir(least.folder);
}

/* ---- through init ---- */

static void call(const char *socket, const struct client_request *q)
{
    struct error e = {0};
    const char *payload;
    size_t n;
    int channel;
    struct client *c = client_open(socket, q, &e);
    while ((channel = c ? client_receive(c, &payload, &n, &e) : -1) > 0)
        if (channel == WIRE_RESULT || channel == WIRE_ERROR)
            break;
    if (channel == WIRE_ERROR)
        client_error(payload, n, &e);
    if (channel != WIRE_RESULT) {
        fprintf(stderr, "bench_exec: %s\n", e.text);
        exit(1);
    }
    client_free(c);
}

/* ---- through the gateway ---- */

static struct {
    struct bench_http client;
    char headers[256], body[512];
    int length;
} http;

static void http_start(const char *socket, const char *token, const char *session, const char *text)
{
    bench_http_open(&http.client, socket, token);
    snprintf(http.headers, sizeof http.headers, "Session-Id: %s\r\n", session);
    http.length = snprintf(http.body, sizeof http.body, "{\"argv\":[\"%s\"]}", text);
}

static void http_run(void)
{
    char tail[1024];
    bench_http_send(&http.client, "POST", "exec", http.headers, http.body, (uint64_t)http.length);
    bench_http_answer(&http.client, tail, sizeof tail);
    if (!strstr(tail, "\"exit_code\":0")) {
        fprintf(stderr, "bench_exec: over HTTP: %s\n", tail);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 8) {
        fprintf(stderr,
                "usage: bench_exec SOCKET SESSION FOLDER TEXT SECONDS [HTTP_SOCKET TOKEN]\n");
        return 2;
    }
    int kinds = argc == 8 ? 5 : 3;
    const char *socket = argv[1], *text = argv[4];
    uint64_t end_ns = clock_mono_ns() + (uint64_t)(atof(argv[5]) * 1e9);
    struct client_request exec, status, argv_exec;
    client_request_init(&exec, "exec");
    client_request_add(&exec, "session", argv[2]);
    exec.text = text;
    exec.text_len = strlen(text);
    client_request_init(&status, "status");
    client_request_init(&argv_exec, "exec");
    client_request_add(&argv_exec, "session", argv[2]);
    client_request_add(&argv_exec, "arg", text);
    const struct client_request *const requests[] = {NULL, &exec, &status, &argv_exec};
    floor_start(argv[3]);
    if (kinds == 5)
        http_start(argv[6], argv[7], argv[2], text);
    struct samples *const samples[] = {&floor_ns, &init_ns, &status_ns, &argv_ns, &http_ns};
    for (bool is_warm = false; clock_mono_ns() < end_ns; is_warm = true)
        for (int kind = 0; kind < kinds; kind++)
            for (int i = 0; i < BLOCK; i++) {
                uint64_t at = clock_mono_ns();
                if (kind == 0)
                    floor_run(text, strlen(text));
                else if (kind == 4)
                    http_run();
                else
                    call(socket, requests[kind]);
                if (is_warm)
                    add(samples[kind], clock_mono_ns() - at);
            }
    floor_end();
    client_request_free(&exec);
    client_request_free(&status);
    client_request_free(&argv_exec);
    tell("floor", &floor_ns);
    tell("init", &init_ns);
    tell("status", &status_ns);
    if (kinds == 5) {
        tell("argv", &argv_ns);
        tell("http", &http_ns);
        bench_http_close(&http.client);
    }
    return 0;
}
