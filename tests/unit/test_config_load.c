/*
 * The configuration as a whole: defaults, the example file, overrides from the environment, what
 * sessions inherit, what a reload changes, files that can't be read. Run from the folder that
 * holds sandbox.ini.example.
 */
#include "config/config_internal.h"
#include "tests/unit/check.h"
#include "tests/unit/config_told.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- helpers ---- */

static struct error err;
static struct config *conf;

/* environ_ as execve(2) has it; string literals come as const. */
static bool parse_env(const char *text, const char *const *environ_)
{
    config_free(conf);
    memset(&err, 0, sizeof err);
    conf = config_parse("F", text, strlen(text), (char *const *)environ_, &err);
    return conf != NULL;
}

static bool parse(const char *text)
{
    return parse_env(text, NULL);
}

/* The complaint about one variable; "" if there is none. */
static const char *complaint_env(const char *variable)
{
    return parse_env("", (const char *[]){variable, NULL}) ? "" : err.text;
}

/* ---- defaults and the example ---- */

static void test_defaults_without_a_file(void)
{
    config_free(conf);
    conf = config_load(NULL, NULL, &err);
    CHECK(conf && !conf->path && !conf->runtime_dir && !conf->control_socket);
    CHECK(conf->stop_grace_ms == 8000 && conf->idle_timeout_ms == 0);
    CHECK(conf->log_level == LOG_INFO && conf->log_format == LOG_TEXT);
    CHECK(conf->idle_action == IDLE_STOP && conf->text_limit == 16 << 20);
    CHECK(conf->max_connections == 256 && conf->client_stall_ms == 30000);
    CHECK(conf->events_keep == 256 << 10);
    CHECK(!conf->defaults.name && !conf->defaults.shell && !conf->defaults.cwd);
    CHECK(!conf->defaults.user && conf->defaults.env.count == 0);
    CHECK(conf->defaults.command_timeout_ms == 0 && conf->defaults.kill_grace_ms == 5000);
    CHECK(conf->defaults.queue_limit == 64 && conf->defaults.output_keep == 1 << 20);
    CHECK(conf->defaults.output_limit == 0 && conf->command_keep == 100);
    CHECK(conf->max_sessions == 64 && conf->max_processes == 512 && conf->process_keep == 100);
    CHECK(conf->gateway.listen.count == 0 && !conf->gateway.token_file);
    CHECK(conf->gateway.auth == GATEWAY_AUTH_TOKEN && conf->gateway.on_delete == GATEWAY_RESET);
    CHECK(conf->gateway.max_body == 32 << 20 && conf->gateway.max_connections == 1024);
    CHECK(conf->gateway.idle_timeout_ms == 75000 && !conf->gateway.user);
    CHECK_STR(conf->gateway.workspace, "/workspace");
    CHECK(conf->session_count == 0 && !config_session(conf, "dev"));
    CHECK_STR(diff("", "[init]\n[sessions]\n"), "");
}

/* The example with the '#' of its keys and sections taken away, as a user would. */
static char *example_text(bool is_uncommented)
{
    FILE *f = fopen("sandbox.ini.example", "r");
    char *text = calloc(1, 65536), line[512];
    size_t n = 0;
    while (f && text && fgets(line, sizeof line, f)) {
        bool is_key = line[0] == '#' && line[1] != ' ' && line[1] != '\n';
        n += (size_t)snprintf(text + n, 65536 - n, "%s", line + (is_uncommented && is_key));
    }
    if (f)
        fclose(f);
    return text;
}

/* True if the example has the row's key, with its default if there is one. */
static bool is_told(const char *example, const struct schema_row *row)
{
    char want[128];
    const char *dot = strchr(row->key, '.'); /* env.NAME, limit.NAME */
    int n = (int)(dot ? (size_t)(dot - row->key) + 1 : strlen(row->key));
    snprintf(want, sizeof want, "\n#%.*s%s%s%s", n, row->key, dot ? "" : " = ",
             row->initial ? row->initial : "", row->initial ? "\n" : "");
    return strstr(example, want);
}

static void test_example_loads_and_tells_every_default(void)
{
    char *plain = example_text(false), *full = example_text(true);
    bool did_plain = plain && full && parse(plain) && strlen(plain) > 100;
    snprintf(told, sizeof told, "%s", did_plain ? "" : err.text);
    bool did_full = did_plain && parse(full);
    char missing[128] = "";
    const char *of_services = did_full ? strstr(plain, "#[service:web]") : NULL;
    for (size_t i = 0; of_services && i < schema_row_count; i++)
        if (!is_told(plain, &schema_rows[i]))
            snprintf(missing, sizeof missing, "%s", schema_rows[i].key);
    for (size_t i = 0; of_services && i < service_row_count; i++)
        if (!is_told(of_services, &service_rows[i]))
            snprintf(missing, sizeof missing, "%s", service_rows[i].key);
    char full_error[sizeof err.text];
    snprintf(full_error, sizeof full_error, "%s", did_full ? "" : err.text);
    const char *changed = did_plain ? diff("", plain) : told;
    free(plain);
    free(full);
    CHECK_STR(changed, "");
    CHECK_STR(full_error, "");
    CHECK_STR(missing, "");
    CHECK(of_services && conf->service_count == 3 && config_service(conf, "db")->script);
    CHECK(config_session(conf, "dev") && config_session(conf, "dev")->env.count == 2);
}

static void test_schema_rows_are_sound(void)
{
    for (size_t i = 0; i < schema_row_count; i++) {
        const struct schema_row *row = &schema_rows[i];
        CHECK(strlen(row->key) < 32 && row->sections != 0);
        CHECK((row->type == VALUE_WORD) == (row->words != NULL));
        CHECK(row->min <= row->max);
        for (size_t j = 0; j < i; j++)
            CHECK(!(row->sections & schema_rows[j].sections) ||
                  strcmp(row->key, schema_rows[j].key) != 0);
    }
}

/* ---- inheritance ---- */

static void test_sessions_inherit_from_a_later_section(void)
{
    CHECK(parse("[session:a]\ncwd = /a\nenv.X = own\nenv.Z = z\n"
                "[session:b]\nkill_grace = 5s\nqueue_limit = 1\n"
                "[sessions]\nshell = /bin/dash\ncwd = /d\nuser = u\nenv.W = w\nenv.X = x\n"
                "kill_grace = 9s\noutput_keep = 8K\ncommand_timeout = 1m\n"));
    const struct session_config *a = config_session(conf, "a"), *b = config_session(conf, "b");
    CHECK(a && b && conf->session_count == 2 && a == &conf->sessions[0]);
    CHECK_STR(a->shell, "/bin/dash");
    CHECK_STR(a->cwd, "/a");
    CHECK_STR(a->user, "u");
    CHECK(a->kill_grace_ms == 9000 && a->output_keep == 8192 && a->command_timeout_ms == 60000);
    CHECK(a->env.count == 3);
    CHECK_STR(a->env.items[0], "W=w");
    CHECK_STR(a->env.items[1], "X=own");
    CHECK_STR(a->env.items[2], "Z=z");
    /* Given in the section counts, though it is the built-in default. */
    CHECK(b->kill_grace_ms == 5000 && b->queue_limit == 1);
    CHECK_STR(b->cwd, "/d");
    CHECK(b->env.count == 2 && conf->defaults.env.count == 2);
    CHECK_STR(conf->defaults.env.items[1], "X=x");
    CHECK(parse("[session:c]\n"));
    CHECK(conf->sessions[0].kill_grace_ms == 5000 && !conf->sessions[0].shell);
}

static void test_more_sessions_than_max_sessions(void)
{
    CHECK(!parse("[session:a]\n[session:b]\n\n[session:c]\n[sessions]\nmax_sessions = 2\n"));
    CHECK_STR(err.text, "F:4: [session:c] is one more than max_sessions (2)");
    CHECK(parse_env("[session:a]\n[session:b]\n[session:c]\n[sessions]\nmax_sessions = 2\n",
                    (const char *[]){"SANDBOX_SESSIONS_MAX_SESSIONS=3", NULL}));
    size_t size = 32768, n = 0;
    char *text = malloc(size);
    for (unsigned i = 0; text && i < 1025; i++)
        n += (size_t)snprintf(text + n, size - n, "[session:s%u]\n", i);
    bool was_over = text && parse(text);
    free(text);
    CHECK(!was_over);
    CHECK_STR(err.text, "F:1025: more than 1024 sections [session:NAME]");
}

/* 1024 sessions times 1M of variables must not become 1G. */
static void test_all_variables_are_bounded(void)
{
    size_t size = 3 << 20, n = 0;
    char *text = malloc(size);
    if (!text)
        abort();
    n += (size_t)snprintf(text, size, "[sessions]\nmax_sessions = 1024\n");
    for (unsigned i = 0; i < 16; i++) {
        n += (size_t)snprintf(text + n, size - n, "env.V%u = ", i);
        memset(text + n, 'x', 60000);
        n += 60000;
        text[n++] = '\n';
    }
    for (unsigned i = 0; i < 1000; i++)
        n += (size_t)snprintf(text + n, size - n, "[session:s%u]\n", i);
    text[n] = '\0';
    bool did = parse(text);
    free(text);
    CHECK(!did);
    CHECK(strstr(err.text, "the variables of all sessions together take more than 16M"));
}

/* ---- overrides ---- */

static void test_overrides(void)
{
    const char *const environ_[] = {"PATH=/bin",
                                    "SANDBOX_INIT_STOP_GRACE=3s",
                                    "SANDBOX_INIT_STOP_GRACE=4s",
                                    "SANDBOX_INIT_LOG_LEVEL=debug",
                                    "SANDBOX_SESSIONS_CWD=/over",
                                    "SANDBOX_SESSIONS_KILL_GRACE=1s",
                                    "SANDBOX_SOCKET=/x",
                                    "SANDBOX_SESSION=s",
                                    "SANDBOX_INIT=1",
                                    "SANDBOX_FOO_BAR=1",
                                    "SANDBOX_INIT_BARE",
                                    NULL};
    CHECK(parse_env("[init]\nstop_grace = 9s\n[session:a]\ncwd = /own\n[session:b]\n", environ_));
    CHECK(conf->stop_grace_ms == 3000 && conf->log_level == LOG_DEBUG);
    CHECK_STR(conf->defaults.cwd, "/over");
    /* What the file says of one session stands above the overridden default. */
    CHECK_STR(conf->sessions[0].cwd, "/own");
    CHECK_STR(conf->sessions[1].cwd, "/over");
    CHECK(conf->sessions[0].kill_grace_ms == 1000);
    config_free(conf);
    conf = config_load(NULL, (char *const *)environ_, &err);
    CHECK(conf && conf->stop_grace_ms == 3000);
}

static void test_overrides_that_are_wrong(void)
{
    CHECK_STR(complaint_env("SANDBOX_INIT_STOP_GRACE=soon"),
              "environment: SANDBOX_INIT_STOP_GRACE: 'soon' is not a duration such as 500ms, 5s, "
              "10m or 1h (0 to 1h)");
    CHECK_STR(complaint_env("SANDBOX_INIT_STOP_GRACE="),
              "environment: SANDBOX_INIT_STOP_GRACE: the value is empty");
    CHECK_STR(complaint_env("SANDBOX_INIT_STOP_GRACEE=5s"),
              "environment: SANDBOX_INIT_STOP_GRACEE: no such key; did you mean "
              "'SANDBOX_INIT_STOP_GRACE'?");
    CHECK_STR(complaint_env("SANDBOX_INIT_stop_grace=5s"),
              "environment: SANDBOX_INIT_stop_grace: no such key; did you mean "
              "'SANDBOX_INIT_STOP_GRACE'?");
    CHECK_STR(complaint_env("SANDBOX_INIT_MAX_SESSIONS=5"),
              "environment: SANDBOX_INIT_MAX_SESSIONS: no such key; did you mean "
              "'SANDBOX_SESSIONS_MAX_SESSIONS'?");
    CHECK_STR(complaint_env("SANDBOX_SESSIONS_env.A=x"),
              "environment: SANDBOX_SESSIONS_env.A: no key of [sessions] that can be overridden");
    CHECK_STR(
        complaint_env("SANDBOX_SESSIONS_ENV.NAME=x"),
        "environment: SANDBOX_SESSIONS_ENV.NAME: no key of [sessions] that can be overridden");
    CHECK_STR(complaint_env("SANDBOX_INIT_=x"),
              "environment: SANDBOX_INIT_: no key of [init] that can be overridden");
    CHECK(!parse_env("", (const char *[]){"SANDBOX_SESSIONS_SHELL=bash", NULL}));
    char *far = calloc(1, 8192);
    CHECK(far);
    memset(far, 'A', 5000);
    memcpy(far, "SANDBOX_INIT_", 13);
    far[5000] = '=';
    bool did = parse_env("", (const char *[]){far, NULL});
    free(far);
    CHECK(!did && strlen(err.text) < 200);
}

/* Kubernetes sets these where a Service is called "sandbox-init"; they are nobody's slip. */
static void test_service_variables_are_left_alone(void)
{
    CHECK_STR(complaint_env("SANDBOX_INIT_SERVICE_HOST=10.0.0.1"), "");
    CHECK_STR(complaint_env("SANDBOX_INIT_SERVICE_PORT_HTTP=80"), "");
    CHECK_STR(complaint_env("SANDBOX_SESSIONS_PORT_80_TCP_ADDR=10.0.0.1"), "");
    CHECK_STR(complaint_env("SANDBOX_INIT_PORT=tcp://10.0.0.1:80"), "");
    CHECK(complaint_env("SANDBOX_INIT_PORTS=80")[0]);
}

/* ---- diff ---- */

static void test_diff(void)
{
    const char *old_text = "[init]\nlog_level=warn\n[sessions]\nenv.A=1\nenv.B=2\ncwd=/x\n"
                           "[session:gone]\n[session:same]\ncwd=/s\n[session:own]\nuser=u\n";
    CHECK_STR(diff(old_text, old_text), "");
    CHECK_STR(diff("[sessions]\nenv.A=1\nenv.B=2\n[session:x]\n",
                   "[session:x]\n[sessions]\nenv.B=2\nenv.A=1\n"),
              "");
    CHECK_STR(diff(old_text, "[init]\nlog_format=json\n[sessions]\nenv.B=3\nenv.C=1\nenv.A=1\n"
                             "cwd=/x\n[session:new]\n[session:own]\nuser=v\nenv.B=2\nenv.C=1\n"
                             "[session:same]\ncwd=/s\n"),
              "key init log_level;key init log_format;key sessions env.B;key sessions env.C;"
              "removed session:gone gone;changed session:same same;changed session:own own;"
              "added session:new new;");
    CHECK_STR(diff("[session:a]\n", "[sessions]\nkill_grace=1s\n[session:a]\n"),
              "key sessions kill_grace;changed session:a a;");
    CHECK_STR(diff("[session:a]\n", "[sessions]\nkill_grace=1s\n[session:a]\nkill_grace=5s\n"),
              "key sessions kill_grace;");
    CHECK_STR(diff("[sessions]\nenv.A=1\n", ""), "key sessions env.A;");
    CHECK_STR(diff("[init]\nruntime_dir=/a\n", "[init]\nruntime_dir=/b\n"),
              "key init runtime_dir;");
}

/* ---- files ---- */

static void test_files(void)
{
    char folder[] = "/tmp/test_config.XXXXXX", path[64], want[128];
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/f.ini", folder);
    struct config *c = config_load(path, NULL, &err);
    snprintf(want, sizeof want, "%s: No such file or directory", path);
    CHECK(!c && err.code == ERR_SYSTEM);
    CHECK_STR(err.text, want);

    FILE *f = fopen(path, "w");
    CHECK(f);
    fputs("[init]\nstop_grace = 7s\n", f);
    fclose(f);
    c = config_load(path, NULL, &err);
    CHECK(c && c->stop_grace_ms == 7000 && strcmp(c->path, path) == 0);
    config_free(c);

    CHECK(truncate(path, 5 << 20) == 0); /* sparse */
    c = config_load(path, NULL, &err);
    snprintf(want, sizeof want, "%s: longer than 4M", path);
    CHECK(!c);
    CHECK_STR(err.text, want);

    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    c = config_load(path, NULL, &err);
    snprintf(want, sizeof want, "%s: not a regular file", path);
    CHECK(!c);
    CHECK_STR(err.text, want);
    CHECK(!config_load(folder, NULL, &err) && strstr(err.text, "not a regular file"));
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    CHECK(!config_load("/nonexistent", NULL, NULL)); /* nobody wants to know why */
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_defaults_without_a_file),
        CHECK_TEST(test_example_loads_and_tells_every_default),
        CHECK_TEST(test_schema_rows_are_sound),
        CHECK_TEST(test_sessions_inherit_from_a_later_section),
        CHECK_TEST(test_more_sessions_than_max_sessions),
        CHECK_TEST(test_all_variables_are_bounded),
        CHECK_TEST(test_overrides),
        CHECK_TEST(test_overrides_that_are_wrong),
        CHECK_TEST(test_service_variables_are_left_alone),
        CHECK_TEST(test_diff),
        CHECK_TEST(test_files),
    };
    int status = check_run(tests, sizeof tests / sizeof tests[0]);
    config_free(conf);
    return status;
}
