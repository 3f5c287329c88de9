/*
 * [service:NAME]: what each key becomes, what keys mean together, instances, order, and what a
 * reload is told. Complaints are in test_config_complaint.c.
 */
#include "config/config_internal.h"
#include "tests/unit/check.h"
#include "tests/unit/config_told.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

static struct error err;
static struct config *conf;

/* True if the text is a configuration; it stands in conf until the next call. */
static bool parse(const char *text)
{
    config_free(conf);
    memset(&err, 0, sizeof err);
    conf = config_parse("F", text, strlen(text), NULL, &err);
    if (!conf)
        printf("  %s\n", err.text);
    return conf != NULL;
}

static const struct service_config *service(const char *name)
{
    return config_service(conf, name);
}

/* The words of an argv, each in <>. */
static const char *words(char *const *argv)
{
    static char text[2048];
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; argv && argv[i]; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "<%s>", argv[i]);
    return argv ? text : "none";
}

static const char *names(const struct name_list *list)
{
    return list->count == 0 ? "" : words(list->items);
}

static void test_defaults(void)
{
    CHECK(parse("[service:a]\ncommand = x\n"));
    const struct service_config *s = service("a");
    CHECK(s && conf->service_count == 1 && !service("b"));
    CHECK(s->type == SERVICE_SIMPLE && s->autostart && s->instance == 0 && s->instances == 1);
    CHECK(s->restart == RESTART_ON_FAILURE && s->restart_delay_ms == 1000);
    CHECK(s->restart_backoff_ms == 60000 && s->restart_max == 5 && s->restart_window_ms == 60000);
    CHECK(s->success_codes[0] == 1 && s->success_codes[1] == 0 && s->on_fatal == FATAL_IGNORE);
    CHECK(s->ready.kind == CHECK_NONE && !s->ready.text && s->ready_timeout_ms == 60000);
    CHECK(s->health.kind == CHECK_NONE && s->health_interval_ms == 10000 && s->health_retries == 3);
    CHECK(s->stop_signal == SIGTERM && s->reload_signal == 0 && s->stop_grace_ms == 8000);
    CHECK(!s->stop_command && !s->pre_start && !s->post_stop && !s->script);
    CHECK(!s->user && !s->group && !s->groups && !s->cwd && s->env.count == 0);
    CHECK(s->umask == (mode_t)-1 && !s->has_nice && !s->has_oom_score_adj);
    CHECK(!s->limits[RLIMIT_NOFILE].is_set && s->stdin_from == STDIN_NULL);
    CHECK(s->log == SERVICE_LOG_INHERIT && !s->log_file && s->log_max_size == 10 << 20);
    CHECK(s->log_keep == 4 && s->log_timestamp == TIMESTAMP_NONE && !s->log_prefix);
    CHECK(s->priority == 0 && s->line == 1);
    CHECK_STR(s->file, "F");
    CHECK_STR(s->name, "a");
    CHECK_STR(words(s->argv), "<x>");
}

static void test_every_key(void)
{
    CHECK(parse("[service:db]\ncommand=d\n[service:a]\ncommand = /bin/x -a 'b c'\ntype = notify\n"
                "autostart = no\nrestart = always\nrestart_delay = 2s\nrestart_backoff = 3s\n"
                "restart_max = 0\nrestart_window = 4m\nsuccess_codes = 1 2,143\non_fatal = stop\n"
                "requires = db\nafter = main\npriority = -7\nready = fd:5\nready_timeout = 9s\n"
                "health = tcp:80\nhealth_interval = 8s\nhealth_retries = 7\nstop_signal = QUIT\n"
                "stop_grace = 6s\nstop_command = st 1\nreload_signal = HUP\npre_start = pre\n"
                "post_stop = post\nuser = u\ngroup = g\ngroups = a b,c\ncwd = /c\nenv.A = 1\n"
                "umask = 0027\nnice = -20\noom_score_adj = 1000\nlimit.nofile = 1024:4096\n"
                "limit.as = 64M\nlimit.core = unlimited\nlimit.stack = 1K:unlimited\n"
                "stdin = inherit\nlog = file:/l\nlog_max_size = 4K\nlog_keep = 0\n"
                "log_timestamp = iso\nlog_prefix = yes\n"));
    const struct service_config *s = service("a");
    CHECK(s->type == SERVICE_NOTIFY && !s->autostart && s->restart == RESTART_ALWAYS);
    CHECK(s->restart_delay_ms == 2000 && s->restart_backoff_ms == 3000 && s->restart_max == 0);
    CHECK(s->restart_window_ms == 240000 && s->on_fatal == FATAL_STOP && s->priority == -7);
    CHECK(s->success_codes[0] == 7 && s->success_codes[17] == 1 << 7);
    CHECK_STR(names(&s->requires), "<db>");
    CHECK_STR(names(&s->after), "<main>");
    CHECK(s->ready.kind == CHECK_FD && s->ready.fd == 5 && s->ready_timeout_ms == 9000);
    CHECK(s->health.kind == CHECK_TCP && s->health.port == 80 && s->health_interval_ms == 8000);
    CHECK_STR(s->health.target, "127.0.0.1");
    CHECK(s->health_retries == 7 && s->stop_signal == SIGQUIT && s->reload_signal == SIGHUP);
    CHECK(s->stop_grace_ms == 6000 && s->umask == 027 && s->has_nice && s->nice == -20);
    CHECK(s->has_oom_score_adj && s->oom_score_adj == 1000 && s->stdin_from == STDIN_INHERIT);
    CHECK_STR(words(s->stop_command), "<st><1>");
    CHECK_STR(words(s->pre_start), "<pre>");
    CHECK_STR(words(s->post_stop), "<post>");
    CHECK_STR(words(s->argv), "</bin/x><-a><b c>");
    CHECK_STR(s->user, "u");
    CHECK_STR(s->group, "g");
    CHECK_STR(s->groups, "a b c");
    CHECK_STR(s->cwd, "/c");
    CHECK_STR(s->env.items[0], "A=1");
    const struct service_limit *l = s->limits;
    CHECK(l[RLIMIT_NOFILE].is_set && l[RLIMIT_NOFILE].soft == 1024 &&
          l[RLIMIT_NOFILE].hard == 4096);
    CHECK(l[RLIMIT_AS].soft == 64 << 20 && l[RLIMIT_AS].hard == 64 << 20 && !l[RLIMIT_CPU].is_set);
    CHECK(l[RLIMIT_CORE].soft == UINT64_MAX && l[RLIMIT_STACK].soft == 1024);
    CHECK(l[RLIMIT_STACK].hard == UINT64_MAX && s->log == SERVICE_LOG_FILE);
    CHECK(s->log_max_size == 4096 && s->log_keep == 0 && s->log_timestamp == TIMESTAMP_ISO);
    CHECK_STR(s->log_file, "/l");
    CHECK(s->log_prefix);
}

static void test_instances(void)
{
    CHECK(parse("[service:a]\nscript = x\n y\ninstances = 3\nenv.A = 1\nready = http://[::1]:8/p\n"
                "[service:b]\ncommand = b\nrequires = a\nafter = a@2 a@1\n[service:c]\n"
                "command = c\ninstances = 1\nafter = b\n"));
    CHECK(conf->service_count == 5 && !service("a") && service("c")->instance == 0);
    const struct service_config *s = service("a@3");
    CHECK(s && s->instance == 3 && s->instances == 3 && s->env.count == 1);
    CHECK_STR(s->script, "x\ny");
    CHECK_STR(s->ready.target, "::1");
    CHECK_STR(s->ready.http_path, "/p");
    CHECK_STR(s->ready.http_host, "[::1]:8");
    CHECK_STR(names(&service("b")->requires), "<a@1><a@2><a@3>");
    CHECK_STR(names(&service("b")->after), "<a@2><a@1>");
}

/* ---- checks ---- */

static const struct check *ready_of(const char *value)
{
    char text[512];
    snprintf(text, sizeof text, "[service:a]\ncommand = x\nready = %s\n", value);
    return parse(text) ? &service("a")->ready : NULL;
}

static void test_checks(void)
{
    const struct check *c = ready_of("tcp:10.0.0.1:5432");
    CHECK(c && c->kind == CHECK_TCP && c->port == 5432);
    CHECK_STR(c->target, "10.0.0.1");
    CHECK_STR(c->text, "tcp:10.0.0.1:5432");
    c = ready_of("tcp:[fe80::1]:1");
    CHECK(c && c->port == 1);
    CHECK_STR(c->target, "fe80::1");
    c = ready_of("unix:/run/my socket");
    CHECK(c && c->kind == CHECK_UNIX);
    CHECK_STR(c->target, "/run/my socket");
    c = ready_of("file:/run/x");
    CHECK(c && c->kind == CHECK_FILE);
    c = ready_of("command:sh -c 'exit 0'");
    CHECK(c && c->kind == CHECK_COMMAND);
    CHECK_STR(words(c->argv), "<sh><-c><exit 0>");
}

static void test_http_checks(void)
{
    const struct check *c = ready_of("http://127.0.0.1");
    CHECK(c && c->kind == CHECK_HTTP && c->port == 80);
    CHECK_STR(c->http_path, "/");
    CHECK_STR(c->http_host, "127.0.0.1");
    c = ready_of("http:http://localhost:8080/a/b?c=d#e");
    CHECK(c && c->port == 8080);
    CHECK_STR(c->target, "127.0.0.1");
    CHECK_STR(c->http_host, "localhost:8080");
    CHECK_STR(c->http_path, "/a/b?c=d");
    c = ready_of("http://[::1]:81?q");
    CHECK(c && c->port == 81);
    CHECK_STR(c->target, "::1");
    CHECK_STR(c->http_path, "/?q");
}

/* ---- what follows from other keys ---- */

static void test_what_follows(void)
{
    CHECK(parse("[service:a]\ncommand = x\nrestart_delay = 5m\n"
                "[service:o]\ncommand = x\ntype = oneshot\n"
                "[service:r]\ncommand = x\ntype = oneshot\nrestart = on-failure\n"
                "[service:g]\ncommand = x\nstop_grace = 1s\ngroups =\nnice = 0\n"
                "[init]\nstop_grace = 20s\n"));
    CHECK(service("a")->restart_backoff_ms == 300000 && service("a")->stop_grace_ms == 20000);
    CHECK(service("o")->restart == RESTART_NEVER && service("r")->restart == RESTART_ON_FAILURE);
    CHECK(service("g")->stop_grace_ms == 1000 && service("g")->has_nice);
    CHECK_STR(service("g")->groups, "");
}

static void test_overrides_are_not_for_services(void)
{
    const char *const environ_[] = {"SANDBOX_SERVICE_A_COMMAND=y", "SANDBOX_SERVICE_COMMAND=y",
                                    "SANDBOX_INIT_STOP_GRACE=2s", NULL};
    static const char text[] = "[service:a]\ncommand = x\n";
    config_free(conf);
    conf = config_parse("F", text, sizeof text - 1, (char *const *)environ_, &err);
    CHECK(conf && service("a")->stop_grace_ms == 2000);
    CHECK_STR(words(service("a")->argv), "<x>");
}

/* ---- order (init-test 38) ---- */

static void test_order_without_a_cycle(void)
{
    /* Two that name each other and say the same; before and after of what nobody requires. */
    CHECK(parse("[service:a]\ncommand = x\nrequires = b\nafter = b\n[service:b]\ncommand = x\n"
                "before = a\n[service:c]\ncommand = x\nautostart = no\nafter = a b\nbefore = d\n"
                "[service:d]\ncommand = x\nafter = a\n"));
    /* Only if NAME stood for one thing it would be a cycle. */
    CHECK(parse("[service:a]\ncommand = x\ninstances = 2\n[service:b]\ncommand = x\n"
                "after = a@1\nbefore = a@2\n"));
    /* After and before the main command. */
    CHECK(parse("[service:a]\ncommand = x\nbefore = main\n[service:b]\ncommand = x\n"
                "after = main a\n"));
    CHECK(parse("[service:a]\ncommand = x\nrequires = b b,b\n[service:b]\ncommand = x\n"));
    CHECK_STR(names(&service("a")->requires), "<b>");
    CHECK_STR(names(&service("a")->after), "");
}

/* s0 requires s1 requires s2 …; the last one requires the one named last. */
static char *chain_text(unsigned count, const char *last)
{
    size_t size = count * 64 + 64, n = 0;
    char *text = malloc(size);
    if (!text)
        abort();
    for (unsigned i = 0; i + 1 < count; i++)
        n += (size_t)snprintf(text + n, size - n, "[service:s%u]\ncommand=x\nrequires=s%u\n", i,
                              i + 1);
    snprintf(text + n, size - n, "[service:s%u]\ncommand=x\nafter=%s\n", count - 1, last);
    return text;
}

static void test_a_long_chain_and_its_cycle(void)
{
    char *fits = chain_text(1000, "main"), *circle = chain_text(1000, "s3");
    char *over = chain_text(1001, "main");
    bool did_fit = parse(fits);
    struct config *a = config_parse("F", circle, strlen(circle), NULL, &err);
    struct error of_circle = err;
    struct config *b = config_parse("F", over, strlen(over), NULL, &err);
    free(fits);
    free(circle);
    free(over);
    CHECK(did_fit && conf->service_count == 1000 && !a && !b);
    CHECK(strncmp(of_circle.text, "F:3000: after: a cycle: s3 -> s4 -> ", 36) == 0);
    CHECK(strstr(of_circle.text, " -> s40 -> (959 more) -> s3"));
    CHECK_STR(err.text, "F:3001: more than 1000 sections [service:NAME]");
}

static void test_order_is_bounded(void)
{
    /* 400 instances that each require 400 others. */
    static const char text[] = "[service:a]\ncommand = x\ninstances = 400\nrequires = b\n"
                               "[service:b]\ncommand = x\ninstances = 400\n";
    struct config *c = config_parse("F", text, sizeof text - 1, NULL, &err);
    CHECK(!c);
    CHECK_STR(err.text, "F:4: requires: the services name each other more than 50000 times, "
                        "instances counted");
}

static void test_values_of_instances_are_bounded(void)
{
    size_t size = 70000;
    char *text = malloc(size);
    if (!text)
        abort();
    size_t n = (size_t)snprintf(text, size, "\n[service:a]\ninstances = 1000\ncommand = x ");
    memset(text + n, 'x', 60000);
    struct config *c = config_parse("F", text, n + 60000, NULL, &err);
    free(text);
    CHECK(!c);
    CHECK_STR(err.text, "F:2: the values of all services together take more than 16M");
}

/* ---- what a reload is told ---- */

static void test_diff(void)
{
    static const char old_text[] = "[service:a]\ncommand = x\n[service:b]\ncommand = y\n"
                                   "[service:c]\ncommand = z\ninstances = 2\n";
    CHECK_STR(diff(old_text, old_text), "");
    /* Other places, spellings and orders of the same. */
    CHECK_STR(diff(old_text, "[service:c]\n\ninstances=2\ncommand = 'z'\n[service:b]\ncommand="
                             "\"y\"\nrestart=on-failure\n[service:a]\n\n\ncommand=x\n"),
              "");
    CHECK_STR(diff(old_text, "[service:c]\ncommand = z\ninstances = 3\n[service:b]\ncommand = y\n"
                             "priority = 1\n[service:d]\ncommand = y\n"),
              "service removed service:a a;service changed service:b b;"
              "service added service:c@3 c@3;service added service:d d;");
    CHECK_STR(diff(old_text, "[service:a]\ncommand = x\n[service:b]\ncommand = y\n[service:c]\n"
                             "command = z\n"),
              "service removed service:c@1 c@1;service removed service:c@2 c@2;"
              "service added service:c c;");
    /* What a service takes from [init] is its own. */
    CHECK_STR(diff(old_text, "[init]\nstop_grace = 1s\n[service:a]\ncommand = x\nstop_grace = 8s\n"
                             "[service:b]\ncommand = y\n"),
              "key init stop_grace;service changed service:b b;service removed service:c@1 c@1;"
              "service removed service:c@2 c@2;");
}

/* Each key with two values; after '!' one that takes effect with a new start only. */
static const char *const changes[][3] = {
    {"!command", "command = x", "command = x y"},
    {"!script", "script = a", "script = b"},
    {"!type", "type = simple", "type = notify"},
    {"autostart", "", "autostart = no"},
    {"restart", "", "restart = always"},
    {"restart_delay", "", "restart_delay = 2s"},
    {"restart_backoff", "", "restart_backoff = 2m"},
    {"restart_max", "", "restart_max = 6"},
    {"restart_window", "", "restart_window = 2m"},
    {"success_codes", "", "success_codes = 1"},
    {"on_fatal", "", "on_fatal = stop"},
    {"requires", "", "requires = other"},
    {"after", "after = main", "after = other"},
    {"before", "", "before = main"},
    {"priority", "", "priority = -1"},
    {"ready", "", "ready = tcp:1"},
    {"!ready", "", "ready = fd:3"},
    {"!ready", "ready = fd:3", "ready = fd:4"},
    {"!ready", "ready = fd:3", "ready = tcp:3"},
    {"ready_timeout", "", "ready_timeout = 2m"},
    {"health", "", "health = tcp:1"},
    {"health_interval", "", "health_interval = 1s"},
    {"health_retries", "", "health_retries = 1"},
    {"stop_signal", "", "stop_signal = INT"},
    {"stop_grace", "", "stop_grace = 1s"},
    {"stop_command", "", "stop_command = x"},
    {"reload_signal", "", "reload_signal = HUP"},
    {"pre_start", "pre_start = x", "pre_start = y"},
    {"post_stop", "", "post_stop = x"},
    {"!user", "", "user = u"},
    {"!group", "", "group = g"},
    {"!groups", "", "groups ="},
    {"!cwd", "", "cwd = /"},
    {"!env", "env.A = 1", "env.A = 2"},
    {"!env", "", "env.A ="},
    {"!umask", "", "umask = 0"},
    {"!nice", "", "nice = 0"},
    {"!oom_score_adj", "", "oom_score_adj = 0"},
    {"!limit", "limit.nofile = 1", "limit.nofile = 1:2"},
    {"!limit", "", "limit.core = 0"},
    {"!stdin", "", "stdin = inherit"},
    {"log", "", "log = none"},
    {"log", "log = file:/a", "log = file:/b"},
    {"log_max_size", "", "log_max_size = 4K"},
    {"log_keep", "", "log_keep = 0"},
    {"log_timestamp", "", "log_timestamp = iso"},
    {"log_prefix", "", "log_prefix = yes"},
};

static struct config *with_key(const char *change, const char *line)
{
    char text[256];
    bool is_program = strstr(change, "command") == change + 1 || strstr(change, "script");
    snprintf(text, sizeof text, "[service:other]\ncommand = o\n[service:a]\n%s%s\n",
             is_program ? "" : "command = x\n", line);
    return config_parse("F", text, strlen(text), NULL, &err);
}

static void test_what_needs_a_new_start(void)
{
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct config *a = with_key(changes[i][0], changes[i][1]);
        struct config *b = with_key(changes[i][0], changes[i][2]);
        const struct service_config *x = a ? config_service(a, "a") : NULL;
        const struct service_config *y = b ? config_service(b, "a") : NULL;
        bool is_right = x && y && service_config_equal(x, x) && service_config_equal(y, y) &&
                        service_config_same_process(y, y) && !service_config_equal(x, y) &&
                        service_config_same_process(x, y) == (changes[i][0][0] != '!');
        config_free(a);
        config_free(b);
        if (!is_right)
            CHECK_FAIL("%s: '%s' and '%s' %.300s", changes[i][0], changes[i][1], changes[i][2],
                       err.text);
    }
}

/* Every row is compared in the table above; none is forgotten. */
static void test_every_row_is_compared(void)
{
    for (size_t i = 0; i < service_row_count; i++) {
        const struct schema_row *row = &service_rows[i];
        size_t n = strcspn(row->key, ".");
        bool is_there = row->sections & SCHEMA_LOAD;
        for (size_t k = 0; k < sizeof changes / sizeof changes[0]; k++) {
            const char *key = changes[k][0] + (changes[k][0][0] == '!');
            is_there = is_there || (strlen(key) == n && strncmp(key, row->key, n) == 0);
        }
        if (!is_there)
            CHECK_FAIL("%s", row->key);
        CHECK(strlen(row->key) < 32 && (row->type == VALUE_WORD) == (row->words != NULL));
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(row->key, service_rows[k].key) != 0);
        CHECK(!service_synonym(row->key));
    }
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_defaults),
        CHECK_TEST(test_every_key),
        CHECK_TEST(test_instances),
        CHECK_TEST(test_checks),
        CHECK_TEST(test_http_checks),
        CHECK_TEST(test_what_follows),
        CHECK_TEST(test_overrides_are_not_for_services),
        CHECK_TEST(test_order_without_a_cycle),
        CHECK_TEST(test_a_long_chain_and_its_cycle),
        CHECK_TEST(test_order_is_bounded),
        CHECK_TEST(test_values_of_instances_are_bounded),
        CHECK_TEST(test_diff),
        CHECK_TEST(test_what_needs_a_new_start),
        CHECK_TEST(test_every_row_is_compared),
    };
    int status = check_run(tests, sizeof tests / sizeof tests[0]);
    config_free(conf);
    return status;
}
