/* What the session_*.c files offer each other. */
#ifndef SESSIONS_SESSION_INTERNAL_H
#define SESSIONS_SESSION_INTERNAL_H

#include "sessions/session.h"

/* How often an idle dash or ash that has children is looked at, in seconds. */
#define POKE_S 0.5

/* session.c */
void session_free(struct session *s);
/* Resolve the settings of a configured session anew, as the configuration now has them, and make
 * its folder; its shell must be gone. 0, or -1 with *e: it has no folder then. */
int session_remake(struct session *s, struct error *e);
/* Tell everybody who waits for the session and forget them. */
void session_tell_wishes(struct session *s, const struct teardown_report *report,
                         const struct error *e);
void session_add_wish(struct session *s, struct session_wish *w); /* w may be NULL */
/* Empty the queue: everybody in it hears why. */
void session_refuse_waiters(struct session *s, const struct error *why);
/* The user that the session's files belong to; NULL: init's own. */
const struct user *session_owner(const struct session *s);

/* session_files.c */
int session_make_folder(struct session *s, struct error *e);
/* The state file of a shell that starts with nothing but its environment. */
int session_write_first_state(struct session *s, struct error *e);
/* True if the state file is whole: the driver closes it with a mark. */
bool session_has_full_state(const struct session *s);
/* Before a text: an old state must not be taken for one that this text left. */
void session_forget_old_state(struct session *s);

/* session_shell.c */
extern const struct shell_events session_shell_events;
int session_start_shell(struct session *s, struct error *e);
/* Another shell in place of one that ended, or FAILED. */
void session_restart_shell(struct session *s);
/* No shell can be had: whoever waits hears why. Frees a session that never was ready. */
void session_give_up(struct session *s, const struct error *why);

/* Tell whoever waits for a dump that it will not come. */
void session_fail_dump(struct session *s, const struct error *why);

/* session_stray.c */
void session_leftover_free(struct leftover *l);

/* session_poke.c */
void session_watch_idle_shell(struct session *s);
void session_on_poke(struct ev_loop *loop, ev_timer *w, int events);
void session_on_poked(struct session *s);

#endif
