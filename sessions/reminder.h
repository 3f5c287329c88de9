/*
 * Those who lost the first signal of a teardown, told again during its grace. A process between
 * fork and exec takes it with the handler that it has inherited (seen in bash), and what it becomes
 * knows nothing of it. How long it stays there is up to the load of the machine, so the looks go
 * on until the end of the grace; whoever has executed a program since the first signal is told
 * once more, and nobody else. Private to teardown.
 */
#ifndef SESSIONS_REMINDER_H
#define SESSIONS_REMINDER_H

#include "sessions/member.h"

struct reminder {
    struct member_set *set;
    int sig;
    void (*tell)(void *context); /* what the teardown's caller does at each look, or NULL */
    void *context;

    uint64_t next_ns; /* the next look */
    int pause_ms;     /* between the last one and that */
    size_t cursor;    /* members looked at */
    bool is_needed;   /* found so far: somebody to look for the next time */
    bool is_over;     /* nobody was left to look for */
};

/* The first signal has been sent. */
void reminder_start(struct reminder *r);
/* Look, if it is time to, until that moment at most. Returns the pause before the next look in ms,
 * or -1: there is nobody to look for. */
int reminder_step(struct reminder *r, uint64_t until_ns);

/* From tell() only. Take the children of a member that no walk has seen, with all below them, into
 * the set and send them the signal. Returns how many there were (at most REMINDER_LATE). */
#define REMINDER_LATE 256
size_t reminder_tell_children(struct reminder *r, pid_t parent);

#endif
