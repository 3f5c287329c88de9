/* sandboxctl events: what happened in init, a JSON object a line, each written as it comes. */
#include "ctl/ctl.h"

#include "control/record_json.h"
#include "ctl/output.h"
#include "ctl/print.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int build_request(const struct args *a, struct client_request *q)
{
    client_request_init(q, "events");
    if (args_has(a, "follow"))
        client_request_add(q, "follow", "1");
    if (args_has(a, "from") && args_has(a, "tail"))
        return usage_error(a->verb, "--from and --tail exclude each other");
    for (int i = 0; i < a->given_count; i++)
        if (strcmp(a->given[i].option->name, "kind") == 0)
            client_request_add(q, "kind", a->given[i].value);
    request_option(q, a, "session", "session");
    int code = request_number(q, a, "from", "from");
    return code ? code : request_number(q, a, "tail", "tail");
}

static int print_event(const char *bytes, size_t n)
{
    CLEANUP_STRBUF struct strbuf line = {0};
    if (strbuf_adds(&line, "{") | record_to_json(&line, bytes, n) | strbuf_adds(&line, "}\n"))
        return CTL_REFUSED;
    return output_write(STDOUT_FILENO, line.data, line.len, NULL, NULL);
}

/* Receive one packet. -1: go on; otherwise the exit code. */
static int take_packet(const struct args *a, struct client *c, void *context)
{
    (void)context;
    const char *bytes;
    size_t n;
    struct error e = {0};
    int code = 0;
    switch (client_receive(c, &bytes, &n, &e)) {
    case WIRE_ROW:
        code = print_event(bytes, n);
        break;
    case WIRE_RESULT:
        return CTL_OK;
    case WIRE_ERROR:
        return call_refused(a, bytes, n);
    case 0:
        error_set(&e, ERR_UNAVAILABLE, "sandbox-init closed the connection before the end");
        return call_failed(a, &e);
    case -1:
        return call_failed(a, &e);
    }
    return code ? code : -1;
}

int ctl_events(const struct args *a)
{
    struct client_request q;
    int code = build_request(a, &q);
    if (code == 0)
        code = call_follow(a, &q, take_packet, NULL);
    client_request_free(&q);
    return code;
}
