/*
 * base/: numbers and words from outside, quoting (held against real shells), UTF-8 and JSON,
 * buffers at their limits, errors, lists.
 */
#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/list.h"
#include "base/number.h"
#include "base/quote.h"
#include "base/byte_queue.h"
#include "base/strbuf.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- numbers ---- */

static bool is_duration(const char *text, uint64_t want)
{
    uint64_t ms = 77;
    return number_parse_duration_ms(text, &ms) == 0 && ms == want;
}

static bool is_size(const char *text, uint64_t want)
{
    uint64_t n = 77;
    return number_parse_size(text, &n) == 0 && n == want;
}

/* True if every text is refused and leaves the result alone. */
static bool all_refused(int (*parse)(const char *, uint64_t *), const char *const *texts)
{
    for (; *texts; texts++) {
        uint64_t n = 77;
        if (parse(*texts, &n) == 0 || n != 77)
            return false;
    }
    return true;
}

static void test_numbers(void)
{
    uint64_t n = 0;
    CHECK(number_parse_u64("0", 0, &n) == 0 && n == 0);
    CHECK(number_parse_u64("007", 7, &n) == 0 && n == 7);
    CHECK(number_parse_u64("18446744073709551615", UINT64_MAX, &n) == 0 && n == UINT64_MAX);
    n = 77;
    CHECK(number_parse_u64("18446744073709551616", UINT64_MAX, &n) < 0 && n == 77);
    CHECK(number_parse_u64("99999999999999999999999", UINT64_MAX, &n) < 0);
    CHECK(number_parse_u64("8", 7, &n) < 0 && number_parse_u64("", 7, &n) < 0);
    CHECK(number_parse_u64(" 1", 7, &n) < 0 && number_parse_u64("1 ", 7, &n) < 0);
    CHECK(number_parse_u64("+1", 7, &n) < 0 && number_parse_u64("-1", 7, &n) < 0);
    CHECK(number_parse_u64("0x1", 7, &n) < 0 && number_parse_u64("\xd9\xa1", 7, &n) < 0);
}

static void test_durations(void)
{
    static const char *const bad[] = {"",
                                      "5",
                                      "00",
                                      "-1s",
                                      "+1s",
                                      "1S",
                                      "1 s",
                                      " 1s",
                                      "1s ",
                                      "ms",
                                      "s",
                                      ".5s",
                                      "1.s",
                                      "1..5s",
                                      "1.5",
                                      "1d",
                                      "1mss",
                                      "1h30m",
                                      "1,5s",
                                      "8761h",
                                      "1e3s",
                                      "1.1234567s",
                                      "8760.5h",
                                      "0.0009s",
                                      "0.5ms",
                                      "99999999999999999999s",
                                      "18446744073709551615h",
                                      NULL};
    CHECK(is_duration("0", 0) && is_duration("0s", 0) && is_duration("500ms", 500));
    CHECK(is_duration("5s", 5000) && is_duration("10m", 600000) && is_duration("1h", 3600000));
    CHECK(is_duration("0.3s", 300) && is_duration("1.5h", 5400000) && is_duration("0.25m", 15000));
    CHECK(is_duration("1.000001h", 3600003) && is_duration("8760h", 31536000000));
    CHECK(all_refused(number_parse_duration_ms, bad));
}

static void test_durations_round_trip(void)
{
    static const uint64_t values[] = {0,     1,     999,     1000,    1001,     59999,
                                      60000, 90000, 3599999, 3600000, 86400000, 31536000000};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char buf[32];
        CHECK(is_duration(number_format_duration(values[i], buf, sizeof buf), values[i]));
    }
    char buf[32];
    CHECK_STR(number_format_duration(90000, buf, sizeof buf), "90s");
    CHECK_STR(number_format_duration(7200000, buf, sizeof buf), "2h");
}

static void test_sizes(void)
{
    static const char *const bad[] = {
        "",   "K",   "1k",  "1KB", "1KK",   "1.5M",          "-1",
        "1T", "1 K", "1K ", "0x1", "1025G", "1099511627777", "18446744073709551615G",
        NULL};
    CHECK(is_size("0", 0) && is_size("65536", 65536) && is_size("64K", 65536));
    CHECK(is_size("10M", 10485760) && is_size("1G", 1073741824) && is_size("0G", 0));
    CHECK(is_size("1024G", (uint64_t)1 << 40) && is_size("1099511627776", (uint64_t)1 << 40));
    CHECK(all_refused(number_parse_size, bad));
}

static void test_signals(void)
{
    static const char *const bad[] = {
        "",       "0",       "65",       "-1",     "SIG",   "SIG15", "TERMS",        "SIGSIGTERM",
        "RTMIN+", "RTMIN-1", "RTMIN+31", "RTMINx", " TERM", "15 ",   "999999999999", NULL};
    char buf[16];
    int sig = 0;
    CHECK(signal_parse("TERM", &sig) == 0 && sig == 15);
    CHECK(signal_parse("sigkill", &sig) == 0 && sig == 9);
    CHECK(signal_parse("1", &sig) == 0 && sig == 1);
    CHECK(signal_parse("RTMIN", &sig) == 0 && sig == 34);
    CHECK(signal_parse("SIGRTMIN+30", &sig) == 0 && sig == 64);
    for (size_t i = 0; bad[i]; i++) {
        sig = 77;
        CHECK(signal_parse(bad[i], &sig) < 0 && sig == 77);
    }
    for (int i = 1; i <= 64; i++) {
        if (i == 32 || i == 33)
            continue; /* the C library's own; they have no name */
        CHECK(signal_parse(signal_name(i, buf, sizeof buf), &sig) == 0 && sig == i);
    }
    CHECK_STR(signal_name(32, buf, sizeof buf), "SIG32");
    CHECK_STR(signal_name(99, buf, sizeof buf), "SIG99");
}

static void test_names(void)
{
    char name[80];
    memset(name, 'a', sizeof name);
    name[64] = '\0';
    CHECK(name_check(name) == 0 && name_check("A.b-c_9") == 0 && name_check("0") == 0);
    name[64] = 'a';
    name[65] = '\0';
    CHECK(name_check(name) < 0 && name_check("") < 0 && name_check(".") < 0);
    CHECK(name_check("-a") < 0 && name_check("_a") < 0 && name_check("a/b") < 0);
    CHECK(name_check("a b") < 0 && name_check("a\n") < 0 && name_check("\xc3\xa9") < 0);
    CHECK(env_name_check("_", 1) == 0 && env_name_check("A1_b", 4) == 0);
    CHECK(env_name_check("A=B", 1) == 0 && env_name_check("A=B", 3) < 0);
    CHECK(env_name_check("", 0) < 0 && env_name_check("1A", 2) < 0 && env_name_check("A-", 2) < 0);
    CHECK(env_name_check("A\0B", 3) < 0 && env_name_check("\xc3\xa9", 2) < 0);
}

/* ---- quoting ---- */

static uint32_t random_state = 1;

static unsigned random_below(unsigned n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state % n;
}

#define QUOTE_COUNT 1000

/* Texts without NUL: the awkward ones, each single byte, and random ones, half of these from
 * bytes that mean something to a shell. */
static size_t make_text(unsigned i, char *to)
{
    static const char *const awkward[] = {
        "",        "'",         "''",         "'\\''",    "\\",       "a\\",       "\n",
        "\n\n",    "a\n",       "$(touch x)", "`x`",      "$HOME",    "!!",        "-n",
        "-e \\n",  "%s%n",      "\"'\"'\"",   "\r\n",     "\t ",      "~",         "*",
        "a'b'c''", "\xff\xfe'", "\xe2\x80",   "\x7f\x1b", "$'\\x41'", "{a,b} # ;",
    };
    static const char meaning[] = "'\"\\$`!*?[]{}()<>|&;#~=%^ \t\n\r-e\x01\x7f\x81\x88\xff";
    size_t count = sizeof awkward / sizeof awkward[0];
    if (i < count) {
        size_t n = strlen(awkward[i]);
        memcpy(to, awkward[i], n);
        return n;
    }
    if (i < count + 255) {
        to[0] = (char)(i - count + 1);
        return 1;
    }
    size_t n = 1 + random_below(200);
    for (size_t k = 0; k < n; k++)
        to[k] = i % 2 ? (char)(1 + random_below(255)) : meaning[random_below(sizeof meaning - 1)];
    return n;
}

/* Write "printf '%s\0' QUOTED" for each text to a script. The format ends each text with a NUL,
 * which none of them holds. */
static bool write_script(const char *path)
{
    FILE *f = fopen(path, "w");
    bool did = f != NULL;
    random_state = 1;
    for (unsigned i = 0; i < QUOTE_COUNT && did; i++) {
        char text[256];
        CLEANUP_STRBUF struct strbuf line = {0};
        size_t n = make_text(i, text);
        did = strbuf_adds(&line, "printf '%s\\000' ") == 0 && quote_sh(&line, text, n) == 0 &&
              strbuf_adds(&line, "\n") == 0 && fwrite(line.data, 1, line.len, f) == line.len;
    }
    if (f && fclose(f) != 0)
        did = false;
    return did;
}

/* Run the script in a shell; the number of the first text that came out otherwise, or
 * QUOTE_COUNT. */
static unsigned first_difference(const char *shell, const char *path)
{
    char command[256];
    snprintf(command, sizeof command, "%s %s", shell, path);
    FILE *f = popen(command, "r");
    unsigned i = 0;
    random_state = 1;
    for (; f && i < QUOTE_COUNT; i++) {
        char want[256], got[256];
        size_t n = make_text(i, want);
        want[n] = '\0';
        if (fread(got, 1, n + 1, f) != n + 1 || memcmp(got, want, n + 1) != 0)
            break;
    }
    if (!f)
        return 0;
    bool is_at_end = fgetc(f) == EOF;
    return pclose(f) == 0 && is_at_end ? i : 0;
}

static void test_quoting_in_real_shells(void)
{
    static const char *const shells[] = {"bash", "dash", "busybox ash"};
    char path[] = "/tmp/test_base.XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    CHECK(write_script(path));
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        char probe[64];
        snprintf(probe, sizeof probe, "%s -c : 2>/dev/null", shells[i]);
        if (system(probe) != 0) {
            printf("# no %s here\n", shells[i]);
            continue;
        }
        unsigned at = first_difference(shells[i], path);
        if (at != QUOTE_COUNT)
            printf("# %s: text %u came out otherwise\n", shells[i], at);
        CHECK(at == QUOTE_COUNT);
    }
    unlink(path);
}

static void test_quoting_at_the_limit(void)
{
    CLEANUP_STRBUF struct strbuf b = {.limit = 5};
    CHECK(quote_sh(&b, "abc", 3) == 0);
    CHECK_STR(b.data, "'abc'");
    strbuf_clear(&b);
    CHECK(quote_sh(&b, "abcd", 4) < 0);
    strbuf_clear(&b);
    CHECK(quote_sh(&b, "'", 1) < 0 && b.len <= 5);
}

/* ---- UTF-8 and JSON ---- */

static void test_utf8(void)
{
    static const struct {
        const char *bytes;
        size_t n, sequence;
    } all[] = {
        {"a", 1, 1},
        {"\0", 1, 1},
        {"\x7f", 1, 1},
        {"\x80", 1, 0},
        {"\xbf\x80", 2, 0},
        {"\xc0\x80", 2, 0}, /* overlong */
        {"\xc1\xbf", 2, 0},
        {"\xc2\x80", 2, 2},
        {"\xdf\xbf", 2, 2},
        {"\xc2", 1, 0}, /* cut */
        {"\xc2\x41", 2, 0},
        {"\xe0\x9f\xbf", 3, 0}, /* overlong */
        {"\xe0\xa0\x80", 3, 3},
        {"\xed\x9f\xbf", 3, 3},
        {"\xed\xa0\x80", 3, 0}, /* surrogate */
        {"\xed\xbf\xbf", 3, 0},
        {"\xee\x80\x80", 3, 3},
        {"\xef\xbf\xbf", 3, 3},
        {"\xe2\x82", 2, 0},
        {"\xf0\x8f\xbf\xbf", 4, 0}, /* overlong */
        {"\xf0\x90\x80\x80", 4, 4},
        {"\xf4\x8f\xbf\xbf", 4, 4},
        {"\xf4\x90\x80\x80", 4, 0}, /* beyond U+10FFFF */
        {"\xf5\x80\x80\x80", 4, 0},
        {"\xff\xff\xff\xff", 4, 0},
        {"\xf0\x9f\x98", 3, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        CHECK(utf8_sequence(all[i].bytes, all[i].n) == all[i].sequence);
        CHECK(utf8_is_valid(all[i].bytes, all[i].n) == (all[i].sequence == all[i].n));
    }
    CHECK(utf8_is_valid("", 0) && utf8_is_valid("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z", 11));
    CHECK(!utf8_is_valid("abc\xe2\x82", 5));
}

static void test_json_strings(void)
{
    CLEANUP_STRBUF struct strbuf b = {0};
    CHECK(json_add_string(&b, "", 0) == 0);
    CHECK_STR(strbuf_text(&b), "\"\"");
    strbuf_clear(&b);
    CHECK(json_add_string(&b, "a\"b\\c/\n\r\t\0\x1f\x7f", 12) == 0);
    CHECK_STR(strbuf_text(&b), "\"a\\\"b\\\\c/\\n\\r\\t\\u0000\\u001f\x7f\"");
    strbuf_clear(&b);
    CHECK(json_add_string(&b, "\xff\xc3\xa9\xed\xa0\x80", 6) == 0);
    CHECK_STR(strbuf_text(&b), "\"\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

/* ---- buffers ---- */

static void test_strbuf_grows_to_its_limit(void)
{
    CLEANUP_STRBUF struct strbuf b = {.limit = 200};
    CHECK_STR(strbuf_text(&b), "");
    for (size_t i = 0; i < 200; i++) {
        CHECK(strbuf_add(&b, "x", 1) == 0);
        CHECK(b.len == i + 1 && b.data[b.len] == '\0');
    }
    CHECK(strbuf_add(&b, "y", 1) < 0 && b.len == 200 && strlen(b.data) == 200);
    CHECK(strbuf_addf(&b, "%d", 1) < 0 && b.len == 200);
    CHECK(strbuf_add(&b, "", 0) == 0 && strbuf_add(&b, NULL, 0) == 0);
    CHECK(!strbuf_reserve(&b, SIZE_MAX) && !strbuf_reserve(&b, SIZE_MAX - 200));
    CHECK(strbuf_add(&b, "y", SIZE_MAX) < 0 && b.len == 200);
    strbuf_clear(&b);
    CHECK_STR(strbuf_text(&b), "");
    CHECK(strbuf_addf(&b, "%s=%d", "a", 7) == 0 && strbuf_adds(&b, "\n") == 0);
    CHECK_STR(strbuf_text(&b), "a=7\n");
    strbuf_free(&b);
    CHECK(!b.data && b.len == 0 && b.limit == 200);
    CHECK(strbuf_adds(&b, "again") == 0);
}

static void test_strbuf_holds_any_byte(void)
{
    CLEANUP_STRBUF struct strbuf b = {0};
    CHECK(strbuf_add(&b, "a\0b", 3) == 0 && strbuf_add(&b, "\0", 1) == 0);
    CHECK(b.len == 4 && memcmp(b.data, "a\0b\0", 5) == 0);
    char *room = strbuf_reserve(&b, 10);
    CHECK(room == b.data + 4);
    memset(room, 'z', 10);
    b.len += 10;
    CHECK(b.len == 14 && b.data[14] == '\0');
    CHECK(!strbuf_reserve(&b, STRBUF_LIMIT)); /* the default limit */
}

static void test_strbuf_drops_its_first_bytes(void)
{
    CLEANUP_STRBUF struct strbuf b = {0};
    strbuf_drop(&b, 0);
    CHECK_STR(strbuf_text(&b), "");
    CHECK(strbuf_adds(&b, "abcdef") == 0);
    strbuf_drop(&b, 0);
    CHECK_STR(strbuf_text(&b), "abcdef");
    strbuf_drop(&b, 2);
    CHECK(b.len == 4 && strcmp(b.data, "cdef") == 0);
    strbuf_drop(&b, 4);
    CHECK(b.len == 0 && b.cap > 0 && b.data[0] == '\0');
}

/* ---- queues ---- */

static void test_byte_queue_gives_what_was_put(void)
{
    struct byte_queue q = {.limit = 100};
    unsigned char in = 0, out = 0;
    for (unsigned turn = 0; turn < 2000; turn++) {
        size_t n = turn * 7 % 40, waiting = byte_queue_len(&q);
        char bytes[40];
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)(in + i);
        bool has_room = waiting + n <= 100;
        CHECK((byte_queue_put(&q, bytes, n) == 0) == has_room);
        in = (unsigned char)(in + (has_room ? n : 0));
        CHECK(byte_queue_len(&q) == waiting + (has_room ? n : 0));
        CHECK(q.bytes.len < 200); /* what was taken does not pile up */
        size_t taken = turn * 5 % 30;
        if (taken > byte_queue_len(&q))
            taken = byte_queue_len(&q);
        for (size_t i = 0; i < taken; i++)
            CHECK((unsigned char)byte_queue_first(&q)[i] == out++);
        byte_queue_take(&q, taken);
    }
    CHECK(byte_queue_put(&q, "x", SIZE_MAX) < 0);
    byte_queue_free(&q);
    CHECK(byte_queue_len(&q) == 0 && q.bytes.cap == 0);
}

static void test_byte_queue_takes_the_rest_of_pieces(void)
{
    static char a[] = "abc", b[] = "defg";
    const struct iovec pieces[] = {{a, 3}, {NULL, 0}, {b, 4}};
    for (size_t skip = 0; skip <= 7; skip++) {
        struct byte_queue q = {0};
        CHECK(byte_queue_put_rest(&q, pieces, 3, skip) == 0);
        CHECK(byte_queue_len(&q) == 7 - skip);
        CHECK(skip == 7 || memcmp(byte_queue_first(&q), &"abcdefg"[skip], 7 - skip) == 0);
        byte_queue_free(&q);
    }
    struct byte_queue small = {.limit = 5};
    CHECK(byte_queue_put_rest(&small, pieces, 3, 0) < 0);
    byte_queue_free(&small);
}

static void test_byte_queue_keeps_little_while_empty(void)
{
    char bytes[300] = {0};
    struct byte_queue q = {.keep = 256};
    CHECK(byte_queue_put(&q, bytes, 100) == 0);
    byte_queue_take(&q, 100);
    CHECK(byte_queue_len(&q) == 0 && q.bytes.cap > 0);
    CHECK(byte_queue_put(&q, bytes, 300) == 0);
    byte_queue_take(&q, 300);
    CHECK(byte_queue_len(&q) == 0 && q.bytes.cap == 0);
}

/* ---- errors ---- */

static void test_errors(void)
{
    struct error e = {0};
    CHECK(error_set(&e, ERR_BUSY, "session '%s'", "dev") == -1 && e.code == ERR_BUSY && e.sys == 0);
    CHECK(error_wrap(&e, "create %d", 7) == -1 && e.code == ERR_BUSY);
    CHECK_STR(e.text, "create 7: session 'dev'");
    CHECK(error_set_sys(&e, ENOENT, "open %s", "/x") == -1 && e.sys == ENOENT);
    CHECK(e.code == ERR_SYSTEM);
    CHECK_STR(e.text, "open /x: No such file or directory");
    CHECK(error_set_sys(&e, ENOMEM, "x") == -1 && e.code == ERR_MEMORY);
    CHECK(error_set(NULL, ERR_BUSY, "x") == -1 && error_set_sys(NULL, 1, "x") == -1 &&
          error_wrap(NULL, "x") == -1);
    char far[2000];
    memset(far, 'a', sizeof far);
    far[sizeof far - 1] = '\0';
    CHECK(error_set_sys(&e, EIO, "%s", far) == -1 && strlen(e.text) == sizeof e.text - 1);
    CHECK(error_wrap(&e, "%s", far) == -1 && strlen(e.text) == sizeof e.text - 1);
    for (unsigned i = 0; i < ERR_CODE_COUNT; i++)
        CHECK(error_code_of(error_code_name((enum error_code)i)) == (enum error_code)i);
    CHECK(error_code_of("from_the_future") == ERR_SYSTEM);
}

/* ---- lists ---- */

struct item {
    int n;
    struct list link;
};

static void test_list(void)
{
    struct list head;
    struct item items[5];
    int seen = 0;
    list_init(&head);
    CHECK(list_is_empty(&head));
    for (int i = 0; i < 5; i++) {
        items[i].n = i;
        list_append(&head, &items[i].link);
    }
    list_each(it, &head, struct item, link)
    {
        seen = seen * 10 + it->n;
        if (it->n % 2 == 0) {
            list_remove(&it->link);
            it->n = -1;
        }
    }
    CHECK(seen == 1234); /* 0, 1, 2, 3, 4 */
    CHECK(list_is_empty(&items[0].link));
    list_remove(&items[0].link); /* again: harmless */
    seen = 0;
    list_each(it, &head, struct item, link) seen = seen * 10 + it->n;
    CHECK(seen == 13 && head.prev == &items[3].link);
    list_remove(&items[1].link);
    list_remove(&items[3].link);
    CHECK(list_is_empty(&head));
}

/* ---- descriptors ---- */

static void test_scarce_descriptors(void)
{
    enum { LIMIT = 100, RESERVE = 8 };
    struct rlimit old, few;
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    few = (struct rlimit){.rlim_cur = LIMIT, .rlim_max = old.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int first = open("/", O_PATH | O_CLOEXEC), last = first;
    CHECK(first >= 0 && !fd_next_is_scarce(RESERVE) && !fd_few_are_left(RESERVE));
    while (last >= 0 && last + 1 < LIMIT - RESERVE)
        last = open("/", O_PATH | O_CLOEXEC);
    /* The next one is the first of the reserve. */
    CHECK(last + 1 == LIMIT - RESERVE && fd_few_are_left(RESERVE) && fd_next_is_scarce(RESERVE));
    CHECK(!fd_is_scarce(last, RESERVE) && fd_is_scarce(last + 1, RESERVE));
    /* A hole makes room for one, wherever it is. */
    int over = open("/", O_PATH | O_CLOEXEC);
    CHECK(over == last + 1);
    close(first);
    CHECK(fd_few_are_left(RESERVE) && !fd_next_is_scarce(RESERVE));
    close(first + 1);
    CHECK(!fd_few_are_left(RESERVE));
    /* All are in use. */
    while (open("/", O_PATH | O_CLOEXEC) >= 0)
        ;
    CHECK(fd_few_are_left(RESERVE) && fd_next_is_scarce(RESERVE));
    for (int fd = first; fd < LIMIT; fd++)
        close(fd);
    CHECK(!fd_few_are_left(RESERVE) && !fd_next_is_scarce(RESERVE));
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_numbers),
        CHECK_TEST(test_durations),
        CHECK_TEST(test_durations_round_trip),
        CHECK_TEST(test_sizes),
        CHECK_TEST(test_signals),
        CHECK_TEST(test_names),
        CHECK_TEST(test_quoting_in_real_shells),
        CHECK_TEST(test_quoting_at_the_limit),
        CHECK_TEST(test_utf8),
        CHECK_TEST(test_json_strings),
        CHECK_TEST(test_strbuf_grows_to_its_limit),
        CHECK_TEST(test_strbuf_holds_any_byte),
        CHECK_TEST(test_strbuf_drops_its_first_bytes),
        CHECK_TEST(test_byte_queue_gives_what_was_put),
        CHECK_TEST(test_byte_queue_takes_the_rest_of_pieces),
        CHECK_TEST(test_byte_queue_keeps_little_while_empty),
        CHECK_TEST(test_errors),
        CHECK_TEST(test_list),
        CHECK_TEST(test_scarce_descriptors),
    };
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
