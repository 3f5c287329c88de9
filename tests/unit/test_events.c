/* The ring of events: numbers without a gap at any place of the ring, loss, texts, readers. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "base/head.h"
#include "sessions/events.h"

#include <stdlib.h>

static struct ev_loop *loop;

/* A reader that takes `room` events, then is full. */
struct taker {
    struct event_reader reader;
    unsigned room;
    uint64_t last, lost_from, lost_to; /* numbers */
    unsigned taken, losses, ends;
    char what[16], text[EVENT_TEXT_MAX + 8];
    int64_t value;
    bool has_gap;
};

static bool on_event(void *owner, const struct event *event)
{
    struct taker *t = owner;
    if (t->room == 0)
        return false;
    t->room--;
    t->taken++;
    t->has_gap = t->has_gap || (t->last && event->number != t->last + 1);
    t->last = event->number;
    snprintf(t->what, sizeof t->what, "%s", event->what);
    for (unsigned i = 0; i < event->field_count; i++) {
        if (event->fields[i].is_number)
            t->value = event->fields[i].number;
        else
            snprintf(t->text, sizeof t->text, "%s", event->fields[i].text);
    }
    return true;
}

static void on_lost(void *owner, uint64_t from, uint64_t to)
{
    struct taker *t = owner;
    t->losses++;
    t->has_gap = t->has_gap || (t->last && from != t->last + 1) || to < from;
    t->lost_from = from;
    t->lost_to = t->last = to;
}

static void on_end(void *owner)
{
    struct taker *t = owner;
    t->ends++;
    event_reader_detach(&t->reader);
}

static const struct event_reader_events taker_events = {
    .on_event = on_event, .on_lost = on_lost, .on_end = on_end};

static void take(struct taker *t, uint64_t from, uint64_t limit, unsigned room)
{
    *t = (struct taker){.room = room};
    t->reader =
        (struct event_reader){.events = &taker_events, .owner = t, .next = from, .limit = limit};
    event_reader_attach(&t->reader);
    event_reader_pump(&t->reader);
}

static void emit(unsigned n, unsigned length)
{
    char text[EVENT_TEXT_MAX * 2];
    memset(text, 'x', sizeof text);
    text[length < sizeof text ? length : sizeof text - 1] = '\0';
    for (unsigned i = 0; i < n; i++)
        EVENT(EVENT_COMMAND, "ended", F_STR("text", text), F_INT("value", events_next()));
}

static void turn(void)
{
    ev_run(loop, EVRUN_NOWAIT);
}

/* ---- tests ---- */

static void keeps_the_newest(void)
{
    struct taker t;
    for (unsigned length = 1; length < 260; length++) { /* every place of the wrap */
        uint64_t begin = events_next();
        emit(100, length);
        CHECK(events_next() == begin + 100);
        CHECK(events_first() > begin && events_first() < events_next() - 10);
        take(&t, events_first(), events_next(), 1000);
        CHECK(t.ends == 1 && t.losses == 0 && !t.has_gap);
        CHECK(t.taken == events_next() - events_first() && t.last == events_next() - 1);
        CHECK(t.value == (int64_t)t.last);
        CHECK(strlen(t.text) == (length < EVENT_TEXT_MAX ? length : EVENT_TEXT_MAX));
    }
}

static void tells_what_is_lost(void)
{
    struct taker t;
    uint64_t from = events_first() - 5;
    take(&t, from, UINT64_MAX, 3);
    CHECK(t.losses == 1 && t.lost_from == from && t.lost_to == events_first() - 1);
    CHECK(t.taken == 3 && t.reader.is_blocked);
    emit(500, 20); /* the ring goes on without it */
    turn();
    CHECK(t.taken == 3 && t.losses == 1);
    t.room = 10000;
    event_reader_pump(&t.reader);
    CHECK(t.losses == 2 && !t.has_gap && t.last == events_next() - 1);
    emit(3, 1); /* and now it is served by the loop */
    CHECK(t.last == events_next() - 4);
    turn();
    CHECK(t.last == events_next() - 1 && !t.has_gap);
    event_reader_detach(&t.reader);
    turn();
    /* lost, and the end within what is lost */
    take(&t, 2, 4, 10);
    CHECK(t.losses == 1 && t.lost_from == 2 && t.lost_to == 3 && t.taken == 0 && t.ends == 1);
}

static void resizes(void)
{
    struct taker t;
    emit(200, 30);
    uint64_t first = events_first(), next = events_next();
    take(&t, first + 2, UINT64_MAX, 1);
    CHECK(events_resize(1 << 20) && events_first() == first && events_next() == next);
    emit(1000, 30);
    CHECK(events_first() == first);
    t.room = 5000;
    event_reader_pump(&t.reader);
    CHECK(t.losses == 0 && !t.has_gap && t.last == events_next() - 1);
    CHECK(events_resize(5000) && events_next() == next + 1000 && events_first() > next);
    emit(1, 30);
    turn();
    CHECK(!t.has_gap && t.losses == 0 && t.last == events_next() - 1);
    event_reader_detach(&t.reader);
#ifndef __SANITIZE_ADDRESS__ /* it ends the program instead */
    CHECK(!events_resize(UINT64_MAX / 2) && events_first() > next); /* nothing changed */
#endif
    CHECK(events_resize(0)); /* so little is too little */
    take(&t, events_first(), events_next(), 5000);
    CHECK(t.ends == 1 && t.taken > 10 && !t.has_gap);
}

static void leaves_out_what_does_not_fit(void)
{
    struct taker t;
    char text[EVENT_TEXT_MAX + 100];
    struct log_field fields[20];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (unsigned i = 0; i < 20; i++)
        fields[i] = F_STR("key", text);
    event_emit(EVENT_SESSION, "failed", fields, 20);
    take(&t, events_next() - 1, events_next(), 1);
    CHECK(t.taken == 1 && t.value == 1); /* cut=1 */
    EVENT(EVENT_SESSION, "x", F_STR("a", NULL), F_STR("b", ""), F_INT("n", INT64_MIN));
    take(&t, events_next() - 1, events_next(), 1);
    CHECK(t.text[0] == '\0' && t.value == INT64_MIN);
    CHECK_STR(t.what, "x");
}

static void many_readers_end_with_the_stop(void)
{
    static struct taker t[300];
    for (unsigned i = 0; i < 300; i++)
        take(&t[i], events_next(), UINT64_MAX, i % 3 ? 100 : 0);
    emit(5, 5);
    events_end();
    for (unsigned i = 0; i < 300; i++) {
        CHECK(t[i].taken == (i % 3 ? 5 : 0) && t[i].ends == (i % 3 ? 1 : 0) && !t[i].has_gap);
        event_reader_detach(&t[i].reader);
    }
}

static void loses_all_without_memory(void)
{
    struct taker t;
    uint64_t next = events_next();
    events_free();
    emit(3, 3);
    CHECK(events_first() == next + 3 && events_next() == next + 3);
    take(&t, next, events_next(), 10);
    CHECK(t.losses == 1 && t.lost_from == next && t.lost_to == next + 2 && t.ends == 1);
    events_init(loop, 4096);
    emit(3, 3);
    take(&t, next, events_next(), 10);
    CHECK(t.losses == 1 && t.taken == 3 && !t.has_gap);
}

static void costs_little(void)
{
    uint64_t begin = clock_mono_ns();
    emit(100000, 40);
    uint64_t each = (clock_mono_ns() - begin) / 100000;
    printf("  an event costs %llu ns\n", (unsigned long long)each);
    CHECK(each < 20000);
}

static void kinds_have_names(void)
{
    for (int i = 0; i < EVENT_KIND_COUNT; i++)
        CHECK(event_kind_of(event_kind_name((enum event_kind)i)) == i);
    CHECK(event_kind_of("lost") == -1 && event_kind_of("") == -1 && event_kind_of("sess") == -1);
}

static void heads(void)
{
    static const struct {
        const char *text, *head;
    } cases[] = {
        {"", ""},
        {"short", "short"},
        {"123456789", "123456789"},
        {"1234567890", "123456…"},
        {"12345ä890", "12345…"},
        {"1234ä7890", "1234ä…"},
        {"€€€€", "€€…"},
        {"🙂🙂🙂", "🙂…"},
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", "\x80\x80\x80…"},
    };
    char buf[10];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(head_copy(buf, sizeof buf, cases[i].text) == strlen(cases[i].head));
        CHECK_STR(buf, cases[i].head);
    }
}

int main(void)
{
    loop = ev_loop_new(0);
    events_init(loop, 4096);
    static const struct check_test tests[] = {
        CHECK_TEST(keeps_the_newest),
        CHECK_TEST(tells_what_is_lost),
        CHECK_TEST(resizes),
        CHECK_TEST(leaves_out_what_does_not_fit),
        CHECK_TEST(many_readers_end_with_the_stop),
        CHECK_TEST(loses_all_without_memory),
        CHECK_TEST(costs_little),
        CHECK_TEST(kinds_have_names),
        CHECK_TEST(heads),
    };
    int rc = check_run(tests, sizeof tests / sizeof tests[0]);
    events_free();
    ev_loop_destroy(loop);
    return rc;
}
