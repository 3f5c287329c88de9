/* What the files verb_*.c share: the handlers, and answers in the form of docs/control-protocol.md.
 */
#ifndef INIT_VERB_H
#define INIT_VERB_H

#include "control/record.h"
#include "control/server.h"
#include "init/init.h"
#include "services/services.h"
#include "sessions/lock.h"
#include "sessions/outcome.h"
#include "sessions/output.h"

struct listing;
struct process;

/* A handler answers through the connection, now or later; *e set and -1: answered by the caller. */
typedef int verb_handler(struct init *in, struct conn *c, struct request *r, struct error *e);

verb_handler verb_session_create, verb_session_list, verb_session_show, verb_session_delete,
    verb_session_reset, verb_session_env, verb_session_fork, verb_session_save;
verb_handler verb_exec, verb_start;
verb_handler verb_ps, verb_tree, verb_logs, verb_wait, verb_kill, verb_kill_all, verb_send;
verb_handler verb_purge;
verb_handler verb_terminal_open, verb_terminal_attach, verb_terminal_resize;
verb_handler verb_service_list, verb_service_show, verb_service_start, verb_service_stop,
    verb_service_restart, verb_service_reload, verb_service_signal, verb_service_logs;
verb_handler verb_status, verb_reload, verb_shutdown, verb_events;

/* Arguments. get_ms: a number of milliseconds; *has tells whether it was given. 0 or -1 with *e. */
const char *verb_required(const struct request *r, const char *key, struct error *e);
int verb_get_ms(const struct request *r, const char *key, uint64_t *ms, bool *has, struct error *e);
int verb_get_number(const struct request *r, const char *key, uint64_t *number, bool *has,
                    struct error *e);
/* `wait_ms`: how long the request is ready to stand in a queue. 0 or -1 with *e. */
int verb_get_patience(const struct request *r, struct lock_patience *patience, struct error *e);
/* All `env=` arguments as a set; names are checked. The caller frees it. */
int verb_get_env(const struct request *r, struct env_set *env, struct error *e);

/* As process_find(); who takes a service for one is told the verb of services that is meant. */
struct process *verb_find_process(struct init *in, const char *id, const char *of_service,
                                  struct error *e);

/* What exec and start share. get_argv: all `arg=` arguments as an argv of borrowed strings that the
 * caller frees; NULL if there are none. */
int verb_get_argv(const struct request *r, const char ***argv, struct error *e);
/* The number of what is asked for: the same call has the same. */
uint64_t verb_call_number(const struct request *r);

/* Add how something ended: verdict, status, why, and what "done" means of it. */
void answer_end(struct record *to, const struct outcome *o);
/* Add the fields of an outcome, and how much each stream had. */
void answer_outcome(struct record *to, const char *id, const struct outcome *o,
                    const struct output *output);
/* Add `killed`, `ended[]` and `survivors[]`. */
void answer_teardown(struct record *to, const struct teardown_report *report);

/* Add `survivors[]` alone. */
void answer_survivors(struct record *to, const struct teardown_report *report);

/* Send an output as the request says: `from`, `tail`, `stream`, `follow`. 0, or -1 with *e. */
int verb_follow(struct conn *c, const struct request *r, struct output *o, struct error *e);

/* Add a row for each live process of a service (verb_ps.c). */
void list_tree_of_service(struct init *in, struct listing *to, const struct service *s);
/* Add the head of what a service runs: its command as one text, or its script. */
void answer_program(struct record *to, const char *key, const struct service_config *k);
/* Add what an order says of a service: its state, and e if it was not carried out. */
void answer_service(struct record *to, const struct service *s, const struct error *e);

/* A follower's on_bytes for a connection. */
enum deliver answer_bytes(struct conn *c, enum stream stream, const char *bytes, size_t n);
void answer_lost(struct conn *c, uint64_t from, uint64_t to);

#endif
