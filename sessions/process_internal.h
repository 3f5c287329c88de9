/* What the process_*.c files share: the struct and the steps of its life. */
#ifndef SESSIONS_PROCESS_INTERNAL_H
#define SESSIONS_PROCESS_INTERNAL_H

#include "sessions/feed.h"
#include "sessions/process.h"

struct process {
    struct list link;
    struct sessions *all;
    char id[65];
    char mark[88];           /* "SANDBOX_PROCESS=ID" */
    char session_name[65];   /* "" for a stateless one */
    struct session *session; /* while it waits for the session's lock or dump */
    struct lock_request lock;
    enum process_state state;
    bool is_attached;
    const struct process_events *events; /* NULL: nobody */
    void *owner;

    struct strbuf text; /* what to show: the text, or the argv joined */
    char **argv;        /* owned, NULL-terminated; NULL: run the text */
    struct env_set env; /* of the call; stateless: complete */
    char *cwd, *shell_path;
    struct user user;
    bool has_user;
    uint64_t timeout_ms, kill_grace_ms;
    bool has_stdin;

    struct workdir dir;
    struct child *child;
    struct output *output;
    struct capture capture;
    struct feed stdin_feed;
    ev_timer timeout;
    struct teardown *teardown;
    struct list waits, kills; /* struct process_wish */
    uint64_t began_ns;
    struct outcome outcome;
    bool is_decided;
    bool cwd_is_gone; /* the session's folder was deleted: it starts in "/" and says so */
};

/* process.c */
/* Its root and the orphans of it that init adopted: they carry its mark in their environment. */
void process_each_root(const struct process *p, bool (*each)(void *context, pid_t pid),
                       void *context);
void process_free(struct process *p);
void process_tell_wishes(struct list *wishes, struct process *p,
                         const struct teardown_report *report);
/* An attached process that is over and that nobody holds any more is forgotten. */
void process_free_if_unwanted(struct process *p);
/* Its status is known (or it never ran). The log is complete before anybody hears of it. */
void process_over(struct process *p);
/* It never ran. */
void process_fail(struct process *p, const char *step, const struct error *why);
void process_on_child_exit(void *context, const struct child_exit *how);
void process_on_exec(void *context);
void process_on_capture_eof(void *context);
void process_on_stdin_ready(void *context);

/* process_kill.c */
/* It was killed before it had begun. */
void process_end_unbegun(struct process *p);
void process_on_timeout(struct ev_loop *loop, ev_timer *w, int events);

#endif
