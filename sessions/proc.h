/*
 * Reading /proc about other processes: stat lines, children of all threads, environment marks.
 * Nothing here allocates without bound, blocks or forks. A process that is gone is an ordinary
 * answer (-1, errno ENOENT or ESRCH), never an event for the log.
 */
#ifndef SESSIONS_PROC_H
#define SESSIONS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The fields of /proc/PID/stat that this program uses; proc(5). */
struct proc_stat {
    pid_t pid, ppid, pgrp, sid;
    char state; /* R S D T t Z X … */
    char comm[32];
    uint64_t start_ticks; /* since boot; with the pid it names one process for ever */
    uint64_t user_ticks, system_ticks;
    uint64_t waited_user_ticks, waited_system_ticks; /* of children that it has waited for */
    unsigned threads;                                /* 0 or 1 once it is a zombie */
    bool has_executed; /* a program since it was forked (PF_FORKNOEXEC, which ps(1) shows as F) */
};
int proc_stat_read(pid_t pid, struct proc_stat *out);
/* The same from a line in memory. -1 with EPROTO if it is none. */
int proc_stat_parse(const char *line, struct proc_stat *out);

/* True if the process has ended (a zombie, or being taken away). A first thread that has ended
 * while others run on is not the end, though its state says Z. */
bool proc_stat_is_dead(const struct proc_stat *s);

/* True if every thread is stopped (by a signal or by a tracer) or has ended. */
bool proc_is_stopped(const struct proc_stat *s);

/* Call each() for every direct child of pid, of all its threads (/proc/PID/task/TID/children; a
 * child that a thread forked is listed under that thread only). Where the kernel has no such file
 * one scan of /proc/PID/stat of all processes serves. Returns 0, or -1 with errno. each() returns
 * false to stop early. */
int proc_children(pid_t pid, bool (*each)(void *context, pid_t child), void *context);
/* Like it, at a third of the cost, for a process that is known to have one thread (proc_stat). */
int proc_children_of_only_thread(pid_t pid, bool (*each)(void *context, pid_t child),
                                 void *context);

/* False where the kernel lacks the children files; then scan rather than ask for each process. */
bool proc_has_children_files(void);
/* For tests: behave as if they were missing. */
void proc_pretend_no_children_files(bool on);

/* The pids of any file that lists them so (cgroup.procs). */
int proc_list_pids(int dirfd, const char *name, bool (*each)(void *context, pid_t pid),
                   void *context);

/* All processes, one a call, in the order of their pids; a scan may go on in a later turn of the
 * loop. new: NULL with errno. next: 1 and *out, 0 at the end, -1 with errno. free: sets to NULL. */
struct proc_scan;
struct proc_scan *proc_scan_new(void);
int proc_scan_next(struct proc_scan *scan, struct proc_stat *out);
void proc_scan_free(struct proc_scan **scan);

/* True if the process's initial environment holds exactly this "NAME=VALUE". Reads at most 256 KiB,
 * and waits a moment (2 ms) for a process that is in execve(2). */
bool proc_environ_has(pid_t pid, const char *assignment);

/* The value of the first entry that begins with name ("NAME="), in `size` bytes with its NUL; a
 * longer one is none. False: there is none. Otherwise as the above. */
bool proc_environ_get(pid_t pid, const char *name, char *value, size_t size);

/* Microseconds of so many ticks. */
uint64_t proc_ticks_us(uint64_t ticks);
/* Now, in the unit of proc_stat.start_ticks. */
uint64_t proc_ticks_now(void);

/* True if the process has a handler for the signal; proc_handles(): a handler, or it ignores or
 * blocks it (SigCgt, SigIgn, SigBlk of /proc/PID/status, proc(5)). */
bool proc_catches(pid_t pid, int sig);
bool proc_handles(pid_t pid, int sig);

/* A root without CAP_SYS_PTRACE, as docker makes it, may not look at the processes of other users;
 * these themselves may, as far as they are on the file system (setfsuid(2)). After a call for a
 * path in /proc/PID that has just failed. False: it helps nothing. True: proc_as_self() must
 * follow. */
bool proc_as_owner(const char *path);
void proc_as_self(void);
/* The same before the first look at the links of a process. */
bool proc_look_as_owner(pid_t pid);

/* The working directory of a process, as text. Returns its length, or -1: there is none to be seen,
 * and buf is as it was. */
long proc_cwd(pid_t pid, char *buf, size_t size);
/* Command line with blanks between the words, or "[comm]" where there is none; always terminated;
 * empty for a process that is gone. Any byte but NUL may be in it. */
void proc_command(pid_t pid, char *buf, size_t size);

#endif
