/*
 * Routes about the gateway itself: whether it works, its numbers, and the pool of the contract, in
 * which there is always this one sandbox.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "gateway/gateway.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void health(struct exchange *x)
{
    const struct gateway *g = exchange_context(x);
    if (g->upstream)
        exchange_json(x, 200, "{\"ok\":true}");
    else
        exchange_json(x, 503, "{\"ok\":false,\"errors\":[\"no connection to sandbox-init\"]}");
}

/* ---- /metrics: Prometheus' text format ---------------------------------------------------- */

static void add_metric(struct strbuf *to, const char *name, const char *type, const char *help,
                       uint64_t value)
{
    (void)strbuf_addf(to,
                      "# HELP sandbox_gateway_%s %s\n# TYPE sandbox_gateway_%s %s\n"
                      "sandbox_gateway_%s %llu\n",
                      name, help, name, type, name, (unsigned long long)value);
}

static void add_answers(struct strbuf *to, const struct http_counts *n)
{
    static const char *const classes[] = {"cut", "1xx", "2xx", "3xx", "4xx", "5xx"};
    (void)strbuf_adds(to, "# HELP sandbox_gateway_answers_total Answers by the class of their "
                          "status; cut: the connection ended before one.\n"
                          "# TYPE sandbox_gateway_answers_total counter\n");
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        (void)strbuf_addf(to, "sandbox_gateway_answers_total{class=\"%s\"} %llu\n", classes[i],
                          (unsigned long long)n->by_class[i]);
}

/* Bytes of the process that are in memory (proc(5): statm, in pages). */
static uint64_t resident_bytes(void)
{
    char text[128];
    if (fd_read_file(AT_FDCWD, "/proc/self/statm", text, sizeof text) <= 0)
        return 0;
    const char *second = strchr(text, ' ');
    return second ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static void metrics(struct exchange *x)
{
    const struct gateway *g = exchange_context(x);
    struct http_counts n;
    CLEANUP_STRBUF struct strbuf text = {0};
    http_server_counts(g->http, &n);
    (void)strbuf_addf(&text,
                      "# HELP sandbox_gateway_info The running program.\n"
                      "# TYPE sandbox_gateway_info gauge\n"
                      "sandbox_gateway_info{version=\"%s\"} 1\n",
                      SANDBOX_VERSION);
    add_metric(&text, "uptime_seconds", "gauge", "Since its start.",
               (clock_mono_ns() - g->began_ns) / 1000000000u);
    add_metric(&text, "requests_total", "counter", "Requests begun.", n.requests);
    add_answers(&text, &n);
    add_metric(&text, "connections", "gauge", "Open now.", n.connections);
    add_metric(&text, "connections_max", "gauge", "As many may be open.",
               g->options.max_connections);
    add_metric(&text, "connections_refused_total", "counter", "Those beyond connections_max.",
               n.refused);
    add_metric(&text, "received_bytes_total", "counter", "From clients.", n.bytes_in);
    add_metric(&text, "sent_bytes_total", "counter", "To clients.", n.bytes_out);
    add_metric(&text, "deletes_incomplete_total", "counter",
               "Sandboxes deleted that left something in the workspace.", g->deletes_incomplete);
    add_metric(&text, "resident_memory_bytes", "gauge", "Memory in use.", resident_bytes());
    exchange_answer(x, 200, "text/plain; version=0.0.4; charset=utf-8", strbuf_text(&text),
                    text.len);
}

/* ---- /v1/pool ----------------------------------------------------------------------------- */

static void pool_stats(struct exchange *x)
{
    exchange_json(x, 200,
                  "{\"warm\":0,\"assigned\":1,\"total\":1,\"config\":{\"warmTarget\":0,"
                  "\"refreshInterval\":10000,\"maxInstances\":0,\"scaleBatchSize\":5},"
                  "\"maxInstances\":null}");
}

/* Nothing is kept warm: the sandbox is the container that runs. */
static void pool_ok(struct exchange *x)
{
    exchange_json(x, 200, "{\"ok\":true}");
}

const struct route routes_health[] = {
    {"GET", "/health", BODY_IGNORED, ROUTE_OPEN, 0, NULL, health},
    {"GET", "/metrics", BODY_IGNORED, 0, 0, NULL, metrics},
    {"GET", "/v1/pool/stats", BODY_IGNORED, ROUTE_EXACT_BEARER, 0, NULL, pool_stats},
    {"POST", "/v1/pool/prime", BODY_IGNORED, ROUTE_EXACT_BEARER, 0, NULL, pool_ok},
    {"POST", "/v1/pool/shutdown-prewarmed", BODY_IGNORED, ROUTE_EXACT_BEARER, 0, NULL, pool_ok},
    {0},
};
