/*
 * What POST …/mount, …/unmount and …/tunnel/:port take: the contract's checks in its order, with
 * its texts. Pure: a body goes in, a request or a complaint comes out.
 */
#ifndef GATEWAY_MOUNT_REQUEST_H
#define GATEWAY_MOUNT_REQUEST_H

#include "base/strbuf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The strings belong to body. */
struct mount_request {
    json_t *body;
    const char *bucket;          /* NULL: a mount by binding */
    const char *binding;         /* NULL: a mount by endpoint */
    const char *endpoint;        /* of the bucket */
    const char *prefix;          /* NULL: none */
    const char *key_id, *secret; /* NULL: no credentials */
    const json_t *s3fs_options;  /* array of strings, or NULL */
    bool is_read_only;
    struct strbuf path; /* absolute, without "." and "..", without a slash at its end */
};

/* Fill *to from the body of a mount. NULL, or what is wrong with it (static); to be freed in both
 * cases. */
const char *mount_request_parse(const char *bytes, size_t n, struct mount_request *to);
/* The same for the body of an unmount: only the path is set. */
const char *unmount_request_parse(const char *bytes, size_t n, struct mount_request *to);
void mount_request_free(struct mount_request *r);

/* The body of POST …/tunnel/:port: the name into *name ("" if there is none), or a complaint into
 * *complaint. Returns 0 or -1. */
int tunnel_request_parse(const char *bytes, size_t n, struct strbuf *name,
                         struct strbuf *complaint);
/* The port of a tunnel: 1024 … 65535, but not 3000. 0 if text is none. */
unsigned tunnel_port_parse(const char *text);

#endif
