/*
 * What a configuration takes from other files: [include] and env_file (init-test 50).
 * All files stand in a folder of their own, which is the cwd.
 */
#include "config/config_internal.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct error err;
static struct config *conf;

/* ---- helpers ---- */

static void file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f)
        abort();
    fputs(text, f);
    fclose(f);
}

/* What a process of its own has read says the same, and a record that is cut or changed anywhere
 * says something or nothing, but harms nobody. */
static void replay(void)
{
    struct error e = {0}, ignored;
    struct stat st;
    int fd = memfd_create("record", 0);
    if (fd < 0 || config_record("main.ini", fd) < 0 || fstat(fd, &st) < 0)
        abort();
    struct config *c = config_replay("main.ini", fd, NULL, &e);
    CHECK(!c == !conf && strcmp(e.text, err.text) == 0);
    CHECK(!config_record_waits(fd, (char[8]){0}, 8));
    config_free(c);
    for (off_t at = 0; at < st.st_size && at < 400; at++) {
        unsigned char byte, other;
        if (pread(fd, &byte, 1, at) != 1)
            abort();
        other = (unsigned char)~byte;
        if (pwrite(fd, &other, 1, at) != 1)
            abort();
        config_free(config_replay("main.ini", fd, NULL, &ignored));
        config_record_waits(fd, (char[8]){0}, 8);
        if (pwrite(fd, &byte, 1, at) != 1)
            abort();
    }
    for (off_t n = st.st_size < 200 ? st.st_size : 200; n-- > 0;) {
        if (ftruncate(fd, n) < 0)
            abort();
        config_free(config_replay("main.ini", fd, NULL, &ignored));
        config_record_waits(fd, (char[8]){0}, 8);
    }
    close(fd);
}

/* Load main.ini with this text. */
static bool load(const char *text)
{
    config_free(conf);
    memset(&err, 0, sizeof err);
    file("main.ini", text);
    conf = config_load("main.ini", NULL, &err);
    replay();
    return conf != NULL;
}

static const char *complaint(const char *text)
{
    return load(text) ? "" : err.text;
}

/* Names of the services, in their order, each with its file and line. */
static const char *services(void)
{
    static char text[1024];
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; conf && i < conf->service_count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s %s:%u;", conf->services[i].name,
                              conf->services[i].file, conf->services[i].line);
    return conf ? text : err.text;
}

/* What an env file with this text assigns, each in <>; or the complaint. */
static const char *env_of(const char *text)
{
    static char shown_list[1024];
    size_t n = 0;
    shown_list[0] = '\0';
    file("x.env", text);
    if (!load("[service:a]\ncommand = x\nenv_file = x.env\n"))
        return err.text;
    const struct env_list *l = &conf->services[0].env;
    for (size_t i = 0; i < l->count; i++)
        n += (size_t)snprintf(shown_list + n, sizeof shown_list - n, "<%s>", l->items[i]);
    return shown_list;
}

static void file_of_service(const char *path, const char *name)
{
    char text[128];
    snprintf(text, sizeof text, "[service:%s]\ncommand = %s\n", name, name);
    file(path, text);
}

/* ---- [include] ---- */

static void test_a_folder_of_files_is_sorted(void)
{
    mkdir("conf.d", 0755);
    file_of_service("conf.d/20-b.ini", "b");
    file_of_service("conf.d/10-a.ini", "a");
    file_of_service("conf.d/9.ini", "c");
    file_of_service("conf.d/.hidden.ini", "hidden");
    file_of_service("conf.d/skipped.ini.bak", "skipped");
    CHECK(load("[include]\nfiles = conf.d/*.ini\n[service:m]\ncommand = m\n"));
    CHECK_STR(services(), "m main.ini:3;a conf.d/10-a.ini:1;b conf.d/20-b.ini:1;c conf.d/9.ini:1;");
    CHECK(load("[include]\nfiles = conf.d/[!2]0-?.ini conf.d/.*.ini\n"));
    CHECK_STR(services(), "a conf.d/10-a.ini:1;hidden conf.d/.hidden.ini:1;");
}

static void test_what_is_missing(void)
{
    CHECK_STR(complaint("[include]\nfiles = gone.ini\n"),
              "main.ini:2: files: gone.ini: No such file or directory");
    CHECK_STR(complaint("\n[include]\nfiles =\n  -gone.ini\n  gone.d/x.ini\n"),
              "main.ini:3: files: gone.d/x.ini: No such file or directory");
    CHECK(load("[include]\nfiles = -gone.ini '-gone too.ini' gone.d/*.ini conf.d/*.none\n"));
    CHECK(conf->service_count == 0);
}

static void test_paths_are_relative_to_the_including_file(void)
{
    char folder[1024], text[1200];
    mkdir("sub", 0755);
    mkdir("sub/deep er", 0755);
    file("sub/first.ini", "[include]\nfiles = 'deep er/second.ini'\n[service:f]\ncommand=x\n");
    file("sub/deep er/second.ini", "[include]\nfiles = ../third.ini\n");
    file_of_service("sub/third.ini", "t");
    CHECK(load("[include]\nfiles = sub/first.ini\n"));
    CHECK_STR(services(), "f sub/first.ini:3;t sub/deep er/../third.ini:1;");
    CHECK(getcwd(folder, sizeof folder));
    snprintf(text, sizeof text, "[include]\nfiles = %s/sub/third.ini\n", folder);
    CHECK(load(text) && conf->service_count == 1);
}

static void test_a_file_that_includes_itself(void)
{
    CHECK_STR(complaint("[include]\nfiles = main.ini\n"),
              "main.ini:2: files: a file includes itself: main.ini -> main.ini");
    file("one.ini", "[include]\nfiles = two.ini\n");
    file("two.ini", "#\n[include]\nfiles = -gone.ini sub/../one.ini\n");
    CHECK_STR(complaint("[include]\nfiles = one.ini\n"),
              "two.ini:3: files: a file includes itself: one.ini -> two.ini -> one.ini");
    CHECK(symlink("main.ini", "link.ini") == 0);
    CHECK_STR(complaint("[include]\nfiles = link.ini\n"),
              "main.ini:2: files: a file includes itself: main.ini -> main.ini");
    /* A pattern that fits its own file. */
    file("conf.d/self.ini", "[include]\nfiles = s*.ini\n");
    CHECK_STR(complaint("[include]\nfiles = conf.d/self.ini\n"),
              "conf.d/self.ini:2: files: a file includes itself: conf.d/self.ini -> "
              "conf.d/self.ini");
    CHECK(unlink("conf.d/self.ini") == 0 && unlink("link.ini") == 0);
}

static void test_a_file_that_is_included_twice(void)
{
    file_of_service("one.ini", "o");
    file("two.ini", "[include]\nfiles = one.ini\n");
    CHECK_STR(complaint("[include]\nfiles = one.ini one.ini\n"),
              "main.ini:2: files: one.ini is included a second time; first at main.ini:2");
    CHECK_STR(complaint("[include]\nfiles = one.ini two.ini\n"),
              "two.ini:2: files: one.ini is included a second time; first at main.ini:2");
}

static void test_depth_and_count_are_bounded(void)
{
    char path[32], text[64];
    for (unsigned i = 1; i <= 9; i++) {
        snprintf(path, sizeof path, "d%u.ini", i);
        snprintf(text, sizeof text, "[include]\nfiles = d%u.ini\n", i + 1);
        file(path, i < 9 ? text : "");
    }
    CHECK_STR(complaint("[include]\nfiles = d1.ini\n"),
              "d8.ini:2: files: files include files more than 8 deep");
    CHECK(load("[include]\nfiles = d2.ini\n"));
    mkdir("many", 0755);
    for (unsigned i = 0; i < 255; i++) {
        snprintf(path, sizeof path, "many/%u", i);
        file(path, "");
    }
    CHECK(load("[include]\nfiles = many/*\n"));
    file("many/x", "");
    CHECK_STR(complaint("[include]\nfiles = many/*\n"), "main.ini:2: files: more than 256 files");
}

static void test_how_often_files_are_read(void)
{
    static char text[30000] = "[service:a]\ncommand = x\nenv_file =";
    struct error e = {0};
    size_t n = strlen(text);
    file("e", "");
    for (unsigned i = 0; i < 10000; i++, n += 2)
        memcpy(text + n, " e", 3);
    struct config *c = config_parse("main.ini", text, n, NULL, &e);
    CHECK(c);
    config_free(c);
    memcpy(text + n, " e", 3);
    CHECK(!config_parse("main.ini", text, n + 2, NULL, &e));
    CHECK_STR(e.text, "main.ini:3: env_file: more than 10000 files are read, also those of "
                      "env_file");
}

static void test_what_is_no_file(void)
{
    CHECK(mkfifo("fifo.ini", 0600) == 0);
    CHECK_STR(complaint("[include]\nfiles = fifo.ini\n"),
              "main.ini:2: files: fifo.ini: not a regular file");
    CHECK_STR(complaint("[include]\nfiles = -sub\n"), "main.ini:2: files: sub: not a regular file");
    CHECK(truncate("one.ini", 5 << 20) == 0);
    CHECK_STR(complaint("[include]\nfiles = one.ini\n"),
              "main.ini:2: files: one.ini: longer than 4M");
    CHECK(truncate("one.ini", 0) == 0 && truncate("one.ini", 10) == 0);
    CHECK_STR(complaint("[include]\nfiles = one.ini\n"), "one.ini:1: the line holds a NUL byte");
}

/* What stands in a complaint is fit for a terminal, whatever a file is called. */
static void test_control_characters_in_paths(void)
{
    CHECK_STR(complaint("[include]\nfiles = 'a\x1b[2J.ini'\n"),
              "main.ini:2: files: 'a?[2J.ini' holds a control character");
    CHECK_STR(complaint("[service:a]\ncommand = x\nenv_file = 'a\n  b'\n"),
              "main.ini:3: env_file: 'a?b' holds a control character");
    mkdir("odd", 0755);
    file("odd/x\ny", "");
    CHECK_STR(complaint("[include]\nfiles = odd/*\n"),
              "main.ini:2: files: 'odd/x?y' holds a control character");
}

/* ---- the cases, over several files ---- */

static void test_case_Z5_the_same_value_in_main_and_included_file(void)
{
    static const char value[] = "env.V = 50%% %(x)s $HOME ;a #b \"c\" 'd' \\n\n";
    char text[512], included[256];
    snprintf(included, sizeof included, "[service:b]\ncommand = x\n%s", value);
    file("one.ini", included);
    snprintf(text, sizeof text,
             "[sessions]\n%s[service:a]\ncommand = x\n%s[include]\nfiles=one.ini", value, value);
    CHECK(load(text) && conf->service_count == 2);
    CHECK_STR(conf->defaults.env.items[0], "V=50%% %(x)s $HOME ;a #b \"c\" 'd' \\n");
    CHECK_STR(conf->services[0].env.items[0], conf->defaults.env.items[0]);
    CHECK_STR(conf->services[1].env.items[0], conf->defaults.env.items[0]);
}

static void test_case_Z7_a_section_in_two_files(void)
{
    file("one.ini", "\n[service:a]\ncommand = y\n");
    CHECK_STR(complaint("[service:a]\ncommand = x\n[include]\nfiles = one.ini\n"),
              "one.ini:2: duplicate section [service:a]; first given at main.ini:1");
    file("two.ini", "[service:a]\ncommand = y\n");
    CHECK_STR(complaint("[include]\nfiles = one.ini two.ini\n"),
              "two.ini:1: duplicate section [service:a]; first given at one.ini:2");
    file("one.ini", "[init]\n");
    CHECK_STR(complaint("[include]\nfiles = one.ini\n[init]\n"),
              "one.ini:1: duplicate section [init]; first given at main.ini:3");
    /* An [include] each is fine, two in one file are not. */
    CHECK_STR(complaint("[include]\n[init]\n[include]\n"),
              "main.ini:3: duplicate section [include]; first given at line 1");
}

/* A section ends with its file. */
static void test_case_Z7_a_key_before_the_first_section_of_a_file(void)
{
    file("one.ini", "restart = always\n");
    CHECK_STR(complaint("[include]\nfiles = one.ini\n[service:a]\ncommand = x\n"),
              "one.ini:1: 'restart' stands before the first section");
}

static void test_case_Z8_bom_and_cr_in_an_included_file(void)
{
    file("one.ini", "\xef\xbb\xbf[service:a]\r\ncommand = x y\r\n");
    CHECK(load("[include]\r\nfiles = one.ini\r\n"));
    CHECK_STR(conf->services[0].argv[1], "y");
}

static void test_names_go_over_files(void)
{
    file("one.ini", "[service:a]\ncommand = x\nrequires = b\n");
    CHECK(load("[include]\nfiles = one.ini\n[service:b]\ncommand = x\n"));
    CHECK_STR(complaint("[include]\nfiles = one.ini\n[service:b]\ncommand = x\nafter = a\n"),
              "one.ini:3: requires: a cycle: b -> a -> b");
    CHECK_STR(complaint("[include]\nfiles = one.ini\n[service:bee]\ncommand = x\n"),
              "one.ini:3: requires: there is no [service:b]");
}

/* ---- env_file ---- */

static void test_env_files(void)
{
    CHECK_STR(env_of("A=1\n\n# c\n ; c\nexport B=2\n  C = 3  \nD=\nE=x=y\n"),
              "<A=1><B=2><C=3><D=><E=x=y>");
    CHECK_STR(env_of("A=a # b\nB=$A ${x} `y` %d\\n\nC=it's\n"),
              "<A=a # b><B=$A ${x} `y` %d\\n><C=it's>");
    CHECK_STR(env_of("A='a \\n\n $b'\nB=\"a \\\"b\\\" \\\\ \\n c\"  \nC=''\n"),
              "<A=a \\n\n $b><B=a \"b\" \\ \n c><C=>");
    CHECK_STR(env_of("A=1\nB=2\nA=3"), "<A=3><B=2>");
    CHECK_STR(env_of("\xef\xbb\xbf"
                     "A=1\r\nB=\"x\"\r\n"),
              "<A=1><B=x>");
    CHECK_STR(env_of(""), "");
}

static void test_complaints_about_env_files(void)
{
    CHECK_STR(env_of("A=1\nhello\n"), "main.ini:3: env_file: x.env:2: 'hello' is not NAME=VALUE");
    CHECK_STR(env_of("\n1A=1\n"), "main.ini:3: env_file: x.env:2: '1A' is not a variable's name: "
                                  "letters, digits and '_', not a digit first");
    CHECK_STR(env_of("A='x\n\n"), "main.ini:3: env_file: x.env:1: A: a quote (') is not closed");
    CHECK_STR(env_of("A=\"x\ny\" z\n"),
              "main.ini:3: env_file: x.env:2: A: text after the closing quote (\")");
    CHECK_STR(env_of("=x\n"),
              "main.ini:3: env_file: x.env:1: '' is not a variable's name: letters, "
              "digits and '_', not a digit first");
    file("x.env", "A=1\nB=2");
    CHECK(truncate("x.env", 10) == 0);
    CHECK_STR(complaint("[service:a]\ncommand = x\nenv_file = x.env\n"),
              "main.ini:3: env_file: x.env:2: the line holds a NUL byte");
    CHECK_STR(complaint("[service:a]\ncommand = x\nenv_file = gone.env\n"),
              "main.ini:3: env_file: gone.env: No such file or directory");
    CHECK_STR(complaint("[service:a]\ncommand = x\nenv_file = sub\n"),
              "main.ini:3: env_file: sub: not a regular file");
}

static void test_several_env_files(void)
{
    file("sub/a.env", "A=file\nB=file\nC=file\n");
    file("sub/b.env", "B=later\n");
    file("sub/s.ini", "[service:a]\ncommand = x\nenv.D = key\nenv_file = a.env -gone.env b.env\n"
                      "env.C = key\n");
    CHECK(load("[include]\nfiles = sub/s.ini\n"));
    const struct env_list *l = &conf->services[0].env;
    CHECK(l->count == 4);
    CHECK_STR(l->items[0], "A=file");
    CHECK_STR(l->items[1], "B=later");
    CHECK_STR(l->items[2], "C=key");
    CHECK_STR(l->items[3], "D=key");
}

/* A file may be named often, as long as what comes of it is bounded. */
static void test_what_all_env_files_assign(void)
{
    static char names[128 * 1024], text[4096] = "[service:a]\ncommand = x\nenv_file =";
    struct error e = {0};
    size_t n = 0, text_n = strlen(text);
    for (unsigned i = 0; i < 1000; i++) /* with 64 bytes each: 80000 */
        n += (size_t)snprintf(names + n, sizeof names - n, "NAME%04u=1234567\n", i);
    file("e", names);
    for (unsigned i = 0; i < (16u << 20) / 80000; i++, text_n += 2)
        memcpy(text + text_n, " e", 3);
    struct config *c = config_parse("main.ini", text, text_n, NULL, &e);
    CHECK(c && c->services[0].env.count == 1000);
    config_free(c);
    memcpy(text + text_n, " e", 3);
    CHECK(!config_parse("main.ini", text, text_n + 2, NULL, &e));
    CHECK_STR(e.text, "main.ini:3: env_file: e: the variables of all env_file together take more "
                      "than 16M");
    CHECK_STR(env_of("A=1\nB=2\n\nA=3\nC=4\nB=5\n"), "<A=3><B=5><C=4>");
}

/* ---- patterns ---- */

static void test_patterns(void)
{
    CHECK(pattern_fits("*", "a") && pattern_fits("*.ini", "a.b.ini") && pattern_fits("a*", "a"));
    CHECK(pattern_fits("?b[a-c]", "abc") && pattern_fits("[]x]", "]") && pattern_fits("[", "["));
    CHECK(pattern_fits("a**b*", "a1b") && pattern_fits("*a*b*c", "aXbYaZbc"));
    CHECK(pattern_fits("[!a]", "b") && !pattern_fits("[!a]", "a") && !pattern_fits("[^a]", "a"));
    CHECK(!pattern_fits("*", ".a") && !pattern_fits("?a", ".a") && pattern_fits(".*", ".a"));
    CHECK(!pattern_fits("a", "A") && !pattern_fits("a*c", "ab") && !pattern_fits("", "a"));
    CHECK(!pattern_fits("[a-", "a") && pattern_fits("x[a-]", "x-") && !pattern_fits("?", ""));
    /* It takes no more than length times length steps. */
    char pattern[256], name[256];
    for (size_t i = 0; i < 254; i += 2)
        memcpy(pattern + i, "*a", 2);
    pattern[254] = '\0';
    memset(name, 'a', 254);
    name[253] = 'b';
    name[254] = '\0';
    CHECK(!pattern_fits(pattern, name));
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_a_folder_of_files_is_sorted),
        CHECK_TEST(test_what_is_missing),
        CHECK_TEST(test_paths_are_relative_to_the_including_file),
        CHECK_TEST(test_a_file_that_includes_itself),
        CHECK_TEST(test_a_file_that_is_included_twice),
        CHECK_TEST(test_depth_and_count_are_bounded),
        CHECK_TEST(test_how_often_files_are_read),
        CHECK_TEST(test_what_is_no_file),
        CHECK_TEST(test_control_characters_in_paths),
        CHECK_TEST(test_case_Z5_the_same_value_in_main_and_included_file),
        CHECK_TEST(test_case_Z7_a_section_in_two_files),
        CHECK_TEST(test_case_Z7_a_key_before_the_first_section_of_a_file),
        CHECK_TEST(test_case_Z8_bom_and_cr_in_an_included_file),
        CHECK_TEST(test_names_go_over_files),
        CHECK_TEST(test_env_files),
        CHECK_TEST(test_complaints_about_env_files),
        CHECK_TEST(test_several_env_files),
        CHECK_TEST(test_what_all_env_files_assign),
        CHECK_TEST(test_patterns),
    };
    char folder[] = "/tmp/test_config_file.XXXXXX", command[64];
    if (!mkdtemp(folder) || chdir(folder) < 0)
        return 1;
    int status = check_run(tests, sizeof tests / sizeof tests[0]);
    config_free(conf);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || status;
}
