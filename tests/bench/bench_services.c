/*
 * What the services of the bench run: a program that says when it runs, and a probe.
 *
 *     bench_services mark FILE [chat]
 *     bench_services probe PORT
 *
 * mark writes the time (CLOCK_MONOTONIC, ns) into FILE and waits; with chat it prints a line every
 * 100 ms. At SIGTERM it writes the time into FILE.end and ends with 0. probe ends with 0 if a
 * connection to 127.0.0.1:PORT is accepted, else with 1.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int write_time(const char *file, const char *suffix)
{
    char path[4096], temporary[4200];
    struct timespec now;
    snprintf(path, sizeof path, "%s%s", file, suffix);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *f = fopen(temporary, "w");
    if (!f)
        return -1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    fprintf(f, "%lld\n", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    return fclose(f) == 0 && rename(temporary, path) == 0 ? 0 : -1;
}

static int mark(const char *file, int chats)
{
    sigset_t term;
    const struct timespec pause = {.tv_nsec = chats ? 100000000 : 0, .tv_sec = chats ? 0 : 3600};
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    if (write_time(file, "") < 0)
        return 1;
    while (sigtimedwait(&term, NULL, &pause) != SIGTERM) {
        if (chats && puts("a line of a service, as long as many are") >= 0)
            fflush(stdout);
    }
    return write_time(file, ".end") < 0;
}

static int probe(const char *port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(fd, (const struct sockaddr *)&to, sizeof to) < 0;
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "mark") == 0)
        return mark(argv[2], argc > 3);
    if (argc == 3 && strcmp(argv[1], "probe") == 0)
        return probe(argv[2]);
    return 2;
}
