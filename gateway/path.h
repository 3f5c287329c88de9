/*
 * Names that come from outside: percent-escapes, ids, and paths that must lie in the workspace.
 * Lexical only: what symlinks do is the file helper's matter (openat2).
 */
#ifndef GATEWAY_PATH_H
#define GATEWAY_PATH_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

/* Append n bytes with their percent-escapes decoded. plus: '+' is a space (query). 0, or -1 for a
 * bad escape, a NUL, or no memory; some of it may be there then. */
int percent_decode(const char *from, size_t n, bool plus, struct strbuf *to);

bool is_sandbox_id(const char *id); /* ^[a-z2-7]{1,128}$ */
bool is_session_id(const char *id); /* ^[a-zA-Z0-9._-]{1,128}$ without ".." */

/* The absolute path that `path` (absolute, or relative to workspace) means after "." and ".." are
 * resolved lexically. 0; -1 if it is not workspace or below it; -2 no memory or NUL. */
int workspace_resolve(const char *workspace, const char *path, struct strbuf *to);

#endif
