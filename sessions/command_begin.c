/*
 * The beginning of a command: its files in the session's folder, then the order to the shell.
 */
#include "sessions/command.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/quote.h"
#include "sessions/events.h"
#include "sessions/oom.h"
#include "sessions/sessions_internal.h"
#include "sessions/proc.h"
#include "sessions/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define READONLY_TOLD 24 /* bytes of a name that fit into a status line */

/* stdin asked for: a FIFO of its own; its end of file is our close. */
static int open_stdin(struct command *c, struct error *e)
{
    struct session *s = c->session;
    CLEANUP_FD int keeper = workdir_fifo(&s->dir, "in", s->has_user ? &s->user : NULL, e);
    if (keeper < 0)
        return -1;
    int fd = openat(s->dir.fd, "in", O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_set_sys(e, errno, "%s/in", s->dir.path);
    feed_open(&c->stdin_feed, fd, fd_take(&keeper));
    return 0;
}

/* The file "go": change to the call's folder, or tell (flag "!") that it cannot be. */
static int write_go(struct command *c, struct error *e)
{
    struct session *s = c->session;
    CLEANUP_STRBUF struct strbuf go = {0};
    const char *dir = s->dir.path;
    /* "./" keeps CDPATH and a leading "-" out of it. */
    CLEANUP_STRBUF struct strbuf path = {0};
    if ((c->cwd[0] != '/' && strbuf_adds(&path, "./") < 0) || strbuf_adds(&path, c->cwd) < 0 ||
        strbuf_adds(&go, "\\command cd -- ") < 0 || quote_sh(&go, path.data, path.len) < 0 ||
        strbuf_addf(
            &go,
            " 2>/dev/null || { \\command printf '%%s\\n' '%llu 125 !' >%s/status; return 125; "
            "}\n\\command . %s/text 2>%s/err\n",
            (unsigned long long)s->shell.sequence + 1, dir, dir, dir) < 0)
        return error_set(e, ERR_MEMORY, "command %s: no memory", c->id);
    return session_fill(s, &s->go_fd, "go", &go, e);
}

/* bash tells of a readonly variable and runs the text all the same, with the old value: ask before
 * (${NAME@a}, "Parameter Expansion" in bash(1)). dash and ash do not run it and say why. */
static int add_readonly_check(const struct command *c, struct strbuf *call, const char *item)
{
    const struct session *s = c->session;
    int n = (int)strcspn(item, "=");
    if (s->shell.kind != SHELL_BASH)
        return 0;
    return strbuf_addf(call,
                       "[[ ${%.*s+${%.*s@a}} != *r* ]] || { \\command printf '%%s\\n' '%llu 125 "
                       "=%.*s' >%s/status; return 125; }\n",
                       n, item, n, item, (unsigned long long)s->shell.sequence + 1,
                       n > READONLY_TOLD ? READONLY_TOLD : n, item, s->dir.path);
}

/* The file "call": the text with the call's environment as temporary assignments before it, which
 * the shell takes back by itself, value and export flag (checked on bash 5.2, dash, busybox ash).
 * With a cwd PWD and OLDPWD are such assignments too, and the order goes back to $PWD after it.
 * The caller's stderr is opened for the text alone: what `set -x` shows of these lines is not its
 * business (case A3). */
static int write_call(struct command *c, struct error *e)
{
    struct session *s = c->session;
    CLEANUP_STRBUF struct strbuf call = {0};
    for (size_t i = 0; i < c->env.count; i++)
        if (add_readonly_check(c, &call, c->env.items[i]) < 0)
            return error_set(e, ERR_MEMORY, "command %s: no memory", c->id);
    if (c->cwd && (write_go(c, e) < 0 || strbuf_adds(&call, "PWD=$PWD OLDPWD=${OLDPWD-} ") < 0))
        return -1;
    for (size_t i = 0; i < c->env.count; i++) {
        const char *item = c->env.items[i], *value = strchr(item, '=') + 1;
        if (strbuf_add(&call, item, (size_t)(value - item)) < 0 ||
            quote_sh(&call, value, strlen(value)) < 0 || strbuf_adds(&call, " ") < 0)
            return error_set(e, ERR_MEMORY, "command %s: no memory", c->id);
    }
    const char *dir = s->dir.path;
    if ((c->cwd ? strbuf_addf(&call, "\\command . %s/go\n", dir)
                : strbuf_addf(&call, "\\command . %s/text 2>%s/err\n", dir, dir)) < 0)
        return error_set(e, ERR_MEMORY, "command %s: no memory", c->id);
    return session_fill(s, &s->call_fd, "call", &call, e);
}

static int prepare(struct command *c, struct error *e)
{
    struct session *s = c->session;
    int fd[STREAM_COUNT];
    if (session_fill(s, &s->text_fd, "text", &c->text, e) < 0)
        return -1;
    if ((c->cwd || c->env.count) && write_call(c, e) < 0)
        return -1;
    if (c->has_stdin && open_stdin(c, e) < 0)
        return -1;
    if (session_open_fifos(s, fd, e) < 0)
        return -1;
    capture_start(&c->capture, s->all->loop, c->output, fd);
    return 0;
}

static bool says(const struct strbuf *text, const char *word)
{
    return text->len && memmem(text->data, text->len, word, strlen(word));
}

/* Whether a text may define functions: it says `()`, has a file say it, or has it made up. */
static bool may_define_function(const struct strbuf *text)
{
    static const char blank[] = " \t", before_word[] = ";&|({!\n";
    const char *at = strbuf_text(text), *end = at + text->len;
    char last = '\n'; /* that is no blank */
    for (; at < end; at++) {
        bool is_blank = memchr(blank, *at, sizeof blank - 1) != NULL;
        if ((*at == ')' && last == '(') ||
            (*at == '.' && at + 1 < end && memchr(blank, at[1], sizeof blank - 1) &&
             memchr(before_word, last, sizeof before_word - 1)))
            return true;
        last = is_blank ? last : *at;
    }
    return says(text, "eval");
}

void command_on_granted(void *owner)
{
    struct command *c = owner;
    struct session *s = c->session;
    struct error e = {0};
    char in[sizeof s->dir.path + 8];
    if (prepare(c, &e) < 0) {
        command_refuse(c, "files", &e);
        return;
    }
    snprintf(in, sizeof in, "%s%s", c->has_stdin ? s->dir.path : "/dev/null",
             c->has_stdin ? "/in" : "");
    c->has_call = c->cwd || c->env.count;
    struct shell_text how = {.file = c->has_call ? "call" : "text",
                             .stdin_path = in,
                             .opens_err = !c->has_call,
                             .restores_cwd = c->cwd != NULL,
                             .touches_signals = says(&c->text, "trap") || says(&c->text, "kill"),
                             .last_status = s->has_errexit ? 0 : s->last_status};
    s->may_have_traps = s->may_have_traps || how.touches_signals;
    if (s->shell.kind == SHELL_POSIX && !s->may_have_functions)
        s->may_have_functions = may_define_function(&c->text);
    strbuf_cut(&c->text, COMMAND_TEXT_SHOWN); /* the file has it all */
    env_free(&c->env);
    lock_forget_bytes(&c->lock);
    session_note_cwd(s);
    s->running = c;
    c->state = COMMAND_RUNNING;
    c->began_ns = clock_mono_ns();
    c->began_ticks = proc_ticks_now();
    c->oom_before = oom_kills();
    c->shell_pid = s->shell.pid;
    if (!shell_run(&s->shell, &how, &e)) {
        command_refuse(c, "order", &e);
        session_replace_shell(s, "it takes no orders");
        return;
    }
    EVENT(EVENT_COMMAND, "started", F_STR("session", s->name), F_STR("id", c->id),
          F_INT("pid", s->shell.pid), F_STR("text", command_text(c)));
    command_start_clocks(c);
    if (c->events && c->events->on_started)
        c->events->on_started(c->owner, s->shell.pid);
}
