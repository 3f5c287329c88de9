/*
 * Bodies of mount, unmount and tunnel (mount_request.h). Which check comes first can be seen from
 * outside: the order is that of the contract (docs/gateway.md). Like there, what is no object has
 * no fields, and null is a value.
 */
#include "gateway/mount_request.h"

#include "base/number.h"
#include "gateway/json_body.h"
#include "gateway/path.h"

#include <string.h>

#define NO_JSON "Invalid JSON body"

/* A string with NUL in it can be no argument, and is none here. */
static bool is_string(const json_t *value)
{
    return json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value);
}

static bool is_nonempty_string(const json_t *value)
{
    return is_string(value) && json_string_length(value) > 0;
}

static bool is_string_array(const json_t *value)
{
    if (!json_is_array(value))
        return false;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!is_string(json_array_get(value, i)))
            return false;
    return true;
}

/* mountPath, resolved into *to. */
static const char *check_path(const json_t *body, struct strbuf *to)
{
    const json_t *path = json_object_get(body, "mountPath");
    if (!is_nonempty_string(path))
        return "mountPath must be a non-empty string";
    if (json_string_value(path)[0] != '/')
        return "mountPath must be an absolute path (start with /)";
    return workspace_resolve("/", json_string_value(path), to) < 0 ? "mountPath is too long" : NULL;
}

/* Where the bucket is and who says so. */
static const char *check_place(const json_t *options, const json_t *binding)
{
    const json_t *endpoint = json_object_get(options, "endpoint");
    if (endpoint && !is_string(endpoint))
        return "options.endpoint must be a string when provided";
    if (binding && !is_string(binding))
        return "binding must be a string when provided";
    if (binding && json_string_length(binding) == 0)
        return "binding must be a non-empty string when provided";
    if (binding && endpoint)
        return "Provide either binding or options.endpoint, not both";
    return NULL;
}

static bool is_absent_or_boolean(const json_t *options, const char *key)
{
    const json_t *value = json_object_get(options, key);
    return !value || json_is_boolean(value);
}

static const char *check_options(const json_t *options)
{
    const json_t *value = json_object_get(options, "s3fsOptions");
    if (value && !is_string_array(value))
        return "options.s3fsOptions must be an array of strings when provided";
    if (!is_absent_or_boolean(options, "readOnly"))
        return "options.readOnly must be a boolean when provided";
    value = json_object_get(options, "prefix");
    if (value && !is_string(value))
        return "options.prefix must be a string when provided";
    if (!is_absent_or_boolean(options, "credentialProxy"))
        return "options.credentialProxy must be a boolean when provided";
    value = json_object_get(options, "credentials");
    if (value && (!is_string(json_object_get(value, "accessKeyId")) ||
                  !is_string(json_object_get(value, "secretAccessKey"))))
        return "options.credentials must include string accessKeyId and secretAccessKey";
    return NULL;
}

static const char *check_mount(struct mount_request *to)
{
    const json_t *bucket = json_object_get(to->body, "bucket");
    const json_t *binding = json_object_get(to->body, "binding");
    const json_t *options = json_object_get(to->body, "options");
    if (bucket && !is_nonempty_string(bucket))
        return "bucket must be a non-empty string";
    const char *wrong = check_path(to->body, &to->path);
    if (!wrong && !json_is_object(options))
        wrong = "options must be an object";
    if (!wrong)
        wrong = check_place(options, binding);
    if (!wrong)
        wrong = check_options(options);
    if (wrong)
        return wrong;
    if (json_object_get(options, "endpoint"))
        return bucket ? NULL : "bucket must be a non-empty string for remote mounts";
    return binding ? NULL : "options.endpoint must be the address of the S3 service";
}

const char *mount_request_parse(const char *bytes, size_t n, struct mount_request *to)
{
    memset(to, 0, sizeof *to);
    to->body = json_body_parse(bytes, n);
    const char *wrong = to->body ? check_mount(to) : NO_JSON;
    if (wrong)
        return wrong;
    const json_t *options = json_object_get(to->body, "options");
    const json_t *credentials = json_object_get(options, "credentials");
    to->bucket = json_string_value(json_object_get(to->body, "bucket"));
    to->binding = json_string_value(json_object_get(to->body, "binding"));
    to->endpoint = json_string_value(json_object_get(options, "endpoint"));
    to->prefix = json_string_value(json_object_get(options, "prefix"));
    to->key_id = json_string_value(json_object_get(credentials, "accessKeyId"));
    to->secret = json_string_value(json_object_get(credentials, "secretAccessKey"));
    to->s3fs_options = json_object_get(options, "s3fsOptions");
    to->is_read_only = json_is_true(json_object_get(options, "readOnly"));
    return NULL;
}

const char *unmount_request_parse(const char *bytes, size_t n, struct mount_request *to)
{
    memset(to, 0, sizeof *to);
    to->body = json_body_parse(bytes, n);
    const char *wrong = to->body ? check_path(to->body, &to->path) : NO_JSON;
    if (!wrong && strcmp(strbuf_text(&to->path), "/") == 0)
        wrong = "mountPath must not resolve to / (filesystem root)";
    return wrong;
}

void mount_request_free(struct mount_request *r)
{
    json_decref(r->body);
    r->body = NULL;
    strbuf_free(&r->path);
}

/* ---- tunnels ----------------------------------------------------------------------------- */

static bool is_blank(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n", bytes[i]) || bytes[i] == '\0')
            return false;
    return true;
}

static bool is_dns_label(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && name[0] != '-' && name[n - 1] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static int check_name(const json_t *name, struct strbuf *complaint)
{
    if (!is_string(name)) {
        (void)strbuf_adds(complaint, "name must be a string when provided");
        return -1;
    }
    const char *text = json_string_value(name);
    size_t n = json_string_length(name);
    if (n == 0 || n > 63)
        (void)strbuf_addf(complaint, "Tunnel name '%s' must be 1-63 characters long.", text);
    else if (!is_dns_label(text))
        (void)strbuf_addf(
            complaint,
            "Tunnel name '%s' is not a valid DNS label. Use lowercase letters, digits, "
            "and internal hyphens only (no dots, no leading/trailing hyphens).",
            text);
    else
        return 0;
    return -1;
}

int tunnel_request_parse(const char *bytes, size_t n, struct strbuf *name, struct strbuf *complaint)
{
    if (is_blank(bytes, n))
        return 0;
    json_t *body = json_body_parse(bytes, n);
    const json_t *value = json_object_get(body, "name");
    int rc = 0;
    if (!body) {
        (void)strbuf_adds(complaint, NO_JSON);
        rc = -1;
    } else if (value) {
        rc = check_name(value, complaint);
        if (rc == 0)
            rc = strbuf_adds(name, json_string_value(value));
    }
    json_decref(body);
    return rc;
}

unsigned tunnel_port_parse(const char *text)
{
    uint64_t port;
    if (number_parse_u64(text, 65535, &port) < 0 || port < 1024 || port == 3000)
        return 0;
    return (unsigned)port;
}
