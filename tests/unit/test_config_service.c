/*
 * [service:NAME]: what each key becomes, what keys mean together, instances, order, and what a
 * reload is told. Complaints are in test_config_complaint.c.
 */
#include "config/config_internal.h"
#include "tests/unit/check.h"

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

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_defaults),
        CHECK_TEST(test_every_key),
        CHECK_TEST(test_instances),
    };
    int status = check_run(tests, sizeof tests / sizeof tests[0]);
    config_free(conf);
    return status;
}
