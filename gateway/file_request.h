/*
 * What the routes of files share: the path of a request, the beginning of an operation, and the
 * answer to one that failed.
 */
#ifndef GATEWAY_FILE_REQUEST_H
#define GATEWAY_FILE_REQUEST_H

#include "gateway/files.h"
#include "gateway/gateway.h"

/* One request and its operation. The route's handler owns it and frees it with its exchange. */
struct file_request {
    struct exchange *x;
    struct file_call *call;
    struct strbuf path; /* absolute, "" if the route has none */
    const char *below;  /* the same below the workspace, in path */
    int64_t left;       /* bytes of the answer that are still to come; the route's */
};
#define FILE_NOT_BEGUN (-1) /* left: the answer has not begun */

/* Make one for x: the path is the route's "*", or NULL with the path taken from `path`. NULL: x was
 * answered. */
struct file_request *file_request_new(struct exchange *x);
struct file_request *file_request_new_for(struct exchange *x, const char *path);
/* Calls the operation off if it is under way. */
void file_request_free(struct file_request *r);

/* A path of a client (no escapes in it) in the workspace; *below points into *to. 0, or -1: x was
 * answered. */
int file_path(struct exchange *x, const char *path, struct strbuf *to, const char **below);

/* Begin an operation with r as its owner, and own the exchange. False: x was answered with 502
 * "<what> failed: …" and r is freed. */
bool file_request_begin(struct file_request *r, struct record *request,
                        const struct file_events *events, const struct exchange_events *hears,
                        const char *what, const char *code);

/* on_closed of such an exchange, and on_writable where its answer comes in packets: owner is the
 * struct file_request. */
void file_request_closed(void *owner);
void file_request_writable(void *owner);

/* The answer to what failed: 403 for what leads out of the workspace, else 502. */
void file_answer_failed(struct exchange *x, const char *what, const char *code,
                        const struct error *e);
/* The same for the routes beyond the contract, which tell 400, 403, 404, 409 apart. */
void file_answer_refused(struct exchange *x, const char *what, const struct error *e);

/* Append ,"name":… (or another key) and, if it is not UTF-8, ,"name_base64":… */
int file_add_name(struct strbuf *json, const char *key, const char *name);
/* Append the members that tell a file: type, size, mode, mtime, uid, gid, links, target. */
int file_add_record(struct strbuf *json, const char *record, size_t n);

#endif
