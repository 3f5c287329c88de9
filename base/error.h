/*
 * The one error value. A function that can fail returns 0 or -1 (or a pointer or NULL) and fills
 * the struct error that its caller gave; the text is put together where the facts are known and
 * callers add context on the way up with error_wrap(). Only an edge (command line, wire, log)
 * prints it. Every function here accepts a NULL error.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stddef.h>

enum error_code {
    ERR_NONE,
    ERR_INVALID,     /* the request or the configuration is wrong */
    ERR_NOT_FOUND,   /* no such session, process, verb */
    ERR_EXISTS,      /* the name or id is taken */
    ERR_BUSY,        /* held by somebody else now */
    ERR_LIMIT,       /* a configured limit is reached: there is no room now */
    ERR_TOO_LARGE,   /* one thing has more bytes than it ever may */
    ERR_DENIED,      /* the caller may not do this */
    ERR_STATE,       /* not possible in the present state */
    ERR_SYSTEM,      /* a system call failed; sys holds errno */
    ERR_MEMORY,      /* an allocation failed */
    ERR_PROTOCOL,    /* a malformed packet */
    ERR_UNAVAILABLE, /* init cannot be reached, or is stopping */
    ERR_CODE_COUNT
};

struct error {
    enum error_code code;
    int sys;        /* errno of the failed call, or 0 */
    char text[640]; /* one line, no final newline */
};

/* Fill *e with a code and a formatted text; returns -1, so that callers can return it. */
int error_set(struct error *e, enum error_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Like error_set() with ERR_SYSTEM (ERR_MEMORY for ENOMEM): ": <strerror(errnum)>" is appended. */
int error_set_sys(struct error *e, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "<formatted text>: " before the text that is there; code and errno stay. Returns -1. */
int error_wrap(struct error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Stable word for a code as it stands on the wire and in JSON: "invalid", "not_found", … */
const char *error_code_name(enum error_code code);

/* The code of a word; ERR_SYSTEM for a word this version does not know. */
enum error_code error_code_of(const char *name);

#endif
