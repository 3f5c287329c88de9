/*
 * The family of a session's shell, which decides on its driver: told at once where that cannot
 * block, else by a process that looks, since the path may lead to a file system that never answers.
 * Until then the session starts, and the shell after it.
 */
#include "base/fd.h"
#include "sessions/look.h"
#include "sessions/saved_state.h"
#include "sessions/sessions_internal.h"
#include "sessions/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define HEAD_SIZE 128 /* bytes of a saved state that hold its first line */

void session_drop_look(struct session *s)
{
    if (s->look) {
        (void)child_signal(s->look, SIGKILL);
        child_forget(s->look);
    }
    s->look = NULL;
    fd_close(&s->look_fd);
}

/* A shell of another family could not run the saved state that it is to begin with, if it is. */
static int check_saved_state(const struct session *s, struct error *e)
{
    static const char header[] = SAVED_STATE_HEADER;
    char head[HEAD_SIZE];
    ssize_t n = s->state_name ? pread(s->state_fd, head, sizeof head, 0) : 0;
    if (n < (ssize_t)sizeof header || memcmp(head, header, sizeof header - 1) != 0)
        return 0;
    return saved_state_check_family(head, (size_t)n, s->state_name, s->family, e);
}

static void on_looked(void *context, const struct child_exit *how)
{
    struct session *s = context;
    struct error e = {0};
    (void)how; /* one that was ended has told nothing */
    ssize_t n = read(s->look_fd, s->family, sizeof s->family - 1);
    s->family[n > 0 ? n : 0] = '\0';
    s->family[strcspn(s->family, "\n")] = '\0';
    s->look = NULL;
    fd_close(&s->look_fd);
    if (!s->family[0])
        shell_family_of_name(s->shell_path, s->family);
    if (s->teardown || s->all->is_stopping)
        return;
    if (check_saved_state(s, &e) < 0) {
        error_wrap(&e, "session '%s'", s->name);
        session_give_up(s, &e);
    } else if (session_start_shell(s, &e) < 0) {
        session_give_up(s, &e);
    }
}

static int begin_look(struct session *s, int theirs, struct error *e)
{
    const char *argv[] = {"sandbox-init", LOOK_OPTION, LOOK_SHELL, s->shell_path, NULL};
    struct spawn_plan plan = spawn_plan_self(argv);
    plan.stdio[1] = theirs;
    plan.on_exit = on_looked;
    plan.context = s;
    s->look = spawn(&plan, e);
    return s->look ? 0 : -1;
}

int session_know_family(struct session *s, struct error *e)
{
    int ends[2];
    if (s->family[0])
        return 1;
    if (s->look)
        return 0;
    if (shell_family_at_once(s->shell_path, s->family))
        return 1;
    s->family[0] = '\0';
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_set_sys(e, errno, "shell %s: pipe", s->shell_path);
    s->look_fd = ends[0];
    int rc = begin_look(s, ends[1], e);
    close(ends[1]);
    if (rc < 0)
        fd_close(&s->look_fd);
    return rc;
}
