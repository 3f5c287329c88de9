/*
 * How sandbox.ini is read: lines, sections, keys and values, and the complaints about them. Names
 * with a case id are for that case; the further inputs of a kind stand with it.
 */
#include "config/config_internal.h"
#include "tests/unit/check.h"

#include <stdlib.h>

static struct error err;
static struct config *conf;

/* Parse n bytes as file "F"; true if that worked. The result stands in conf until the next call. */
static bool parse_bytes(const char *bytes, size_t n)
{
    config_free(conf);
    memset(&err, 0, sizeof err);
    conf = config_parse("F", bytes, n, NULL, &err);
    return conf != NULL;
}

static bool parse(const char *text)
{
    return parse_bytes(text, strlen(text));
}

/* The complaint about a text; "" if there is none. */
static const char *complaint(const char *text)
{
    return parse(text) ? "" : err.text;
}

static const char *env(size_t i)
{
    return i < conf->defaults.env.count ? conf->defaults.env.items[i] : NULL;
}

/* A heap text: before, n times c, after. The caller frees it. */
static char *text_of(const char *before, size_t n, char c, const char *after)
{
    size_t a = strlen(before), b = strlen(after);
    char *text = malloc(a + n + b + 1);
    if (!text)
        abort();
    memcpy(text, before, a);
    memset(text + a, c, n);
    memcpy(text + a + n, after, b + 1);
    return text;
}

static void test_case_Z1_percent_is_literal(void)
{
    CHECK(parse("[sessions]\nenv.K=a%b%2F\nenv.D=date +%s:%S\nenv.P=100%\nenv.V=%(x)s ${y} $z\n"));
    CHECK_STR(env(0), "K=a%b%2F");
    CHECK_STR(env(1), "D=date +%s:%S");
    CHECK_STR(env(2), "P=100%");
    CHECK_STR(env(3), "V=%(x)s ${y} $z");
    CHECK(parse("[sessions]\ncwd = /srv/50%\n"));
    CHECK_STR(conf->defaults.cwd, "/srv/50%");
    CHECK_STR(complaint("[init]\nlog_level = %s%n\n"),
              "F:2: log_level: '%s%n' is not one of error, warn, info, debug");
}

static void test_case_Z2_comment_signs_in_values(void)
{
    CHECK(parse("[sessions]\n"
                "env.A = bash -c 'while : ; do echo x; sleep 1; done'\n"
                "env.B = a # b\nenv.C = #fff\nenv.D = ;\nenv.E = \"q ; q\" ;x\n"));
    CHECK_STR(env(0), "A=bash -c 'while : ; do echo x; sleep 1; done'");
    CHECK_STR(env(1), "B=a # b");
    CHECK_STR(env(2), "C=#fff");
    CHECK_STR(env(3), "D=;");
    CHECK_STR(env(4), "E=\"q ; q\" ;x");
    CHECK(parse("# c\n; c\n  # c\n\t; c\n[sessions]\n#env.A = 1\n ;env.B = 2\nenv.C = 3\n#"));
    CHECK(conf->defaults.env.count == 1);
    CHECK_STR(env(0), "C=3");
    CHECK_STR(complaint("[sessions] ; all\n"), "F:1: text after the section's ']'");
}

static void test_case_Z4_paths_in_values(void)
{
    CHECK(parse("[sessions]\nenv.P=/a/b_c.d\nenv.Q=/usr/bin:/bin\nenv.R==x=y\ncwd=/a:b=c,d\n"));
    CHECK_STR(env(0), "P=/a/b_c.d");
    CHECK_STR(env(1), "Q=/usr/bin:/bin");
    CHECK_STR(env(2), "R==x=y");
    CHECK_STR(conf->defaults.cwd, "/a:b=c,d");
    /* A colon doesn't end a key, as it would in the library. */
    CHECK_STR(complaint("[init]\nstop_grace: 5s\n"), "F:2: neither 'key = value' nor '[section]'");
    CHECK_STR(complaint("[init]\nstop_grace: = 5s\n"),
              "F:2: bad key 'stop_grace:': only letters, digits, '_', '.' and '-' make a key");
}

static void test_case_Z5_one_pass_everywhere(void)
{
    CHECK(parse("[session:a]\nenv.V = %%x%1 ;y\n[sessions]\nenv.V = %%x%1 ;y\n"
                "[session:b]\n"));
    CHECK_STR(env(0), "V=%%x%1 ;y");
    for (size_t i = 0; i < 2; i++) {
        CHECK(conf->sessions[i].env.count == 1);
        CHECK_STR(conf->sessions[i].env.items[0], "V=%%x%1 ;y");
    }
}

static void test_case_Z7_section_twice(void)
{
    CHECK_STR(complaint("[session:a]\ncwd=/x\n[init]\n[session:a]\ncwd=/y\n"),
              "F:4: duplicate section [session:a]; first given at line 1");
    CHECK_STR(complaint("\n[init]\n[init]\n"),
              "F:3: duplicate section [init]; first given at line 2");
    CHECK_STR(complaint("[sessions]\n\n\n[init]\n[sessions]\n"),
              "F:5: duplicate section [sessions]; first given at line 1");
    CHECK(parse("[session:a]\n[session:A]\n[session:a.]\n"));
    CHECK(conf->session_count == 3);
}

static void test_case_Z7_key_twice(void)
{
    CHECK_STR(complaint("#\n#\n[sessions]\nshell = /a\n\n\n\n\nshell = /a\n"),
              "F:9: duplicate key 'shell' in [sessions]; first given at line 4");
    CHECK_STR(complaint("[session:x]\nenv.A=1\nenv.B=2\nenv.A=1\n"),
              "F:4: duplicate key 'env.A' in [session:x]; first given at line 2");
    CHECK_STR(complaint("[init]\nlog_level=info\nlog_level=debug\n"),
              "F:3: duplicate key 'log_level' in [init]; first given at line 2");
    CHECK(parse("[sessions]\nenv.a=1\nenv.A=2\nenv.AA=3\n"));
}

static void test_case_Z8_byte_order_mark(void)
{
    CHECK(parse("\xef\xbb\xbf[init]\nstop_grace = 3s\n"));
    CHECK(conf->stop_grace_ms == 3000);
    CHECK(parse("\xef\xbb\xbf# comment\n[init]"));
    CHECK(parse("\xef\xbb\xbf"));
    CHECK_STR(complaint("\xef\xbb\xbf\xef\xbb\xbf[init]\n"),
              "F:1: neither 'key = value' nor '[section]'");
    CHECK_STR(complaint("[init]\n\xef\xbb\xbfstop_grace = 3s\n"),
              "F:2: bad key '\xef\xbb\xbfstop_grace': only letters, digits, '_', '.' and '-' "
              "make a key");
}

static void test_case_Z8_carriage_returns(void)
{
    CHECK(parse("[init]\r\nstop_grace = 3s\r\n\r\n[sessions]\r\nenv.A = x \r\n  y\r\ncwd = /b"));
    CHECK(conf->stop_grace_ms == 3000);
    CHECK_STR(env(0), "A=x\ny");
    CHECK_STR(conf->defaults.cwd, "/b");
    CHECK(parse("[init]\nstop_grace = 3s\r"));
    CHECK_STR(complaint("[init]\r\r\n"), "F:1: text after the section's ']'");
    CHECK_STR(complaint("[sessions]\ncwd = /a\rb\n"), "F:2: cwd: '/a?b' holds a control character");
}

static void test_case_Z8_no_final_newline(void)
{
    CHECK(parse("[init]\nstop_grace = 3s"));
    CHECK(conf->stop_grace_ms == 3000);
    CHECK(parse("[session:a]"));
    CHECK(conf->session_count == 1);
    CHECK(parse("[sessions]\nenv.A =\n b"));
    CHECK_STR(env(0), "A=b");
    CHECK_STR(complaint("[init]\nstop_grace"), "F:2: neither 'key = value' nor '[section]'");
}

static void test_case_Z8_nul_byte(void)
{
    static const char a[] = "[init]\nstop_grace = 3s\0\n";
    static const char b[] = "# comment\n#\0\n";
    static const char c[] = "[sessions]\nenv.A = x\n y\0z\n";
    CHECK(!parse_bytes(a, sizeof a - 1));
    CHECK_STR(err.text, "F:2: the line holds a NUL byte");
    CHECK(!parse_bytes(b, sizeof b - 1));
    CHECK_STR(err.text, "F:2: the line holds a NUL byte");
    CHECK(!parse_bytes(c, sizeof c - 1));
    CHECK_STR(err.text, "F:3: the line holds a NUL byte");
    CHECK(!parse_bytes("", 1));
    CHECK_STR(err.text, "F:1: the line holds a NUL byte");
}

static void test_case_Z8_long_lines(void)
{
    char *fits = text_of("[sessions]\nenv.A=", CONFIG_LINE_MAX - 6, 'x', "\r\ncwd=/x\n");
    char *over = text_of("[sessions]\nenv.A=", CONFIG_LINE_MAX - 5, 'x', "\n");
    char *megabyte = text_of("[init]\n", 1 << 20, 'x', "");
    char *comment = text_of("#", CONFIG_LINE_MAX, ' ', "\n");
    bool did_fit = parse(fits);
    size_t n = did_fit && env(0) ? strlen(env(0)) : 0;
    bool has_next = did_fit && conf->defaults.cwd;
    bool was_over = parse(over), was_megabyte = parse(megabyte);
    struct error after_megabyte = err;
    bool was_comment = parse(comment);
    free(fits);
    free(over);
    free(megabyte);
    free(comment);
    CHECK(did_fit && has_next && n == CONFIG_LINE_MAX - 4);
    CHECK(!was_over && !was_megabyte && !was_comment);
    CHECK_STR(after_megabyte.text, "F:2: the line is longer than 64K");
    CHECK_STR(err.text, "F:1: the line is longer than 64K");
}

/* A value that many continuation lines make too long. */
static void test_case_Z8_long_joined_value(void)
{
    size_t lines = 20, size = lines * 60002 + 64, two_lines = 0;
    char *text = malloc(size);
    if (!text)
        abort();
    size_t n = (size_t)snprintf(text, size, "[sessions]\nenv.A =\n");
    for (size_t i = 0; i < lines; i++) {
        text[n] = ' ';
        memset(text + n + 1, 'x', 60000);
        text[n + 60001] = '\n';
        n += 60002;
        two_lines = i == 1 ? n : two_lines;
    }
    bool did_two = parse_bytes(text, two_lines), did_all = parse_bytes(text, n);
    free(text);
    CHECK(did_two && !did_all);
    CHECK_STR(err.text, "F:20: the value of 'env.A' is longer than 1M");
}

static void test_continuation_lines(void)
{
    CHECK(parse("[sessions]\nenv.A = one\n  two\n\tthree\n"
                "env.B =\n    if x; then\n        y\n\n    fi\n\n\n"
                "env.C = a\n\n  # gone\n  b  \n"
                "env.D =\n  a\n b\n"));
    CHECK_STR(env(0), "A=one\ntwo\nthree");
    CHECK_STR(env(1), "B=if x; then\n    y\n\nfi");
    CHECK_STR(env(2), "C=a\n\nb");
    CHECK_STR(env(3), "D=a\nb");
    CHECK_STR(complaint("[init]\n  stop_grace = 3s\n"),
              "F:2: an indented line continues a value, and there is none above");
    CHECK_STR(complaint(" [init]\n"),
              "F:1: an indented line continues a value, and there is none above");
    CHECK_STR(complaint("[sessions]\ncwd = /a\n  user = x\n"),
              "F:2: cwd: '/a?user = x' holds a newline (from an indented line below it)");
}

/* A complaint about a value comes before one about a later line, and tells the value's line. */
static void test_complaints_come_in_order(void)
{
    static const char text[] = "[init]\nstop_grace = x\n\0\n";
    CHECK(!parse_bytes(text, sizeof text - 1));
    CHECK_STR(err.text,
              "F:2: stop_grace: 'x' is not a duration such as 500ms, 5s, 10m or 1h (0 to 1h)");
    CHECK_STR(complaint("[init]\n\n#\nlog_format = xml\n\n[bogus]\n"),
              "F:4: log_format: 'xml' is not one of text, json");
    CHECK_STR(complaint("[a]\nb\n"),
              "F:1: unknown section [a]; there are: [init], [sessions], [session:NAME], "
              "[service:NAME], [include], [gateway]");
    CHECK(err.code == ERR_INVALID);
}

static void test_unknown_keys(void)
{
    CHECK_STR(complaint("[init]\nstop_gracee = 5s\n"),
              "F:2: unknown key 'stop_gracee' in [init]; did you mean 'stop_grace'?");
    CHECK_STR(complaint("[init]\nStop-Grace = 5s\n"),
              "F:2: unknown key 'Stop-Grace' in [init]; did you mean 'stop_grace'?");
    CHECK_STR(complaint("[sessions]\nshlel = /bin/sh\n"),
              "F:2: unknown key 'shlel' in [sessions]; did you mean 'shell'?");
    static const char begin[] =
        "F:2: unknown key 'env' in [sessions]; there are: shell, cwd, user, ";
    CHECK(strncmp(complaint("[sessions]\nenv = A\n"), begin, sizeof begin - 1) == 0);
    CHECK_STR(complaint("[init]\nshell = /bin/sh\n"),
              "F:2: unknown key 'shell' in [init]; it belongs in [sessions]");
    CHECK_STR(complaint("[session:dev]\nmax_sessions = 5\n"),
              "F:2: unknown key 'max_sessions' in [session:dev]; it belongs in [sessions]");
    CHECK_STR(complaint("[init]\nenv.A = 5\n"),
              "F:2: unknown key 'env.A' in [init]; it belongs in [sessions]");
    CHECK_STR(complaint("shell = /bin/sh\n[init]\n"),
              "F:1: 'shell' stands before the first section");
    CHECK_STR(complaint("hello\n"), "F:1: neither 'key = value' nor '[section]'");
    CHECK_STR(complaint("[init]\n= x\n"), "F:2: no key before the '='");
}

static void test_unknown_sections(void)
{
    CHECK_STR(complaint("[inti]\n"), "F:1: unknown section [inti]; did you mean [init]?");
    CHECK_STR(complaint("[session]\n"), "F:1: unknown section [session]; did you mean [sessions]?");
    CHECK_STR(complaint("[Init]\n"), "F:1: unknown section [Init]; did you mean [init]?");
    CHECK_STR(complaint("[sesion:dev]\n"),
              "F:1: unknown section [sesion:dev]; did you mean [session:NAME]?");
    CHECK_STR(complaint("[]\n"),
              "F:1: unknown section []; there are: [init], [sessions], [session:NAME], "
              "[service:NAME], [include], [gateway]");
    CHECK_STR(complaint("[init\n"), "F:1: the section's ']' is missing");
    CHECK_STR(complaint("[session:]\n"),
              "F:1: bad session name '': a letter or digit, then up to 63 letters, digits, '_', "
              "'.' or '-'");
    CHECK(!parse("[session:a b]\n") && !parse("[session:-a]\n") && !parse("[session:../x]\n"));
    char *fits = text_of("[session:", 64, 'a', "]\n"), *over = text_of("[session:", 65, 'a', "]\n");
    char *far = text_of("[", 129, 'a', "]\n");
    bool did_fit = parse(fits), was_over = parse(over), was_far = parse(far);
    free(fits);
    free(over);
    free(far);
    CHECK(did_fit && !was_over && !was_far);
    CHECK_STR(err.text, "F:1: the section's name is longer than 128 bytes");
}

static void test_long_and_odd_keys(void)
{
    /* 128 bytes pass the library's 50-byte memory of names unharmed. */
    char *fits = text_of("[sessions]\nenv.", 124, 'K', " = v\nenv.B = w\n");
    char *over = text_of("[sessions]\nenv.", 125, 'K', " = v\n");
    bool did_fit = parse(fits);
    bool is_whole = did_fit && env(0) && strlen(env(0)) == 126 && env(1);
    bool was_over = parse(over);
    free(fits);
    free(over);
    CHECK(is_whole && !was_over);
    CHECK_STR(err.text, "F:2: the key is longer than 128 bytes");
    CHECK_STR(complaint("[sessions]\nenv.1A = x\n"),
              "F:2: env.1A: '1A' is not a variable's name: letters, digits and '_', not a digit "
              "first");
    CHECK(!parse("[sessions]\nenv. = x\n") && !parse("[sessions]\nenv.A-B = x\n") &&
          !parse("[sessions]\nenv.A.B = x\n"));
    CHECK(parse("[sessions]\nenv._ = x\nenv.a1 = y\n"));
    /* Terminal escapes and broken UTF-8 don't reach the message. */
    CHECK_STR(complaint("[init]\n\x1b[2J\xff\xc2\x9b = x\n"),
              "F:2: bad key '?[2J?\?': only letters, digits, '_', '.' and '-' make a key");
}

static void test_empty_values(void)
{
    CHECK(parse("[sessions]\nenv.A =\nenv.B=   \n"));
    CHECK_STR(env(0), "A=");
    CHECK_STR(env(1), "B=");
    CHECK_STR(complaint("[sessions]\nshell =\n"), "F:2: shell: the value is empty");
    CHECK_STR(complaint("[sessions]\nuser = \t\n"), "F:2: user: the value is empty");
    CHECK_STR(complaint("[init]\nstop_grace=\n"), "F:2: stop_grace: the value is empty");
}

static void test_numbers_and_ranges(void)
{
    CHECK(parse("[init]\nstop_grace = 0\nidle_timeout = 1.5s\ntext_limit = 64M\n"
                "client_stall = 100ms\nmax_connections = 1\n"
                "[sessions]\nqueue_limit = 0\noutput_keep = 4K\ncommand_timeout = 8760h\n"));
    CHECK(conf->stop_grace_ms == 0 && conf->idle_timeout_ms == 1500);
    CHECK(conf->text_limit == 64 << 20 && conf->client_stall_ms == 100);
    CHECK(conf->defaults.queue_limit == 0 && conf->defaults.output_keep == 4096);
    CHECK_STR(complaint("[init]\nstop_grace = 2h\n"),
              "F:2: stop_grace: '2h' is out of range (0 to 1h)");
    CHECK_STR(complaint("[init]\nstop_grace = 5\n"),
              "F:2: stop_grace: '5' is not a duration such as 500ms, 5s, 10m or 1h (0 to 1h)");
    CHECK_STR(complaint("[init]\ntext_limit = 65M\n"),
              "F:2: text_limit: '65M' is out of range (1K to 64M)");
    CHECK_STR(complaint("[sessions]\noutput_keep = 10MB\n"),
              "F:2: output_keep: '10MB' is not a size such as 65536, 64K, 10M or 1G (4K to 1G)");
    CHECK_STR(complaint("[sessions]\nmax_processes = 0\n"),
              "F:2: max_processes: '0' is out of range (1 to 100000)");
    CHECK_STR(complaint("[sessions]\nqueue_limit = 99999999999999999999\n"),
              "F:2: queue_limit: '99999999999999999999' is not a whole number (0 to 10000)");
    CHECK(!parse("[sessions]\nqueue_limit = -1\n") && !parse("[sessions]\nqueue_limit = +1\n") &&
          !parse("[sessions]\nqueue_limit = 1 2\n") && !parse("[sessions]\nqueue_limit = 0x10\n"));
}

static void test_words(void)
{
    CHECK(parse("[init]\nlog_level = debug\nlog_format = json\nidle_action = log\n"));
    CHECK(conf->log_level == LOG_DEBUG && conf->log_format == LOG_JSON &&
          conf->idle_action == IDLE_LOG);
    CHECK(parse("[init]\nlog_level = error\n") && conf->log_level == LOG_ERROR);
    CHECK_STR(
        complaint("[init]\nlog_level = inof\n"),
        "F:2: log_level: 'inof' is not one of error, warn, info, debug; did you mean 'info'?");
    CHECK_STR(complaint("[init]\nidle_action = Stop\n"),
              "F:2: idle_action: 'Stop' is not one of stop, log; did you mean 'stop'?");
}

static void test_paths_and_users(void)
{
    CHECK_STR(complaint("[init]\nruntime_dir = run/x\n"),
              "F:2: runtime_dir: 'run/x' is not an absolute path");
    CHECK(!parse("[init]\ncontrol_socket = ./s\n") && !parse("[sessions]\nshell = bash\n") &&
          !parse("[sessions]\ncwd = ~\n"));
    CHECK(parse("[sessions]\ncwd = /with a blank/\xc3\xa9\nuser = 1000:100\n"));
    CHECK_STR(conf->defaults.cwd, "/with a blank/\xc3\xa9");
    CHECK_STR(conf->defaults.user, "1000:100");
    CHECK_STR(complaint("[sessions]\nuser = a b\n"), "F:2: user: 'a b' holds a blank");
    char *fits = text_of("[init]\ncontrol_socket = /", 106, 's', "\n");
    char *over = text_of("[init]\ncontrol_socket = /", 107, 's', "\n");
    bool did_fit = parse(fits), was_over = parse(over);
    free(fits);
    free(over);
    CHECK(did_fit && !was_over);
    CHECK_STR(err.text,
              "F:2: control_socket: '/sssssssssssssssssssssssssssssssssssssssssssssssssssssssssss"
              "...' is 108 bytes long (1 to 107 are possible)");
}

/* Whatever stands in the file's name and in the text, the message keeps its end. */
static void test_messages_stay_whole(void)
{
    char *name = text_of("/", 4000, 'd', "/f.ini");
    char *text = text_of("[init]\n", 120, 'k', " = x\n");
    struct config *c = config_parse(name, text, strlen(text), NULL, &err);
    free(name);
    free(text);
    CHECK(!c);
    CHECK(strlen(err.text) < sizeof err.text - 1);
    CHECK(strstr(err.text, "d/f.ini:2: unknown key 'kkkk") && strstr(err.text, "client_stall"));
}

static void test_too_many_variables(void)
{
    size_t size = 65536;
    char *text = malloc(size);
    if (!text)
        abort();
    size_t n = (size_t)snprintf(text, size, "[sessions]\n");
    for (unsigned i = 0; i < 1024; i++)
        n += (size_t)snprintf(text + n, size - n, "env.V%u = %u\n", i, i);
    bool did_fit = parse_bytes(text, n);
    n += (size_t)snprintf(text + n, size - n, "env.W = x\n");
    bool was_over = parse_bytes(text, n);
    free(text);
    CHECK(did_fit && !was_over);
    CHECK_STR(err.text, "F:1026: env.W: more than 1024 variables in one section");
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_case_Z1_percent_is_literal),
        CHECK_TEST(test_case_Z2_comment_signs_in_values),
        CHECK_TEST(test_case_Z4_paths_in_values),
        CHECK_TEST(test_case_Z5_one_pass_everywhere),
        CHECK_TEST(test_case_Z7_section_twice),
        CHECK_TEST(test_case_Z7_key_twice),
        CHECK_TEST(test_case_Z8_byte_order_mark),
        CHECK_TEST(test_case_Z8_carriage_returns),
        CHECK_TEST(test_case_Z8_no_final_newline),
        CHECK_TEST(test_case_Z8_nul_byte),
        CHECK_TEST(test_case_Z8_long_lines),
        CHECK_TEST(test_case_Z8_long_joined_value),
        CHECK_TEST(test_continuation_lines),
        CHECK_TEST(test_complaints_come_in_order),
        CHECK_TEST(test_unknown_keys),
        CHECK_TEST(test_unknown_sections),
        CHECK_TEST(test_long_and_odd_keys),
        CHECK_TEST(test_empty_values),
        CHECK_TEST(test_numbers_and_ranges),
        CHECK_TEST(test_words),
        CHECK_TEST(test_paths_and_users),
        CHECK_TEST(test_messages_stay_whole),
        CHECK_TEST(test_too_many_variables),
    };
    int status = check_run(tests, sizeof tests / sizeof tests[0]);
    config_free(conf);
    return status;
}
