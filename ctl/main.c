/*
 * sandboxctl: drives sandbox-init from a terminal over its control socket. This file is the table
 * of verbs; options.c parses by it, help.c prints it, verb_*.c do the work.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OPT_SESSION(h)                                                                             \
    {                                                                                              \
        "session", 's', "NAME", h                                                                  \
    }
#define OPT_CWD                                                                                    \
    {                                                                                              \
        "cwd", 0, "DIR", "working directory, for this call only"                                   \
    }
#define OPT_ENV                                                                                    \
    {                                                                                              \
        "env", 'e', "K=V", "an environment variable, for this call only; repeatable"               \
    }
#define OPT_STDIN                                                                                  \
    {                                                                                              \
        "stdin", 0, NULL, "connect stdin (otherwise it is at end of file)"                         \
    }
#define OPT_FILE                                                                                   \
    {                                                                                              \
        "file", 'f', "FILE", "the text is the content of FILE"                                     \
    }
#define OPT_GRACE                                                                                  \
    {                                                                                              \
        "grace", 0, "DUR", "time between SIGTERM and SIGKILL"                                      \
    }
#define OPT_NO_WAIT                                                                                \
    {                                                                                              \
        "no-wait", 0, NULL, "if the session is busy, say who holds it and end with 125"            \
    }
#define OPT_WAIT_FOR                                                                               \
    {                                                                                              \
        "wait-for", 0, "DUR", "the same after so long in the session's queue"                      \
    }
#define OPT_TIMEOUT(h)                                                                             \
    {                                                                                              \
        "timeout", 't', "DUR", h                                                                   \
    }

static const struct option create_options[] = {
    {"cwd", 0, "DIR", "working directory of the shell"},
    {"env", 'e', "K=V", "an environment variable of the session; repeatable"},
    OPT_TIMEOUT("default time limit of its commands (500ms, 5s, 10m)"),
    {"shell", 0, "PATH", "the shell to run"},
    {"user", 'u', "USER", "the user to run it as"},
    {"setup", 0, "TEXT", "what it runs first; it is not made unless that ends with status 0"},
    {"from", 0, "FILE", "begin with the state that `session save` wrote; -: from stdin"},
    {0},
};
static const struct option exec_options[] = {
    OPT_SESSION("in this session (without it: in a fresh shell for this one text)"),
    OPT_CWD,
    OPT_ENV,
    OPT_TIMEOUT("kill the command after this time (500ms, 5s, 10m)"),
    {"idle-timeout", 0, "DUR", "kill it after this time without output"},
    {"cpu-timeout", 0, "DUR", "kill it when it has used this much CPU time, its children included"},
    {"soft-timeout", 0, "DUR", "after this time leave with 123 and print its ID; it goes on"},
    OPT_NO_WAIT,
    OPT_WAIT_FOR,
    {"id", 0, "ID", "run it once: the same call under this ID joins the run there is"},
    {"detach", 0, NULL, "the command goes on when this client is gone"},
    {"from", 0, "OFFSET", "join the run of --id at this byte of its output; never begin one"},
    {"output-limit", 0, "SIZE", "keep only the head and tail of each stream (64K, 10M)"},
    {"output-limit-action", 0, "ACTION", "beyond the limit: keep (go on; the default) or kill"},
    OPT_STDIN,
    OPT_FILE,
    {0},
};
static const struct option start_options[] = {
    OPT_SESSION("with the cwd, variables and functions of this session"),
    {"id", 0, "ID", "the name of the process (default: generated)"},
    OPT_CWD,
    OPT_ENV,
    OPT_NO_WAIT,
    OPT_WAIT_FOR,
    OPT_STDIN,
    OPT_FILE,
    {0},
};
static const struct option events_options[] = {
    {"follow", 'f', NULL, "go on as events come"},
    {"from", 0, "N", "begin with event N (the first one is 1)"},
    {"tail", 'n', "N", "begin with the last N events; 0: only those to come"},
    {"kind", 'k', "KIND", "only events of this kind; repeatable"},
    OPT_SESSION("only events of this session"),
    {0},
};
static const struct option ps_options[] = {
    OPT_SESSION("only those of this session"),
    {"tree", 0, NULL, "every live process below sessions and processes"},
    {0},
};
#define OPT_LOGS                                                                                   \
    {"from", 0, "OFFSET", "begin at this byte of the log"},                                        \
        {"tail", 'n', "N", "only the last N lines"}, {"stdout", 0, NULL, "only stdout"},           \
        {"stderr", 0, NULL, "only stderr"},                                                        \
    {                                                                                              \
        "labelled", 'l', NULL, "put 'stdout: ' or 'stderr: ' before each line"                     \
    }
static const struct option logs_options[] = {
    {"follow", 'f', NULL, "go on as output comes"},
    {"file", 0, "PATH", "read this file of log_dir, without sandbox-init; '-': stdin"},
    OPT_LOGS,
    {0},
};
static const struct option wait_options[] = {
    OPT_TIMEOUT("after this time leave with 123; it goes on (500ms, 5s, 10m)"), {0}};
static const struct option kill_options[] = {
    {"signal", 0, "SIG", "send only this signal, no teardown"},
    OPT_GRACE,
    {"running", 0, "NAME", "the command that session NAME runs now"},
    {"stray", 0, "PID", "one stray with all below it (see: ps, session show)"},
    {0},
};
static const struct option kill_all_options[] = {
    OPT_SESSION("only those of this session"), OPT_GRACE, {0}};
static const struct option send_options[] = {{"eof", 0, NULL, "then close the process's stdin"},
                                             {0}};
#define OPT_VIEWER                                                                                 \
    {"rows", 0, "N", "lines of the window (default: as the own one)"},                             \
        {"cols", 0, "N", "its columns"},                                                           \
        {"detach-keys", 0, "KEYS", "what to type to detach (default: 'C-] d')"},                   \
    {                                                                                              \
        "record", 0, "FILE", "record what is shown, as asciicast v2"                               \
    }
static const struct option terminal_options[] = {
    OPT_SESSION("with the cwd, variables and functions of this session"),
    {"id", 0, "ID", "the name of the terminal (default: generated)"},
    OPT_CWD,
    OPT_ENV,
    OPT_NO_WAIT,
    OPT_WAIT_FOR,
    {"detached", 'd', NULL, "print ID and PID and leave it to later viewers"},
    OPT_VIEWER,
    {0},
};
static const struct option patience_options[] = {OPT_NO_WAIT, OPT_WAIT_FOR, {0}};
static const struct option attach_options[] = {
    {"read-only", 'r', NULL, "look only: nothing is typed, the size stays"}, OPT_VIEWER, {0}};
static const struct option terminal_list_options[] = {OPT_SESSION("only those of this session"),
                                                      {0}};
static const struct option terminal_kill_options[] = {OPT_GRACE, {0}};
static const struct option service_list_options[] = {
    {"watch", 'w', NULL, "print it again whenever something changes"}, {0}};
static const struct option service_order_options[] = {
    {"no-wait", 0, NULL, "give the order and don't wait until it is carried out"},
    OPT_TIMEOUT("wait at most so long (500ms, 5s, 10m); the order stands"),
    {0}};
static const struct option service_signal_options[] = {
    {"tree", 0, NULL, "to everything it started, too"}, {0}};
static const struct option service_logs_options[] = {
    {"follow", 'f', NULL, "go on as output comes, over restarts"}, OPT_LOGS, {0}};
static const struct option shutdown_options[] = {OPT_GRACE, {0}};

const struct verb verbs[] = {
    {"session create",
     "[NAME] [--cwd DIR] [--env K=V]… [--timeout DUR] [--shell PATH] [--user USER] [--setup TEXT] "
     "[--from FILE]",
     "Create a session and print its name.", create_options, 0, 1, .run = ctl_session_create},
    {"session list", "", "List the sessions.", NULL, 0, 0, .run = ctl_session_list},
    {"session show", "NAME", "Show one session: what it runs, who waits.", NULL, 1, 1,
     .run = ctl_session_show},
    {"session delete", "NAME…", "End sessions and everything they started.", NULL, 1, -1,
     .run = ctl_session_delete},
    {"session reset", "NAME", "Give a session a fresh shell.", NULL, 1, 1,
     .run = ctl_session_reset},
    {"session fork", "SOURCE [NEW]",
     "Create a session that begins with the state of another, and print its name.",
     patience_options, 1, 2, .run = ctl_session_fork},
    {"session save", "NAME FILE", "Write the state of a session into a file; -: to stdout.",
     patience_options, 2, 2, .run = ctl_session_save},
    {"session env", "[NAME] K=V… -K… | NAME",
     "Set, unset or show variables of a session; without NAME: of all sessions to come.",
     patience_options, 0, -1, .takes_unset = true, .run = ctl_session_env},
    {"exec", "[-s NAME] [OPTIONS] TEXT | - | -f FILE | -- ARGV…",
     "Run a command and exit with its status.", exec_options, 0, 1, .takes_argv = true,
     .run = ctl_exec},
    {"start", "[-s NAME] [OPTIONS] TEXT | - | -f FILE | -- ARGV…",
     "Start a process in the background and print its ID and PID.", start_options, 0, 1,
     .takes_argv = true, .run = ctl_start},
    {"ps", "[-s NAME] [--tree]", "List processes and running commands.", ps_options, 0, 0,
     .run = ctl_ps},
    {"logs", "[-f] [--from OFFSET] [--tail N] [--stdout|--stderr] [--labelled] ID | --file PATH",
     "Print the output of a process or command.", logs_options, 0, 1, .run = ctl_logs},
    {"wait", "[--timeout DUR] ID", "Wait for a process and exit with its status.", wait_options, 1,
     1, .run = ctl_wait},
    {"kill", "[--signal SIG] [--grace DUR] ID | --running NAME | --stray PID",
     "End a process, command or stray with everything it started.", kill_options, 0, 1,
     .run = ctl_kill},
    {"kill-all", "[-s NAME] [--grace DUR]", "End all processes, of one session or of all.",
     kill_all_options, 0, 0, .run = ctl_kill_all},
    {"send", "ID [--eof]", "Send stdin to the stdin of a process.", send_options, 1, 1,
     .run = ctl_send},
    {"terminal", "[-s NAME] [OPTIONS] [-- ARGV…]",
     "Open a shell, or ARGV, on a terminal and exit with its status.", terminal_options, 0, 0,
     .takes_argv = true, .run = ctl_terminal},
    {"terminal list", "[-s NAME]", "List the terminals.", terminal_list_options, 0, 0,
     .run = ctl_terminal_list},
    {"terminal attach", "[--read-only] [OPTIONS] ID",
     "Look at a terminal again, from its last output on.", attach_options, 1, 1,
     .run = ctl_terminal_attach},
    {"terminal kill", "[--grace DUR] ID", "End a terminal with everything it started.",
     terminal_kill_options, 1, 1, .run = ctl_terminal_kill},
    {"service list", "[--watch] [NAME…]", "List the services: state, restarts, ready, healthy.",
     service_list_options, 0, -1, .run = ctl_service_list},
    {"service show", "NAME…",
     "Show all about services; exit with 0 if they run, 3 if not, 4 if unknown.", NULL, 1, -1,
     .run = ctl_service_show},
    {"service status", "NAME…", "The same as service show.", NULL, 1, -1, .run = ctl_service_show},
    {"service start", "[--no-wait] [--timeout DUR] NAME…",
     "Start services with what they require, and wait until they are ready.", service_order_options,
     1, -1, .run = ctl_service_start},
    {"service stop", "[--no-wait] [--timeout DUR] NAME…",
     "Stop services and wait until all that they started is gone.", service_order_options, 1, -1,
     .run = ctl_service_stop},
    {"service restart", "[--no-wait] [--timeout DUR] NAME…",
     "Stop and start services; one may restart itself.", service_order_options, 1, -1,
     .run = ctl_service_restart},
    {"service reload", "[--no-wait] [--timeout DUR] NAME…",
     "Send services their reload_signal; without one, restart them.", service_order_options, 1, -1,
     .run = ctl_service_reload},
    {"service signal", "[--tree] SIG NAME…", "Send a signal to services.", service_signal_options,
     2, -1, .run = ctl_service_signal},
    {"service logs", "[-f] [--from OFFSET] [--tail N] [--stdout|--stderr] [--labelled] NAME",
     "Print the last output of a service, over its restarts.", service_logs_options, 1, 1,
     .run = ctl_service_logs},
    {"events", "[-f] [--from N | --tail N] [--kind KIND]… [-s NAME]",
     "Print what happened, a JSON object a line.", events_options, 0, 0, .run = ctl_events},
    {"status", "", "Show how sandbox-init is and what is off.", NULL, 0, 0, .run = ctl_status},
    {"reload", "", "Read the configuration again.", NULL, 0, 0, .run = ctl_reload},
    {"shutdown", "[--grace DUR]", "Stop everything in order and wait until it has ended.",
     shutdown_options, 0, 0, .run = ctl_shutdown},
    {0},
};

/* With stdout or stderr closed, the socket would get its number and take the output. */
static int open_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
            return -1;
    return 0;
}

/* What it ends with is the status of what it runs. */
static bool tells_status(const struct verb *v)
{
    return v->run == ctl_exec || v->run == ctl_terminal || v->run == ctl_terminal_attach;
}

/* stdout that can't be written is a failure, even of a verb that went well. */
static int flush_stdout(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (errno == EPIPE)
        return CTL_PIPE;
    fprintf(stderr, "sandboxctl: stdout: %s\n", strerror(errno));
    return code ? code : CTL_REFUSED;
}

int main(int argc, char **argv)
{
    struct args a;
    if (open_standard_fds() < 0)
        return CTL_REFUSED;
    if (argc > 1 && strcmp(argv[1], "--complete") == 0)
        return flush_stdout(complete(argc - 2, argv + 2));
    int code = args_parse(&a, argc, argv);
    /* A wrong command line must not look like a status. */
    if (code == CTL_USAGE && a.verb && tells_status(a.verb))
        code = CTL_NOT_RUN;
    if (code < 0)
        code = a.verb->run(&a);
    args_free(&a);
    return flush_stdout(code);
}
