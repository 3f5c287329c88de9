/*
 * The answer of an HTTP server inside, as bytes come: its head whole, then its body, its end. Knows
 * bytes only. llhttp parses, strictly; interim answers (1xx) are left out.
 */
#ifndef GATEWAY_RESPONSE_H
#define GATEWAY_RESPONSE_H

#include "base/strbuf.h"

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESPONSE_HEAD_MAX ((size_t)64 * 1024) /* bytes of all headers */

enum response_state {
    RESPONSE_HEAD,     /* its head is not complete */
    RESPONSE_BODY,     /* the body comes */
    RESPONSE_DONE,     /* it is complete */
    RESPONSE_UPGRADED, /* 101: what follows is another protocol */
    RESPONSE_BAD       /* it is no HTTP, too large, or was broken off: response_complaint() */
};

struct response_events {
    void (*on_head)(void *owner); /* the status and headers can be asked for now; also for 101 */
    void (*on_body)(void *owner, const char *bytes, size_t n);
};

struct response {
    llhttp_t parser;
    const struct response_events *events;
    void *owner;
    enum response_state state;
    bool is_of_head;  /* the request was a HEAD */
    bool may_upgrade; /* the request asked for it */
    bool is_in_value; /* of a header */
    bool has_content_length;
    const char *complaint;
    size_t reason_len;
    struct strbuf header; /* NAME NUL VALUE NUL … */
};

void response_init(struct response *r, bool is_of_head, bool may_upgrade,
                   const struct response_events *events, void *owner);
void response_free(struct response *r);

/* Take n bytes; *used of them belonged to the answer. */
enum response_state response_take(struct response *r, const char *bytes, size_t n, size_t *used);
/* The server has closed: the end of a body without a length, or one that came too early. */
enum response_state response_end(struct response *r);
/* Why it is RESPONSE_BAD, in words. */
const char *response_complaint(const struct response *r);

int response_status(const struct response *r);
/* Bytes that the head announces, -1 if it does not. */
int64_t response_length(const struct response *r);
/* Step through the headers: *at starts at 0; false at the end. */
bool response_header(const struct response *r, size_t *at, const char **name, const char **value);
/* The value of the first header of this name (any case), or NULL. */
const char *response_find(const struct response *r, const char *name);

#endif
