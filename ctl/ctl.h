/*
 * What the files of sandboxctl share: the exit codes, the table of verbs and the way to ask init.
 *
 * A verb's function returns the exit code. It has printed what there is to say: results on
 * stdout, reasons on stderr.
 */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include "base/error.h"
#include "base/strbuf.h"
#include "control/client.h"
#include "control/record.h"
#include "control/wire.h"
#include "ctl/options.h"

struct answer;
struct column;

enum exit_code {
    CTL_OK = 0,
    CTL_REFUSED = 1,     /* init answered with an error, or output could not be written */
    CTL_USAGE = 2,       /* the command line is wrong */
    CTL_UNREACHABLE = 3, /* no init at the socket */
    CTL_NOT_RUNNING = 3, /* service show: as LSB has it for `status` */
    CTL_UNKNOWN = 4,     /* service show: no such service, or no init to ask */
    CTL_RUNNING = 123,   /* exec: its soft timeout is over, wait: its time; the command goes on */
    CTL_NOT_RUN = 125,   /* exec, wait: there is no status, since the command never ran; any verb:
                            the session is busy and the request would not wait (longer) */
    CTL_PIPE = 141,      /* stdout's reader is gone, as if by SIGPIPE */
};

/* All verbs in the order of the help; the last has no name. */
extern const struct verb verbs[];

int ctl_session_create(const struct args *a);
int ctl_session_list(const struct args *a);
int ctl_session_show(const struct args *a);
int ctl_session_delete(const struct args *a);
int ctl_session_reset(const struct args *a);
int ctl_session_env(const struct args *a);
int ctl_session_fork(const struct args *a);
int ctl_session_save(const struct args *a);
int ctl_exec(const struct args *a);
int ctl_start(const struct args *a);
int ctl_ps(const struct args *a);
int ctl_events(const struct args *a);
int ctl_logs(const struct args *a);
int ctl_wait(const struct args *a);
int ctl_kill(const struct args *a);
int ctl_kill_all(const struct args *a);
int ctl_send(const struct args *a);
int ctl_terminal(const struct args *a);
int ctl_terminal_list(const struct args *a);
int ctl_terminal_attach(const struct args *a);
int ctl_terminal_kill(const struct args *a);
int ctl_service_list(const struct args *a);
int ctl_service_show(const struct args *a);
int ctl_service_start(const struct args *a);
int ctl_service_stop(const struct args *a);
int ctl_service_restart(const struct args *a);
int ctl_service_reload(const struct args *a);
int ctl_service_signal(const struct args *a);
int ctl_service_logs(const struct args *a);
int ctl_status(const struct args *a);
int ctl_reload(const struct args *a);
int ctl_shutdown(const struct args *a);

/* `service list`: ask for it and print it (verb_service.c), and do so again with each change
 * (service_watch.c). The exit codes. */
int service_ask_list(const struct args *a, struct answer *answer);
void service_print_list(const struct args *a, const struct answer *answer);
int service_watch(const struct args *a);

/* What `sandboxctl --complete KIND [VERB…]` prints for completion.bash. */
int complete(int argc, char **argv);

/* ---- asking init (call.c) ---------------------------------------------------------------- */

/* The answer to a request: rows (records behind each other, each with its length) and result. */
struct answer {
    struct strbuf *rows;
    size_t row_count;
    struct strbuf result;
};

/* Connect and send q. NULL with *e set. The socket is -S, SANDBOX_SOCKET or the first found. */
struct client *call_begin(const struct args *a, const struct client_request *q, struct error *e);
/* The path that call_begin() would use, or NULL with *e set. buf holds PATHS_MAX bytes. */
const char *call_socket(const struct args *a, char *buf, size_t size, struct error *e);
/* The whole exchange; frees q. Returns CTL_OK with *to filled (answer_free), or the exit code
 * after the error was printed. */
int call(const struct args *a, struct client_request *q, struct answer *to);
/* The same, but only until the answer has begun or the time is over: CTL_RUNNING, and nothing was
 * printed. */
int call_within(const struct args *a, struct client_request *q, uint64_t ms, struct answer *to);
#define CALL_NO_END UINT64_MAX
void answer_free(struct answer *to);
/* An exchange of many packets: take() receives one and returns -1 to go on, or the exit code. q is
 * still the caller's. Returns the exit code; errors are printed. */
int call_follow(const struct args *a, const struct client_request *q,
                int (*take)(const struct args *a, struct client *c, void *context), void *context);
/* The whole exchange with its result shown: with --json as it is, otherwise by show(). Frees q.
 * Returns the exit code. */
int call_show(const struct args *a, struct client_request *q,
              void (*show)(const struct strbuf *result));
/* The same with its rows, as JSON or as print_table() does it. */
int call_table(const struct args *a, struct client_request *q, const struct column *columns,
               const char *indent_key, const char *indent_by);
/* Print the error (with --json as an object on stdout too) and return its exit code. */
int call_failed(const struct args *a, const struct error *e);
/* The same for the payload of an error packet. */
int call_refused(const struct args *a, const char *payload, size_t n);
/* The exchange for something that kills: with --json the record; survivors on stderr, they make the
 * exit code 1. Frees q. */
int call_kill(const struct args *a, struct client_request *q);

/* The exit code that the result of a command asks for: the status; for one that never ran 127 or
 * 126 where its program is missing or cannot be executed, else 125. What init has to say about it
 * (why it never ran, who ended it) goes to stderr. (verb_exec.c) */
int status_of(const struct strbuf *result);

/* Add the option's value under key, if the option was given. */
void request_option(struct client_request *q, const struct args *a, const char *option,
                    const char *key);
/* Add KEY=1 if the option of that name, which takes no value, was given. */
void request_flag(struct client_request *q, const struct args *a, const char *option);
/* As request_option() for a duration, as milliseconds. 0 or CTL_USAGE with the complaint printed.
 */
int request_duration(struct client_request *q, const struct args *a, const char *option,
                     const char *key);
/* The same for a number, and for a size such as 64K, as bytes. */
int request_number(struct client_request *q, const struct args *a, const char *option,
                   const char *key);
int request_size(struct client_request *q, const struct args *a, const char *option,
                 const char *key);
/* --no-wait and --wait-for DUR of a verb that may have to queue. 0 or CTL_USAGE. */
int request_patience(struct client_request *q, const struct args *a);
/* --env K=V, all of them. 0 or CTL_USAGE. */
int request_env(struct client_request *q, const struct args *a);

/* Read a descriptor to its end. 0, or -1 with errno (ENOMEM: no memory or beyond to->limit). */
int read_all(int fd, struct strbuf *to);
/* The content of a file that an option names; "-" is stdin. 0 or CTL_USAGE with the complaint
 * printed. */
int read_file(const struct args *a, const char *path, struct strbuf *text);

/* The text and argv of exec and start: TEXT, `-`, -f FILE or `-- ARGV`. *text holds what was read
 * and must live until the request is sent. 0 or an exit code. */
int request_program(struct client_request *q, const struct args *a, struct strbuf *text);

#endif
