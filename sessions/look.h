/*
 * One look at a path, by a process of its own: a file system that the configuration names may never
 * answer, and who waits for it then cannot even be killed. It is this same file, started by init
 * with its own identity; what it finds is its exit status and, if not, why not: a line on its
 * stdout.
 *
 *     sandbox-init --look file PATH    is it there?
 *     sandbox-init --look unix PATH    does a connection to this socket come about?
 *     sandbox-init --look owner PATH   whose is it, and where? "UID GID DEVICE" on its stdout
 *     sandbox-init --look shell PATH   its family (shell_family.h) on its stdout
 *     sandbox-init --look config PATH  the whole configuration: its record (config.h) into the file
 *                                      that is its stdout
 */
#ifndef SESSIONS_LOOK_H
#define SESSIONS_LOOK_H

#define LOOK_OPTION "--look"
#define LOOK_FILE   "file"
#define LOOK_UNIX   "unix"
#define LOOK_OWNER  "owner"
#define LOOK_SHELL  "shell"
#define LOOK_CONFIG "config"

/* args are what stands behind the option. 0: yes; 1: no, and why was printed, without the path; 2:
 * asked wrongly. */
int look_main(int count, char **args);

#endif
