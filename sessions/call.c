#include "sessions/call.h"

#include <string.h>

int call_check(const struct strbuf *text, const struct env_set *env, const char *cwd,
               struct error *e)
{
    const char *nul = text->len ? memchr(text->data, '\0', text->len) : NULL;
    if (nul)
        return error_set(e, ERR_INVALID, "text: NUL byte at offset %zu; a shell cannot carry it",
                         (size_t)(nul - text->data));
    for (size_t i = 0; env && i < env->count; i++)
        if (env_check(env->items[i], e) < 0)
            return -1;
    if (cwd && !*cwd)
        return error_set(e, ERR_INVALID, "cwd: empty");
    return 0;
}
