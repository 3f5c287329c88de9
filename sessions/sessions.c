#include "sessions/sessions.h"
#include "base/clock.h"
#include "sessions/process.h"
#include "sessions/run.h"
#include "sessions/teardown.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct clock_limits sessions_clock_limits(const struct session_config *c)
{
    return (struct clock_limits){.total_ms = c->command_timeout_ms,
                                 .output_ms = c->command_idle_timeout_ms,
                                 .cpu_ms = c->command_cpu_timeout_ms};
}

const char *sessions_default_shell(void)
{
    return access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
}

int sessions_init(struct sessions *all, struct ev_loop *loop, const struct config *config,
                  struct runtime *runtime, char *const *environ_, struct error *e)
{
    *all = (struct sessions){.loop = loop, .config = config, .runtime = runtime};
    list_init(&all->sessions);
    list_init(&all->processes);
    list_init(&all->stray_kills);
    list_init(&all->runs);
    late_outputs_init(&all->late_outputs, loop);
    teardown_reserve();
    all->last_busy_ns = clock_mono_ns();
    for (char *const *v = environ_; v && *v; v++)
        if (strncmp(*v, "SANDBOX_", 8) != 0 && strchr(*v, '=') && env_put(&all->own_env, *v, e) < 0)
            return -1;
    return sessions_renew_env(all, e);
}

void sessions_make_up_id(struct sessions *all, char letter, char *buf, size_t size)
{
    do
        snprintf(buf, size, "%c%llu", letter, (unsigned long long)++all->numbers);
    while (run_find(all, buf) || process_find(all, buf, NULL) || process_find_remnant(all, buf));
}

static int put_pair(struct env_set *to, const char *name, const char *value, struct error *e)
{
    CLEANUP_STRBUF struct strbuf item = {0};
    if (strbuf_addf(&item, "%s=%s", name, value) < 0)
        return error_set(e, ERR_MEMORY, "env: no memory");
    return env_put(to, strbuf_text(&item), e);
}

int sessions_tell_socket(struct sessions *all, const char *path, struct error *e)
{
    if (put_pair(&all->own_env, "SANDBOX_SOCKET", path, e) < 0)
        return -1;
    return sessions_renew_env(all, e);
}

/* What a shell that started init has said of itself: true of no other shell. A PWD of another
 * folder would be the session's $PWD, and where it goes back to after a call with a cwd. */
static void drop_shell_variables(struct env_set *env)
{
    static const char *const names[] = {"PWD", "OLDPWD", "SHLVL", "_"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        env_unset(env, names[i]);
}

static int put_base_env(const struct sessions *all, struct env_set *to, struct error *e)
{
    if (env_copy(to, &all->own_env, e) < 0)
        return -1;
    drop_shell_variables(to);
    const struct env_list *file = &all->config->defaults.env;
    for (size_t i = 0; i < file->count; i++)
        if (env_put(to, file->items[i], e) < 0)
            return -1;
    for (size_t i = 0; i < all->unset_env.count; i++) {
        const char *item = all->unset_env.items[i];
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(item, "="), item);
        env_unset(to, name);
    }
    return env_copy(to, &all->set_env, e);
}

int sessions_renew_env(struct sessions *all, struct error *e)
{
    struct env_set fresh = {0};
    if (put_base_env(all, &fresh, e) < 0) {
        env_free(&fresh);
        return -1;
    }
    env_free(&all->base_env);
    all->base_env = fresh;
    return 0;
}

int sessions_set_env(struct sessions *all, const char *name, const char *value, struct error *e)
{
    struct env_set *to = value ? &all->set_env : &all->unset_env;
    if (put_pair(to, name, value ? value : "", e) < 0)
        return -1;
    env_unset(value ? &all->unset_env : &all->set_env, name);
    return sessions_renew_env(all, e);
}

/* Whether the base has a variable just as init itself was started with it. */
static bool is_inherited(const struct sessions *all, const char *name)
{
    const char *own = env_get(&all->own_env, name), *base = env_get(&all->base_env, name);
    return own && base ? strcmp(own, base) == 0 : own == base;
}

int sessions_add_env(const struct sessions *all, const struct user *user, struct env_set *to,
                     struct error *e)
{
    if (env_copy(to, &all->base_env, e) < 0)
        return -1;
    if (!user)
        return 0;
    if (is_inherited(all, "HOME") && put_pair(to, "HOME", user->home, e) < 0)
        return -1;
    if (!is_inherited(all, "USER"))
        return 0;
    env_unset(to, "USER");
    return user->name[0] ? put_pair(to, "USER", user->name, e) : 0;
}
