/* The command line of sandbox-gateway: what init writes there, parsed and checked. */
#include "base/number.h"
#include "gateway/gateway.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPT_CONTROL = 1,
    OPT_TOKEN,
    OPT_LISTEN,
    OPT_WORKSPACE,
    OPT_DELETE,
    OPT_BODY,
    OPT_CONNECTIONS,
    OPT_IDLE,
    OPT_SANDBOX,
    OPT_ORIGIN,
    OPT_HEAD,
    OPT_STALL,
    OPT_TOKEN_FILE,
    OPT_LOG_FORMAT,
    OPT_LOG_LEVEL,
    OPT_VERSION,
    OPT_HELP
};

static const struct option options[] = {
    {"control-fd", required_argument, NULL, OPT_CONTROL},
    {"token-fd", required_argument, NULL, OPT_TOKEN},
    {"token-file", required_argument, NULL, OPT_TOKEN_FILE},
    {"log-format", required_argument, NULL, OPT_LOG_FORMAT},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"workspace", required_argument, NULL, OPT_WORKSPACE},
    {"on-delete", required_argument, NULL, OPT_DELETE},
    {"max-body", required_argument, NULL, OPT_BODY},
    {"max-connections", required_argument, NULL, OPT_CONNECTIONS},
    {"idle-timeout", required_argument, NULL, OPT_IDLE},
    {"sandbox-id", required_argument, NULL, OPT_SANDBOX},
    {"cors-origin", required_argument, NULL, OPT_ORIGIN},
    /* For tests: the times of http.h in milliseconds. */
    {"head-timeout", required_argument, NULL, OPT_HEAD},
    {"stall-timeout", required_argument, NULL, OPT_STALL},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {0},
};

static const char usage_text[] =
    "usage: sandbox-gateway --listen=ADDRESS... [OPTION...] | --version | --help\n"
    "       sandbox-gateway --file-helper --workspace=DIR\n"
    "\n"
    "The HTTP server of a sandbox, and the helper that opens files for it. sandbox-init starts\n"
    "both, with options from [gateway] of the sandbox.ini (sandbox.ini(5) tells the keys); nobody\n"
    "else needs to.\n"
    "\n"
    "  --control-fd=N       the socket to sandbox-init; none: what needs it answers 502\n"
    "  --token-fd=N         the token is read from it; none: no token is needed\n"
    "  --token-file=PATH    what the token's file is called, for messages\n"
    "  --listen=ADDRESS     HOST:PORT or unix:PATH; can be repeated\n"
    "  --workspace=DIR      /workspace\n"
    "  --on-delete=WORD     reset or exit\n"
    "  --max-body=BYTES, --max-connections=N, --idle-timeout=MS\n"
    "  --sandbox-id=ID      the one id there is; none: any\n"
    "  --cors-origin=ORIGIN\n"
    "  --log-format=FORMAT, --log-level=LEVEL\n"
    "  --version            print the version\n"
    "  --help               print this text\n";

static _Noreturn void print(const char *text)
{
    fputs(text, stdout);
    exit(0);
}

static int take_log(struct gateway_options *o, int option, const char *value)
{
    static const char *const levels[] = {
        [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};
    if (option == OPT_LOG_FORMAT) {
        o->log_format = strcmp(value, "json") == 0 ? LOG_JSON : LOG_TEXT;
        return o->log_format == LOG_JSON || strcmp(value, "text") == 0 ? 0 : -1;
    }
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(value, levels[i]) == 0) {
            o->log_level = (enum log_level)i;
            return 0;
        }
    return -1;
}

static int take(struct gateway_options *o, int option, const char *value)
{
    uint64_t n = 0;
    bool is_number = number_parse_u64(value, INT64_MAX, &n) == 0;
    switch (option) {
    case OPT_CONTROL:
        o->control_fd = (int)n;
        return is_number && n < 1024 ? 0 : -1;
    case OPT_TOKEN:
        o->token_fd = (int)n;
        return is_number && n < 1024 ? 0 : -1;
    case OPT_TOKEN_FILE:
        o->token_file = value;
        return 0;
    case OPT_LOG_FORMAT:
    case OPT_LOG_LEVEL:
        return take_log(o, option, value);
    case OPT_LISTEN:
        if (o->listen_count == GATEWAY_LISTEN_MAX)
            return -1;
        o->listen[o->listen_count++] = value;
        return 0;
    case OPT_WORKSPACE:
        o->workspace = value;
        return value[0] == '/' ? 0 : -1;
    case OPT_DELETE:
        o->is_reset = strcmp(value, "reset") == 0;
        return o->is_reset || strcmp(value, "exit") == 0 ? 0 : -1;
    case OPT_BODY:
        o->max_body = (size_t)n;
        return is_number && n > 0 ? 0 : -1;
    case OPT_CONNECTIONS:
        o->max_connections = (unsigned)n;
        return is_number && n > 0 && n <= 1000000 ? 0 : -1;
    case OPT_IDLE:
        o->idle_timeout_ms = n;
        return is_number ? 0 : -1;
    case OPT_SANDBOX:
        o->sandbox_id = value;
        return 0;
    case OPT_ORIGIN:
        o->cors_origin = value;
        return 0;
    case OPT_HEAD:
        o->head_timeout_ms = n;
        return is_number ? 0 : -1;
    case OPT_STALL:
        o->stall_timeout_ms = n;
        return is_number ? 0 : -1;
    default:
        return -1;
    }
}

int gateway_options_parse(struct gateway_options *o, int argc, char *const *argv, struct error *e)
{
    *o = (struct gateway_options){.workspace = "/workspace",
                                  .is_reset = true,
                                  .max_body = (size_t)32 << 20,
                                  .max_connections = 1024,
                                  .idle_timeout_ms = 75000,
                                  .log_level = LOG_INFO,
                                  .control_fd = -1,
                                  .token_fd = -1};
    int option, index = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", options, &index)) != -1) {
        if (option == OPT_VERSION || option == OPT_HELP)
            print(option == OPT_HELP ? usage_text : "sandbox-gateway " SANDBOX_VERSION "\n");
        if (option == '?')
            return error_set(e, ERR_INVALID, "unknown option or no value: %s", argv[optind - 1]);
        if (take(o, option, optarg) < 0)
            return error_set(e, ERR_INVALID, "--%s=%s: not a possible value", options[index].name,
                             optarg);
    }
    if (optind < argc)
        return error_set(e, ERR_INVALID, "%s: not an option", argv[optind]);
    if (o->listen_count == 0)
        return error_set(e, ERR_INVALID, "no --listen=ADDRESS");
    return 0;
}
