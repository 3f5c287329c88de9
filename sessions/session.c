/*
 * Making, finding and freeing sessions, and the step that grants the lock. Its shell, its files,
 * what it leaves behind and its end stand in session_*.c.
 */
#include "sessions/session.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/number.h"
#include "sessions/command.h"
#include "sessions/events.h"
#include "sessions/process.h"
#include "sessions/run.h"
#include "sessions/sessions_internal.h"
#include "sessions/stray_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const state_names[] = {
    [SESSION_STARTING] = "starting", [SESSION_IDLE] = "idle",     [SESSION_BUSY] = "busy",
    [SESSION_FAILED] = "failed",     [SESSION_ENDING] = "ending",
};
_Static_assert(sizeof(state_names) / sizeof(state_names[0]) == SESSION_STATE_COUNT, "all named");

const char *session_state_name(enum session_state state)
{
    return state_names[state];
}

enum session_state session_state(const struct session *s)
{
    if (s->teardown)
        return SESSION_ENDING;
    if (s->why.code != ERR_NONE && !s->shell.child)
        return SESSION_FAILED;
    if (!s->is_ready)
        return SESSION_STARTING;
    return s->lock.holder ? SESSION_BUSY : SESSION_IDLE;
}

void session_wish_drop(struct session_wish *w)
{
    if (w->link.next)
        list_remove(&w->link);
}

void session_add_wish(struct session *s, struct session_wish *w)
{
    if (w)
        list_append(&s->wishes, &w->link);
}

/* Tell everybody who waits for the session and forget them. */
void session_tell_wishes(struct session *s, const struct teardown_report *report,
                         const struct error *e)
{
    while (!list_is_empty(&s->wishes)) {
        struct session_wish *w = list_entry(s->wishes.next, struct session_wish, link);
        list_remove(&w->link);
        w->on_done(w->owner, s, report, e);
    }
}

const struct user *session_owner(const struct session *s)
{
    return s->has_user ? &s->user : NULL;
}

/* Give back what make() has taken. */
static void unmake(struct session *s)
{
    s->is_made = false;
    session_drop_look(s);
    s->family[0] = '\0';
    session_close_folder(s);
    cgroup_remove(&s->cgroup);
    env_free(&s->env);
    free(s->shell_path);
    free(s->cwd);
    free(s->setup);
    s->shell_path = s->cwd = s->setup = NULL;
    s->has_user = false;
}

void session_free(struct session *s)
{
    if (s->running)
        command_discard(s->running);
    ev_timer_stop(s->all->loop, &s->poke);
    unmake(s);
    free(s->older);
    free(s->state_name);
    if (s->link.next && !list_is_empty(&s->link)) {
        list_remove(&s->link);
        s->all->session_count--;
    }
    free(s);
}

static int set_string(char **to, const char *first, const char *second, const char *third,
                      struct error *e)
{
    const char *from = first ? first : second ? second : third;
    if (from && !(*to = strdup(from)))
        return error_set(e, ERR_MEMORY, "session: no memory");
    return 0;
}

/* The environment a fresh shell begins with: that of all sessions, of the file, of the request. */
static int set_env(struct session *s, const struct session_request *q, struct error *e)
{
    if (q->like)
        return env_copy(&s->env, &q->like->env, e) < 0 ? -1 : env_put(&s->env, s->mark, e);
    if (sessions_add_env(s->all, session_owner(s), &s->env, e) < 0)
        return -1;
    const struct session_config *c = q->configured;
    for (size_t i = 0; c && i < c->env.count; i++)
        if (env_put(&s->env, c->env.items[i], e) < 0)
            return -1;
    for (size_t i = 0; i < q->env.count; i++)
        if (env_check(q->env.items[i], e) < 0 || env_put(&s->env, q->env.items[i], e) < 0)
            return -1;
    return env_put(&s->env, s->mark, e);
}

static int copy_settings(struct session *s, const struct session *from, struct error *e)
{
    s->limits = from->limits;
    s->soft_timeout_ms = from->soft_timeout_ms;
    s->kill_grace_ms = from->kill_grace_ms;
    s->queue_limit = from->queue_limit;
    s->output_keep = from->output_keep;
    s->output_limit = from->output_limit;
    s->output_keep_age_ms = from->output_keep_age_ms;
    s->user = from->user;
    if (set_string(&s->setup, from->setup, NULL, NULL, e) < 0)
        return -1;
    s->has_user = from->has_user;
    memcpy(s->last_cwd, from->last_cwd, sizeof s->last_cwd);
    return set_string(&s->shell_path, from->shell_path, NULL, NULL, e) < 0
               ? -1
               : set_string(&s->cwd, from->cwd, NULL, NULL, e);
}

static int set_settings(struct session *s, const struct session_request *q, struct error *e)
{
    if (q->like)
        return copy_settings(s, q->like, e);
    const struct session_config *d = &s->all->config->defaults, *c = q->configured;
    const struct session_config *limits = c ? c : d;
    s->limits = sessions_clock_limits(limits);
    s->soft_timeout_ms = limits->command_soft_timeout_ms;
    if (q->has_timeout)
        s->limits.total_ms = q->timeout_ms;
    s->kill_grace_ms = limits->kill_grace_ms;
    s->queue_limit = limits->queue_limit;
    s->output_keep = limits->output_keep;
    s->output_limit = limits->output_limit;
    s->output_keep_age_ms = limits->output_keep_age_ms;
    s->is_configured = c != NULL;
    if (set_string(&s->setup, q->setup, c ? c->setup : NULL, d->setup, e) < 0)
        return -1;
    s->needs_setup = s->setup && (q->setup || !q->state);
    if (set_string(&s->shell_path, q->shell, c ? c->shell : NULL, d->shell, e) < 0 ||
        set_string(&s->cwd, q->cwd, c ? c->cwd : NULL, d->cwd, e) < 0)
        return -1;
    if (!s->shell_path && !(s->shell_path = strdup(sessions_default_shell())))
        return error_set(e, ERR_MEMORY, "session: no memory");
    if (s->shell_path[0] != '/')
        return error_set(e, ERR_INVALID, "shell %s: want an absolute path", s->shell_path);
    if (s->cwd && s->cwd[0] != '/')
        return error_set(e, ERR_INVALID, "cwd %s: want an absolute path", s->cwd);
    const char *user = q->user ? q->user : c && c->user ? c->user : d->user;
    user_self(&s->user);
    if (!user)
        return 0;
    if (user_lookup(user, &s->user, e) < 0)
        return -1;
    s->has_user = s->user.uid != geteuid() || s->user.gid != getegid();
    if (s->has_user && geteuid() != 0)
        return error_set(e, ERR_DENIED, "user %s: init runs as uid %u and cannot switch users",
                         user, (unsigned)geteuid());
    return 0;
}

static int name_session(struct sessions *all, struct session *s, const char *name, struct error *e)
{
    if (name && name_check(name) < 0)
        return error_set(e, ERR_INVALID,
                         "session name '%.80s': want 1 to 64 of A-Z a-z 0-9 _ . -, first a letter "
                         "or digit",
                         name);
    if (name)
        snprintf(s->name, sizeof s->name, "%s", name);
    else
        snprintf(s->name, sizeof s->name, "session-%llu", (unsigned long long)++all->numbers);
    snprintf(s->mark, sizeof s->mark, "SANDBOX_SESSION=%s", s->name);
    list_each(other, &all->sessions, struct session, link) if (strcmp(other->name, s->name) == 0)
    {
        return error_set(e, ERR_EXISTS, "session '%s' %s", s->name,
                         other->teardown ? "is being deleted" : "already exists");
    }
    return 0;
}

static int make(struct session *s, const struct session_request *q, struct error *e)
{
    if (set_settings(s, q, e) < 0 || set_env(s, q, e) < 0 || session_make_folder(s, e) < 0)
        return -1;
    s->is_made = true;
    return 0;
}

int session_remake(struct session *s, struct error *e)
{
    struct session_request q = {.configured = config_session(s->all->config, s->name)};
    unmake(s);
    if (make(s, &q, e) == 0)
        return 0;
    return error_wrap(e, "session '%s'", s->name);
}

/* A configured session that cannot be made stays, so that its state and the reason can be seen. */
static void keep_failed(struct session *s, const struct session_request *q, struct error *e)
{
    s->is_configured = q->configured != NULL;
    error_wrap(e, "session '%s'", s->name);
    session_give_up(s, e);
}

struct session *session_create(struct sessions *all, const struct session_request *q,
                               struct session_wish *wish, struct error *e)
{
    if (all->is_stopping) {
        error_set(e, ERR_UNAVAILABLE, "init is stopping");
        return NULL;
    }
    if (all->session_count >= all->config->max_sessions) {
        error_set(e, ERR_LIMIT, "%u sessions exist, max_sessions is %llu", all->session_count,
                  (unsigned long long)all->config->max_sessions);
        return NULL;
    }
    if (fd_next_is_scarce(SESSIONS_FD_RESERVE)) {
        error_set(e, ERR_LIMIT, "too few descriptors are left for a session (RLIMIT_NOFILE)");
        return NULL;
    }
    struct session *s = calloc(1, sizeof *s);
    if (!s) {
        error_set(e, ERR_MEMORY, "session: no memory");
        return NULL;
    }
    s->all = all;
    s->dir.fd = s->state_fd = s->text_fd = s->call_fd = s->go_fd = s->look_fd = -1;
    s->created_ns = clock_mono_ns();
    lock_init(&s->lock, all->loop, s->name, &all->waiting_bytes);
    list_init(&s->wishes);
    ev_timer_init(&s->poke, session_on_poke, 0., POKE_S);
    s->poke.data = s;
    bool is_named = name_session(all, s, q->name, e) == 0;
    bool is_made = is_named && make(s, q, e) == 0;
    if (is_named && !is_made && !q->configured)
        error_wrap(e, "session '%s'", s->name);
    bool is_begun =
        is_made &&
        (q->state ? session_write_saved_state(s, q, e) : session_write_first_state(s, e)) == 0 &&
        session_start_shell(s, e) == 0;
    if (!is_begun && (!is_named || !q->configured)) {
        session_free(s);
        return NULL;
    }
    list_append(&all->sessions, &s->link);
    all->session_count++;
    EVENT(EVENT_SESSION, "created", F_STR("session", s->name), F_STR("shell", s->shell_path),
          F_STR("user", s->user.name));
    session_add_wish(s, wish);
    if (!is_begun)
        keep_failed(s, q, e);
    return s;
}

struct session *session_find(struct sessions *all, const char *name, struct error *e)
{
    list_each(s, &all->sessions, struct session, link) if (strcmp(s->name, name) == 0)
    {
        if (!s->teardown || s->ends_for_reset)
            return s;
        error_set(e, ERR_STATE, "session '%s' is being deleted", name);
        return NULL;
    }
    error_set(e, ERR_NOT_FOUND, "session '%.80s': not found (see: sandboxctl session list)", name);
    return NULL;
}

int session_check_queue(const struct session *s, const struct lock_patience *patience, size_t bytes,
                        struct error *e)
{
    size_t held = s->all->waiting_bytes;
    size_t limit = SESSIONS_WAITING_TEXTS * s->all->config->text_limit;
    if (session_state(s) == SESSION_IDLE && !lock_is_busy(&s->lock))
        return 0;
    if (patience->has_limit && patience->ms == 0 && lock_is_busy(&s->lock))
        return lock_explain(&s->lock, 0, e);
    if (lock_is_busy(&s->lock) && s->lock.waiter_count >= s->queue_limit)
        return error_set(e, ERR_LIMIT, "session '%s': %u commands wait, queue_limit is %llu",
                         s->name, s->lock.waiter_count, (unsigned long long)s->queue_limit);
    if (bytes > limit || held > limit - bytes)
        return error_set(
            e, ERR_LIMIT,
            "session '%s': what waits in all queues holds %zu bytes and this one needs "
            "%zu more; the limit for all together is %zu; try again later",
            s->name, held, bytes, limit);
    return 0;
}

void session_enqueue(struct session *s, struct lock_request *r)
{
    if (r->kind != EVENT_SESSION && (session_state(s) != SESSION_IDLE || lock_is_busy(&s->lock)))
        EVENT(r->kind, "queued", F_STR("session", s->name), F_STR("id", r->id),
              F_INT("before", s->lock.waiter_count + (s->lock.holder != NULL)),
              F_STR("text", lock_text(r)));
    lock_wait(&s->lock, r);
}

void session_refuse_waiters(struct session *s, const struct error *why)
{
    while (!list_is_empty(&s->lock.waiters)) {
        struct lock_request *r = list_entry(s->lock.waiters.next, struct lock_request, link);
        lock_leave(&s->lock, r);
        r->on_refused(r->owner, why);
    }
}

void session_step(struct session *s)
{
    struct error e = {0};
    if (s->is_stepping)
        return;
    s->is_stepping = true;
    if (session_state(s) == SESSION_FAILED && s->lock.waiter_count > 0 && !s->all->is_stopping) {
        s->failed_starts = 0;
        if ((!s->is_made && session_remake(s, &e) < 0) || session_write_first_state(s, &e) < 0 ||
            (s->restarts++, session_start_shell(s, &e) < 0))
            session_give_up(s, &e);
    }
    while (session_state(s) == SESSION_IDLE) {
        struct lock_request *r = lock_grant(&s->lock);
        if (!r)
            break;
        if (!shell_is_sound(&s->shell)) {
            lock_return(&s->lock);
            session_replace_shell(s, "its control pipe is gone");
            break;
        }
        session_forget_old_state(s);
        r->on_granted(r->owner);
    }
    s->is_stepping = false;
    if (session_state(s) == SESSION_IDLE)
        session_watch_idle_shell(s);
}

void sessions_stop(struct sessions *all)
{
    struct error why = {0};
    error_set(&why, ERR_UNAVAILABLE, "init is stopping");
    all->is_stopping = true;
    processes_stop(all);
    list_each(s, &all->sessions, struct session, link) session_refuse_waiters(s, &why);
}

void sessions_free(struct sessions *all)
{
    struct error why = {0};
    error_set(&why, ERR_UNAVAILABLE, "init is stopping");
    strays_free(all);
    processes_free(all);
    late_outputs_free(&all->late_outputs);
    list_each(s, &all->sessions, struct session, link)
    {
        if (s->teardown)
            teardown_cancel(s->teardown);
        s->teardown = NULL;
        /* Clients have left by now; what waits is init's own (configured sessions). */
        session_tell_wishes(s, NULL, &why);
        session_free(s);
    }
    runs_free(all);
    env_free(&all->base_env);
    env_free(&all->own_env);
    env_free(&all->set_env);
    env_free(&all->unset_env);
    stray_watch_end(all->loop);
    teardown_unreserve();
}
