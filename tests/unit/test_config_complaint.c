/*
 * Complaints about services and includes: a table of bad files, the whole text of each complaint
 * compared (init-test 51; its cycles are init-test 38). A complaint names file, line and key, says
 * what is wrong with which value, and what would be right.
 */
#include "config/config_internal.h"
#include "tests/unit/check.h"

#define A "[service:a]\ncommand = x\n" /* lines 1 and 2 */

static const struct complaint {
    const char *text, *complaint;
} complaints[] = {
    {A "env = A=1\n", "F:3: unknown key 'env' in [service:a]; here it is 'env.NAME'"},
    {A "group = a:b\n", "F:3: group: one group, by name or number"},
    {"[service:b]\ncommand = x\nrequires = c\n[service:a]\ncommand = x\nrequires = d\n",
     "F:3: requires: there is no [service:c]"},
    {"[service:]\n",
     "F:1: bad service name '': a letter or digit, then up to 63 letters, digits, '_', '.' or '-'"},
    {"[service:a b]\n", "F:1: bad service name 'a b': a letter or digit, then up to 63 letters, "
                        "digits, '_', '.' or '-'"},
    {"[service:main]\ncommand = x\n",
     "F:1: a service can't be named 'main': so 'after' and 'before' call the main command"},
    {"[service:a@1]\ncommand = x\n", "F:1: bad service name 'a@1': a letter or digit, then up to "
                                     "63 letters, digits, '_', '.' or '-'"},
    {"[services:a]\n", "F:1: unknown section [services:a]; did you mean [service:NAME]?"},
    {"[program:a]\n", "F:1: unknown section [program:a]; did you mean [service:NAME]?"},
    {"[servce:a]\n", "F:1: unknown section [servce:a]; did you mean [service:NAME]?"},
    {"[service]\n", "F:1: unknown section [service]; did you mean [service:NAME]?"},
    {"[includes]\n", "F:1: unknown section [includes]; did you mean [include]?"},
    {"[service:a]\n", "F:1: [service:a] has neither 'command' nor 'script'"},
    {"[service:a]\nautostart = yes\n", "F:1: [service:a] has neither 'command' nor 'script'"},
    {A "script = y\n", "F:3: script: only one of the two: [service:a] has a 'command' at line 2"},
    {"[service:a]\nscript = y\n\ncommand = x\n",
     "F:4: command: only one of the two: [service:a] has a 'script' at line 2"},
    {"[service:a]\ncommand =\n", "F:2: command: the value is empty"},
    {"[service:a]\ncommand = ''\n", "F:2: command: the program's name is empty"},
    {"[service:a]\ncommand = sh -c 'echo x\n", "F:2: command: a single quote (') is not closed"},
    {"[service:a]\ncommand = sh -c \"echo x\n", "F:2: command: a double quote (\") is not closed"},
    {"[service:a]\ncommand = sh\\\n",
     "F:2: command: a backslash stands at the end, with nothing to quote"},
    {A "comand = y\n", "F:3: unknown key 'comand' in [service:a]; did you mean 'command'?"},
    {A "autorestart = true\n",
     "F:3: unknown key 'autorestart' in [service:a]; here it is 'restart'"},
    {A "startsecs = 1\n", "F:3: unknown key 'startsecs' in [service:a]; sandbox.ini(5) lists all"},
    {A "log_level = debug\n", "F:3: unknown key 'log_level' in [service:a]; it belongs in [init]"},
    {A "shell = /bin/sh\n", "F:3: unknown key 'shell' in [service:a]; it belongs in [sessions]"},
    {"[init]\ncommand = x\n", "F:2: unknown key 'command' in [init]; it belongs in [service:NAME]"},
    {"[sessions]\nready = tcp:1\n",
     "F:2: unknown key 'ready' in [sessions]; it belongs in [service:NAME]"},
    {"[init]\nfiles = x\n", "F:2: unknown key 'files' in [init]; it belongs in [include]"},
    {A "type = forking\n", "F:3: type: 'forking' is not one of simple, oneshot, notify"},
    {A "type = simpel\n",
     "F:3: type: 'simpel' is not one of simple, oneshot, notify; did you mean 'simple'?"},
    {A "autostart = on\n", "F:3: autostart: 'on' is neither yes nor no"},
    {A "restart = on_failure\n", "F:3: restart: 'on_failure' is not one of always, on-failure, "
                                 "never; did you mean 'on-failure'?"},
    {A "type = oneshot\nrestart = always\n",
     "F:4: restart: a oneshot ends, so it can't be started again always"},
    {A "type = oneshot\nready = tcp:80\n",
     "F:4: ready: a oneshot is ready when it has ended with success, and then has no health"},
    {A "type = oneshot\nhealth = tcp:80\n",
     "F:4: health: a oneshot is ready when it has ended with success, and then has no health"},
    {A "type = notify\nready = tcp:80\n",
     "F:4: ready: type = notify is ready when it says so; only fd:N goes with it"},
    {A "restart_delay = 1\n",
     "F:3: restart_delay: '1' is not a duration such as 500ms, 5s, 10m or 1h (0 to 24h)"},
    {A "restart_delay = 25h\n", "F:3: restart_delay: '25h' is out of range (0 to 24h)"},
    {A "restart_delay = 2s\nrestart_backoff = 1s\n",
     "F:4: restart_backoff: it is the most that restart_delay grows to, and can't be less than "
     "that"},
    {A "restart_max = -1\n", "F:3: restart_max: '-1' is not a whole number (0 to 100000)"},
    {A "restart_window = 0\n", "F:3: restart_window: '0' is out of range (1ms to 8760h)"},
    {A "success_codes = 256\n", "F:3: success_codes: '256' is not an exit code (0 to 255)"},
    {A "success_codes = 1 x\n", "F:3: success_codes: 'x' is not an exit code (0 to 255)"},
    {A "on_fatal = die\n", "F:3: on_fatal: 'die' is not one of ignore, stop"},
    {A "requires = b\n", "F:3: requires: there is no [service:b]"},
    {A "requires = a\n", "F:3: requires: a cycle: a -> a"},
    {A "after = b c\n[service:bb]\ncommand = y\n", "F:3: after: there is no [service:b]"},
    {A "requires = main\n", "F:3: requires: the main command can't be required; 'after = main' "
                            "starts a service when it has begun"},
    {A "after = -x\n", "F:3: after: '-x' is not a service's name: a letter or digit, then up to 63 "
                       "letters, digits, '_', '.' or '-'"},
    {A "after = a@1\n", "F:3: after: 'a@1': [service:a] has one instance, named 'a'"},
    {A "after = b@4\n[service:b]\ncommand = y\ninstances = 3\n",
     "F:3: after: 'b@4': the instances of [service:b] are b@1 to b@3"},
    {A "after = b@x\n[service:b]\ncommand = y\ninstances = 3\n",
     "F:3: after: 'b@x' is not a service's name: a letter or digit, then up to 63 letters, digits, "
     "'_', '.' or '-'"},
    {A "requires = b\n[service:b]\ncommand = y\nafter = c\n[service:c]\ncommand = z\nbefore = "
       "main\nrequires = a\n",
     "F:10: requires: a cycle: a -> b -> c -> a"},
    {A "after = main\n[service:b]\ncommand = b\nbefore = main\nafter = a\n",
     "F:7: after: a cycle: a -> main -> b -> a"},
    {A "before = a\n", "F:3: before: a cycle: a -> a"},
    {A "priority = 1.5\n", "F:3: priority: '1.5' is not a whole number (-100000 to 100000)"},
    {A "priority = 100001\n", "F:3: priority: '100001' is out of range (-100000 to 100000)"},
    {A "ready = 80\n", "F:3: ready: '80' is not one of tcp:PORT, unix:PATH, "
                       "http://HOST[:PORT][/PATH], fd:N, file:PATH, command:ARGV"},
    {A "ready = tcp:\n", "F:3: ready: '' is not a port (1 to 65535)"},
    {A "ready = tcp:0\n", "F:3: ready: '0' is not a port (1 to 65535)"},
    {A "ready = tcp:65536\n", "F:3: ready: '65536' is not a port (1 to 65535)"},
    {A "ready = tcp:db:5432\n",
     "F:3: ready: 'db' is not an address such as 127.0.0.1 or [::1] (names are not looked up)"},
    {A "ready = tcp:127.0.0.1\n", "F:3: ready: '127.0.0.1' is not a port (1 to 65535)"},
    {A "ready = tcp:::1:80\n", "F:3: ready: ':1:80' is not a port (1 to 65535)"},
    {A "ready = tcp:[::1]:x\n", "F:3: ready: 'x' is not a port (1 to 65535)"},
    {A "ready = unix:run/x\n", "F:3: ready: 'run/x' is not an absolute path"},
    {A "ready = http:8080\n",
     "F:3: ready: '8080' is not a URL such as http://127.0.0.1:8080/health"},
    {A "ready = https://x\n",
     "F:3: ready: https is not spoken here; use command: with a program that does"},
    {A "ready = http://example.org/\n", "F:3: ready: 'example.org' is not an address such as "
                                        "127.0.0.1 or [::1] (names are not looked up)"},
    {A "ready = http://127.0.0.1:0/\n", "F:3: ready: '0' is not a port (1 to 65535)"},
    {A "ready = http://127.0.0.1/a b\n",
     "F:3: ready: '127.0.0.1/a b' is not a URL: byte 0x20 must be written %20"},
    {A "ready = fd:2\n", "F:3: ready: '2' is not a descriptor for this (3 to 255)"},
    {A "ready = fd:256\n", "F:3: ready: '256' is not a descriptor for this (3 to 255)"},
    {A "ready = file:x\n", "F:3: ready: 'x' is not an absolute path"},
    {A "ready = command:\n", "F:3: ready: the program's name is empty"},
    {A "ready = command:a 'b\n", "F:3: ready: a single quote (') is not closed"},
    {A "health = fd:3\n",
     "F:3: health: fd:N tells once that a service is ready, not that it is healthy"},
    {A "health_interval = 0\n", "F:3: health_interval: '0' is out of range (100ms to 24h)"},
    {A "health_retries = 0\n", "F:3: health_retries: '0' is out of range (1 to 1000)"},
    {A "stop_signal = TERMINATE\n",
     "F:3: stop_signal: 'TERMINATE' is not a signal such as TERM, SIGHUP, 15 or RTMIN+3"},
    {A "stop_signal = STOP\n", "F:3: stop_signal: it would stop the service but not end it"},
    {A "reload_signal = KILL\n", "F:3: reload_signal: no program can do anything with this signal"},
    {A "stop_grace = 2h\n", "F:3: stop_grace: '2h' is out of range (0 to 1h)"},
    {A "user = a b\n", "F:3: user: 'a b' holds a blank"},
    {A "user = a:b\ngroup = c\n", "F:4: group: 'user' names a group already"},
    {A "cwd = srv\n", "F:3: cwd: 'srv' is not an absolute path"},
    {A "env.1A = x\n",
     "F:3: env.1A: '1A' is not a variable's name: letters, digits and '_', not a digit first"},
    {A "env.A = x\nenv.A = y\n",
     "F:4: duplicate key 'env.A' in [service:a]; first given at line 3"},
    {A "env_file = /no/such.env\n", "F:3: env_file: /no/such.env: No such file or directory"},
    {A "env_file = /\n", "F:3: env_file: /: not a regular file"},
    {A "umask = 8\n", "F:3: umask: '8' is not an octal mask (000 to 777, such as 022)"},
    {A "umask = 1777\n", "F:3: umask: '1777' is not an octal mask (000 to 777, such as 022)"},
    {A "nice = 20\n", "F:3: nice: '20' is out of range (-20 to 19)"},
    {A "nice = -21\n", "F:3: nice: '-21' is out of range (-20 to 19)"},
    {A "nice = --1\n", "F:3: nice: '--1' is not a whole number (-20 to 19)"},
    {A "oom_score_adj = 1001\n", "F:3: oom_score_adj: '1001' is out of range (-1000 to 1000)"},
    {A "limit.nofiles = 1\n",
     "F:3: limit.nofiles: unknown limit 'nofiles'; did you mean 'limit.nofile'?"},
    {A "limit.x = 1\n",
     "F:3: limit.x: unknown limit 'x'; there are: as, core, cpu, data, fsize, locks, memlock, "
     "msgqueue, nice, nofile, nproc, rss, rtprio, rttime, sigpending, stack"},
    {A "limit.nofile = 1K\n", "F:3: limit.nofile: '1K' is not a limit: a whole number or "
                              "'unlimited', perhaps two of them as SOFT:HARD"},
    {A "limit.nofile = 2:1\n", "F:3: limit.nofile: '2:1': the soft limit is above the hard one"},
    {A "limit.as = lots\n", "F:3: limit.as: 'lots' is not a limit: a size such as 64M or "
                            "'unlimited', perhaps two of them as SOFT:HARD"},
    {A "limit.core = 1:2:3\n", "F:3: limit.core: '2:3' is not a limit: a size such as 64M or "
                               "'unlimited', perhaps two of them as SOFT:HARD"},
    {A "limit.core = 0\nlimit.core = 1\n",
     "F:4: duplicate key 'limit.core' in [service:a]; first given at line 3"},
    {A "limit.core =\n", "F:3: limit.core: the value is empty"},
    {A "stdin = tty\n", "F:3: stdin: 'tty' is not one of null, inherit"},
    {A "log = x\n", "F:3: log: 'x' is not one of inherit, none, file:PATH"},
    {A "log = /var/log/x\n", "F:3: log: '/var/log/x' is not one of inherit, none, file:PATH; a "
                             "path stands behind file:"},
    {A "log = file:x\n", "F:3: log: 'x' is not an absolute path"},
    {A "log = file:\n", "F:3: log: the value is empty"},
    {A "log_max_size = 1K\n", "F:3: log_max_size: '1K' is out of range (4K to 64G)"},
    {A "log_timestamp = rfc\n", "F:3: log_timestamp: 'rfc' is not one of none, iso"},
    {A "instances = 0\n", "F:3: instances: '0' is out of range (1 to 1000)"},
    {A "instances = 1001\n", "F:3: instances: '1001' is out of range (1 to 1000)"},
    {A "instances = 600\n[service:b]\ncommand = y\ninstances = 401\n",
     "F:4: more than 1000 services, instances counted"},
    {A A, "F:3: duplicate section [service:a]; first given at line 1"},
    {A "command = y\n", "F:3: duplicate key 'command' in [service:a]; first given at line 2"},
    {"[include]\nfile = x\n", "F:2: unknown key 'file' in [include]; did you mean 'files'?"},
    {"[include]\nfiles =\n", "F:2: files: the value is empty"},
    {"[include]\nfiles = \"\"\n", "F:2: files: a path is empty"},
    {"[include]\nfiles = 'x\n", "F:2: files: a single quote (') is not closed"},
    {"[include]\nfiles = /no/such.ini\n", "F:2: files: /no/such.ini: No such file or directory"},
    {"[include]\nfiles = /no*/such.ini\n",
     "F:2: files: '/no*/such.ini': '*', '?' and '[' only have a meaning in the name of a file, not "
     "of its folder"},
    {"[include]\nfiles = /\n", "F:2: files: /: not a regular file"},
    {A "script =\n", "F:3: script: the value is empty"},
    {A "groups = a\001b\n", "F:3: groups: 'a?b' holds a control character"},
    {A "numprocs = 2\n", "F:3: unknown key 'numprocs' in [service:a]; here it is 'instances'"},
    {A "TimeoutStopSec = 5\n",
     "F:3: unknown key 'TimeoutStopSec' in [service:a]; here it is 'stop_grace'"},
    {A "retries = 2\n", "F:3: unknown key 'retries' in [service:a]; sandbox.ini(5) lists all"},
    {A "limit.nofile = 99999999999999999999\n",
     "F:3: limit.nofile: '99999999999999999999' is not a limit: a whole number or 'unlimited', "
     "perhaps two of them as SOFT:HARD"},
    {A "oom_score_adj =\n", "F:3: oom_score_adj: the value is empty"},
    {A "requires = b\n[service:b]\ncommand = y\nrequires = c\n[service:c]\ncommand = z\nrequires = "
       "b\n",
     "F:9: requires: a cycle: b -> c -> b"},
    {A "requires = webb\n[service:web]\ncommand = y\n",
     "F:3: requires: there is no [service:webb]; did you mean 'web'?"},
    {A "ready = tcp:999999999999999999999999999999\n",
     "F:3: ready: '999999999999999999999999999999' is not a port (1 to 65535)"},
    {A "ready = http:https://127.0.0.1/\n",
     "F:3: ready: https is not spoken here; use command: with a program that does"},
    {A "ready = http://[::1/\n", "F:3: ready: ':1' is not a port (1 to 65535)"},
    {A "ready = http:///x\n",
     "F:3: ready: '' is not an address such as 127.0.0.1 or [::1] (names are not looked up)"},
    {A "ready = file:/a\n b\n",
     "F:3: ready: '/a?b' holds a newline (from an indented line below it)"},
    {A "after =\n", "F:3: after: the value is empty"},
    {A "after = ,\n", "F:3: after: there is no name in it"},
    {A "user =\n", "F:3: user: the value is empty"},
    {A "env_file = 'x\n", "F:3: env_file: a single quote (') is not closed"},
    {A "env_file =\n", "F:3: env_file: the value is empty"},
    {A "success_codes = -1\n", "F:3: success_codes: '-1' is not an exit code (0 to 255)"},
    {A "umask = 0o22\n", "F:3: umask: '0o22' is not an octal mask (000 to 777, such as 022)"},
    {A "restart_max = 5x\n", "F:3: restart_max: '5x' is not a whole number (0 to 100000)"},
    {A "log_prefix = 2\n", "F:3: log_prefix: '2' is neither yes nor no"},
    {A "command2 = a\nenv.A = 1\n",
     "F:3: unknown key 'command2' in [service:a]; did you mean 'command'?"},
};

static void test_complaints(void)
{
    for (size_t i = 0; i < sizeof complaints / sizeof complaints[0]; i++) {
        struct error e = {0};
        const char *text = complaints[i].text;
        struct config *c = config_parse("F", text, strlen(text), NULL, &e);
        bool is_made = c != NULL;
        config_free(c);
        CHECK_STR(is_made ? text : e.text, complaints[i].complaint);
        CHECK(e.code == ERR_INVALID || (e.code == ERR_SYSTEM && strstr(e.text, "/no/such")));
    }
}

/* Terminal escapes and long values don't reach the message whole. */
static void test_complaints_are_one_clean_line(void)
{
    static const char *const keys[] = {
        "command",      "type",         "autostart", "instances",     "restart",  "restart_delay",
        "requires",     "after",        "before",    "priority",      "ready",    "health",
        "stop_signal",  "user",         "groups",    "cwd",           "env_file", "umask",
        "nice",         "limit.nofile", "limit.as",  "success_codes", "stdin",    "log",
        "log_max_size", "log_prefix",   "x",         "env.A-",        "limit.y",
    };
    char text[8192];
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct error e = {0};
        size_t n =
            (size_t)snprintf(text, sizeof text, "[service:a]\n%s = '\x1b[2J\xc2\x9b", keys[i]);
        memset(text + n, 'x', 6000);
        struct config *c = config_parse("F", text, n + 6000, NULL, &e);
        bool is_made = c != NULL;
        config_free(c);
        CHECK(!is_made && strncmp(e.text, "F:2: ", 5) == 0);
        for (const char *p = e.text; *p; p++)
            CHECK((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f);
        CHECK(strlen(e.text) < sizeof e.text - 1);
    }
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_complaints),
        CHECK_TEST(test_complaints_are_one_clean_line),
    };
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
