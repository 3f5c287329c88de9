/*
 * Why a call's folder cannot be entered. Its shell could not, and says no more than that (dash does
 * not tell the reason), so a process of its own tries it anew as the session's user: init itself
 * touches no path that a user names, since its file system may not answer. The command is over by
 * then, and holds the lock until the reason is known or the time for it is over.
 */
#include "sessions/command.h"
#include "sessions/sessions_internal.h"
#include "sessions/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LOOK_S 5. /* so long the file system may take */

static void tell(struct command *c, int sys, const char *why)
{
    char message[256];
    snprintf(message, sizeof message, "cwd %.160s: %s", c->cwd, why);
    outcome_not_run(&c->outcome, "cwd", sys, message);
}

bool command_drop_look(struct command *c)
{
    struct child *look = c->look;
    c->look = NULL;
    ev_timer_stop(c->session->all->loop, &c->look_timer);
    if (!look)
        return false;
    (void)child_signal(look, SIGKILL);
    child_forget(look);
    return true;
}

static void on_looked(void *context, const struct child_exit *how)
{
    struct command *c = context;
    bool is_known = how->step && strcmp(how->step, spawn_step_name(SPAWN_CWD)) == 0;
    int why = is_known ? how->sys : EACCES; /* it lets this one in: so it did not then */
    c->look = NULL;
    ev_timer_stop(c->session->all->loop, &c->look_timer);
    tell(c, why, strerror(why));
    command_finish_if_complete(c);
}

static void on_time(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop, (void)events;
    struct command *c = w->data;
    char why[80];
    command_drop_look(c);
    snprintf(why, sizeof why, "the file system has not answered within %.0f s", LOOK_S);
    tell(c, ETIMEDOUT, why);
    command_finish_if_complete(c);
}

/* It is to go to the folder and no further: its program is none. */
static int begin_look(struct command *c, struct error *e)
{
    const struct session *s = c->session;
    CLEANUP_STRBUF struct strbuf path = {0};
    const char *argv[] = {"a look at it", NULL};
    const char *envp[] = {NULL};
    /* A relative one is meant from where its shell is. */
    if ((c->cwd[0] != '/' && strbuf_addf(&path, "/proc/%d/cwd/", (int)s->shell.pid) < 0) ||
        strbuf_adds(&path, c->cwd) < 0)
        return error_set(e, ERR_MEMORY, "no memory");
    struct spawn_plan plan = spawn_plan_empty();
    plan.program = "";
    plan.argv = argv;
    plan.envp = envp;
    plan.cwd = strbuf_text(&path);
    plan.user = session_owner(s);
    plan.on_exit = on_looked;
    plan.context = c;
    c->look = spawn(&plan, e);
    return c->look ? 0 : -1;
}

void command_cwd_refused(struct command *c)
{
    struct error e = {0};
    if (!c->cwd) {
        command_status_came(c, STATUS_NOT_RUN); /* the text wrote to the status FIFO itself */
        return;
    }
    c->has_returned = true;
    if (!c->is_decided) {
        tell(c, EACCES, strerror(EACCES));
        if (begin_look(c, &e) < 0) {
            error_wrap(&e, "it cannot be entered, and why is not known");
            tell(c, e.sys, e.text);
        } else {
            ev_timer_init(&c->look_timer, on_time, LOOK_S, 0.);
            c->look_timer.data = c;
            ev_timer_start(c->session->all->loop, &c->look_timer);
        }
    }
    command_finish_if_complete(c);
}
