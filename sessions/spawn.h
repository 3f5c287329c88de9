/*
 * The one way to start a program (design: one primitive). In the child, in this order: session or
 * foreground group, signals, subreaper flag, cgroup, rlimits, stdio, the opening of a file, groups
 * and uid, cwd, capabilities, no_new_privs, exec. A step that fails is told to the parent with its
 * name and errno over a close-on-exec pipe and reaches the owner as child_exit.step.
 */
#ifndef SESSIONS_SPAWN_H
#define SESSIONS_SPAWN_H

#include "base/error.h"
#include "sessions/child.h"
#include "sessions/user.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

/* A resource limit, getrlimit(2). */
struct spawn_limit {
    int resource;
    struct rlimit value;
};

struct spawn_plan {
    const char *program; /* looked up in the PATH of envp if it has no slash; NULL: argv[0] */
    bool or_path;        /* where program is not there: argv[0] in the PATH of envp */
    const char *const *argv;
    const char *const *envp;
    int stdio[3];           /* what becomes 0, 1, 2; -1: /dev/null */
    int script_fd;          /* what becomes SPAWN_SCRIPT_FD, or -1 */
    int extra_fd, extra_at; /* and what becomes extra_at, 3 … 255; -1: none. Not both */
    const char *open_path;  /* opened for reading as init itself, in the child, since a file system
                             * may hang; becomes open_at (3 … 255); NULL: none */
    int open_at;
    const char *make_dir; /* made if it is missing, likewise as init itself (folder_make()), for the
                           * user of make_for; that it can't be harms nothing. NULL: none */
    const struct user *make_for;
    const char *cwd;         /* NULL: the folder init was started in */
    const struct user *user; /* NULL: init's own identity */
    bool sets_groups;        /* its groups too though it is init's own user */
    bool has_no_privileges;  /* no capability, and none by a later exec (PR_SET_NO_NEW_PRIVS) */
    bool takes_terminal;     /* setpgid and tcsetpgrp on descriptor 0 instead of setsid */
    bool steals_terminal;    /* after setsid: make descriptor 0 the controlling terminal */
    bool is_subreaper;       /* PR_SET_CHILD_SUBREAPER, prctl(2): kept over execve */
    int cgroup_fd;           /* the folder of a cgroup, or -1 */
    bool cgroup_is_new;      /* the child can be born in it: see cgroup_open_to_start() */
    const struct spawn_limit *limits;
    size_t limit_count;
    bool has_nice, has_oom_score_adj;
    int nice, oom_score_adj;
    mode_t umask;                   /* (mode_t)-1: init's */
    void (*on_exec)(void *context); /* the program runs; may be NULL */
    void (*on_exit)(void *context, const struct child_exit *how);
    void *context;
};

#define SPAWN_SCRIPT_FD 3
#define SPAWN_FD_MIN    16 /* what the child still needs lies here or above while 0 … 3 are filled */

enum spawn_step {
    SPAWN_SESSION,
    SPAWN_GROUP,
    SPAWN_SIGNALS,
    SPAWN_SUBREAPER,
    SPAWN_CGROUP,
    SPAWN_OOM_SCORE,
    SPAWN_NICE,
    SPAWN_LIMITS,
    SPAWN_STDIO,
    SPAWN_OPEN,
    SPAWN_GROUPS,
    SPAWN_UID,
    SPAWN_CWD,
    SPAWN_CAPABILITIES,
    SPAWN_NO_NEW_PRIVS,
    SPAWN_EXEC,
    SPAWN_STEP_COUNT
};

/* The file is there; what its first line names, or the loader that it was linked for, is not. */
#define SPAWN_NO_INTERPRETER 1

/* What the child writes into the report when a step fails. */
struct spawn_failure {
    enum spawn_step step;
    int sys;
    int detail; /* of SPAWN_LIMITS: which resource; of SPAWN_EXEC: */
};
const char *spawn_step_name(enum spawn_step step);

/* A plan with nothing set: no descriptors, no user, no callbacks. */
struct spawn_plan spawn_plan_empty(void);
/* A plan for the file that init itself runs, in another role (argv tells which), whatever has
 * become of its path (proc(5)): as the empty one, in "/" and with an empty environment. argv stays
 * the caller's until spawn(). */
struct spawn_plan spawn_plan_self(const char *const *argv);

/* Fork and begin. Returns the child's record (owned by the child table; it stays valid until
 * on_exit returns) or NULL with *e set (step "pipe" or "fork"). on_exit is never called from
 * inside spawn(). The plan and what it points to are not used after the return; descriptors stay
 * the caller's. */
struct child *spawn(const struct spawn_plan *plan, struct error *e);

/* What every child gets back of what init changed for itself, set once at boot: the folder init was
 * started in (main command, services and sessions without a cwd begin there; takes the descriptor)
 * and the limit of open files it was started with. */
void spawn_init(int base_folder, const struct rlimit *files);
/* Free what spawn_init() made; nothing is started any more. */
void spawn_exit(void);

#endif
