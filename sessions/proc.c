/*
 * /proc about other processes. Each read is one file, opened, read in bounded pieces and closed;
 * what a process has put there itself (its name, its environment) is never trusted to be text.
 *
 * Children are listed per thread (case F10): a child is in the file of the thread that forked it,
 * or that adopted it. The kernel promises an exact list only while neither the parent nor its
 * children change (proc(5)), so a caller that needs all of them stops the parent and lists again.
 */
#include "sessions/proc.h"
#include "base/clock.h"
#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES        64
#define STAT_BYTES        1024 /* 52 numbers at most 20 digits long, of which 22 are needed */
#define CHUNK_BYTES       4096
#define ENVIRON_MAX_BYTES ((size_t)256 * 1024)
#define EXEC_WAIT_NS      ((uint64_t)2000000)
#define FORKED_NO_EXEC    0x40u /* of the flags, field 9 */

struct proc_scan {
    DIR *dir;
};

static enum { UNKNOWN, PRESENT, MISSING } children_files;

static int open_proc(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
}

static ssize_t read_some(int fd, void *buf, size_t size)
{
    ssize_t n;
    do
        n = read(fd, buf, size);
    while (n < 0 && errno == EINTR);
    return n;
}

/* The first piece of a file, with a final NUL. seq_file gives a short file whole in one read. */
static ssize_t read_start(const char *path, char *buf, size_t size)
{
    CLEANUP_FD int fd = open_proc(path);
    if (fd < 0)
        return -1;
    ssize_t n = read_some(fd, buf, size - 1);
    if (n >= 0)
        buf[n] = '\0';
    return n;
}

/* A decimal pid as a whole string; 0 for anything else. */
static pid_t pid_of(const char *name)
{
    pid_t pid = 0;
    for (; *name; name++) {
        if (*name < '0' || *name > '9' || pid > 100000000)
            return 0;
        pid = pid * 10 + (*name - '0');
    }
    return pid;
}

/* --- stat --- */

/* Fields 4 … 22 of proc(5)'s list, which follow the state. */
static int parse_numbers(const char *p, struct proc_stat *out)
{
    unsigned long long v[23] = {0};
    for (int field = 4; field <= 22; field++) {
        char *end;
        v[field] = strtoull(p, &end, 10);
        if (end == p)
            return -1;
        p = end;
    }
    out->ppid = (pid_t)v[4];
    out->pgrp = (pid_t)v[5];
    out->sid = (pid_t)v[6];
    out->has_executed = !(v[9] & FORKED_NO_EXEC);
    out->user_ticks = v[14];
    out->system_ticks = v[15];
    out->waited_user_ticks = v[16];
    out->waited_system_ticks = v[17];
    out->threads = (unsigned)v[20];
    out->start_ticks = v[22];
    return 0;
}

int proc_stat_parse(const char *line, struct proc_stat *out)
{
    /* The name may hold any byte, ") R 1" and newlines too; after its last parenthesis there are
     * only numbers. */
    const char *open_at = strchr(line, '(');
    const char *close_at = strrchr(line, ')');
    *out = (struct proc_stat){0};
    if (!open_at || !close_at || close_at < open_at || close_at[1] != ' ' || !close_at[2])
        goto malformed;
    out->pid = (pid_t)strtol(line, NULL, 10);
    size_t n = (size_t)(close_at - open_at - 1);
    if (n >= sizeof out->comm)
        n = sizeof out->comm - 1;
    memcpy(out->comm, open_at + 1, n);
    out->state = close_at[2];
    if (out->pid > 0 && parse_numbers(close_at + 3, out) == 0)
        return 0;
malformed:
    errno = EPROTO;
    return -1;
}

static int read_stat_at(const char *path, struct proc_stat *out)
{
    char line[STAT_BYTES];
    ssize_t n = read_start(path, line, sizeof line);
    if (n < 0)
        return -1;
    if (n == 0) {
        errno = ESRCH;
        return -1;
    }
    return proc_stat_parse(line, out);
}

int proc_stat_read(pid_t pid, struct proc_stat *out)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    return read_stat_at(path, out);
}

bool proc_stat_is_dead(const struct proc_stat *s)
{
    /* The state is the first thread's: it is Z as well when that thread has ended alone
     * (pthread_exit in main) and others run on. A true zombie counts 0 or 1 threads. */
    return (s->state == 'Z' || s->state == 'X' || s->state == 'x') && s->threads <= 1;
}

/* --- threads --- */

/* Call each() for every thread; it returns false to stop early. */
static int each_thread(pid_t pid, bool (*each)(void *context, pid_t pid, pid_t tid), void *context)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        pid_t tid = pid_of(entry->d_name);
        if (tid > 0 && !each(context, pid, tid))
            break;
    }
    closedir(dir);
    return 0;
}

static bool thread_is_stopped(void *context, pid_t pid, pid_t tid)
{
    bool *all = context;
    char path[PATH_BYTES];
    struct proc_stat s;
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)tid);
    if (read_stat_at(path, &s) < 0)
        *all = *all && (errno == ENOENT || errno == ESRCH);
    else if (!strchr("TtZXx", s.state))
        *all = false;
    return *all;
}

bool proc_is_stopped(const struct proc_stat *s)
{
    if (s->threads <= 1)
        return s->state == 'T' || s->state == 't';
    bool all = true;
    return each_thread(s->pid, thread_is_stopped, &all) == 0 && all;
}

/* --- children --- */

struct listing {
    bool (*each)(void *context, pid_t child);
    void *context;
    bool is_over; /* each() has returned false */
};

/* Numbers with blanks between them, of any count; a chunk may end within a number. */
static int list_file(int dirfd, const char *path, struct listing *l)
{
    CLEANUP_FD int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -1;
    char chunk[CHUNK_BYTES];
    pid_t number = 0;
    ssize_t n;
    while ((n = read_some(fd, chunk, sizeof chunk)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (chunk[i] >= '0' && chunk[i] <= '9') {
                number = number * 10 + (chunk[i] - '0');
            } else if (number > 0) {
                if (!l->each(l->context, number)) {
                    l->is_over = true;
                    return 0;
                }
                number = 0;
            }
        }
    if (n == 0 && number > 0)
        l->is_over = !l->each(l->context, number);
    return n < 0 ? -1 : 0;
}

static int list_thread(pid_t pid, pid_t tid, struct listing *l)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)tid);
    return list_file(AT_FDCWD, path, l);
}

static bool list_each_thread(void *context, pid_t pid, pid_t tid)
{
    struct listing *l = context;
    (void)list_thread(pid, tid, l); /* a thread that has ended has left its children to another */
    return !l->is_over;
}

/* CONFIG_PROC_CHILDREN is missing. */
static int list_by_scan(pid_t pid, struct listing *l)
{
    struct proc_stat s;
    if (proc_stat_read(pid, &s) < 0)
        return -1;
    struct proc_scan *scan = proc_scan_new();
    if (!scan)
        return -1;
    int rc = 0;
    while (!l->is_over && (rc = proc_scan_next(scan, &s)) > 0)
        if (s.ppid == pid)
            l->is_over = !l->each(l->context, s.pid);
    int saved = errno;
    proc_scan_free(&scan);
    errno = saved;
    return rc < 0 ? -1 : 0;
}

bool proc_has_children_files(void)
{
    if (children_files == UNKNOWN) {
        if (access("/proc/thread-self/children", F_OK) == 0)
            children_files = PRESENT;
        else if (errno == ENOENT && access("/proc/thread-self/stat", F_OK) == 0)
            children_files = MISSING;
        else
            return true; /* no descriptor is needed for this; /proc is not there: ask again */
    }
    return children_files == PRESENT;
}

void proc_pretend_no_children_files(bool on)
{
    children_files = on ? MISSING : UNKNOWN;
}

int proc_children(pid_t pid, bool (*each)(void *context, pid_t child), void *context)
{
    struct listing l = {.each = each, .context = context};
    return proc_has_children_files() ? each_thread(pid, list_each_thread, &l)
                                     : list_by_scan(pid, &l);
}

int proc_children_of_only_thread(pid_t pid, bool (*each)(void *context, pid_t child), void *context)
{
    struct listing l = {.each = each, .context = context};
    return proc_has_children_files() ? list_thread(pid, pid, &l) : list_by_scan(pid, &l);
}

int proc_list_pids(int dirfd, const char *name, bool (*each)(void *context, pid_t pid),
                   void *context)
{
    struct listing l = {.each = each, .context = context};
    return list_file(dirfd, name, &l);
}

/* --- all processes --- */

struct proc_scan *proc_scan_new(void)
{
    struct proc_scan *scan = malloc(sizeof *scan);
    if (!scan)
        return NULL;
    scan->dir = opendir("/proc");
    if (!scan->dir) {
        int saved = errno;
        free(scan);
        errno = saved;
        return NULL;
    }
    return scan;
}

int proc_scan_next(struct proc_scan *scan, struct proc_stat *out)
{
    const struct dirent *entry;
    while ((entry = readdir(scan->dir))) {
        pid_t pid = pid_of(entry->d_name);
        if (pid <= 0)
            continue;
        if (proc_stat_read(pid, out) == 0)
            return 1;
        if (errno != ENOENT && errno != ESRCH)
            return -1;
    }
    return 0;
}

void proc_scan_free(struct proc_scan **scan)
{
    if (!*scan)
        return;
    closedir((*scan)->dir);
    free(*scan);
    *scan = NULL;
}

/* --- what it was started with --- */

/* Looks for an entry that begins with `wanted`; entries end with NUL. What stands behind it goes
 * into value (with a NUL, in `room` bytes; a longer one is none). */
struct entry_search {
    const char *wanted;
    size_t wanted_len;
    size_t pos; /* in the present entry */
    bool differs;
    char *value;
    size_t room;
    bool is_found;
};

/* One byte, not a NUL. */
static void search_byte(struct entry_search *m, char c)
{
    if (m->differs)
        return;
    size_t at = m->pos++ - m->wanted_len;
    if (m->pos <= m->wanted_len)
        m->differs = m->wanted[m->pos - 1] != c;
    else if (at + 1 < m->room)
        m->value[at] = c;
    else
        m->differs = true; /* longer than anything that is looked for */
}

static void search_bytes(struct entry_search *m, const char *bytes, size_t n)
{
    for (; n > 0 && !m->is_found; bytes++, n--) {
        if (*bytes) {
            if (m->differs) { /* to its end at once */
                const char *nul = memchr(bytes, '\0', n);
                if (!nul)
                    return;
                n -= (size_t)(nul - bytes) - 1;
                bytes = nul - 1;
                continue;
            }
            search_byte(m, *bytes);
            continue;
        }
        m->is_found = !m->differs && m->pos >= m->wanted_len;
        if (m->is_found)
            m->value[m->pos - m->wanted_len] = '\0';
        m->pos = 0;
        m->differs = false;
    }
}

/* True while a live process shows neither arguments nor environment, as between its old memory and
 * the new one in execve(2). */
static bool proc_is_in_exec(pid_t pid)
{
    char path[PATH_BYTES], first[2];
    struct proc_stat s;
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    return read_start(path, first, sizeof first) == 0 && proc_stat_read(pid, &s) == 0 &&
           !proc_stat_is_dead(&s);
}

bool proc_as_owner(const char *path)
{
    struct stat st;
    if (errno != EACCES || lstat(path, &st) < 0 || st.st_uid == geteuid())
        return false;
    setfsgid(st.st_gid);
    setfsuid(st.st_uid);
    return true;
}

void proc_as_self(void)
{
    int saved = errno;
    setfsuid(geteuid());
    setfsgid(getegid());
    errno = saved;
}

bool proc_look_as_owner(pid_t pid)
{
    char path[PATH_BYTES], first;
    snprintf(path, sizeof path, "/proc/%d/cwd", (int)pid);
    return readlink(path, &first, 1) < 0 && proc_as_owner(path);
}

static int open_environ(pid_t pid)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int fd = open_proc(path);
    if (fd < 0 && proc_as_owner(path)) {
        fd = open_proc(path);
        proc_as_self();
    }
    return fd;
}

long proc_cwd(pid_t pid, char *buf, size_t size)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%d/cwd", (int)pid);
    ssize_t n = readlink(path, buf, size - 1);
    if (n < 0 && proc_as_owner(path)) {
        n = readlink(path, buf, size - 1);
        proc_as_self();
    }
    if (n > 0)
        buf[n] = '\0';
    return n > 0 ? n : -1;
}

/* One look at an environment. Returns the bytes that were read, 0 also where a process has none or
 * is in execve(2). */
static size_t search_environ(pid_t pid, struct entry_search *m)
{
    char chunk[CHUNK_BYTES];
    CLEANUP_FD int fd = open_environ(pid);
    size_t total = 0;
    ssize_t n;
    while (fd >= 0 && !m->is_found && total < ENVIRON_MAX_BYTES &&
           (n = read_some(fd, chunk, sizeof chunk)) > 0) {
        search_bytes(m, chunk, (size_t)n);
        total += (size_t)n;
    }
    return total;
}

/* Waits a moment for an environment that is just being made: what is asked here is whose a process
 * is (case Q8: a child that execs while its parent ends). */
static bool wait_and_search(pid_t pid, struct entry_search *m)
{
    if (search_environ(pid, m) > 0)
        return m->is_found;
    bool is_waiting = proc_is_in_exec(pid);
    uint64_t until_ns = clock_mono_ns() + EXEC_WAIT_NS;
    while (search_environ(pid, m) == 0 && is_waiting && clock_mono_ns() < until_ns)
        sched_yield();
    return m->is_found;
}

bool proc_environ_has(pid_t pid, const char *assignment)
{
    char rest[1];
    struct entry_search m = {
        .wanted = assignment, .wanted_len = strlen(assignment), .value = rest, .room = sizeof rest};
    return wait_and_search(pid, &m);
}

bool proc_environ_get(pid_t pid, const char *name, char *value, size_t size)
{
    struct entry_search m = {
        .wanted = name, .wanted_len = strlen(name), .value = value, .room = size};
    if (size == 0)
        return false;
    value[0] = '\0';
    return wait_and_search(pid, &m);
}

void proc_command(pid_t pid, char *buf, size_t size)
{
    if (size == 0)
        return;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    ssize_t n = size > 1 ? read_start(path, buf, size) : 0;
    while (n > 0 && buf[n - 1] == '\0')
        n--;
    for (ssize_t i = 0; i < n; i++)
        if (buf[i] == '\0')
            buf[i] = ' ';
    if (n > 0)
        return; /* read_start() has put a NUL behind what it read */
    struct proc_stat s;
    buf[0] = '\0';
    if (proc_stat_read(pid, &s) == 0)
        snprintf(buf, size, "[%s]", s.comm);
}

/* True if the signal's bit is set in one of the hexadecimal masks of /proc/PID/status. */
static bool in_mask(pid_t pid, int sig, const char *const *masks)
{
    char path[40], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (fd_read_file(AT_FDCWD, path, text, sizeof text) <= 0)
        return false;
    for (; *masks; masks++) {
        const char *at = strstr(text, *masks);
        if (at && (strtoull(at + strlen(*masks), NULL, 16) >> (sig - 1) & 1))
            return true;
    }
    return false;
}

bool proc_catches(pid_t pid, int sig)
{
    static const char *const masks[] = {"\nSigCgt:", NULL};
    return in_mask(pid, sig, masks);
}

bool proc_handles(pid_t pid, int sig)
{
    static const char *const masks[] = {"\nSigCgt:", "\nSigIgn:", "\nSigBlk:", NULL};
    return in_mask(pid, sig, masks);
}

static uint64_t ticks_per_second(void)
{
    static long per_second;
    if (per_second <= 0)
        per_second = sysconf(_SC_CLK_TCK);
    return per_second > 0 ? (uint64_t)per_second : 100;
}

uint64_t proc_ticks_us(uint64_t ticks)
{
    return ticks * (1000000u / ticks_per_second());
}

uint64_t proc_ticks_now(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t per = ticks_per_second();
    return (uint64_t)now.tv_sec * per + (uint64_t)now.tv_nsec / (1000000000u / per);
}
