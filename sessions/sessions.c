#include "sessions/sessions.h"
#include "base/clock.h"
#include "sessions/teardown.h"

#include <string.h>
#include <unistd.h>

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
    teardown_reserve();
    all->last_busy_ns = clock_mono_ns();
    for (char *const *v = environ_; v && *v; v++)
        if (strncmp(*v, "SANDBOX_", 8) != 0 && strchr(*v, '=') && env_put(&all->base_env, *v, e) < 0)
            return -1;
    for (size_t i = 0; i < config->defaults.env.count; i++)
        if (env_put(&all->base_env, config->defaults.env.items[i], e) < 0)
            return -1;
    return 0;
}
