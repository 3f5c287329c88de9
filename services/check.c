/*
 * One attempt of a check: its clock, its verdict and its end. Every verdict is told by the timer,
 * from the loop, though some are known at once: the caller has its pointer by then.
 */
#include "services/check_attempt.h"
#include "base/head.h"

#include <stdlib.h>

#define LAST_LOOK_MS 10 /* where init itself was held up */

void check_set_timer(struct check_attempt *a, uint64_t ms)
{
    ev_now_update(a->plan.loop); /* a turn may have taken long, and a timeout may be short */
    ev_timer_stop(a->plan.loop, &a->timer);
    ev_timer_set(&a->timer, (double)ms / 1000.0, 0.);
    ev_timer_start(a->plan.loop, &a->timer);
}

static bool is_net(const struct check_attempt *a)
{
    return a->kind == CHECK_TCP || a->kind == CHECK_HTTP;
}

void check_conclude(struct check_attempt *a, bool is_ok)
{
    a->is_over = true;
    a->is_ok = is_ok;
    if (is_net(a))
        check_net_end(a);
    check_set_timer(a, 0);
}

void check_attempt_free(struct check_attempt *a)
{
    ev_timer_stop(a->plan.loop, &a->timer);
    if (is_net(a))
        check_net_end(a);
    else
        check_run_end(a);
    free(a);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct check_attempt *a = w->data;
    if (!a->is_over && !a->is_last_look) { /* what came in time may not be seen yet */
        a->is_last_look = true;
        check_set_timer(a, LAST_LOOK_MS);
    } else if (!a->is_over && is_net(a)) {
        check_net_expire(a);
    } else if (!a->is_over) {
        check_run_expire(a);
    } else {
        a->is_telling = true;
        a->plan.on_done(a->plan.context, a->is_ok, a->is_ok ? "ok" : a->why.text);
        check_attempt_free(a);
    }
}

static int begin(struct check_attempt *a, struct error *e)
{
    switch (a->kind) {
    case CHECK_TCP:
    case CHECK_HTTP:
        return check_net_begin(a, e);
    case CHECK_COMMAND:
    case CHECK_FILE:
    case CHECK_UNIX:
        return check_run_begin(a, e);
    case CHECK_NONE:
    case CHECK_FD:
        break;
    }
    return error_set(e, ERR_INVALID, "this is nothing to be asked");
}

struct check_attempt *check_start(const struct check_plan *plan, struct error *e)
{
    struct check_attempt *a = calloc(1, sizeof *a);
    if (!a) {
        error_set(e, ERR_MEMORY, "no memory for a check");
        return NULL;
    }
    a->plan = *plan;
    a->kind = plan->check->kind;
    head_copy(a->text, sizeof a->text, plan->check->text ? plan->check->text : "");
    a->net.fd = -1;
    ev_timer_init(&a->timer, on_timer, 0., 0.);
    a->timer.data = a;
    check_set_timer(a, plan->timeout_ms);
    if (begin(a, e) < 0) {
        check_attempt_free(a);
        return NULL;
    }
    return a;
}

void check_moved(struct check_attempt *a, const struct check *same)
{
    a->plan.check = same;
}

bool check_has(const struct check_attempt *a, pid_t pid)
{
    return a && a->run.child && a->run.child->pid == pid;
}

void check_cancel(struct check_attempt *a)
{
    if (!a || a->is_telling)
        return;
    if (!check_run_is_live(a)) {
        check_attempt_free(a);
        return;
    }
    ev_timer_stop(a->plan.loop, &a->timer);
    a->is_cancelled = true;
    check_run_expire(a);
}
