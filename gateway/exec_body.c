#include "gateway/exec_body.h"

#include "gateway/json_body.h"

#include <string.h>

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
            *why = "no memory for the request";
            return 503;
        }
        if (strlen(b->argv.data + before) + 1 != b->argv.len - before) {
            *why = "argv must not contain NUL characters";
            return 400;
        }
    }
    return 0;
}

/* The contract wants a timeout that is no number to be ignored, and so all that it does not know.
 * Who thinks that it is a limit must hear of it. */
static void note_ignored(struct exec_body *b, const json_t *body, const json_t *timeout)
{
    static const char *const known[] = {"argv", "timeout_ms", "cwd", NULL};
    if (timeout && !json_is_number(timeout) && !json_is_null(timeout))
        (void)strbuf_adds(&b->ignored, "timeout_ms (not a number)");
    json_add_unknown(body, known, &b->ignored);
}

static int parse_object(struct exec_body *b, const json_t *body, const char *workspace,
                        const char **why)
{
    const json_t *timeout = json_object_get(body, "timeout_ms");
    b->has_timeout = json_is_number(timeout);
    b->timeout_ms = json_number_value(timeout);
    note_ignored(b, body, timeout);
    int status = parse_argv(b, json_object_get(body, "argv"), why);
    if (!status)
        status = json_cwd(json_object_get(body, "cwd"), workspace, &b->cwd, why);
    b->has_cwd = !status && b->cwd.len > 0;
    return status;
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
    strbuf_free(&b->ignored);
}
