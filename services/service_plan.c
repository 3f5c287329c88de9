/*
 * What the programs of a service are spawned with: user and groups, environment, limits, cgroup.
 */
#include "services/service.h"
#include "base/fd.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *const limit_names[] = {
    [RLIMIT_AS] = "as",
    [RLIMIT_CORE] = "core",
    [RLIMIT_CPU] = "cpu",
    [RLIMIT_DATA] = "data",
    [RLIMIT_FSIZE] = "fsize",
    [RLIMIT_LOCKS] = "locks",
    [RLIMIT_MEMLOCK] = "memlock",
    [RLIMIT_MSGQUEUE] = "msgqueue",
    [RLIMIT_NICE] = "nice",
    [RLIMIT_NOFILE] = "nofile",
    [RLIMIT_NPROC] = "nproc",
    [RLIMIT_RSS] = "rss",
    [RLIMIT_RTPRIO] = "rtprio",
    [RLIMIT_RTTIME] = "rttime",
    [RLIMIT_SIGPENDING] = "sigpending",
    [RLIMIT_STACK] = "stack",
};

static int put_pair(struct env_set *to, const char *name, const char *value, struct error *e)
{
    CLEANUP_STRBUF struct strbuf item = {0};
    if (strbuf_addf(&item, "%s=%s", name, value) < 0)
        return error_set(e, ERR_MEMORY, "env: no memory");
    return env_put(to, strbuf_text(&item), e);
}

/* Those of init, the home and name of its user, its own; and what marks all that it starts. */
static int fill_env(const struct service *s, const struct user *user, struct env_set *env,
                    struct error *e)
{
    const struct service_config *c = s->config;
    char number[16];
    int rc = env_copy(env, &s->all->host.sessions->own_env, e);
    env_unset(env, "NOTIFY_SOCKET"); /* that of who supervises init */
    if (rc == 0 && c->user)
        rc = put_pair(env, "HOME", user->home, e);
    if (rc == 0 && c->user && user->name[0])
        rc = put_pair(env, "USER", user->name, e);
    if (c->user && !user->name[0])
        env_unset(env, "USER");
    for (size_t i = 0; rc == 0 && i < c->env.count; i++)
        rc = env_put(env, c->env.items[i], e);
    if (rc == 0 && c->instance) {
        snprintf(number, sizeof number, "%u", c->instance);
        rc = put_pair(env, "SERVICE_INSTANCE", number, e);
    }
    return rc < 0 ? rc : env_put(env, s->mark, e);
}

static int find_user(const struct service_config *c, struct user *user, struct error *e)
{
    user_self(user);
    if (c->user && user_lookup(c->user, user, e) < 0)
        return -1;
    return c->group || c->groups ? user_set_groups(user, c->group, c->groups, e) : 0;
}

static size_t fill_limits(const struct service_config *c, struct spawn_limit *limits)
{
    size_t n = 0;
    for (int i = 0; i < SERVICE_RLIMIT_MAX; i++) {
        const struct service_limit *l = &c->limits[i];
        if (!l->is_set)
            continue;
        limits[n++] = (struct spawn_limit){
            .resource = i,
            .value = {.rlim_cur = l->soft == UINT64_MAX ? RLIM_INFINITY : l->soft,
                      .rlim_max = l->hard == UINT64_MAX ? RLIM_INFINITY : l->hard}};
    }
    return n;
}

static void open_cgroup(struct service *s, struct service_plan *p)
{
    char name[24];
    if (!s->cgroup.name[0]) {
        snprintf(name, sizeof name, "v%llu", (unsigned long long)++s->all->cgroups);
        cgroup_make(&s->cgroup, name);
    }
    p->cgroup_fd = cgroup_open_to_start(&s->cgroup, &p->spawn.cgroup_is_new);
}

int service_plan_make(struct service *s, struct service_plan *p, const char **step, struct error *e)
{
    const struct service_config *c = s->config;
    *p = (struct service_plan){.spawn = spawn_plan_empty(), .cgroup_fd = -1, .output = {-1, -1}};
    *step = "user";
    if (find_user(c, &p->user, e) < 0)
        return -1;
    *step = "env";
    if (fill_env(s, &p->user, &p->env, e) < 0)
        return -1;
    open_cgroup(s, p);
    struct spawn_plan *plan = &p->spawn;
    plan->cwd = c->cwd;
    plan->user = c->user || c->group || c->groups ? &p->user : NULL;
    plan->sets_groups = c->group || c->groups;
    plan->cgroup_fd = p->cgroup_fd;
    plan->limits = p->limits;
    plan->limit_count = fill_limits(c, p->limits);
    plan->has_nice = c->has_nice;
    plan->nice = c->nice;
    plan->has_oom_score_adj = c->has_oom_score_adj;
    plan->oom_score_adj = c->oom_score_adj;
    plan->umask = c->umask;
    plan->stdio[0] = c->stdin_from == STDIN_INHERIT ? 0 : -1;
    plan->context = s;
    return 0;
}

static int make_pipes(struct service_plan *p, struct error *e)
{
    for (int i = 0; i < STREAM_COUNT; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
            return error_set_sys(e, errno, "pipe");
        p->output[i] = ends[0];
        p->spawn.stdio[1 + i] = ends[1];
        user_give_pipe(p->spawn.user, ends[1]);
        if (fd_set_nonblock(ends[0]) < 0)
            return error_set_sys(e, errno, "pipe");
    }
    return 0;
}

struct child *service_plan_spawn(struct service *s, struct service_plan *p, struct error *e)
{
    if (fd_next_is_scarce(SESSIONS_FD_RESERVE)) {
        error_set(e, ERR_LIMIT, "too few descriptors are left (RLIMIT_NOFILE)");
        return NULL;
    }
    if (make_pipes(p, e) < 0)
        return NULL;
    p->spawn.envp = env_vector(&p->env);
    struct child *c = spawn(&p->spawn, e);
    if (!c)
        return NULL;
    service_log_capture(s->log, p->output, NULL, NULL);
    p->output[STREAM_STDOUT] = p->output[STREAM_STDERR] = -1;
    return c;
}

void service_plan_free(struct service_plan *p)
{
    for (int i = 0; i < STREAM_COUNT; i++) {
        fd_close(&p->output[i]);
        fd_close(&p->spawn.stdio[1 + i]);
    }
    env_free(&p->env);
    fd_close(&p->cgroup_fd);
}

void service_plan_words(const struct service *s, const struct child_exit *how, const char *program,
                        char *buf, size_t size)
{
    const struct service_config *c = s->config;
    const char *why = child_exit_why(how);
    if (strcmp(how->step, "exec") == 0)
        snprintf(buf, size, "exec %.200s: %s", program, why);
    else if (strcmp(how->step, "cwd") == 0)
        snprintf(buf, size, "cwd %.200s: %s", c->cwd ? c->cwd : ".", why);
    else if (strcmp(how->step, "setuid") == 0 || strcmp(how->step, "setgroups") == 0)
        snprintf(buf, size, "user %.80s: %s: %s", c->user ? c->user : "(of init)", how->step, why);
    else if (strcmp(how->step, "rlimits") == 0 && how->detail >= 0 &&
             how->detail < (int)(sizeof limit_names / sizeof limit_names[0]))
        snprintf(buf, size, "limit.%s: %s", limit_names[how->detail], why);
    else if (strcmp(how->step, "nice") == 0)
        snprintf(buf, size, "nice %d: %s", c->nice, why);
    else if (strcmp(how->step, "oom_score_adj") == 0)
        snprintf(buf, size, "oom_score_adj %d: %s", c->oom_score_adj, why);
    else
        snprintf(buf, size, "%s: %s", how->step, why);
}
