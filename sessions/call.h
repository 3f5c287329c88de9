/* What every call may bring along: a text, an environment and a folder of its own. */
#ifndef SESSIONS_CALL_H
#define SESSIONS_CALL_H

#include "base/error.h"
#include "base/strbuf.h"
#include "sessions/env.h"

/* 0, or -1 with *e: a NUL in the text, a name in env (may be NULL) that no shell can export, an
 * empty cwd (may be NULL). */
int call_check(const struct strbuf *text, const struct env_set *env, const char *cwd,
               struct error *e);

#endif
