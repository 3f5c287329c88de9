/*
 * Strays: live processes whose command or process has ended. session_stray.c and process.c say who
 * is one; this file tells of them, finds the one that a pid names, and ends it alone.
 */
#ifndef SESSIONS_STRAY_H
#define SESSIONS_STRAY_H

#include "base/error.h"
#include "base/list.h"
#include "sessions/teardown.h"

#include <stdint.h>
#include <sys/types.h>

#define STRAYS_TOLD 32   /* in one answer */
#define STRAYS_MAX  4096 /* that are counted */
#define STRAY_TEXT  192

struct stray {
    pid_t pid;
    char comm[32];
    uint64_t age_ms;
    char ports[96]; /* that it listens on; ports.h */
};

struct sessions;
struct tree;

/* Describe the processes of a tree in its order, at most `room` of them; returns how many. */
size_t strays_describe(struct tree *t, struct stray *to, size_t room);
/* "PID NAME age=SECONDS[ listen=PORTS]"; returns the length. */
size_t stray_text(const struct stray *s, char buf[STRAY_TEXT]);

/* Somebody who waits for the end of a stray. Lives in the caller; stray_wish_drop() forgets it. */
struct stray_wish {
    struct list link;
    void (*on_done)(void *owner, pid_t pid, const struct teardown_report *report);
    void *owner;
};
void stray_wish_drop(struct stray_wish *w);

/* End the stray with all that descends from it. Again during the grace: hurries. 0, or -1 with *e:
 * pid is no stray. */
int stray_kill(struct sessions *all, pid_t pid, uint64_t grace_ms, struct stray_wish *wish,
               struct error *e);
/* Send one signal to it and all that descends from it. Returns how many got it, or -1 with *e. */
int stray_signal(struct sessions *all, pid_t pid, int sig, struct error *e);
/* Forget the kills that are under way. */
void strays_free(struct sessions *all);

#endif
