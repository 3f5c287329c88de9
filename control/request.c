/*
 * Assembling a request from its packets (wire.h): the first one with verb and arguments, then the
 * announced rest of the arguments, then the announced text. Nothing is allocated for what was
 * only announced; memory grows with what really arrived, and all requests together stay within
 * uploads->limit. No descriptor is touched here, so that the fuzzer can feed it directly.
 */
#include "control/server_internal.h"

#include "base/number.h"

#include <string.h>

#define assembly_of(r) list_entry(r, struct assembly, request)

void assembly_init(struct assembly *a, struct uploads *uploads)
{
    memset(a, 0, sizeof *a);
    a->uploads = uploads;
    a->request.verb = a->verb;
    a->request.args.limit = WIRE_ARGS_MAX;
    a->request.text.limit = uploads->text_limit;
}

/* Count n more bytes of this request. */
static int hold(struct assembly *a, size_t *held, size_t n, struct error *e)
{
    struct uploads *u = a->uploads;
    if (n > u->limit || u->used > u->limit - n)
        return error_set(e, ERR_LIMIT,
                         "requests under way hold %zu bytes and this one needs %zu more; the limit "
                         "for all together is %zu; try again later",
                         u->used, n, u->limit);
    u->used += n;
    *held += n;
    return 0;
}

static int add_args(struct assembly *a, const char *bytes, size_t n, struct error *e)
{
    if (n > WIRE_ARGS_MAX - a->request.args.len)
        return error_set(e, ERR_TOO_LARGE, "the arguments have more than %d bytes", WIRE_ARGS_MAX);
    if (hold(a, &a->args_held, n, e) < 0)
        return -1;
    if (strbuf_add(&a->request.args, bytes, n) < 0)
        return error_set(e, ERR_MEMORY, "no memory for %zu bytes of arguments", n);
    return 0;
}

static int add_text(struct assembly *a, const char *bytes, size_t n, struct error *e)
{
    if (hold(a, &a->text_held, n, e) < 0)
        return -1;
    if (strbuf_add(&a->request.text, bytes, n) < 0)
        return error_set(e, ERR_MEMORY, "no memory for %zu bytes of text", n);
    return 0;
}

static int check_text_size(const struct assembly *a, uint64_t n, struct error *e)
{
    size_t limit = a->request.text.limit; /* of the time when the connection came */
    if (n <= limit)
        return 0;
    return error_set(e, ERR_TOO_LARGE, "the text has %llu bytes, the limit is %zu",
                     (unsigned long long)n, limit);
}

/* A length that the client announces. Beyond 2^62 it isn't worth a number in the message. */
static int parse_size(const struct field *f, uint64_t *out, struct error *e)
{
    if (number_parse_u64(f->value, UINT64_MAX / 4, out) < 0)
        return error_set(e, ERR_PROTOCOL, "%.*s: not a length: '%.40s'", (int)f->key_len, f->key,
                         f->value);
    return 0;
}

/* The three keys that are for the transport. */
struct transport {
    bool has_args_size, has_text_size, has_text;
};

static int take_transport(struct assembly *a, const struct field *f, struct transport *t,
                          struct error *e)
{
    uint64_t n;
    bool *seen = field_is(f, "args_size")   ? &t->has_args_size
                 : field_is(f, "text_size") ? &t->has_text_size
                 : field_is(f, "text")      ? &t->has_text
                                            : NULL;
    if (!seen)
        return 0;
    if (*seen)
        return error_set(e, ERR_PROTOCOL, "the request says %.*s= twice", (int)f->key_len, f->key);
    *seen = true;
    if (seen == &t->has_text)
        return check_text_size(a, f->value_len, e) < 0 || add_text(a, f->value, f->value_len, e) < 0
                   ? -1
                   : 1;
    if (parse_size(f, &n, e) < 0)
        return -1;
    if (seen == &t->has_text_size) {
        a->text_left = (size_t)n;
        return check_text_size(a, n, e) < 0 ? -1 : 1;
    }
    if (n > WIRE_ARGS_MAX)
        return error_set(e, ERR_TOO_LARGE, "the arguments have %llu bytes, the limit is %d",
                         (unsigned long long)n, WIRE_ARGS_MAX);
    a->args_left = (size_t)n;
    return 1;
}

/* The verb: one printable word. Whether it exists is for others to say. Returns its length. */
static int take_verb(struct assembly *a, const char *packet, size_t n, struct error *e)
{
    const char *end = n > 0 ? memchr(packet, '\0', n) : NULL;
    size_t len = end ? (size_t)(end - packet) : 0;
    if (len == 0 || len > REQUEST_VERB_MAX)
        return error_set(e, ERR_PROTOCOL, "the request does not begin with a verb of 1 to %d bytes",
                         REQUEST_VERB_MAX);
    for (size_t i = 0; i < len; i++)
        if (packet[i] <= ' ' || packet[i] >= 127)
            return error_set(e, ERR_PROTOCOL, "the verb of the request is not a printable word");
    memcpy(a->verb, packet, len + 1);
    return (int)len;
}

static int take_first(struct assembly *a, const char *packet, size_t n, struct error *e)
{
    int verb_len = take_verb(a, packet, n, e);
    if (verb_len < 0)
        return -1;
    struct transport t = {0};
    struct field f;
    size_t at = (size_t)verb_len + 1;
    for (;;) {
        size_t start = at;
        int rc = record_next(packet, n, &at, &f);
        if (rc == 0)
            break;
        if (rc < 0)
            return error_set(e, ERR_PROTOCOL,
                             "%s: malformed argument at byte %zu: KEY=VALUE and a NUL expected",
                             a->verb, start);
        rc = take_transport(a, &f, &t, e);
        if (rc < 0 || (rc == 0 && add_args(a, packet + start, at - start, e) < 0))
            return -1;
    }
    if (t.has_text && t.has_text_size)
        return error_set(e, ERR_PROTOCOL, "%s: both text= and text_size= given", a->verb);
    a->request.has_text = t.has_text || t.has_text_size;
    a->has_begun = true;
    return 0;
}

static int take_more(struct assembly *a, const char *packet, size_t n, struct error *e)
{
    char expected = a->args_left > 0 ? WIRE_ARGS : WIRE_TEXT;
    size_t *left = a->args_left > 0 ? &a->args_left : &a->text_left;
    if (n == 0 || packet[0] != expected)
        return error_set(e, ERR_PROTOCOL,
                         "%s: a packet on channel '%c' expected, %zu bytes to come", a->verb,
                         expected, *left);
    n--;
    if (n > *left)
        return error_set(e, ERR_PROTOCOL, "%s: a packet of %zu bytes where %zu were to come",
                         a->verb, n, *left);
    *left -= n;
    return expected == WIRE_ARGS ? add_args(a, packet + 1, n, e) : add_text(a, packet + 1, n, e);
}

/* Arguments that came in packets of their own were cut anywhere: look at the whole. */
static int check_args(const struct assembly *a, struct error *e)
{
    static const char *const transport_keys[] = {"args_size", "text_size", "text"};
    const struct strbuf *args = &a->request.args;
    struct field f;
    size_t at = 0;
    int rc;
    while ((rc = record_next(strbuf_text(args), args->len, &at, &f)) > 0)
        for (size_t i = 0; i < sizeof transport_keys / sizeof transport_keys[0]; i++)
            if (field_is(&f, transport_keys[i]))
                return error_set(e, ERR_PROTOCOL, "%s: %s= stands outside the first packet",
                                 a->verb, transport_keys[i]);
    if (rc < 0)
        return error_set(e, ERR_PROTOCOL,
                         "%s: malformed argument at byte %zu: KEY=VALUE and a NUL expected",
                         a->verb, at);
    return 0;
}

int assembly_take(struct assembly *a, const char *packet, size_t n, struct error *e)
{
    bool had_args_left = a->args_left > 0;
    int rc = a->has_begun ? take_more(a, packet, n, e) : take_first(a, packet, n, e);
    if (rc == 0 && had_args_left && a->args_left == 0)
        rc = check_args(a, e);
    if (rc < 0)
        return -1;
    return a->args_left == 0 && a->text_left == 0;
}

void assembly_free(struct assembly *a)
{
    a->uploads->used -= a->args_held + a->text_held;
    a->args_held = a->text_held = 0;
    strbuf_free(&a->request.args);
    strbuf_free(&a->request.text);
}

const char *request_get(const struct request *r, const char *key)
{
    return record_get(strbuf_text(&r->args), r->args.len, key);
}

struct strbuf request_take_text(struct request *r)
{
    struct assembly *a = assembly_of(r);
    struct strbuf text = r->text;
    a->uploads->used -= a->text_held;
    a->text_held = 0;
    r->text = (struct strbuf){0};
    return text;
}
