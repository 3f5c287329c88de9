/*
 * Own cgroups (version 2) of sessions and processes, where init may make them below its own:
 * whoever is in one belongs to it, whatever it did to its parent, session or environment; and the
 * kernel can freeze and kill all of it (cgroups(7): cgroup.freeze, cgroup.kill). Everything works
 * without, by walks. Only this file knows how they are laid out:
 *
 *     OWN/sandbox-init.N/       of this init (N: so that inits with one cgroup do not meet), locked
 *                       /s1     of a session: its shell with all that it starts
 *                       /p7     of a process
 *
 * Kept by name, not by descriptor: a thousand sessions must not need a thousand more of those.
 */
#ifndef SESSIONS_CGROUP_H
#define SESSIONS_CGROUP_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct cgroup {
    char name[24]; /* "": none */
    bool was_used; /* something was started in it */
};

/* Find out whether cgroups can be made; removes what dead inits have left there. 0, or -1 with *e
 * that says why not. */
int cgroups_init(struct error *e);
/* Call prepare once, at the first cgroup_make() or cgroups_needed(): it calls cgroups_init(). An
 * init that only runs a main command for a moment does without. */
void cgroups_when_needed(void (*prepare)(void *context), void *context);
void cgroups_needed(void);
void cgroups_exit(void);

/* The folder of the cgroup that init is in: of version 2 (controller NULL), or of the version 1
 * hierarchy with that controller. A descriptor, or -1 with *e. */
int cgroup_open_own(const char *controller, struct error *e);

/* Make one that has not been there; name: "s1", "p7". Without, if it cannot be had. */
void cgroup_make(struct cgroup *c, const char *name);
/* Its folder for a teardown, to be closed by the caller, or -1. */
int cgroup_open(const struct cgroup *c);
/* As cgroup_open(), for the start of a process in it. *is_new: with cgroup_fork(), else with
 * cgroup_join(). */
int cgroup_open_to_start(struct cgroup *c, bool *is_new);
/* fork(2) with the child in that cgroup from its birth (clone3(2), CLONE_INTO_CGROUP). To join a
 * cgroup keeps every other fork and cgroup of the machine waiting, init's next ones too: up to
 * 10 ms. */
pid_t cgroup_fork(int fd);
/* Move the caller there; that it can't be harms nothing. */
void cgroup_join(int fd);
/* True if the process is in it. */
bool cgroup_has(const struct cgroup *c, pid_t pid);
/* Remove it, now or when the last process in it has gone. */
void cgroup_remove(struct cgroup *c);

#endif
