/* A set of environment assignments: at most one "NAME=VALUE" a name, in order of first setting. */
#ifndef SESSIONS_ENV_H
#define SESSIONS_ENV_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

struct env_set {
    char **items; /* owned; NULL-terminated once anything was put */
    size_t count, cap;
};

/* Put "NAME=VALUE" (replacing). 0, or -1 with *e for want of memory or of a '=' after a name. */
int env_put(struct env_set *s, const char *assignment, struct error *e);
void env_unset(struct env_set *s, const char *name);
/* The value, or NULL. */
const char *env_get(const struct env_set *s, const char *name);
int env_copy(struct env_set *to, const struct env_set *from, struct error *e);
/* A NULL-terminated vector for exec; valid until the next change. */
const char *const *env_vector(const struct env_set *s);
/* Bytes of memory that the assignments take; NULL is an empty set. */
size_t env_bytes(const struct env_set *s);
void env_free(struct env_set *s);

/* Append "export NAME='VALUE'\n" for every name that a shell can hold; others are left out. */
int env_add_exports(struct strbuf *to, const struct env_set *s);
/* Check that an assignment given for one call has a name a shell can export; *e names the key. */
int env_check(const char *assignment, struct error *e);

#endif
