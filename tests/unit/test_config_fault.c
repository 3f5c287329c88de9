/*
 * The configuration when what it stands on fails: every allocation in turn, and a libinih that
 * loses, cuts, doubles or refuses lines. Linked with
 * --wrap=malloc,calloc,realloc,strdup,free,ini_parse_stream (each as an option of its own).
 */
#include "config/config.h"
#include "tests/unit/check.h"

#include <ini.h>
#include <stdlib.h>
#include <unistd.h>

static struct error err;

/* ---- allocations that are counted and can fail ---- */

static long fail_at = -1; /* the allocation that fails, from 0; -1: none */
static long allocations;  /* since the counter was set to 0 */
static long live;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t n);
char *__real_strdup(const char *text);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t n);
char *__wrap_strdup(const char *text);
void __wrap_free(void *p);

static bool fails_now(void)
{
    return allocations++ == fail_at;
}

static void *counted(void *p)
{
    live += p != NULL;
    return p;
}

void *__wrap_malloc(size_t n)
{
    return fails_now() ? NULL : counted(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails_now() ? NULL : counted(__real_calloc(n, size));
}

void *__wrap_realloc(void *old, size_t n)
{
    if (fails_now())
        return NULL;
    void *p = __real_realloc(old, n);
    live += p != NULL && old == NULL;
    return p;
}

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : counted(__real_strdup(text));
}

void __wrap_free(void *p)
{
    live -= p != NULL;
    __real_free(p);
}

/* ---- a library that misbehaves ---- */

static enum library_fault {
    FAULT_NONE,
    FAULT_READS_NOTHING,  /* and says that all is well */
    FAULT_NO_MEMORY,      /* -2 */
    FAULT_SHORT_LINES,    /* room for 100 bytes a line */
    FAULT_SPLITS_LINES,   /* takes a bad line for the end */
    FAULT_LOSES_A_VALUE,  /* never tells of the second */
    FAULT_DOUBLES_VALUES, /* tells of each twice, as of an indented line */
    FAULT_CUTS_NAMES,
    FAULT_CUTS_VALUES,
    FAULT_FORGETS_SECTIONS,
    FAULT_REPORTS_A_LINE, /* an error of its own at the end */
    FAULT_COUNT
} fault;

struct between {
    ini_reader reader;
    void *stream;
    ini_handler handler;
    void *user;
    unsigned values;
};

int __real_ini_parse_stream(ini_reader reader, void *stream, ini_handler handler, void *user);
int __wrap_ini_parse_stream(ini_reader reader, void *stream, ini_handler handler, void *user);

static char *on_read_between(char *to, int size, void *stream)
{
    struct between *b = stream;
    if (fault == FAULT_SPLITS_LINES && b->values == 1)
        return NULL;
    return b->reader(to, fault == FAULT_SHORT_LINES ? 100 : size, b->stream);
}

static int on_value_between(void *user, const char *section, const char *name, const char *value)
{
    struct between *b = user;
    char cut[160];
    b->values++;
    if (fault == FAULT_LOSES_A_VALUE && b->values == 2)
        return 1;
    if (fault == FAULT_FORGETS_SECTIONS)
        section = "";
    if (fault == FAULT_CUTS_NAMES || fault == FAULT_CUTS_VALUES) {
        const char *text = fault == FAULT_CUTS_NAMES ? name : value;
        snprintf(cut, sizeof cut, "%.*s", (int)strlen(text) - 1, text);
        *(fault == FAULT_CUTS_NAMES ? &name : &value) = cut;
    }
    int status = b->handler(b->user, section, name, value);
    if (fault == FAULT_DOUBLES_VALUES && status)
        status = b->handler(b->user, section, name, value);
    return status;
}

int __wrap_ini_parse_stream(ini_reader reader, void *stream, ini_handler handler, void *user)
{
    struct between b = {reader, stream, handler, user, 0};
    if (fault == FAULT_READS_NOTHING)
        return 0;
    if (fault == FAULT_NO_MEMORY)
        return -2;
    int status = __real_ini_parse_stream(on_read_between, &b, on_value_between, &b);
    return fault == FAULT_REPORTS_A_LINE ? 3 : status;
}

static void test_library_faults_are_seen(void)
{
    static const char text[] = "[sessions]\ncwd = /a\nuser = u\n[init]\nstop_grace = 1s\n";
    for (fault = FAULT_NONE; fault < FAULT_COUNT; fault++) {
        memset(&err, 0, sizeof err);
        struct config *c = config_parse("F", text, sizeof text - 1, NULL, &err);
        bool is_made = c != NULL;
        config_free(c);
        CHECK(is_made == (fault == FAULT_NONE));
        if (fault == FAULT_NONE)
            continue;
        CHECK(err.code == (fault == FAULT_NO_MEMORY ? ERR_MEMORY : ERR_SYSTEM));
        CHECK(strncmp(err.text, "F:", 2) == 0);
    }
    fault = FAULT_NONE;
}

/* Changed settings of the library change nothing here, or are seen. */
static void test_library_settings_do_not_matter(void)
{
    static const char text[] = "\xef\xbb\xbf[sessions]\nenv.A = a ; b\n c\ncwd = /a\n";
    bool *const switches[] = {
        &ini_allow_multiline, &ini_allow_bom,      &ini_allow_inline_comments, &ini_use_stack,
        &ini_allow_realloc,   &ini_allow_no_value, &ini_stop_on_first_error};
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        *switches[i] = !*switches[i];
        struct config *c = config_parse("F", text, sizeof text - 1, NULL, &err);
        *switches[i] = !*switches[i];
        bool is_right = c && strcmp(c->defaults.cwd, "/a") == 0 && c->defaults.env.count == 1 &&
                        strcmp(c->defaults.env.items[0], "A=a ; b\nc") == 0;
        config_free(c);
        CHECK(is_right);
    }
    ini_max_line = 50;
    struct config *c = config_parse("F", text, sizeof text - 1, NULL, &err);
    ini_max_line = 200;
    CHECK(!c);
    CHECK_STR(err.text, "F: the ini library takes only 50 bytes a line");
}

/* ---- memory ---- */

static void test_every_allocation_failing_in_turn(void)
{
    static const char text[] =
        "[init]\nruntime_dir=/r\ncontrol_socket=/s\n"
        "[session:a]\nenv.A=1\nenv.B=x\n y\n z\ncwd=/a\n[session:b]\nuser=u\n"
        "[sessions]\nshell=/s\ncwd=/c\nenv.A=2\nenv.C=3\nenv.D=4\nenv.E=5\n"
        "env.F=6\nenv.G=7\nenv.H=8\nenv.I=9\nenv.J=10\n";
    static const char *const environ_[] = {"SANDBOX_SESSIONS_CWD=/o", "SANDBOX_INIT_RUNTIME_DIR=/q",
                                           NULL};
    long live_before = live, failures = 0;
    for (fail_at = 0; fail_at < 1000; fail_at++) {
        allocations = 0;
        memset(&err, 0, sizeof err);
        struct config *c = config_parse("F", text, sizeof text - 1, (char *const *)environ_, &err);
        bool did_fail = allocations > fail_at;
        enum error_code code = err.code;
        bool is_made = c != NULL;
        config_free(c);
        CHECK(live == live_before);
        CHECK(is_made == !did_fail);
        if (!did_fail)
            break;
        failures++;
        CHECK(code == ERR_MEMORY && strstr(err.text, "out of memory"));
    }
    fail_at = -1;
    CHECK(failures > 40);
}

/* Services with every key that owns memory, over files. */
static const char services_text[] =
    "[include]\nfiles = inc*.ini -gone.ini\n"
    "[service:a]\ncommand = x 'y z'\nenv_file = -gone.env v.env\nenv.A = 1\nenv.C = 1\n"
    "requires = c, b\nafter = main\ngroups = g h\nuser = u\ncwd = /c\nlog = file:/l\n"
    "ready = http://127.0.0.1:1/p\nhealth = command:h 1\nstop_command = s\npre_start = p\n"
    "post_stop = q\nlimit.nofile = 1\n"
    "[service:b]\nscript = s\ninstances = 2\nready = unix:/s\nhealth = tcp:1\ngroup = g\n";

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f)
        abort();
    fputs(text, f);
    fclose(f);
}

/* Enter a folder with the files that services_text names. */
static bool enter_folder(char *folder)
{
    if (!mkdtemp(folder) || chdir(folder) < 0)
        return false;
    write_file("main.ini", services_text);
    write_file("inc1.ini", "[service:c]\ncommand = c\nbefore = d\n");
    write_file("inc2.ini", "[service:d]\ncommand = c\nstop_grace = 1s\n");
    write_file("v.env", "A=0\nB='1 2'\nB=3\n");
    return true;
}

static bool leave_folder(const char *folder)
{
    return unlink("main.ini") == 0 && unlink("inc1.ini") == 0 && unlink("inc2.ini") == 0 &&
           unlink("v.env") == 0 && chdir("/") == 0 && rmdir(folder) == 0;
}

static void test_every_allocation_of_services_failing_in_turn(void)
{
    char folder[] = "/tmp/test_config_fault.XXXXXX";
    CHECK(enter_folder(folder));
    long live_before = live, failures = 0;
    for (fail_at = 0; fail_at < 2000; fail_at++) {
        allocations = 0;
        memset(&err, 0, sizeof err);
        struct config *c = config_load("main.ini", NULL, &err);
        bool did_fail = allocations > fail_at;
        enum error_code code = err.code;
        bool is_made = c != NULL, has_all = c && c->service_count == 5;
        config_free(c);
        CHECK(live == live_before);
        CHECK(is_made == !did_fail);
        if (!did_fail) {
            CHECK(has_all);
            break;
        }
        failures++;
        CHECK(code == ERR_MEMORY && strstr(err.text, "out of memory"));
    }
    fail_at = -1;
    CHECK(failures > 100);
    CHECK(leave_folder(folder));
}

static void test_nothing_leaks_from_a_complaint(void)
{
    static const char *const texts[] = {
        "[session:a]\nenv.A=1\n[session:a]\n",
        "[sessions]\nenv.A=1\nenv.A=1\n",
        "[sessions]\ncwd=/a\ncwd=/b\n",
        "[init]\nruntime_dir=/a\n[x]\n",
        "[session:a]\ncwd=x\n",
        "[sessions]\nenv.A=1\n b\n c\n[",
        "[service:a]\ncommand = x\nrequires = b\n",
        "[service:a]\ncommand = x\nready = http://127.0.0.1/\nrequires = a\n",
        "[service:a]\ncommand = x\nready = tcp:127.0.0.1:0\n",
        "[service:a]\ncommand = x\nready = command:a 'b\n",
        "[service:a]\nenv.A = 1\nlog = file:/x\ngroups = a\n",
        "[service:a]\ncommand = x\ninstances = 600\n[service:b]\ncommand=y\ninstances=600\n",
        "[include]\nfiles = /no/such/file /no/such/other\n",
    };
    long live_before = live;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct config *c = config_parse("F", texts[i], strlen(texts[i]), NULL, &err);
        bool is_made = c != NULL;
        config_free(c);
        CHECK(!is_made);
        CHECK(live == live_before);
    }
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_library_faults_are_seen),
        CHECK_TEST(test_library_settings_do_not_matter),
        CHECK_TEST(test_every_allocation_failing_in_turn),
        CHECK_TEST(test_every_allocation_of_services_failing_in_turn),
        CHECK_TEST(test_nothing_leaks_from_a_complaint),
    };
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
