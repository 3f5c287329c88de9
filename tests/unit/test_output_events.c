/* gateway/output_events.h: base64 events that split no character, and places to go on at. The
 * stream that it writes to (gateway/sse.h) is played here: the events are decoded again. */
#include "base/base64.h"
#include "base/json.h"
#include "gateway/output_events.h"
#include "tests/unit/check.h"

#include <stdlib.h>

/* ---- a stream that remembers ---- */

struct told {
    enum output_stream stream;
    char id[48];
    struct strbuf bytes;
};

static struct told events[512];
static size_t event_count;

void sse_event_base64(struct sse *s, const char *name, const char *id, const char *bytes, size_t n)
{
    (void)s;
    struct told *t = &events[event_count++];
    t->stream = strcmp(name, "stdout") == 0 ? OUTPUT_STDOUT : OUTPUT_STDERR;
    snprintf(t->id, sizeof t->id, "%s", id);
    strbuf_clear(&t->bytes);
    strbuf_add(&t->bytes, bytes, n);
}

static void forget(void)
{
    for (size_t i = 0; i < event_count; i++)
        strbuf_free(&events[i].bytes);
    event_count = 0;
}

static bool has_told(enum output_stream s, const char *bytes, size_t n)
{
    struct strbuf all = {0};
    for (size_t i = 0; i < event_count; i++)
        if (events[i].stream == s)
            strbuf_add(&all, events[i].bytes.data, events[i].bytes.len);
    bool is_same = all.len == n && memcmp(strbuf_text(&all), bytes, n) == 0;
    strbuf_free(&all);
    return is_same;
}

/* ---- the tests ---- */

/* One to four bytes a character. */
static const char text[] = "a\xc3\xa9"
                           "b\xe2\x82\xac"
                           "c\xf0\x9f\x98\x80"
                           "d\xef\xbf\xbf\xf4\x8f\xbf\xbf\xed\x9f\xbf\xe0\xa0\x80\xc2\x80";

static void add_pieces(struct output_events *o, const char *bytes, size_t n, const size_t *cuts,
                       size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i <= count; i++) {
        size_t to = i < count ? cuts[i] : n;
        output_events_add(o, OUTPUT_STDOUT, bytes + at, to - at);
        output_events_flush(o);
        at = to;
    }
}

static void test_no_character_is_split_wherever_the_pieces_end(void)
{
    size_t n = sizeof text - 1;
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b++) {
            struct output_events o;
            output_events_init(&o, NULL, NULL);
            add_pieces(&o, text, n, (size_t[]){a, b}, 2);
            CHECK(has_told(OUTPUT_STDOUT, text, n)); /* nothing waits: the text ends whole */
            for (size_t i = 0; i < event_count; i++)
                CHECK(utf8_is_valid(events[i].bytes.data, events[i].bytes.len));
            output_events_free(&o);
            forget();
        }
}

static void test_byte_by_byte(void)
{
    struct output_events o;
    output_events_init(&o, NULL, NULL);
    for (size_t i = 0; i < sizeof text - 1; i++) {
        output_events_add(&o, OUTPUT_STDOUT, text + i, 1);
        output_events_flush(&o);
        CHECK(o.waiting[OUTPUT_STDOUT].len <= 3);
    }
    CHECK(has_told(OUTPUT_STDOUT, text, sizeof text - 1));
    CHECK(event_count == 12); /* one a character */
    output_events_free(&o);
    forget();
}

/* Bytes that are not UTF-8 pass, and only what can still become a character is held back. */
static void test_other_bytes_pass_exactly(void)
{
    static const char bad[] = "\xff\xfe\x80\xbf\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x28\xa1\xf0"
                              "\x28\x8c\xbc\xc3\x00z\xf8\x88\x80\x80\x80\xe2\x82";
    size_t n = sizeof bad - 1;
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b++) {
            struct output_events o;
            output_events_init(&o, NULL, NULL);
            add_pieces(&o, bad, n, (size_t[]){a, b}, 2);
            CHECK(o.waiting[OUTPUT_STDOUT].len == 2); /* E2 82 at the end */
            output_events_finish(&o);
            CHECK(has_told(OUTPUT_STDOUT, bad, n));
            output_events_free(&o);
            forget();
        }
}

static void test_tails(void)
{
    static const struct {
        const char *bytes;
        size_t tail;
    } cases[] = {
        {"", 0},         {"a", 0},        {"\xc3", 1},         {"a\xc3", 1},
        {"\xc3\xa9", 0}, {"\xe2", 1},     {"\xe2\x82", 2},     {"\xe2\x82\xac", 0},
        {"\xf0", 1},     {"\xf0\x9f", 2}, {"\xf0\x9f\x98", 3}, {"\xf0\x9f\x98\x80", 0},
        {"\x80", 0},     {"\x82\xac", 0}, {"\xe0\x80", 0},     {"\xe0\xa0", 2},
        {"\xed\xa0", 0}, {"\xed\x9f", 2}, {"\xf4\x90", 0},     {"\xf4\x8f", 2},
        {"\xf5", 0},     {"\xff", 0},     {"\xc1", 0},         {"\xc3\xa9\x80", 0},
        {"\xf0\x80", 0}, {"\xe2z", 0},    {"\xf0\x90\x80", 3}, {"\xf0\x8f", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (utf8_incomplete_tail(cases[i].bytes, strlen(cases[i].bytes)) != cases[i].tail)
            CHECK_FAIL("case %zu", i);
}

static void test_streams_hold_back_for_themselves(void)
{
    struct output_events o;
    output_events_init(&o, NULL, NULL);
    output_events_add(&o, OUTPUT_STDOUT, "x\xe2", 2);
    output_events_add(&o, OUTPUT_STDERR, "y\xf0\x9f", 3);
    output_events_add(&o, OUTPUT_STDOUT, "\x82", 1);
    output_events_add(&o, OUTPUT_STDERR, "\x98\x80", 2);
    output_events_add(&o, OUTPUT_STDOUT, "\xac!", 2);
    output_events_finish(&o);
    CHECK(has_told(OUTPUT_STDOUT, "x\xe2\x82\xac!", 5));
    CHECK(has_told(OUTPUT_STDERR, "y\xf0\x9f\x98\x80", 5));
    CHECK(event_count == 4);
    CHECK_STR(events[0].id, "2-oE2");
    CHECK_STR(events[1].id, "5-oE2-eF09F");
    CHECK_STR(events[2].id, "8-oE282");
    CHECK_STR(events[3].id, "10");
    output_events_free(&o);
    forget();
}

static void test_small_pieces_become_one_event(void)
{
    struct output_events o;
    output_events_init(&o, NULL, NULL);
    for (int i = 0; i < 100; i++)
        output_events_add(&o, OUTPUT_STDERR, "12345", 5);
    CHECK(event_count == 0);
    output_events_flush(&o);
    CHECK(event_count == 1 && events[0].bytes.len == 500);
    CHECK_STR(events[0].id, "500");
    for (int i = 0; i < 40000; i++)
        output_events_add(&o, OUTPUT_STDERR, "12345", 5);
    output_events_flush(&o);
    CHECK(event_count > 3 && event_count < 8); /* and what waits has a bound */
    output_events_free(&o);
    forget();
}

/* From the place of each event on, the rest comes: nothing twice, nothing lost. */
static void test_every_place_is_one_to_go_on_at(void)
{
    static struct told first[512];
    static const char other[] = "E\xc3\xa9\xf0\x9f\x98\x80\xff";
    size_t n = sizeof text - 1, m = sizeof other - 1, count, k = 0;
    struct {
        enum output_stream stream;
        char byte;
    } log[64];
    struct output_events o;
    output_events_init(&o, NULL, NULL);
    for (size_t i = 0; i < n; i++) { /* the log: bytes of both, one by one */
        log[k].stream = OUTPUT_STDOUT;
        log[k++].byte = text[i];
        if (i < m) {
            log[k].stream = OUTPUT_STDERR;
            log[k++].byte = other[i];
        }
    }
    for (size_t i = 0; i < k; i++)
        output_events_add(&o, log[i].stream, &log[i].byte, 1);
    output_events_finish(&o);
    count = event_count;
    memcpy(first, events, sizeof first);
    memset(events, 0, sizeof events);
    output_events_free(&o);
    for (size_t from = 0; from < count; from++) {
        struct output_place place;
        struct strbuf want[OUTPUT_STREAMS] = {0};
        event_count = 0;
        CHECK(output_place_parse(first[from].id, &place) == 0);
        output_events_init(&o, NULL, &place);
        for (size_t i = place.offset; i < k; i++)
            output_events_add(&o, log[i].stream, &log[i].byte, 1);
        output_events_finish(&o);
        for (size_t i = from + 1; i < count; i++)
            strbuf_add(&want[first[i].stream], first[i].bytes.data, first[i].bytes.len);
        for (enum output_stream s = 0; s < OUTPUT_STREAMS; s++) {
            CHECK(has_told(s, strbuf_text(&want[s]), want[s].len));
            strbuf_free(&want[s]);
        }
        output_events_free(&o);
        forget();
    }
    for (size_t i = 0; i < count; i++)
        strbuf_free(&first[i].bytes);
}

static void test_ids_that_are_none(void)
{
    static const char *const bad[] = {"",      "-1",        "x",      "1x",
                                      "1-",    "1-o",       "1-x00",  "1-oE",
                                      "1-oe2", "1-oE2-oE2", "1-oE28", "1-oAABBCCDD",
                                      "1 ",    "1-oE2-",    "1-oE2x", "9999999999999999999"};
    struct output_place place;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (output_place_parse(bad[i], &place) == 0)
            CHECK_FAIL("'%s' was taken", bad[i]);
    CHECK(output_place_parse("17-eC3-oE282", &place) == 0);
    CHECK(place.offset == 17 && place.held[OUTPUT_STDERR].n == 1 &&
          place.held[OUTPUT_STDOUT].n == 2);
    CHECK(memcmp(place.held[OUTPUT_STDOUT].bytes, "\xe2\x82", 2) == 0);
}

static void test_what_is_not_kept_is_skipped(void)
{
    struct output_events o;
    output_events_init(&o, NULL, NULL);
    output_events_add(&o, OUTPUT_STDOUT, "a\xe2", 2);
    output_events_skip(&o, 1000);
    CHECK(has_told(OUTPUT_STDOUT, "a\xe2", 2));
    output_events_add(&o, OUTPUT_STDOUT, "b", 1);
    output_events_finish(&o);
    CHECK_STR(events[event_count - 1].id, "1001");
    output_events_free(&o);
    forget();
}

static void test_base64(void)
{
    static const char *const cases[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"},
                                           {"\xff\xfe\xfd", "//79"},
                                           {"\xfb\xef", "++8="}};
    char to[64];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = base64_encode(to, cases[i][0], strlen(cases[i][0]));
        to[n] = '\0';
        CHECK(n == BASE64_SIZE(strlen(cases[i][0])));
        CHECK_STR(to, cases[i][1]);
    }
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_no_character_is_split_wherever_the_pieces_end),
        CHECK_TEST(test_byte_by_byte),
        CHECK_TEST(test_other_bytes_pass_exactly),
        CHECK_TEST(test_tails),
        CHECK_TEST(test_streams_hold_back_for_themselves),
        CHECK_TEST(test_small_pieces_become_one_event),
        CHECK_TEST(test_every_place_is_one_to_go_on_at),
        CHECK_TEST(test_ids_that_are_none),
        CHECK_TEST(test_what_is_not_kept_is_skipped),
        CHECK_TEST(test_base64),
    };
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
