#include "gateway/openapi.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char head[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n<title>sandbox-gateway: HTTP "
    "API</title>\n"
    "<link rel=\"icon\" href=\"data:,\">\n<style>\n"
    "body{font:1rem/1.45 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:.75rem}\n"
    "code,pre{font-family:ui-monospace,monospace;font-size:.9rem}\n"
    "pre{overflow:auto;border:1px solid #8884;border-radius:6px;padding:.5rem}\n"
    "summary{cursor:pointer;overflow-wrap:anywhere;padding:.25rem 0}summary b{font-weight:600}\n"
    "details{border-bottom:1px solid #8884}dt{margin-top:.4rem;overflow-wrap:anywhere}\n"
    "dd{margin-left:1.5rem}small{opacity:.75}\n</style>\n</head>\n<body>\n";

/* A page under way. Errors are kept in rc. */
struct page {
    struct strbuf *to;
    const json_t *document;
    int rc;
};

static void add(struct page *p, const char *markup)
{
    p->rc |= strbuf_adds(p->to, markup);
}

static void add_text(struct page *p, const char *text)
{
    for (; text && *text; text++)
        switch (*text) {
        case '<':
            add(p, "&lt;");
            break;
        case '>':
            add(p, "&gt;");
            break;
        case '&':
            add(p, "&amp;");
            break;
        case '"':
            add(p, "&quot;");
            break;
        default:
            p->rc |= strbuf_add(p->to, text, 1);
        }
}

/* Text between two pieces of markup; nothing at all if there is none. */
static void add_between(struct page *p, const char *before, const char *text, const char *after)
{
    if (!text || !*text)
        return;
    add(p, before);
    add_text(p, text);
    add(p, after);
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* What a "#/components/KIND/NAME" stands for; the value itself if it is no reference. */
static const json_t *follow(const struct page *p, const json_t *value)
{
    static const char prefix[] = "#/components/";
    const char *ref = text_of(value, "$ref");
    if (!ref || strncmp(ref, prefix, sizeof prefix - 1) != 0)
        return value;
    const json_t *kinds = json_object_get(p->document, "components");
    const char *kind = ref + sizeof prefix - 1, *slash = strchr(kind, '/');
    char name[64] = "";
    if (slash && (size_t)(slash - kind) < sizeof name)
        memcpy(name, kind, (size_t)(slash - kind));
    return slash ? json_object_get(json_object_get(kinds, name), slash + 1) : NULL;
}

/* A schema: a link, if it has a name. */
static void add_schema(struct page *p, const json_t *schema)
{
    static const char prefix[] = "#/components/schemas/";
    const char *ref = text_of(schema, "$ref");
    if (ref && strncmp(ref, prefix, sizeof prefix - 1) == 0) {
        add_between(p, " <a href=\"#schema-", ref + sizeof prefix - 1, "\">");
        add_between(p, "", ref + sizeof prefix - 1, "</a>");
        return;
    }
    char *json = json_object_size(schema) ? json_dumps(schema, JSON_INDENT(2)) : NULL;
    add_between(p, "<pre>", json, "</pre>");
    free(json);
}

/* The events of a stream by their names. */
static void add_events(struct page *p, const json_t *events)
{
    const char *name;
    json_t *schema;
    json_object_foreach((json_t *)(uintptr_t)events, name, schema)
    {
        add_between(p, "<dd>event <code>", name, "</code>");
        add_schema(p, schema);
        add(p, "</dd>\n");
    }
}

static void add_contents(struct page *p, const json_t *content)
{
    const char *type;
    json_t *one;
    json_object_foreach((json_t *)(uintptr_t)content, type, one)
    {
        const json_t *events = json_object_get(one, "x-events");
        add_between(p, "<dd><code>", type, "</code>");
        if (!events)
            add_schema(p, json_object_get(one, "schema"));
        add(p, "</dd>\n");
        add_events(p, events);
    }
}

static void add_parameters(struct page *p, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = follow(p, json_array_get(list, i));
        add_between(p, "<dt><code>", text_of(one, "name"), "</code>");
        add_between(p, " <small>", text_of(one, "in"), "</small></dt>");
        add_between(p, "<dd>", text_of(one, "description"), "</dd>\n");
    }
}

static void add_operation(struct page *p, const char *path, const char *method, const json_t *op)
{
    char name[16] = "";
    for (size_t i = 0; method[i] && i + 1 < sizeof name; i++)
        name[i] = (char)(method[i] - ('a' - 'A'));
    add_between(p, "<details><summary><code><b>", name, "</b> ");
    add_between(p, "", path, "</code>");
    add_between(p, " ", text_of(op, "summary"), "</summary>\n");
    add_between(p, "<p>", text_of(op, "description"), "</p>\n");
    add(p, "<dl>\n");
    add_parameters(p, json_object_get(op, "parameters"));
    const json_t *body = json_object_get(op, "requestBody");
    if (body) {
        add(p, "<dt>Body</dt>\n");
        add_between(p, "<dd>", text_of(body, "description"), "</dd>\n");
        add_contents(p, json_object_get(body, "content"));
    }
    const char *status;
    json_t *ref;
    json_object_foreach(json_object_get(op, "responses"), status, ref)
    {
        const json_t *response = follow(p, ref);
        add_between(p, "<dt><code>", status, "</code> ");
        add_between(p, "", text_of(response, "description"), "");
        add(p, "</dt>\n");
        add_contents(p, json_object_get(response, "content"));
    }
    add(p, "</dl>\n</details>\n");
}

static bool is_method(const char *key)
{
    static const char *const methods[] = {"get",     "put",  "post",  "delete",
                                          "options", "head", "patch", "trace"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i], key) == 0)
            return true;
    return false;
}

/* The operations that bear the tag. */
static void add_tag(struct page *p, const char *tag)
{
    const char *path, *method;
    json_t *item, *op;
    add_between(p, "<h2>", tag, "</h2>\n");
    json_object_foreach(json_object_get(p->document, "paths"), path, item)
    {
        json_object_foreach(item, method, op)
        {
            const char *of = json_string_value(json_array_get(json_object_get(op, "tags"), 0));
            if (is_method(method) && of && strcmp(of, tag) == 0)
                add_operation(p, path, method, op);
        }
    }
}

static void add_schemas(struct page *p)
{
    const char *name;
    json_t *schema;
    add(p, "<h2>Schemas</h2>\n");
    json_object_foreach(json_object_get(json_object_get(p->document, "components"), "schemas"),
                        name, schema)
    {
        add_between(p, "<h3 id=\"schema-", name, "\">");
        add_between(p, "", name, "</h3>\n");
        add_schema(p, schema);
    }
}

int openapi_to_html(const char *json, size_t n, struct strbuf *to)
{
    json_t *document = json_loadb(json, n, 0, NULL);
    struct page p = {.to = to, .document = document, .rc = document ? 0 : -1};
    const json_t *info = json_object_get(document, "info"),
                 *tags = json_object_get(document, "tags");
    add(&p, head);
    add_between(&p, "<h1>", text_of(info, "title"), "</h1>\n");
    add_between(&p, "<p>", text_of(info, "description"), "</p>\n");
    for (size_t i = 0; i < json_array_size(tags); i++)
        add_tag(&p, text_of(json_array_get(tags, i), "name"));
    add_schemas(&p);
    add(&p, "</body>\n</html>\n");
    json_decref(document);
    return p.rc ? -1 : 0;
}
