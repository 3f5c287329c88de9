#include "gateway/process_body.h"

#include "gateway/json_body.h"
#include "gateway/path.h"

#include <string.h>

#define NO_MEMORY "no memory for the request"

/* A value as text without NUL, as argument `key` behind prefix. 0 or -1. */
static int add_text(struct process_body *b, const char *key, const char *prefix,
                    const json_t *value)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    if (strbuf_adds(&text, prefix) < 0 || json_to_text(value, &text) < 0) {
        b->request.is_broken = true;
        return 0;
    }
    if (strlen(strbuf_text(&text)) != text.len)
        return -1;
    client_request_add(&b->request, key, strbuf_text(&text));
    return 0;
}

static const char *add_program(struct process_body *b, const json_t *body)
{
    const json_t *argv = json_object_get(body, "argv");
    const json_t *command = json_object_get(body, "command");
    if (argv && command)
        return "give argv or command, not both";
    if (command) {
        b->has_command = true;
        if (!json_is_string(command) || json_string_length(command) == 0)
            return "command must be a non-empty string";
        if (strbuf_add(&b->command, json_string_value(command), json_string_length(command)) < 0)
            b->request.is_broken = true;
        return NULL;
    }
    if (json_is_object(body) && !argv)
        return "argv or command must be there: argv must be a non-empty array, or command a text";
    if (!json_is_array(argv) || json_array_size(argv) == 0)
        return "argv must be a non-empty array";
    for (size_t i = 0; i < json_array_size(argv); i++)
        if (add_text(b, "arg", "", json_array_get(argv, i)) < 0)
            return "argv must not contain NUL characters";
    return NULL;
}

static const char *add_env(struct process_body *b, json_t *env)
{
    const char *key;
    json_t *value;
    if (!env || json_is_null(env))
        return NULL;
    if (!json_is_object(env))
        return "env must be an object of names and values";
    json_object_foreach(env, key, value)
    {
        CLEANUP_STRBUF struct strbuf name = {0};
        if (!*key || strchr(key, '='))
            return "env: a name must not be empty and not contain =";
        if (strbuf_adds(&name, key) < 0 || strbuf_adds(&name, "=") < 0)
            b->request.is_broken = true;
        else if (add_text(b, "env", name.data, value) < 0)
            return "env: a value must not contain NUL characters";
    }
    return NULL;
}

static const char *add_names(struct process_body *b, const json_t *body)
{
    const json_t *session = json_object_get(body, "session");
    const json_t *id = json_object_get(body, "id");
    const json_t *wait = json_object_get(body, "wait_ms");
    if (!id)
        id = json_object_get(body, "name");
    if (id && !json_is_null(id) && (!json_is_string(id) || add_text(b, "id", "", id) < 0))
        return "id must be a string";
    if (session && !json_is_null(session)) {
        if (!json_is_string(session))
            return "session must be a string";
        if (strbuf_add(&b->session, json_string_value(session), json_string_length(session)) < 0)
            b->request.is_broken = true;
        else if (b->session.len > 0 &&
                 (strlen(b->session.data) != b->session.len || !is_session_id(b->session.data)))
            return "Invalid session ID format";
    }
    if (json_is_true(json_object_get(body, "stdin")))
        client_request_add(&b->request, "stdin", "1");
    if (wait && (!json_is_number(wait) || add_text(b, "wait_ms", "", wait) < 0))
        return "wait_ms must be a number of milliseconds";
    return NULL;
}

static int add_all(struct process_body *b, const json_t *body, const char *workspace,
                   const char **why)
{
    static const char *const known[] = {"argv", "command", "session", "cwd",     "env",
                                        "id",   "name",    "stdin",   "wait_ms", NULL};
    json_add_unknown(body, known, &b->ignored);
    *why = add_program(b, body);
    if (!*why)
        *why = add_names(b, body);
    if (!*why)
        *why = add_env(b, json_object_get(body, "env"));
    if (*why)
        return 400;
    int status = json_cwd(json_object_get(body, "cwd"), workspace, &b->cwd, why);
    b->has_cwd = !status && b->cwd.len > 0;
    if (b->has_cwd)
        client_request_add(&b->request, "cwd", strbuf_text(&b->cwd));
    if (status == 0 && b->request.is_broken) {
        *why = NO_MEMORY;
        return 503;
    }
    return status;
}

int process_body_parse(struct process_body *b, const char *bytes, size_t n, const char *workspace,
                       const char **why)
{
    memset(b, 0, sizeof *b);
    client_request_init(&b->request, "start");
    json_t *body = json_body_parse(bytes, n);
    *why = "Invalid JSON body";
    int status = body ? add_all(b, body, workspace, why) : 400;
    json_decref(body);
    return status;
}

void process_body_free(struct process_body *b)
{
    client_request_free(&b->request);
    strbuf_free(&b->command);
    strbuf_free(&b->session);
    strbuf_free(&b->cwd);
    strbuf_free(&b->ignored);
}
