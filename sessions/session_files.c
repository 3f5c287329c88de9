/*
 * The files of a session's folder: command text, state, FIFOs. Any of them may have been deleted or
 * replaced by the session's user: they are made anew, never followed.
 */
#include "sessions/session.h"
#include "base/fd.h"
#include "base/quote.h"
#include "sessions/saved_state.h"
#include "sessions/sessions_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int session_make_folder(struct session *s, struct error *e)
{
    char name[32];
    snprintf(name, sizeof name, "s%llu", (unsigned long long)++s->all->numbers);
    if (workdir_open(&s->dir, s->all->runtime, name, e) < 0)
        return -1;
    cgroup_make(&s->cgroup, name);
    const struct user *u = session_owner(s);
    if ((s->state_fd = workdir_file(&s->dir, "state", u, e)) < 0 ||
        (s->text_fd = workdir_file(&s->dir, "text", u, e)) < 0 ||
        (s->call_fd = workdir_file(&s->dir, "call", u, e)) < 0 ||
        (s->go_fd = workdir_file(&s->dir, "go", u, e)) < 0)
        return -1;
    s->has_dirty_fifos = true; /* made with the first command */
    return shell_init(&s->shell, s->all->loop, &s->dir, u, &session_shell_events, s, e);
}

int session_fill(struct session *s, int *fd, const char *name, const struct strbuf *bytes,
                 struct error *e)
{
    if (!workdir_has(&s->dir, name, *fd)) {
        fd_close(fd);
        *fd = workdir_file(&s->dir, name, session_owner(s), e);
        if (*fd < 0)
            return -1;
    }
    return workdir_fill(&s->dir, *fd, name, bytes->data, bytes->len, e);
}

void session_close_folder(struct session *s)
{
    shell_release(&s->shell);
    fd_close(&s->state_fd);
    fd_close(&s->text_fd);
    fd_close(&s->call_fd);
    fd_close(&s->go_fd);
    workdir_close(&s->dir, s->all->runtime);
}

/* The session's user removed the folder itself (root can): it gets another. There is no shell now.
 */
static int renew_folder(struct session *s, struct error *e)
{
    struct stat st;
    if (fstat(s->dir.fd, &st) < 0 || st.st_nlink > 0)
        return 0;
    session_close_folder(s);
    return session_make_folder(s, e);
}

/* The state file of a shell that starts with nothing but its environment. */
int session_write_first_state(struct session *s, struct error *e)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    if (renew_folder(s, e) < 0)
        return -1;
    if (env_add_exports(&text, &s->env) < 0)
        return error_set(e, ERR_MEMORY, "session '%s': no memory", s->name);
    s->has_state_text = true;
    return session_fill(s, &s->state_fd, "state", &text, e);
}

/* True if the shell wrote its whole state before it ended: the file closes with a mark. A shell
 * that ended by itself while the next text was prepared may have been in the middle of it when the
 * file was emptied (session_forget_old_state()): what it had written until then is a hole. */
bool session_has_full_state(const struct session *s)
{
    static const char end[] = SAVED_STATE_END;
    char head, tail[sizeof end - 1];
    struct stat st;
    if (fstat(s->state_fd, &st) < 0 || st.st_size < (off_t)sizeof tail ||
        pread(s->state_fd, &head, 1, 0) != 1 || head == '\0')
        return false;
    return pread(s->state_fd, tail, sizeof tail, st.st_size - (off_t)sizeof tail) ==
               (ssize_t)sizeof tail &&
           memcmp(tail, end, sizeof tail) == 0;
}

void session_forget_old_state(struct session *s)
{
    struct stat st;
    /* A child that a signal meets between fork and the reset of its traps writes it as well (seen
     * in bash): asked each time, or a shell that is killed much later would come back from that. */
    bool has_text = s->has_state_text || (fstat(s->state_fd, &st) == 0 && st.st_size > 0);
    if (has_text && ftruncate(s->state_fd, 0) == 0)
        s->has_state_text = false;
}

int session_take_state(struct session *s, const struct workdir *to, struct error *e)
{
    if (renameat(s->dir.fd, "state", to->fd, "state") < 0)
        return error_set_sys(e, errno, "move %s/state to %s", s->dir.path, to->path);
    fd_close(&s->state_fd);
    s->has_state_text = false;
    s->state_fd = workdir_file(&s->dir, "state", session_owner(s), e);
    return s->state_fd < 0 ? -1 : 0;
}

int session_detach_state(struct session *s, struct error *e)
{
    int fresh = workdir_file(&s->dir, "state", session_owner(s), e);
    if (fresh < 0)
        return -1;
    int fd = s->state_fd;
    s->state_fd = fresh;
    s->has_state_text = false;
    return fd;
}

/* What the new session wants otherwise comes behind the saved state, which may have made any of it
 * readonly: that is not worth the session. */
static int add_wishes(struct strbuf *to, const struct session *s, const struct session_request *q)
{
    int rc = 0;
    for (size_t i = 0; i <= q->env.count && rc == 0; i++) {
        const char *item = i < q->env.count ? q->env.items[i] : s->mark;
        const char *value = strchr(item, '=') + 1;
        rc = strbuf_addf(to, "\\command export %.*s", (int)(value - item), item);
        rc = rc < 0 ? rc : quote_sh(to, value, strlen(value));
        rc = rc < 0 ? rc : strbuf_adds(to, " || \\:\n");
    }
    if (q->cwd && rc == 0) {
        rc = strbuf_adds(to, "\\command cd -- ");
        rc = rc < 0 ? rc : quote_sh(to, q->cwd, strlen(q->cwd));
        rc = rc < 0 ? rc : strbuf_adds(to, " || \\:\n");
    }
    return rc < 0 ? rc : strbuf_adds(to, "\\:\n" SAVED_STATE_END);
}

int session_write_saved_state(struct session *s, const struct session_request *q, struct error *e)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    int known = session_know_family(s, e);
    if (known < 0 || saved_state_check(q->state, q->state_name, known ? s->family : NULL, e) < 0)
        return -1;
    if (!(s->state_name = strdup(q->state_name)) ||
        strbuf_add(&text, q->state->data, q->state->len) < 0 || add_wishes(&text, s, q) < 0)
        return error_set(e, ERR_MEMORY, "session '%s': no memory", s->name);
    s->has_state_text = s->may_have_traps = true;
    return session_fill(s, &s->state_fd, "state", &text, e);
}

int session_open_fifos(struct session *s, int fd[STREAM_COUNT], struct error *e)
{
    static const char *const names[STREAM_COUNT] = {"out", "err"};
    for (int i = 0; i < STREAM_COUNT; i++) {
        struct error ignored;
        fd[i] = s->has_dirty_fifos ? -1 : workdir_fifo_reader(&s->dir, names[i], &ignored);
        if (fd[i] >= 0)
            continue;
        int made = workdir_fifo(&s->dir, names[i], session_owner(s), e);
        bool is_made = made >= 0;
        /* A reader that opens while there is no writer sees no hang-up until one has come and
         * gone (fifo(7)); so the descriptor that made it is closed first. */
        fd_close(&made);
        if (is_made)
            fd[i] = workdir_fifo_reader(&s->dir, names[i], e);
        if (fd[i] < 0) {
            if (i > 0)
                fd_close(&fd[0]);
            return -1;
        }
    }
    s->has_dirty_fifos = false;
    return 0;
}
