#include "gateway/exec_body.h"

#include "gateway/json_body.h"
#include "gateway/path.h"

#include <string.h>

#define NO_MEMORY "no memory for the request"

static int parse_argv(struct exec_body *b, const json_t *argv, const char **why)
{
    size_t count = json_array_size(argv);
    if (count == 0) {
        *why = "argv must be a non-empty array";
        return 400;
    }
    for (size_t i = 0; i < count; i++) {
        size_t before = b->argv.len;
        if (json_to_text(json_array_get(argv, i), &b->argv) < 0 ||
            strbuf_add(&b->argv, "", 1) < 0) {
            *why = NO_MEMORY;
            return 502;
        }
        if (strlen(b->argv.data + before) + 1 != b->argv.len - before) {
            *why = "argv must not contain NUL characters";
            return 400;
        }
    }
    return 0;
}

static int parse_cwd(struct exec_body *b, const json_t *cwd, const char *workspace,
                     const char **why)
{
    if (!cwd || json_is_null(cwd))
        return 0;
    if (!json_is_string(cwd)) {
        *why = "cwd must be a string";
        return 400;
    }
    if (strlen(json_string_value(cwd)) != json_string_length(cwd)) {
        *why = "cwd must not contain NUL characters";
        return 400;
    }
    switch (workspace_resolve(workspace, json_string_value(cwd), &b->cwd)) {
    case 0:
        b->has_cwd = true;
        return 0;
    case -1:
        *why = "cwd must resolve to a location within /workspace";
        return 403;
    default:
        *why = NO_MEMORY;
        return 502;
    }
}

static int parse_object(struct exec_body *b, const json_t *body, const char *workspace,
                        const char **why)
{
    const json_t *timeout = json_object_get(body, "timeout_ms");
    b->has_timeout = json_is_number(timeout);
    b->timeout_ms = json_number_value(timeout);
    int status = parse_argv(b, json_object_get(body, "argv"), why);
    return status ? status : parse_cwd(b, json_object_get(body, "cwd"), workspace, why);
}

int exec_body_parse(struct exec_body *b, const char *bytes, size_t n, const char *workspace,
                    const char **why)
{
    memset(b, 0, sizeof *b);
    json_t *body = json_body_parse(bytes, n);
    if (!body) {
        *why = "Invalid JSON body";
        return 400;
    }
    int status = parse_object(b, body, workspace, why);
    json_decref(body);
    return status;
}

void exec_body_free(struct exec_body *b)
{
    strbuf_free(&b->argv);
    strbuf_free(&b->cwd);
}
