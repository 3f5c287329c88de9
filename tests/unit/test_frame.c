/* Frames: what is written is read back; what is damaged costs no more than the damage. */
#include "base/frame.h"
#include "base/clock.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FRAMES 60

struct file {
    unsigned char *bytes;
    size_t n;
    size_t begins[FRAMES + 1];
};

static unsigned long long seed = 20240601;
static unsigned draw(unsigned below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((seed >> 33) % below);
}

static void encodes_and_decodes(void)
{
    unsigned char head[FRAME_HEADER];
    for (int kind = 0; kind < FRAME_KIND_COUNT; kind++) {
        struct frame_head h = {(enum frame_kind)kind, 65535, 0x0123456789abcdefu}, back = {0};
        frame_encode(head, &h);
        CHECK(head[0] == kind + 1 && head[1] == kind + 1 && head[2] == kind + 1 && head[3] == 0);
        CHECK(head[4] == 0xff && head[5] == 0xff && head[6] == 0 && head[8] == 0xef);
        CHECK(frame_decode(head, &back) == 0 && back.kind == h.kind && back.length == h.length &&
              back.time_ns == h.time_ns);
    }
    for (unsigned i = 0; i < 7; i++) { /* the time may be anything */
        unsigned char bad[FRAME_HEADER];
        struct frame_head back;
        memcpy(bad, head, sizeof bad);
        bad[i] = (unsigned char)(i < 4 ? 9 : i < 6 ? 0 : 1);
        CHECK((frame_decode(bad, &back) < 0) == (i != 4 && i != 5));
    }
    memset(head + 4, 0, 4);
    CHECK(frame_decode(head, &(struct frame_head){0}) < 0);
}

static void reads_notes(void)
{
    uint64_t a = 0, b = 0;
    CHECK(frame_note_offset("offset 12 run 34\n", 17, &a, &b) && a == 12 && b == 34);
    CHECK(frame_note_lost("lost 5..7\n", 10, &a, &b) && a == 5 && b == 7);
    static const char *const bad[] = {"",
                                      "offset",
                                      "offset 1",
                                      "offset 1\n",
                                      "offset 1 run \n",
                                      "offset -1 run 2\n",
                                      "lost 7..5\n",
                                      "lost 5..5\n",
                                      "lost 5..7",
                                      "lost 5..7\nx",
                                      "lost ..\n",
                                      "lost 99999999999999999999..999999999999999999999\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!frame_note_offset(bad[i], strlen(bad[i]), &a, &b) &&
              !frame_note_lost(bad[i], strlen(bad[i]), &a, &b));
}

/* Frames of all lengths; some payloads hold what looks like a header. */
static struct file make_file(void)
{
    struct file f = {.bytes = malloc((size_t)FRAMES * (FRAME_HEADER + FRAME_PAYLOAD_MAX))};
    for (unsigned i = 0; f.bytes && i < FRAMES; i++) {
        struct frame_head h = {(enum frame_kind)draw(FRAME_KIND_COUNT),
                               1 + draw(draw(2) ? 40 : FRAME_PAYLOAD_MAX), i};
        f.begins[i] = f.n;
        frame_encode(f.bytes + f.n, &h);
        f.n += FRAME_HEADER;
        for (uint32_t k = 0; k < h.length; k++)
            f.bytes[f.n + k] = (unsigned char)(draw(3) ? draw(3) : draw(256));
        if (h.length > 64 && draw(2))
            frame_encode(f.bytes + f.n + draw(h.length - FRAME_HEADER), &h);
        f.n += h.length;
    }
    f.begins[FRAMES] = f.n;
    return f;
}

static int file_of(const unsigned char *bytes, size_t n)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    if (fd >= 0 && (write(fd, bytes, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET) < 0))
        return -1;
    return fd;
}

/* Read n bytes; the frames found are noted by their number, which is their time. Returns false if
 * the sums do not agree. */
static bool read_back(const unsigned char *bytes, size_t n, const struct file *whole,
                      bool found[FRAMES], uint64_t *skipped)
{
    struct frame_reader r;
    struct frame_head h;
    const char *payload;
    uint64_t sum = 0;
    int fd = file_of(bytes, n), got;
    bool is_sound = fd >= 0 && frame_reader_init(&r, fd) == 0;
    memset(found, 0, FRAMES * sizeof *found);
    while (is_sound && (got = frame_reader_next(&r, &h, &payload)) != 0) {
        is_sound = got > 0;
        sum += FRAME_HEADER + h.length;
        size_t at = h.time_ns < FRAMES ? whole->begins[h.time_ns] + FRAME_HEADER : 0;
        if (at && at + h.length <= whole->n && memcmp(whole->bytes + at, payload, h.length) == 0)
            found[h.time_ns] = true;
    }
    *skipped = r.skipped;
    is_sound = is_sound && sum + r.skipped == n;
    frame_reader_free(&r);
    close(fd);
    return is_sound;
}

static void reads_what_was_written(void)
{
    struct file f = make_file();
    bool found[FRAMES];
    uint64_t skipped;
    CHECK(f.bytes && read_back(f.bytes, f.n, &f, found, &skipped) && skipped == 0);
    for (unsigned i = 0; i < FRAMES; i++)
        CHECK(found[i]);
    free(f.bytes);
}

/* A file that is cut anywhere gives all frames before the cut. */
static void reads_up_to_a_cut(void)
{
    struct file f = make_file();
    bool found[FRAMES];
    uint64_t skipped;
    for (unsigned round = 0; round < 40; round++) {
        size_t n = draw((unsigned)f.n);
        CHECK(read_back(f.bytes, n, &f, found, &skipped));
        for (unsigned i = 0; i < FRAMES && f.begins[i + 1] <= n; i++)
            CHECK(found[i]);
    }
    free(f.bytes);
}

/* A hole anywhere costs the frames that it touches. */
static void reads_on_behind_a_hole(void)
{
    struct file f = make_file();
    bool found[FRAMES];
    uint64_t skipped;
    unsigned char *damaged = malloc(f.n);
    for (unsigned round = 0; damaged && round < 40; round++) {
        size_t from = draw((unsigned)f.n), to = from + 1 + draw(5000);
        to = to > f.n ? f.n : to;
        memcpy(damaged, f.bytes, from);
        memcpy(damaged + from, f.bytes + to, f.n - to);
        CHECK(read_back(damaged, f.n - (to - from), &f, found, &skipped));
        for (unsigned i = 0; i < FRAMES; i++)
            CHECK(found[i] || (f.begins[i + 1] > from && f.begins[i] < to));
    }
    free(damaged);
    free(f.bytes);
}

/* A file that is made to be slow is read in one go. */
static void is_not_held_up_by_false_headers(void)
{
    size_t n = (size_t)4 << 20;
    unsigned char *bytes = malloc(n);
    struct file none = {.n = 0};
    bool found[FRAMES];
    uint64_t skipped, begun = clock_mono_ns();
    for (size_t i = 0; i + FRAME_HEADER <= n; i += FRAME_HEADER + 1) {
        frame_encode(bytes + i, &(struct frame_head){FRAME_STDOUT, 60000, 1000});
        bytes[i + FRAME_HEADER] = 7;
    }
    CHECK(read_back(bytes, n, &none, found, &skipped));
    CHECK(clock_mono_ns() - begun < 5000000000u);
    free(bytes);
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(encodes_and_decodes),    CHECK_TEST(reads_notes),
        CHECK_TEST(reads_what_was_written), CHECK_TEST(reads_up_to_a_cut),
        CHECK_TEST(reads_on_behind_a_hole), CHECK_TEST(is_not_held_up_by_false_headers)};
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
