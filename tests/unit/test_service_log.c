/*
 * The logs of services without services: pipes that the test itself writes to stand for runs. The
 * log writer is this same program, as it is sandbox-init in the container.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/outlet.h"
#include "logger/logger.h"
#include "services/service_log.h"
#include "sessions/child.h"
#include "sessions/log_stdio.h"
#include "sessions/look.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILE_MAX (16 * 1024 * 1024)

static struct ev_loop *loop;
static struct log_feed *feed;
static char folder[64];
static char path[128];
static int saved[3];
static struct strbuf got; /* read from what stands for init's stdout */

/* ---- the stage ---- */

/* A feed whose stdout and stderr are these. */
static void set_up(int out, int err)
{
    static struct config config;
    struct error e = {0};
    fflush(stdout);
    for (int i = 1; i <= 2; i++)
        saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
    dup2(out, 1);
    dup2(err, 2);
    outlet_close(log_outlet());
    log_open();
    log_configure(LOG_ERROR, LOG_TEXT);
    feed = log_feed_new(loop, &config, &e);
    strbuf_clear(&got);
}

static bool is_over;

static void on_over(void *context)
{
    (void)context;
    is_over = true;
}

/* within_ms: what is not where it was to go by then never gets there. */
static void tear_down_within(uint64_t within_ms)
{
    is_over = false;
    log_feed_end(feed, within_ms, on_over, NULL);
    while (!is_over)
        ev_run(loop, EVRUN_ONCE);
    log_feed_free(feed);
    for (int i = 1; i <= 2; i++) {
        dup2(saved[i], i);
        close(saved[i]);
    }
}

static void tear_down(void)
{
    tear_down_within(10000);
}

/* Run the loop until a condition holds, for 20 s at most. */
static void on_tick(struct ev_loop *l, ev_timer *t, int events)
{
    (void)l;
    (void)t;
    (void)events;
}

#define RUN_UNTIL(cond)                                                                            \
    do {                                                                                           \
        ev_timer tick;                                                                             \
        ev_timer_init(&tick, on_tick, 0.005, 0.005);                                               \
        ev_timer_start(loop, &tick);                                                               \
        uint64_t run_end = clock_mono_ns() + 20000000000u;                                         \
        while (!(cond) && clock_mono_ns() < run_end)                                               \
            ev_run(loop, EVRUN_ONCE);                                                              \
        ev_timer_stop(loop, &tick);                                                                \
    } while (0)

static struct service_config inherited(const char *name)
{
    return (struct service_config){.name = (char *)(uintptr_t)name, .log = SERVICE_LOG_INHERIT};
}

static struct service_config in_file(const char *name)
{
    return (struct service_config){.name = (char *)(uintptr_t)name,
                                   .log = SERVICE_LOG_FILE,
                                   .log_file = path,
                                   .log_max_size = 1024 * 1024,
                                   .log_keep = 4};
}

static struct service_log *new_log(const struct service_config *c)
{
    struct error e = {0};
    return service_log_new(loop, feed, c, &e);
}

static int runs_ended;

static void on_eof(void *context)
{
    (void)context;
    runs_ended++;
}

/* Begin a run: *out and *err are the ends that its program would have. */
static void begin_run(struct service_log *l, int *out, int *err)
{
    int a[2], b[2];
    if (pipe2(a, O_CLOEXEC) < 0 || pipe2(b, O_CLOEXEC) < 0)
        abort();
    int ends[STREAM_COUNT] = {a[0], b[0]};
    fd_set_nonblock(a[0]);
    fd_set_nonblock(b[0]);
    fd_set_nonblock(a[1]);
    fd_set_nonblock(b[1]);
    *out = a[1];
    *err = b[1];
    service_log_capture(l, ends, on_eof, NULL);
}

/* Write all, running the loop while the pipe is full. */
static void take_in(int fd)
{
    char buf[65536];
    ssize_t k;
    while ((k = read(fd, buf, sizeof buf)) > 0)
        strbuf_add(&got, buf, (size_t)k);
}

/* Who waits for room lets the loop run, and reads what comes out at `reader` (-1: nothing), since
 * that may be what holds it up. */
static void feed_and_take(int fd, const char *bytes, size_t n, int reader)
{
    while (n > 0) {
        ssize_t k = write(fd, bytes, n);
        if (k > 0) {
            bytes += k;
            n -= (size_t)k;
        } else {
            if (reader >= 0)
                take_in(reader);
            ev_run(loop, EVRUN_ONCE);
        }
    }
}

static void feed_in(int fd, const char *bytes, size_t n)
{
    feed_and_take(fd, bytes, n, -1);
}

static void say(int fd, const char *text)
{
    feed_in(fd, text, strlen(text));
}

static void one_run(struct service_log *l, const char *text, size_t n)
{
    int out, err;
    begin_run(l, &out, &err);
    feed_in(out, text, n);
    close(out);
    close(err);
    service_log_run_ended(l);
}

static bool has(const char *text, size_t n)
{
    return got.len >= n && memmem(got.data, got.len, text, n);
}

/* A pipe that stands for the container's log: the read end does not block. */
static void make_pipe(int p[2])
{
    if (pipe2(p, O_CLOEXEC) < 0)
        abort();
    fd_set_nonblock(p[0]);
}

static uint64_t dropped(const struct service_log *l)
{
    const char *why;
    return service_log_dropped(l, &why);
}

static const char *why_of(const struct service_log *l)
{
    const char *why;
    (void)service_log_dropped(l, &why);
    return why;
}

/* The text of PATH.n and all newer files. */
static void read_files(unsigned oldest)
{
    char name[160];
    strbuf_clear(&got);
    for (unsigned i = oldest + 1; i-- > 0;) {
        snprintf(name, sizeof name, i ? "%s.%u" : "%s", path, i);
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            take_in(fd);
            close(fd);
        }
    }
    strbuf_add(&got, "", 0);
}

static off_t size_of(const char *name)
{
    struct stat st;
    return stat(name, &st) < 0 ? -1 : st.st_size;
}

static void clear_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s/*", folder);
    if (system(command) != 0)
        abort();
}

/* ---- inherited ---- */

static void test_lines_are_passed_on_byte_for_byte(void)
{
    int p[2];
    make_pipe(p);
    set_up(p[1], p[1]);
    struct service_config c = inherited("web");
    struct service_log *l = new_log(&c);
    static const char text[] = "one\n\0two\xff\xfe\n\nlast without an end";
    static const char all[] = "one\n\0two\xff\xfe\n\nlast without an end\nnext run\n";
    one_run(l, text, sizeof text - 1);
    one_run(l, "next run\n", 9);
    RUN_UNTIL(got.len >= sizeof all - 1 || (take_in(p[0]), false));
    bool is_same = got.len == sizeof all - 1 && memcmp(got.data, all, got.len) == 0;
    service_log_free(l);
    tear_down();
    CHECK(is_same);
    close(p[0]);
    close(p[1]);
}

static void test_prefix_and_timestamp(void)
{
    int p[2];
    make_pipe(p);
    set_up(p[1], p[1]);
    struct service_config c = inherited("web@2"), d = inherited("db");
    c.log_prefix = d.log_prefix = true;
    d.log_timestamp = TIMESTAMP_ISO;
    struct service_log *l = new_log(&c), *m = new_log(&d);
    one_run(l, "a\nb", 3);
    one_run(m, "x\n", 2);
    RUN_UNTIL(has("db: x\n", 6) || (take_in(p[0]), false));
    bool is_right = got.len == 20 + 25 + 6 && strncmp(got.data, "web@2: a\nweb@2: b\n20", 20) == 0;
    is_right = is_right || strncmp(strbuf_text(&got), "web@2: a\nweb@2: b\n2", 19) == 0;
    const char *line = strbuf_text(&got) + 18;
    bool is_stamp = strlen(line) == 25 + 6 && line[10] == 'T' && line[19] == '.' &&
                    line[23] == 'Z' && strcmp(line + 25, "db: x\n") == 0;
    service_log_free(l);
    service_log_free(m);
    tear_down();
    CHECK(is_right);
    CHECK(is_stamp);
    close(p[0]);
    close(p[1]);
}

static void test_streams_go_to_their_own(void)
{
    int p[2], q[2], out, err;
    make_pipe(p);
    make_pipe(q);
    set_up(p[1], q[1]);
    struct service_config c = inherited("web");
    struct service_log *l = new_log(&c);
    begin_run(l, &out, &err);
    say(out, "to ");
    say(err, "a complaint\n");
    say(out, "stdout\n");
    RUN_UNTIL(got.len >= 10 || (take_in(p[0]), false));
    bool is_out = got.len == 10 && memcmp(got.data, "to stdout\n", 10) == 0;
    strbuf_clear(&got);
    RUN_UNTIL(got.len >= 12 || (take_in(q[0]), false));
    bool is_err = got.len == 12 && memcmp(got.data, "a complaint\n", 12) == 0;
    close(out);
    close(err);
    service_log_free(l);
    tear_down();
    CHECK(is_out);
    CHECK(is_err);
}

/* Nobody reads: the services go on, the lines are counted, and told when somebody reads again. */
static void test_a_reader_that_is_stopped(void)
{
    int p[2], out, err;
    make_pipe(p);
    set_up(p[1], p[1]);
    struct service_config c = inherited("web");
    struct service_log *l = new_log(&c);
    begin_run(l, &out, &err);
    char line[32];
    uint64_t begun = clock_mono_ns(), slowest = 0;
    for (int i = 1; i <= 200000; i++) {
        int n = snprintf(line, sizeof line, "line %d\n", i);
        uint64_t before = clock_mono_ns();
        feed_in(out, line, (size_t)n);
        slowest = clock_mono_ns() - before > slowest ? clock_mono_ns() - before : slowest;
    }
    uint64_t took = clock_mono_ns() - begun;
    RUN_UNTIL(dropped(l) > 0);
    close(out);
    close(err);
    service_log_run_ended(l);
    uint64_t count = dropped(l);
    bool has_why = strstr(why_of(l), "nobody reads") != NULL;
    char told[64];
    snprintf(told, sizeof told, "[sandbox-init: %llu lines dropped: std",
             (unsigned long long)count);
    RUN_UNTIL(has(told, strlen(told)) || (take_in(p[0]), false));
    one_run(l, "and on\n", 7);
    RUN_UNTIL(has("and on\n", 7) || (take_in(p[0]), false));
    uint64_t lines = 0, last = 0;
    bool is_in_order = true;
    strbuf_add(&got, "", 0);
    for (char *at = got.data, *end; (end = strchr(at, '\n')); at = end + 1) {
        unsigned long long n;
        if (sscanf(at, "line %llu\n", &n) != 1)
            continue;
        is_in_order = is_in_order && n == last + 1;
        last = n;
        lines++;
    }
    service_log_free(l);
    tear_down();
    CHECK(count > 0);
    CHECK(has_why);
    CHECK(has(told, strlen(told)));
    CHECK(has("and on\n", 7));
    CHECK(is_in_order);
    CHECK(lines + count == 200000);
    CHECK(slowest < 10 * 1000000000ull && took < 30 * 1000000000ull);
    close(p[0]);
    close(p[1]);
}

/* Some lines of `text`, each seen once in `got` and whole. */
static bool counts_up(const char *prefix, unsigned from, unsigned to)
{
    unsigned next = from;
    size_t n = strlen(prefix);
    for (const char *at = got.data, *end; (end = strchr(at, '\n')); at = end + 1) {
        unsigned k;
        if (strncmp(at, prefix, n) != 0)
            continue;
        if (sscanf(at + n, "%u", &k) != 1 || k != next)
            return false;
        next++;
    }
    return next == to + 1;
}

static char long_tail[12000];

static void test_lines_of_several_services_stay_whole(void)
{
    int p[2], out[2], err[2];
    make_pipe(p);
    set_up(p[1], p[1]);
    struct service_config a = inherited("a"), b = inherited("b");
    a.log_prefix = b.log_prefix = true;
    struct service_log *l[2] = {new_log(&a), new_log(&b)};
    begin_run(l[0], &out[0], &err[0]);
    begin_run(l[1], &out[1], &err[1]);
    memset(long_tail, 'x', sizeof long_tail - 2);
    long_tail[sizeof long_tail - 2] = '\n';
    for (unsigned i = 1; i <= 100; i++) {
        char head[32];
        snprintf(head, sizeof head, "%u ", i);
        for (int s = 0; s < 2; s++) {
            feed_and_take(out[s], head, strlen(head), p[0]);
            feed_and_take(out[s], long_tail + i * 50, strlen(long_tail + i * 50), p[0]);
        }
        take_in(p[0]);
    }
    RUN_UNTIL(
        (take_in(p[0]), has("b: 100 ", 7) && has("a: 100 ", 7) && got.data[got.len - 1] == '\n'));
    bool is_whole = true;
    for (const char *at = got.data, *end; (end = strchr(at, '\n')); at = end + 1)
        is_whole = is_whole && strncmp(at + 1, ": ", 2) == 0 &&
                   strspn(strchr(at + 3, ' ') + 1, "x") == (size_t)(end - strchr(at + 3, ' ') - 1);
    bool all = counts_up("a: ", 1, 100) && counts_up("b: ", 1, 100);
    for (int s = 0; s < 2; s++) {
        close(out[s]);
        close(err[s]);
        service_log_free(l[s]);
    }
    tear_down();
    CHECK(is_whole);
    CHECK(all);
    close(p[0]);
    close(p[1]);
}

static void test_a_line_that_is_too_long_is_cut(void)
{
    int p[2];
    make_pipe(p);
    set_up(p[1], p[1]);
    struct service_config c = inherited("web");
    struct service_log *l = new_log(&c);
    size_t n = (size_t)3 * SERVICE_LINE_MAX;
    char *text = malloc(n + 1);
    memset(text, 'y', n);
    text[n] = '\n';
    int out, err;
    begin_run(l, &out, &err);
    for (size_t done = 0; done < n + 1; take_in(p[0])) {
        size_t k = n + 1 - done < 50000 ? n + 1 - done : 50000;
        feed_in(out, text + done, k);
        done += k;
    }
    RUN_UNTIL((take_in(p[0]), got.len >= n + 3));
    bool is_cut = got.len == n + 3;
    for (size_t i = 1; is_cut && i <= 3; i++)
        is_cut = got.data[i * (SERVICE_LINE_MAX + 1) - 1] == '\n';
    strbuf_clear(&got);
    free(text);
    close(out);
    close(err);
    service_log_free(l);
    tear_down();
    CHECK(is_cut);
    close(p[0]);
    close(p[1]);
}

/* What must come out for what went in. */
static void cut_lines(const struct strbuf *in, struct strbuf *out)
{
    size_t length = 0;
    for (size_t i = 0; i < in->len; i++) {
        bool is_end = in->data[i] == '\n';
        if (!is_end && length == SERVICE_LINE_MAX) {
            strbuf_add(out, "\n", 1);
            length = 0;
        }
        strbuf_add(out, in->data + i, 1);
        length = is_end ? 0 : length + 1;
    }
}

/* Bytes of lines of all lengths, by a generator that every run starts in the same way. */
static void make_lines(struct strbuf *to, size_t n)
{
    unsigned state = 12345;
    while (to->len < n) {
        state = state * 1103515245u + 12345u;
        unsigned kind = state >> 16 & 255;
        size_t length = kind < 4   ? SERVICE_LINE_MAX - 2 + kind
                        : kind < 6 ? 200000u
                                   : kind * 7 % 300;
        for (size_t i = 0; i < length; i++)
            strbuf_add(to, &(char){(char)(i % 251 == 10 ? 'n' : i % 251)}, 1);
        strbuf_add(to, "\n", 1);
    }
}

/* A reader who is slow and does not stop holds the service up, and gets every byte. */
static void test_a_slow_reader_gets_every_byte(void)
{
    int p[2], out, err;
    struct strbuf in = {0}, expected = {0};
    char buf[3000];
    make_pipe(p);
    make_lines(&in, 4 * 1024 * 1024);
    cut_lines(&in, &expected);
    set_up(p[1], p[1]);
    struct service_config c = inherited("web");
    struct service_log *l = new_log(&c);
    begin_run(l, &out, &err);
    uint64_t end = clock_mono_ns() + 30000000000u;
    size_t sent = 0, most = 0;
    while (got.len < expected.len && clock_mono_ns() < end) {
        size_t want = in.len - sent < 50000 ? in.len - sent : 50000;
        ssize_t k = want ? write(out, in.data + sent, want) : 0;
        sent += k > 0 ? (size_t)k : 0;
        most = sent - got.len > most && sent > got.len ? sent - got.len : most;
        ev_run(loop, EVRUN_NOWAIT);
        ssize_t r = read(p[0], buf, sizeof buf);
        if (r > 0)
            strbuf_add(&got, buf, (size_t)r);
    }
    bool is_same =
        got.len > 0 && got.len == expected.len && memcmp(got.data, expected.data, got.len) == 0;
    uint64_t lost = dropped(l);
    strbuf_free(&got);
    strbuf_free(&in);
    strbuf_free(&expected);
    close(out);
    close(err);
    service_log_free(l);
    tear_down();
    CHECK(lost == 0);
    CHECK(is_same);
    CHECK(most < 2 * 1024 * 1024); /* it was held up */
    close(p[0]);
    close(p[1]);
}

/* A gigabyte without a newline (a part of it here) costs a bounded amount of memory. */
static void test_much_without_a_newline(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC), out, err;
    set_up(null, null);
    struct service_config c = inherited("web");
    struct service_log *l = new_log(&c);
    static char block[65536];
    struct rusage before, after;
    memset(block, 'z', sizeof block);
    begin_run(l, &out, &err);
    feed_in(out, block, sizeof block);
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 1000; i++)
        feed_in(out, block, sizeof block);
    getrusage(RUSAGE_SELF, &after);
    close(out);
    close(err);
    service_log_run_ended(l);
    uint64_t lost = dropped(l);
    service_log_free(l);
    tear_down();
    close(null);
    CHECK(lost == 0);
#ifndef __SANITIZE_ADDRESS__ /* which keeps what was freed */
    CHECK(after.ru_maxrss - before.ru_maxrss < 8 * 1024);
#endif
}

static void test_a_place_that_takes_nothing(void)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC), out, err;
    set_up(full, full);
    struct service_config c = inherited("web");
    struct service_log *l = new_log(&c);
    begin_run(l, &out, &err);
    for (int i = 0; i < 40000; i++)
        say(out, "some line of thirty characters\n");
    RUN_UNTIL(dropped(l) > 0);
    bool has_why = strstr(why_of(l), "No space left") != NULL;
    close(out);
    close(err);
    service_log_run_ended(l);
    service_log_free(l);
    close(full);
    tear_down_within(50);
    CHECK(has_why);
}

static void test_nowhere_and_still_kept(void)
{
    int p[2];
    make_pipe(p);
    set_up(p[1], p[1]);
    struct service_config c = inherited("web");
    c.log = SERVICE_LOG_NONE;
    struct service_log *l = new_log(&c);
    one_run(l, "a crash", 7);
    one_run(l, "another", 7);
    bool is_kept = output_end_offset(service_log_output(l)) == 16;
    c.log = SERVICE_LOG_INHERIT;
    struct error e = {0};
    int rc = service_log_configure(l, &c, &e);
    one_run(l, "heard\n", 6);
    RUN_UNTIL((take_in(p[0]), got.len >= 6));
    bool is_alone = got.len == 6;
    service_log_free(l);
    tear_down();
    CHECK(is_kept);
    CHECK(rc == 0);
    CHECK(is_alone);
}

static void test_more_runs_than_are_kept_open(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC), out[20], err[20];
    set_up(null, null);
    struct service_config c = inherited("web");
    struct service_log *l = new_log(&c);
    runs_ended = 0;
    for (int i = 0; i < 20; i++)
        begin_run(l, &out[i], &err[i]);
    int closed = runs_ended;
    for (int i = 0; i < 20; i++) {
        close(out[i]);
        close(err[i]);
    }
    RUN_UNTIL(runs_ended == 20);
    service_log_free(l);
    tear_down();
    close(null);
    CHECK(closed == 12);
    CHECK(runs_ended == 20);
}

/* ---- files ---- */

static void set_up_file(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    clear_folder();
    set_up(null, null);
    close(null);
}

static void count_into(struct service_log *l, const char *prefix, unsigned from, unsigned to)
{
    int out, err;
    begin_run(l, &out, &err);
    for (unsigned i = from; i <= to; i++) {
        char line[64];
        feed_in(out, line, (size_t)snprintf(line, sizeof line, "%s%u\n", prefix, i));
    }
    close(out);
    close(err);
    service_log_run_ended(l);
}

static void test_two_services_in_one_file_that_rotates(void)
{
    set_up_file();
    struct service_config c = in_file("a"), d = in_file("b");
    c.log_max_size = d.log_max_size = 50 * 1024;
    c.log_keep = d.log_keep = 100;
    struct service_log *l[2] = {new_log(&c), new_log(&d)};
    for (unsigned i = 0; i < 20; i++) {
        count_into(l[0], "a ", i * 1000 + 1, i * 1000 + 1000);
        count_into(l[1], "b ", i * 1000 + 1, i * 1000 + 1000);
    }
    service_log_free(l[0]);
    service_log_free(l[1]);
    tear_down();
    read_files(100);
    char name[160];
    snprintf(name, sizeof name, "%s.1", path);
    CHECK(size_of(name) > 45 * 1024 && size_of(name) <= 50 * 1024);
    CHECK(counts_up("a ", 1, 20000));
    CHECK(counts_up("b ", 1, 20000));
    CHECK(got.len == 2 * (9 * 4 + 90 * 5 + 900 * 6 + 9000 * 7 + 10001 * 8));
}

/* The only child of this program is the log writer. */
static pid_t writer_pid(void)
{
    pid_t pid = 0;
    FILE *f = fopen("/proc/thread-self/children", "re");
    if (f && fscanf(f, "%d", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return pid;
}

static void test_a_writer_that_is_killed_loses_and_doubles_nothing(void)
{
    set_up_file();
    struct service_config c = in_file("a");
    c.log_max_size = 20 * 1024;
    c.log_keep = 1000;
    struct service_log *l = new_log(&c);
    unsigned next = 1;
    for (int kill_no = 0; kill_no < 3; kill_no++) {
        count_into(l, "a ", next, next + 9999);
        next += 10000;
        RUN_UNTIL(writer_pid() && size_of(path) > 0);
        /* While nobody hears it, with packets that it has not taken: its last words count. */
        pid_t pid = writer_pid();
        for (int burst = 0; burst < 4; burst++, next += 6000)
            count_into(l, "a ", next, next + 5999);
        nanosleep(&(struct timespec){.tv_nsec = 50000 + kill_no * 150000}, NULL);
        kill(pid, SIGKILL);
        RUN_UNTIL(writer_pid() && writer_pid() != pid);
    }
    uint64_t lost = dropped(l);
    service_log_free(l);
    tear_down();
    read_files(1000);
    CHECK(lost == 0);
    CHECK(counts_up("a ", 1, next - 1));
}

static void test_a_folder_that_is_missing(void)
{
    set_up_file();
    char sub[128], old[128];
    snprintf(sub, sizeof sub, "%s/sub", folder);
    snprintf(old, sizeof old, "%s", path);
    snprintf(path, sizeof path, "%s/sub/x.log", folder);
    struct service_config c = in_file("a");
    struct service_log *l = new_log(&c);
    count_into(l, "a ", 1, 10);
    RUN_UNTIL(why_of(l)[0]);
    bool is_told = strstr(why_of(l), "its folder does not exist") && dropped(l) == 0;
    mkdir(sub, 0755);
    RUN_UNTIL(size_of(path) > 0);
    RUN_UNTIL(!why_of(l)[0]);
    bool is_over_now = !why_of(l)[0];
    service_log_free(l);
    tear_down();
    read_files(0);
    snprintf(path, sizeof path, "%s", old);
    CHECK(is_told);
    CHECK(is_over_now);
    CHECK(counts_up("a ", 1, 10));
}

static void test_a_file_that_is_deleted_is_made_anew(void)
{
    set_up_file();
    struct service_config c = in_file("a");
    struct service_log *l = new_log(&c);
    count_into(l, "a ", 1, 10);
    RUN_UNTIL(size_of(path) == 9 * 4 + 5);
    char moved[160];
    snprintf(moved, sizeof moved, "%s.moved", path);
    rename(path, moved);
    count_into(l, "a ", 11, 20);
    RUN_UNTIL(size_of(path) == 50);
    bool is_anew = size_of(path) == 50;
    unlink(path);
    count_into(l, "a ", 21, 30);
    RUN_UNTIL(size_of(path) == 50);
    bool again = size_of(path) == 50;
    bool is_emptied = truncate(path, 0) == 0;
    count_into(l, "a ", 31, 40);
    RUN_UNTIL(size_of(path) == 50);
    service_log_free(l);
    tear_down();
    read_files(0);
    CHECK(is_anew);
    CHECK(again);
    CHECK(is_emptied);
    CHECK(counts_up("a ", 31, 40));
}

static void test_what_is_no_plain_file_is_refused(void)
{
    char prey[160];
    snprintf(prey, sizeof prey, "%s/prey", folder);
    for (int kind = 0; kind < 4; kind++) {
        set_up_file();
        int fd = open(prey, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        close(fd);
        int rc = kind == 0   ? symlink(prey, path)
                 : kind == 1 ? link(prey, path)
                 : kind == 2 ? mkfifo(path, 0600)
                             : mkdir(path, 0700);
        struct service_config c = in_file("a");
        struct service_log *l = new_log(&c);
        count_into(l, "a ", 1, 3);
        RUN_UNTIL(why_of(l)[0]);
        static const char *const words[] = {"symbolic link", "hard link", "plain file",
                                            "plain file"};
        bool is_told = rc == 0 && strstr(why_of(l), words[kind]);
        bool is_untouched = size_of(prey) == 0;
        service_log_free(l);
        tear_down_within(50);
        CHECK(is_told);
        CHECK(is_untouched);
    }
}

static void test_so_many_older_files_are_kept(void)
{
    for (unsigned keep = 0; keep < 3; keep++) {
        set_up_file();
        struct service_config c = in_file("a");
        c.log_max_size = 4096;
        c.log_keep = keep;
        struct service_log *l = new_log(&c);
        count_into(l, "a ", 1, 5000);
        service_log_free(l);
        tear_down();
        char name[160];
        snprintf(name, sizeof name, "%s.%u", path, keep);
        bool has_oldest = keep == 0 || size_of(name) > 0;
        snprintf(name, sizeof name, "%s.%u", path, keep + 1);
        bool has_more = size_of(name) >= 0;
        read_files(keep);
        CHECK(has_oldest && !has_more);
        CHECK(size_of(path) <= 4096 && has("a 5000\n", 7));
    }
}

/* Root gives the writing to the owner of the folder. */
static void test_the_writer_is_the_owner_of_the_folder(void)
{
    if (geteuid() != 0)
        return;
    set_up_file();
    char old[128];
    snprintf(old, sizeof old, "%s", path);
    snprintf(path, sizeof path, "%s/sub/x.log", folder);
    char sub[128];
    snprintf(sub, sizeof sub, "%s/sub", folder);
    struct service_config c = in_file("a");
    struct service_log *l = new_log(&c);
    count_into(l, "a ", 1, 10);
    RUN_UNTIL(why_of(l)[0]); /* root's writer has told that there is none yet */
    mkdir(sub, 0755);
    if (chown(sub, 12345, 12345) < 0)
        abort();
    RUN_UNTIL(size_of(path) > 0);
    struct stat st = {0};
    int rc = stat(path, &st);
    service_log_free(l);
    tear_down();
    read_files(0);
    snprintf(path, sizeof path, "%s", old);
    CHECK(rc == 0 && st.st_uid == 12345 && (st.st_mode & 0777) == 0640);
    CHECK(counts_up("a ", 1, 10));
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], LOGGER_OPTION) == 0)
        return logger_main(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], LOOK_OPTION) == 0)
        return look_main(argc - 2, argv + 2);
    static const struct check_test tests[] = {
        CHECK_TEST(test_lines_are_passed_on_byte_for_byte),
        CHECK_TEST(test_prefix_and_timestamp),
        CHECK_TEST(test_streams_go_to_their_own),
        CHECK_TEST(test_a_reader_that_is_stopped),
        CHECK_TEST(test_lines_of_several_services_stay_whole),
        CHECK_TEST(test_a_line_that_is_too_long_is_cut),
        CHECK_TEST(test_a_slow_reader_gets_every_byte),
        CHECK_TEST(test_much_without_a_newline),
        CHECK_TEST(test_a_place_that_takes_nothing),
        CHECK_TEST(test_nowhere_and_still_kept),
        CHECK_TEST(test_more_runs_than_are_kept_open),
        CHECK_TEST(test_two_services_in_one_file_that_rotates),
        CHECK_TEST(test_a_writer_that_is_killed_loses_and_doubles_nothing),
        CHECK_TEST(test_a_folder_that_is_missing),
        CHECK_TEST(test_a_file_that_is_deleted_is_made_anew),
        CHECK_TEST(test_what_is_no_plain_file_is_refused),
        CHECK_TEST(test_so_many_older_files_are_kept),
        CHECK_TEST(test_the_writer_is_the_owner_of_the_folder),
    };
    snprintf(folder, sizeof folder, "/tmp/service-log.XXXXXX");
    if (!mkdtemp(folder) || chmod(folder, 0755) < 0)
        return 1;
    snprintf(path, sizeof path, "%s/some.log", folder);
    signal(SIGPIPE, SIG_IGN);
    loop = ev_loop_new(EVFLAG_AUTO);
    children_init(loop);
    int status = check_run(tests, sizeof tests / sizeof tests[0]);
    clear_folder();
    rmdir(folder);
    strbuf_free(&got);
    outlet_close(log_outlet());
    ev_loop_destroy(loop);
    return status;
}
