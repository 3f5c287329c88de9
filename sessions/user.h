/* Users from /etc/passwd and /etc/group, read directly: no NSS, so that static binaries work. */
#ifndef SESSIONS_USER_H
#define SESSIONS_USER_H

#include "base/error.h"

#include <stddef.h>
#include <sys/types.h>

#define USER_GROUPS_MAX 64

struct user {
    uid_t uid;
    gid_t gid;
    gid_t groups[USER_GROUPS_MAX];
    size_t group_count;
    char name[64];
    char home[256];
};

/* Look up "NAME", "UID", "NAME:GROUP" or "UID:GID". A number need not be in /etc/passwd (its home
 * is then "/" and its gid, unless given, the same number). 0 or -1 with *e set. */
int user_lookup(const char *text, struct user *out, struct error *e);

/* Give it another group (NULL: as it is) and, in the place of its supplementary ones, those of a
 * blank-separated list (NULL: as they are; "": none). 0, or -1 with *e. */
int user_set_groups(struct user *u, const char *group, const char *groups, struct error *e);

/* Give a pipe end to who will have it as stdout or stderr, so that /dev/stdout can be opened. user
 * NULL: nothing to do. Without CAP_CHOWN it stays init's. */
void user_give_pipe(const struct user *user, int fd);

/* The identity init itself has. */
void user_self(struct user *out);

/* The name of a user, or its number where it has none; into buf where that is needed. */
const char *user_text(const struct user *u, char *buf, size_t size);

#endif
