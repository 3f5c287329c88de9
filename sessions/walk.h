/*
 * Finding and stopping everything below a set of roots. A walk is made of passes; a pass names the
 * roots anew, then lists the children of every member, and takes what it finds into the set, which
 * stops it. A walk is clean when a complete pass, begun with every member stopped, has found
 * nobody. It works in slices and keeps its place between them. Private to teardown.
 */
#ifndef SESSIONS_WALK_H
#define SESSIONS_WALK_H

#include "sessions/member.h"

enum walk_result {
    WALK_MORE,  /* the time is over; go on in the next turn of the loop */
    WALK_WAIT,  /* nobody new, but some have not stopped yet */
    WALK_CLEAN, /* all are held and stopped */
};

/* Pids that were read together, not yet held. */
struct walk_batch {
    pid_t *pids;
    size_t count, room, next;
    uint32_t parent;       /* index of the member whose children they are, or MEMBER_NONE */
    uint64_t before_ticks; /* when they were read */
    uint64_t turn;
    size_t found;    /* of them held as new members */
    size_t vanished; /* of them gone before they could be held */
};

struct walk {
    struct member_set *set;
    void (*collect)(void *context); /* calls walk_add_root() */
    void *context;
    int cgroup_fd;    /* its processes are roots too; or -1 */
    int first_signal; /* SIGSTOP; SIGKILL once some fork away faster than they can be stopped */

    /* the walk so far */
    uint64_t since_ns;
    uint64_t turn; /* calls of walk_step() */
    uint32_t pass;
    unsigned clean_passes;
    bool is_restless;  /* processes come and go: one clean pass is not enough */
    bool is_abandoned; /* set in collect(): do nothing any more */
    bool is_full;      /* more processes than the set may hold */
    bool is_growing;   /* the last complete pass found somebody */
    size_t found;      /* new members since walk_restart() */
    pid_t unread_pid;  /* a process that /proc gave no word about, in the last complete pass … */
    int unread_why;    /* … and errno */

    /* the present pass */
    enum { PASS_BEGIN, PASS_MEMBERS, PASS_SCAN } stage;
    size_t cursor;
    unsigned repeats;       /* of the listing of one member */
    struct proc_scan *scan; /* without children files */
    struct walk_batch batch;
    size_t pass_found;
    uint64_t zombies, last_zombies; /* a sum over those that were listed; of the pass before */
    bool is_unsettled;              /* some member is not stopped */
    bool is_disturbed;              /* some process went away in the middle */
    bool is_frozen;                 /* the cgroup says that it is frozen */
    pid_t pass_unread;
};

/* The set, collect, context and cgroup_fd are the caller's to fill in first. */
void walk_restart(struct walk *w);
void walk_free(struct walk *w);

/* Work until the monotonic time until_ns or a result. */
enum walk_result walk_step(struct walk *w, uint64_t until_ns);

/* True if the last passes have found somebody. */
bool walk_is_growing(const struct walk *w);

/* From collect() only. */
void walk_add_root(struct walk *w, pid_t pid);

#endif
