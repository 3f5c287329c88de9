/*
 * Which shell a path leads to: the name of the program behind all links, "bash", "dash", or "ash"
 * for busybox. A shell of one family can run what another one wrote.
 */
#ifndef SESSIONS_SHELL_FAMILY_H
#define SESSIONS_SHELL_FAMILY_H

#include <stdbool.h>

#define SHELL_FAMILY_SIZE 24

/* Tell it at once, if that takes no file system but the root's, which all else needs as well.
 * False: it does, or the kernel cannot tell: a process of its own has to look (look.h). What is not
 * there has the family that its name says. */
bool shell_family_at_once(const char *path, char family[SHELL_FAMILY_SIZE]);

/* Tell it, however long that takes. */
void shell_family_find(const char *path, char family[SHELL_FAMILY_SIZE]);

/* Tell it by the last part of a path alone. */
void shell_family_of_name(const char *path, char family[SHELL_FAMILY_SIZE]);

#endif
