/* The page for people: static files of the program, and what the page must know to begin. The
 * OpenAPI document, as it is and as a page. */
#include "gateway/gateway.h"
#include "gateway/openapi.h"
#include "gateway/page_files.h"

#include <stdio.h>
#include <string.h>

/* Any id of the right form means this container; the page needs one for its addresses. */
#define PAGE_SANDBOX "page"

/* Nothing from elsewhere, and nobody may put the page into a frame of theirs. xterm.js sets styles
 * of its own. */
#define PAGE_POLICY                                                                                \
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self' " \
    "ws: wss:; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

#define OPENAPI_POLICY                                                                             \
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; "           \
    "base-uri 'none'; frame-ancestors 'none'"

struct page_file {
    const char *name, *type, *from, *to;
};

static const struct page_file files[] = {
    {"", "text/html; charset=utf-8", page_html, page_html_end},
    {"page.css", "text/css; charset=utf-8", page_css, page_css_end},
    {"page.js", "text/javascript; charset=utf-8", page_js, page_js_end},
    {"xterm.mjs", "text/javascript; charset=utf-8", page_xterm_js, page_xterm_js_end},
    {"xterm.css", "text/css; charset=utf-8", page_xterm_css, page_xterm_css_end},
    {"addon-fit.mjs", "text/javascript; charset=utf-8", page_fit_js, page_fit_js_end},
};

static void answer_file(struct exchange *x, const char *name)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const struct page_file *f = &files[i];
        if (strcmp(f->name, name) != 0)
            continue;
        exchange_add_header(x, "Content-Security-Policy", PAGE_POLICY);
        exchange_add_header(x, "X-Content-Type-Options", "nosniff");
        exchange_add_header(x, "Referrer-Policy", "no-referrer");
        exchange_add_header(x, "Cache-Control", "no-cache");
        exchange_answer(x, 200, f->type, f->from, (size_t)(f->to - f->from));
        return;
    }
    exchange_answer(x, 404, "text/plain; charset=UTF-8", "404 Not Found", 13);
}

static void page_index(struct exchange *x)
{
    answer_file(x, "");
}

static void page_file(struct exchange *x)
{
    const char *name = exchange_segment(x, "name");
    answer_file(x, *name ? name : "none");
}

static void page_config(struct exchange *x)
{
    const struct gateway *g = exchange_context(x);
    const char *id = g->options.sandbox_id ? g->options.sandbox_id : PAGE_SANDBOX;
    char json[256];
    snprintf(json, sizeof json, "{\"sandbox_id\":\"%s\",\"version\":\"%s\"}", id, SANDBOX_VERSION);
    exchange_json(x, 200, json);
}

static void openapi_json(struct exchange *x)
{
    exchange_answer(x, 200, "application/json", page_openapi,
                    (size_t)(page_openapi_end - page_openapi));
}

static void openapi_html(struct exchange *x)
{
    CLEANUP_STRBUF struct strbuf html = {0};
    if (openapi_to_html(page_openapi, (size_t)(page_openapi_end - page_openapi), &html) < 0) {
        exchange_error(x, 503, "memory", "openapi: no memory");
        return;
    }
    exchange_add_header(x, "Content-Security-Policy", OPENAPI_POLICY);
    exchange_add_header(x, "X-Content-Type-Options", "nosniff");
    exchange_add_header(x, "Referrer-Policy", "no-referrer"); /* its address may have the token */
    exchange_answer(x, 200, "text/html; charset=utf-8", html.data, html.len);
}

#define OPENAPI_FLAGS (ROUTE_QUERY_TOKEN | ROUTE_EXACT_BEARER)

const struct route routes_page[] = {
    {"GET", "/", BODY_IGNORED, ROUTE_OPEN, 0, NULL, page_index},
    {"GET", "/page/config", BODY_IGNORED, 0, 0, NULL, page_config},
    {"GET", "/page/:name", BODY_IGNORED, ROUTE_OPEN, 0, NULL, page_file},
    {"GET", "/v1/openapi.json", BODY_IGNORED, OPENAPI_FLAGS, 0, NULL, openapi_json},
    {"GET", "/v1/openapi.html", BODY_IGNORED, OPENAPI_FLAGS, 0, NULL, openapi_html},
    {"GET", "/v1/openapi", BODY_IGNORED, OPENAPI_FLAGS, 0, NULL, openapi_html},
    {0},
};
