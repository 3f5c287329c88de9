/*
 * The shell of a session over its life: start, restart from the state it wrote, replacement of one
 * that broke, and the state it dumps.
 */
#include "sessions/session.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/number.h"
#include "base/quote.h"
#include "sessions/command.h"
#include "sessions/events.h"
#include "sessions/proc.h"
#include "sessions/sessions_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILED_STARTS_MAX 3

int session_start_shell(struct session *s, struct error *e)
{
    bool is_new;
    s->is_ready = s->is_deaf = s->is_end_told = s->is_state_bad = false;
    s->poke_sequence = s->dump_sequence = 0; /* a remade session counts its orders anew */
    s->why.code = ERR_NONE;
    int known = session_know_family(s, e);
    if (known <= 0)
        return known < 0 ? error_wrap(e, "session '%s'", s->name) : 0;
    CLEANUP_FD int cgroup_fd = cgroup_open_to_start(&s->cgroup, &is_new);
    struct shell_plan plan = {.path = s->shell_path,
                              .family = s->family,
                              .user = session_owner(s),
                              .mark = s->mark,
                              .cwd = s->cwd,
                              .cgroup_fd = cgroup_fd,
                              .cgroup_is_new = is_new};
    if (s->last_cwd[0])
        plan.cwd = s->uses_fallback_cwd ? "/" : s->last_cwd;
    s->shell_user_us = s->shell_system_us = 0;
    s->start_sequence = shell_start(&s->shell, &plan, e);
    if (!s->start_sequence)
        return error_wrap(e, "session '%s'", s->name);
    return 0;
}

/* It gets no order any more; on_shell_end() starts the next one. */
static void end_shell(struct session *s)
{
    s->is_renewing = s->is_ready || s->is_renewing;
    s->is_ready = false;
    shell_kill(&s->shell);
}

/* Of a shell that has just died there is none to be seen: what was seen last stays. */
void session_note_cwd(struct session *s)
{
    proc_cwd(s->shell.pid, s->last_cwd, sizeof s->last_cwd);
    s->uses_fallback_cwd = false;
}

/* No shell can be had: whoever waits hears why; the session stays for another try. */
void session_give_up(struct session *s, const struct error *why)
{
    s->why = *why;
    LOG_WRN("session_failed", F_STR("session", s->name), F_STR("why", why->text));
    EVENT(EVENT_SESSION, "failed", F_STR("session", s->name), F_STR("why", why->text));
    session_refuse_waiters(s, why);
    session_tell_wishes(s, NULL, why);
    /* A configured one stays, so that its state can be seen; a new one was refused. */
    if (!s->was_ever_ready && !s->is_configured)
        session_free(s);
}

static void explain_start_failure(const struct session *s, const struct child_exit *how,
                                  struct error *e)
{
    char signal[16];
    if (s->is_state_bad)
        error_set(e, ERR_INVALID, "session '%s': its shell could not run this state to the end",
                  s->name);
    else if (how->step && strcmp(how->step, "cwd") == 0)
        error_set_sys(e, how->sys, "session '%s': cwd %s", s->name,
                      s->last_cwd[0] ? s->last_cwd
                      : s->cwd       ? s->cwd
                                     : ".");
    else if (how->step)
        error_set_sys(e, how->sys, "session '%s': shell %s: %s", s->name, s->shell_path, how->step);
    else if (s->is_deaf)
        error_set(e, ERR_STATE, "session '%s': shell %s was never ready: it carries out no orders",
                  s->name, s->shell_path);
    else if (WIFSIGNALED(how->status))
        error_set(e, ERR_STATE, "session '%s': shell %s ended before it was ready: %s", s->name,
                  s->shell_path, signal_name(WTERMSIG(how->status), signal, sizeof signal));
    else
        error_set(e, ERR_STATE, "session '%s': shell %s ended before it was ready, with status %d",
                  s->name, s->shell_path, WEXITSTATUS(how->status));
}

void session_restart_shell(struct session *s)
{
    struct error e = {0};
    s->restarts++;
    if (session_start_shell(s, &e) < 0)
        session_give_up(s, &e);
}

static void on_start_failed(struct session *s, const struct child_exit *how)
{
    struct error e = {0};
    /* Then the saved state is why, and without it there is no session. */
    bool is_first_of_saved = s->state_name && !s->was_ever_ready;
    explain_start_failure(s, how, &e);
    if (is_first_of_saved)
        error_wrap(&e, "%s", s->state_name);
    s->failed_starts++;
    /* The folder is gone: a session goes on in "/", which its next answer tells (case M1). */
    if (how->step && strcmp(how->step, "cwd") == 0 && s->last_cwd[0] && !s->uses_fallback_cwd) {
        s->uses_fallback_cwd = true;
        session_restart_shell(s);
    } else if (!how->step && s->restarts > 0 && !is_first_of_saved &&
               s->failed_starts < FAILED_STARTS_MAX && session_write_first_state(s, &e) == 0) {
        s->was_restarted = s->was_state_lost = true;
        EVENT(EVENT_SESSION, "restarted", F_STR("session", s->name), F_STR("state", "lost"),
              F_STR("why", e.text));
        session_restart_shell(s);
    } else {
        session_give_up(s, &e);
    }
}

void session_fail_dump(struct session *s, const struct error *why)
{
    void (*on_dumped)(void *, const struct error *) = s->on_dumped;
    s->on_dumped = NULL;
    if (on_dumped)
        on_dumped(s->dump_context, why);
}

static void on_shell_end(void *owner, const struct child_exit *how)
{
    struct session *s = owner;
    struct error e = {0};
    bool was_ready = s->is_ready || s->is_renewing || s->poke_sequence;
    s->poke_sequence = 0;
    s->is_ready = s->is_renewing = false;
    error_set(&e, ERR_STATE, "session '%s': the shell ended while it wrote its state", s->name);
    session_fail_dump(s, &e);
    if (s->teardown) {
        if (s->running)
            command_shell_ended(s->running, how, false);
        return;
    }
    if (!was_ready && !s->all->is_stopping) {
        on_start_failed(s, how);
        return;
    }
    bool has_state = session_has_full_state(s);
    s->has_state_text = has_state; /* the driver wrote it: to be forgotten before the next text */
    LOG_INF("shell_ended", F_STR("session", s->name), F_INT("wait_status", how->status),
            F_STR("state", has_state ? "restored" : "lost"));
    if (!s->all->is_stopping)
        EVENT(EVENT_SESSION, "restarted", F_STR("session", s->name),
              F_STR("state", has_state ? "restored" : "lost"));
    bool is_told = s->is_end_told && has_state;
    if (!s->running && !is_told) { /* the next answer tells */
        s->was_restarted = true;
        s->was_state_lost = s->was_state_lost || !has_state;
    }
    s->were_functions_lost = s->were_functions_lost || s->may_have_functions;
    s->may_have_functions = false;
    s->has_errexit = true; /* not known: do not order a nonzero status into the new shell */
    if (s->running)
        command_shell_ended(s->running, s->is_deaf ? NULL : how, has_state);
    if (s->all->is_stopping || s->teardown)
        return;
    if (!has_state && session_write_first_state(s, &e) < 0) {
        session_give_up(s, &e);
        return;
    }
    session_restart_shell(s);
}

/* The shell has no way to tell what went wrong; a file system without room is the usual reason. */
static void explain_lost_dump(const struct session *s, struct error *e)
{
    struct statvfs fs;
    bool is_full = fstatvfs(s->dir.fd, &fs) == 0 && fs.f_blocks > 0 && fs.f_bavail == 0;
    error_set(e, ERR_STATE, "session '%s': the shell could not write its state to %s%s", s->name,
              s->dir.path, is_full ? ": No space left on device" : "");
}

static void finish_dump(struct session *s)
{
    void (*on_dumped)(void *, const struct error *) = s->on_dumped;
    struct error e = {0};
    bool is_written = session_has_full_state(s);
    s->dump_sequence = 0;
    s->has_state_text = true;
    s->on_dumped = NULL;
    if (!is_written)
        explain_lost_dump(s, &e);
    else if (s->no_program)
        error_set_sys(&e, s->no_program == STATUS_NO_FILE ? ENOENT : EACCES, "exec");
    if (on_dumped)
        on_dumped(s->dump_context, e.code == ERR_NONE ? NULL : &e);
}

static void on_no_program(void *owner, int status)
{
    struct session *s = owner;
    s->no_program = status;
}

static void on_shell_status(void *owner, uint64_t sequence, int status, const char *flags)
{
    struct session *s = owner;
    if (flags[0] == '!' || flags[0] == '=') {
        if (s->running && flags[0] == '!')
            command_cwd_refused(s->running);
        else if (s->running)
            command_env_refused(s->running, flags + 1);
        return;
    }
    if (s->is_state_bad)
        return; /* it was killed for that */
    s->has_errexit = strchr(flags, 'e') != NULL;
    if (sequence == s->start_sequence) {
        s->start_sequence = 0;
        s->is_ready = true;
        s->failed_starts = 0;
        EVENT(EVENT_SESSION, "ready", F_STR("session", s->name), F_INT("pid", s->shell.pid));
        if (!s->running) /* one whose shell ended may still be torn down: its list is needed */
            session_note_children(s);
        session_begin_setup(s);
        session_step(s);
    } else if (sequence == s->poke_sequence) {
        session_on_poked(s);
    } else if (sequence == s->dump_sequence) {
        finish_dump(s);
    } else if (s->running) {
        s->last_status = status;
        command_status_came(s->running, status);
    }
}

void session_replace_shell(struct session *s, const char *reason)
{
    LOG_WRN("shell_replaced", F_STR("session", s->name), F_STR("why", reason));
    if (ftruncate(s->state_fd, 0) < 0)
        LOG_WRN("state_truncate", F_STR("session", s->name), F_STR("why", strerror(errno)));
    end_shell(s);
}

bool session_is_poisoned(const struct session *s, int status, const struct output *output)
{
    static const char sign[] = "looking for matching `)'";
    char tail[512];
    if (status != 2 || s->shell.kind != SHELL_BASH)
        return false;
    size_t n = output_last_bytes(output, STREAM_STDERR, tail, sizeof tail);
    return n && memmem(tail, n, sign, sizeof sign - 1);
}

void session_renew_shell(struct session *s)
{
    LOG_INF("shell_renewed", F_STR("session", s->name), F_STR("why", "bash syntax error in $("));
    s->has_state_text = s->is_end_told = true;
    end_shell(s);
}

static void on_shell_deaf(void *owner)
{
    struct session *s = owner;
    s->is_deaf = true;
    session_replace_shell(s, "it reads for orders but does not carry them out");
}

static void on_state_broken(void *owner)
{
    struct session *s = owner;
    if (!s->was_ever_ready && s->state_name) {
        s->is_state_bad = true;
        shell_kill(&s->shell);
        return;
    }
    LOG_WRN("state_broken", F_STR("session", s->name));
    s->was_restarted = s->was_state_lost = true;
}

const struct shell_events session_shell_events = {.on_status = on_shell_status,
                                                  .on_no_program = on_no_program,
                                                  .on_state_broken = on_state_broken,
                                                  .on_deaf = on_shell_deaf,
                                                  .on_end = on_shell_end};

/* The file "call": look for a program as `exec` would, and tell (flag "/") that it is not there or
 * can't be run. Only in conditions does errexit leave a shell alone. */
static int write_look(struct session *s, const char *program, struct error *e)
{
    CLEANUP_STRBUF struct strbuf name = {0}, text = {0};
    unsigned long long sequence = s->shell.sequence + 1;
    const char *dir = s->dir.path;
    int rc = quote_sh(&name, program, strlen(program));
    const char *q = strbuf_text(&name);
    if (rc == 0 && strchr(program, '/'))
        rc = strbuf_addf(&text,
                         "if \\command [ ! -e %s ]; then \\command printf '%%s\\n' '%llu 127 /'\n"
                         "elif \\command [ -d %s ] || \\command [ ! -x %s ]; then\n"
                         "\\command printf '%%s\\n' '%llu 126 /'\nfi >%s/status\n",
                         q, sequence, q, q, sequence, dir);
    else if (rc == 0)
        rc = strbuf_addf(&text,
                         "if %s -- %s; then \\:\nelse \\command printf '%%s\\n' '%llu 127 /' "
                         ">%s/status\nfi >/dev/null 2>&1\n",
                         s->shell.kind == SHELL_BASH ? "builtin type -P" : "\\command -v", q,
                         sequence, dir);
    if (rc < 0)
        return error_set(e, ERR_MEMORY, "session '%s': no memory", s->name);
    return session_fill(s, &s->call_fd, "call", &text, e);
}

int session_dump(struct session *s, const char *program,
                 void (*on_dumped)(void *context, const struct error *e), void *context,
                 struct error *e)
{
    CLEANUP_STRBUF struct strbuf empty = {0};
    if (session_fill(s, &s->state_fd, "state", &empty, e) < 0 ||
        (program && write_look(s, program, e) < 0))
        return -1;
    s->no_program = 0;
    s->dump_sequence = shell_dump(&s->shell, program ? "call" : NULL, e);
    if (!s->dump_sequence)
        return -1;
    s->on_dumped = on_dumped;
    s->dump_context = context;
    return 0;
}
