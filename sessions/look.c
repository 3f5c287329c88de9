#include "sessions/look.h"
#include "config/config.h"
#include "sessions/shell_family.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_NS 50000000L /* until a full socket is tried again */

static int look_for_file(const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0)
        return 0;
    puts(strerror(errno));
    return 1;
}

/* A socket whose queue is full is waited for; who started this has a clock. */
static int connect_patiently(int fd, const struct sockaddr_un *to)
{
    const struct timespec pause = {.tv_nsec = AGAIN_NS};
    bool is_told = false;
    for (;;) {
        if (connect(fd, (const struct sockaddr *)to, sizeof *to) == 0)
            return 0;
        if (errno != EAGAIN && errno != EINTR)
            return -1;
        if (errno == EAGAIN && !is_told) {
            puts("its queue is full");
            fflush(stdout);
            is_told = true;
        }
        nanosleep(&pause, NULL);
    }
}

static int look_for_listener(const char *path)
{
    /* It may be of any of these kinds. */
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path)
        return 2;
    memcpy(to.sun_path, path, strlen(path) + 1);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        int fd = socket(AF_UNIX, types[i] | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int sys = fd < 0 || connect_patiently(fd, &to) < 0 ? errno : 0;
        if (fd >= 0)
            close(fd);
        if (sys == 0)
            return 0;
        errno = sys;
        if (sys != EPROTOTYPE)
            break;
    }
    puts(strerror(errno));
    return 1;
}

static int tell_owner(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return 1;
    printf("%llu %llu %llu\n", (unsigned long long)st.st_uid, (unsigned long long)st.st_gid,
           (unsigned long long)st.st_dev);
    return 0;
}

static int tell_shell(const char *path)
{
    char family[SHELL_FAMILY_SIZE];
    shell_family_find(path, family);
    puts(family);
    return 0;
}

int look_main(int count, char **args)
{
    if (count == 2 && strcmp(args[0], LOOK_FILE) == 0)
        return look_for_file(args[1]);
    if (count == 2 && strcmp(args[0], LOOK_UNIX) == 0)
        return look_for_listener(args[1]);
    if (count == 2 && strcmp(args[0], LOOK_OWNER) == 0)
        return tell_owner(args[1]);
    if (count == 2 && strcmp(args[0], LOOK_SHELL) == 0)
        return tell_shell(args[1]);
    if (count == 2 && strcmp(args[0], LOOK_CONFIG) == 0)
        return config_record(args[1], STDOUT_FILENO) < 0;
    return 2;
}
