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
};
int proc_stat_read(pid_t pid, struct proc_stat *out);

/* Call each() for every direct child of pid, of all its threads (/proc/PID/task/TID/children; a
 * child that a thread forked is listed under that thread only). Where the kernel has no such file
 * one scan of /proc/PID/stat of all processes serves. Returns 0, or -1 with errno. each() returns
 * false to stop early. */
int proc_children(pid_t pid, bool (*each)(void *context, pid_t child), void *context);

/* True if the process's initial environment holds exactly this "NAME=VALUE". Reads at most 256 KiB. */
bool proc_environ_has(pid_t pid, const char *assignment);

/* Command line with blanks between the words, or "[comm]" where there is none; always terminated. */
void proc_command(pid_t pid, char *buf, size_t size);

#endif
