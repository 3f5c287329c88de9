/*
 * [gateway]: addresses, what would open the container to everybody, overrides, what a reload
 * changes.
 */
#include "config/config_internal.h"
#include "tests/unit/check.h"
#include "tests/unit/config_told.h"

#include <stdlib.h>

static struct error err;
static struct config *conf;

static bool parse_env(const char *text, const char *const *environ_)
{
    config_free(conf);
    memset(&err, 0, sizeof err);
    conf = config_parse("F", text, strlen(text), (char *const *)environ_, &err);
    return conf != NULL;
}

/* The complaint about the keys of a [gateway]; "" if there is none. */
static const char *complaint(const char *keys)
{
    char text[8192];
    snprintf(text, sizeof text, "[gateway]\n%s\n", keys);
    return parse_env(text, NULL) ? "" : err.text;
}

/* The same for one address, with a token. */
static const char *of_address(const char *address)
{
    char keys[4096];
    snprintf(keys, sizeof keys, "token_file = /t\nlisten = %s", address);
    return complaint(keys);
}

static void test_addresses(void)
{
    CHECK_STR(of_address("127.0.0.1:3000"), "");
    CHECK_STR(of_address("0.0.0.0:80 [::1]:1, :65535\n unix:/run/g.sock"), "");
    CHECK(conf->gateway.listen.count == 4);
    CHECK_STR(conf->gateway.listen.items[1], "[::1]:1");
    CHECK_STR(conf->gateway.listen.items[3], "unix:/run/g.sock");
    CHECK_STR(of_address("localhost:3000"), "");
    CHECK_STR(conf->gateway.listen.items[0], "127.0.0.1:3000");

    CHECK_STR(of_address("3000"),
              "F:3: listen: '3000' is not HOST:PORT, :PORT (every address) or unix:PATH");
    CHECK_STR(of_address("example.com:80"),
              "F:3: listen: 'example.com' is not an address such as 127.0.0.1 or [::1] (names are "
              "not looked up)");
    CHECK_STR(of_address("127.0.0.1:0"), "F:3: listen: '0' is not a port (1 to 65535)");
    CHECK_STR(of_address(":65536"), "F:3: listen: '65536' is not a port (1 to 65535)");
    CHECK_STR(of_address("[::1]"),
              "F:3: listen: '[::1]' is not HOST:PORT, :PORT (every address) or unix:PATH");
    CHECK_STR(of_address("unix:g.sock"),
              "F:3: listen: 'unix:g.sock' is not unix: and an absolute path");
    CHECK_STR(of_address(":1 :2 :1"), "F:3: listen: ':1' stands there twice");
    CHECK_STR(of_address(""), "F:3: listen: the value is empty");
    CHECK_STR(of_address("''"), "F:3: listen: '' is not HOST:PORT, :PORT (every address) or "
                                "unix:PATH");
    CHECK_STR(of_address(":1 :2 :3 :4 :5 :6 :7 :8 :9 :10 :11 :12 :13 :14 :15 :16 :17"),
              "F:3: listen: 17 addresses (1 to 16)");
    char path[140] = "unix:/";
    memset(path + 6, 'x', 107);
    CHECK(strstr(of_address(path), "the path is 108 bytes long (107 are possible)"));
    path[112] = '\0';
    CHECK_STR(of_address(path), "");
}

static void test_tcp_needs_a_token(void)
{
    const char *refused =
        "F:2: listen: who reaches :3000 could run anything here; set token_file = FILE (a file "
        "with one line, the token), or write auth = none";
    CHECK_STR(complaint("listen = :3000"), refused);
    CHECK_STR(complaint("listen = unix:/a :3000"), refused);
    CHECK_STR(complaint("listen = :3000\nauth = token"), refused);
    CHECK_STR(complaint("listen = :3000\nauth = none"), "");
    CHECK_STR(complaint("listen = unix:/a"), "");
    CHECK_STR(complaint("listen = :3000\nauth = none\ntoken_file = /t"),
              "F:2: auth: none, and there is a token_file; take one of the two away");
    CHECK_STR(complaint("token_file = t\nlisten = :1"),
              "F:2: token_file: 't' is not an absolute path");
}

static void test_a_section_without_an_address(void)
{
    CHECK_STR(complaint("auth = none"),
              "F:1: [gateway] has no address; give it one, such as listen = 127.0.0.1:3000");
    CHECK_STR(complaint("lisen = :3000"),
              "F:2: unknown key 'lisen' in [gateway]; did you mean 'listen'?");
    CHECK_STR(complaint("stop_grace = 1s"),
              "F:2: unknown key 'stop_grace' in [gateway]; it belongs in [init]");
    CHECK(!parse_env("[init]\ntoken_file = /t\n", NULL));
    CHECK_STR(err.text, "F:2: unknown key 'token_file' in [init]; it belongs in [gateway]");
}

static void test_other_values(void)
{
    CHECK_STR(complaint("listen = unix:/a\nsandbox_id = a2345"), "");
    CHECK_STR(complaint("listen = unix:/a\nsandbox_id = a1"),
              "F:3: sandbox_id: 'a1' is not a sandbox's id: 1 to 128 of a-z and 2-7");
    CHECK_STR(complaint("listen = unix:/a\ncors_origin = https://a.b:8080"), "");
    CHECK_STR(complaint("listen = unix:/a\ncors_origin = *"), "");
    const char *const bad[] = {"a.b", "https://", "https://a/b", "https://a, https://b", "://a"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char keys[100];
        snprintf(keys, sizeof keys, "listen = unix:/a\ncors_origin = %s", bad[i]);
        CHECK(strstr(complaint(keys), "is not an origin such as https://app.example.com"));
    }
    CHECK_STR(complaint("listen = unix:/a\nworkspace = /srv/w//"), "");
    CHECK_STR(conf->gateway.workspace, "/srv/w");
    CHECK_STR(complaint("listen = unix:/a\nworkspace = /"), "");
    CHECK_STR(conf->gateway.workspace, "/");
    CHECK_STR(complaint("listen = unix:/a\nworkspace = /srv/../w"),
              "F:2: workspace: '/srv/../w' holds an empty part, '.' or '..'");
    CHECK(strstr(complaint("listen = unix:/a\nmax_body = 2G"), "max_body: '2G' is out of range"));
    CHECK(strstr(complaint("listen = unix:/a\non_delete = stop"), "is not one of reset, exit"));
}

static void test_overrides(void)
{
    CHECK(parse_env("", (const char *[]){"SANDBOX_GATEWAY_LISTEN=:3000",
                                         "SANDBOX_GATEWAY_TOKEN_FILE=/t",
                                         "SANDBOX_GATEWAY_PORT=tcp://10.0.0.1:80",
                                         "SANDBOX_GATEWAY_SERVICE_HOST=10.0.0.1", NULL}));
    CHECK(conf->gateway.listen.count == 1);
    CHECK_STR(conf->gateway.token_file, "/t");
    CHECK(!parse_env("", (const char *[]){"SANDBOX_GATEWAY_LISTEN=:3000", NULL}));
    CHECK(strstr(err.text, "environment: listen: who reaches :3000") == err.text);
    CHECK(!parse_env("", (const char *[]){"SANDBOX_GATEWAY_LISTN=:3000", NULL}));
    CHECK_STR(err.text, "environment: SANDBOX_GATEWAY_LISTN: no such key; did you mean "
                        "'SANDBOX_GATEWAY_LISTEN'?");
    CHECK(!parse_env("", (const char *[]){"SANDBOX_GATEWAY_QQQQQQ=1", NULL}));
    CHECK_STR(err.text,
              "environment: SANDBOX_GATEWAY_QQQQQQ: no key of [gateway] that can be overridden");
    /* An image's own token does not start a gateway by itself. */
    CHECK(parse_env("", (const char *[]){"SANDBOX_GATEWAY_TOKEN_FILE=/t", NULL}));
    CHECK(conf->gateway.listen.count == 0);
}

static void test_diff(void)
{
    CHECK_STR(diff("[gateway]\nlisten = unix:/a\n", "[gateway]\nlisten = unix:/a\n"), "");
    CHECK_STR(diff("", "[gateway]\nlisten = unix:/a\n"), "key gateway listen;");
    CHECK_STR(diff("[gateway]\nlisten = unix:/a unix:/b\nmax_connections = 5\n",
                   "[gateway]\nlisten = unix:/b unix:/a\ntoken_file = /t\n"),
              "key gateway listen;key gateway token_file;key gateway max_connections;");
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_addresses),
        CHECK_TEST(test_tcp_needs_a_token),
        CHECK_TEST(test_a_section_without_an_address),
        CHECK_TEST(test_other_values),
        CHECK_TEST(test_overrides),
        CHECK_TEST(test_diff),
    };
    int failed = check_run(tests, sizeof tests / sizeof tests[0]);
    config_free(conf);
    return failed;
}
