/* The bytes of WebSocket: the examples of RFC 6455, what must be refused, and that it makes no
 * difference in which pieces they come. */
#include "gateway/sha1.h"
#include "gateway/websocket_codec.h"
#include "tests/unit/check.h"

#include <stdlib.h>

#define LIMIT 4096

/* What was decoded, in words: one line an event. */
struct told {
    struct strbuf text;
    size_t taken;
};

static void tell(struct strbuf *to, const struct websocket_decoded *d)
{
    static const char *const names[] = {"", "message", "ping", "pong", "close", "broken"};
    strbuf_addf(to, "%s %d %u %.*s\n", names[d->event], (int)d->opcode, d->code, (int)d->n,
                d->bytes);
}

static bool feed(struct websocket_decoder *d, const char *bytes, size_t n, struct told *to)
{
    struct websocket_decoded item;
    do {
        size_t k = websocket_decode(d, bytes, n, &item);
        if (k > n)
            return false;
        bytes += k;
        n -= k;
        to->taken += k;
        if (item.event != DECODED_NOTHING)
            tell(&to->text, &item);
    } while (item.event != DECODED_NOTHING);
    return true;
}

/* A frame of a client into *to; mask 0 is a mask, too. */
static void add_frame(struct strbuf *to, unsigned first, const char *bytes, size_t n, uint32_t mask)
{
    unsigned char head[WEBSOCKET_HEAD_MAX];
    unsigned char m[4] = {(unsigned char)(mask >> 24), (unsigned char)(mask >> 16),
                          (unsigned char)(mask >> 8), (unsigned char)mask};
    size_t k = websocket_frame_head(head, OPCODE_BINARY, n);
    head[0] = (unsigned char)first;
    head[1] |= 0x80;
    strbuf_add(to, head, k);
    strbuf_add(to, m, sizeof m);
    for (size_t i = 0; i < n; i++) {
        char c = (char)((unsigned char)bytes[i] ^ m[i % 4]);
        strbuf_add(to, &c, 1);
    }
}

/* The same in one piece, byte by byte, and cut in two at every place. */
static bool decodes_to(const char *bytes, size_t n, const char *want)
{
    bool is_same = true;
    for (size_t cut = 0; cut <= n + 1 && is_same; cut++) {
        struct websocket_decoder d;
        struct told t = {0};
        websocket_decoder_init(&d, LIMIT);
        if (cut <= n) {
            is_same = feed(&d, bytes, cut, &t) && feed(&d, bytes + cut, n - cut, &t);
        } else {
            for (size_t i = 0; i < n; i++)
                is_same = feed(&d, bytes + i, 1, &t) && is_same;
        }
        is_same = is_same && strcmp(strbuf_text(&t.text), want) == 0;
        if (!is_same)
            printf("  cut %zu: got\n%s  want\n%s", cut, strbuf_text(&t.text), want);
        strbuf_free(&t.text);
        websocket_decoder_free(&d);
    }
    return is_same;
}

#define DECODES(literal, want) CHECK(decodes_to(literal, sizeof(literal) - 1, want))

/* Section 5.7, as far as it shows a client's frames. */
static void examples_of_the_rfc(void)
{
    DECODES("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "message 1 0 Hello\n");
    DECODES("\x89\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "ping 9 0 Hello\n");
    DECODES("\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "pong 10 0 Hello\n");
    unsigned char head[WEBSOCKET_HEAD_MAX];
    CHECK(websocket_frame_head(head, OPCODE_TEXT, 5) == 2 && memcmp(head, "\x81\x05", 2) == 0);
    CHECK(websocket_frame_head(head, OPCODE_BINARY, 256) == 4 &&
          memcmp(head, "\x82\x7e\x01\x00", 4) == 0);
    CHECK(websocket_frame_head(head, OPCODE_BINARY, 65536) == 10 &&
          memcmp(head, "\x82\x7f\0\0\0\0\0\x01\0\0", 10) == 0);
    CHECK(websocket_frame_head(head, OPCODE_BINARY, 125) == 2);
    CHECK(websocket_frame_head(head, OPCODE_BINARY, 126) == 4);
    CHECK(websocket_frame_head(head, OPCODE_BINARY, 65535) == 4);
}

static void fragments_are_put_together(void)
{
    CLEANUP_STRBUF struct strbuf b = {0};
    add_frame(&b, 0x01, "Hel", 3, 0x01020304);
    add_frame(&b, 0x89, "now", 3, 0x0a0b0c0d); /* control frames may come between */
    add_frame(&b, 0x00, "", 0, 0);
    add_frame(&b, 0x80, "lo", 2, 0xffffffff);
    add_frame(&b, 0x82, "", 0, 7);
    add_frame(&b, 0x82, "next", 4, 9);
    CHECK(decodes_to(b.data, b.len,
                     "ping 9 0 now\nmessage 1 0 Hello\nmessage 2 0 \nmessage 2 0 next\n"));
}

static void lengths_of_all_forms(void)
{
    static const size_t sizes[] = {0, 1, 125, 126, 127, 255, 256, LIMIT};
    static char bytes[70000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)('a' + i % 23);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CLEANUP_STRBUF struct strbuf b = {0}, want = {0};
        add_frame(&b, 0x82, bytes, sizes[i], 0xdeadbeef);
        strbuf_addf(&want, "message 2 0 %.*s\n", (int)sizes[i], bytes);
        CHECK(decodes_to(b.data, b.len, want.data));
    }
    CLEANUP_STRBUF struct strbuf b = {0};
    struct websocket_decoder d;
    struct websocket_decoded item;
    add_frame(&b, 0x82, bytes, sizeof bytes, 0x12345678);
    websocket_decoder_init(&d, sizeof bytes);
    CHECK(websocket_decode(&d, b.data, b.len, &item) == b.len);
    CHECK(item.event == DECODED_MESSAGE && item.n == sizeof bytes &&
          memcmp(item.bytes, bytes, item.n) == 0);
    websocket_decoder_free(&d);
}

static void what_is_broken_is_refused(void)
{
    /* Two bytes are enough, and nothing behind them is read. */
    DECODES("\x81\x05Hello", "broken 0 1002 a frame is not masked\n");
    DECODES("\xc1\x80\0\0\0\0", "broken 0 1002 a reserved bit is set\n");
    DECODES("\xa1\x80\0\0\0\0", "broken 0 1002 a reserved bit is set\n");
    DECODES("\x91\x80\0\0\0\0", "broken 0 1002 a reserved bit is set\n");
    DECODES("\x83\x80\0\0\0\0", "broken 0 1002 unknown opcode\n");
    DECODES("\x87\x80\0\0\0\0", "broken 0 1002 unknown opcode\n");
    DECODES("\x8b\x80\0\0\0\0", "broken 0 1002 unknown opcode\n");
    DECODES("\x8f\x80\0\0\0\0", "broken 0 1002 unknown opcode\n");
    DECODES("\x09\x80\0\0\0\0", "broken 0 1002 a control frame is fragmented\n");
    DECODES("\x89\xfe\0\x7e\0\0\0\0", "broken 0 1002 a control frame is longer than 125 bytes\n");
    DECODES("\x88\xff", "broken 0 1002 a control frame is longer than 125 bytes\n");
    DECODES("\x80\x80\0\0\0\0", "broken 0 1002 a continuation without a beginning\n");
    DECODES("\x01\x81\0\0\0\0a\x81\x81\0\0\0\0b",
            "broken 0 1002 a new message inside a fragmented one\n");
    DECODES("\x81\xfe\0\x7d\0\0\0\0", "broken 0 1002 a length that is not one\n");
    DECODES("\x81\xff\0\0\0\0\0\0\xff\xff\0\0\0\0", "broken 0 1002 a length that is not one\n");
    DECODES("\x81\xff\x80\0\0\0\0\0\0\0\0\0\0\0", "broken 0 1002 a length that is not one\n");
    DECODES("\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
            "broken 0 1002 a length that is not one\n");
}

static void what_is_too_big_is_refused_before_it_comes(void)
{
    DECODES("\x82\xfe\x10\x01\0\0\0\0", "broken 0 1009 a message is too big\n");
    DECODES("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
            "broken 0 1009 a message is too big\n");
    CLEANUP_STRBUF struct strbuf b = {0};
    char bytes[LIMIT / 2] = "";
    memset(bytes, 'a', sizeof bytes);
    add_frame(&b, 0x02, bytes, sizeof bytes, 1);
    add_frame(&b, 0x00, bytes, sizeof bytes, 2);
    strbuf_add(&b, "\x80\x81\0\0\0\0", 6);
    CHECK(decodes_to(b.data, b.len, "broken 0 1009 a message is too big\n"));
}

static void texts_are_utf8_over_fragments(void)
{
    CLEANUP_STRBUF struct strbuf b = {0};
    add_frame(&b, 0x01, "\xf0\x9f", 2, 5);
    add_frame(&b, 0x00, "\x98", 1, 6);
    add_frame(&b, 0x80, "\x80!", 2, 7);
    CHECK(decodes_to(b.data, b.len, "message 1 0 \xf0\x9f\x98\x80!\n"));
    static const char *const bad[] = {
        "\xff", "a\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CLEANUP_STRBUF struct strbuf one = {0}, two = {0};
        add_frame(&one, 0x81, bad[i], strlen(bad[i]), 0x01010101);
        add_frame(&two, 0x82, bad[i], strlen(bad[i]), 0x01010101);
        CHECK(decodes_to(one.data, one.len, "broken 0 1007 a text that is not UTF-8\n"));
        strbuf_clear(&b);
        strbuf_addf(&b, "message 2 0 %s\n", bad[i]); /* binary may be anything */
        CHECK(decodes_to(two.data, two.len, b.data));
    }
}

static void close_frames(void)
{
    DECODES("\x88\x80\0\0\0\0", "close 0 1005 \n");
    DECODES("\x88\x82\0\0\0\0\x03\xe8\x81\x80\0\0\0\0", "close 0 1000 \n"); /* nothing after it */
    DECODES("\x88\x85\0\0\0\0\x0f\xa0"
            "bye",
            "close 0 4000 bye\n");
    DECODES("\x88\x81\0\0\0\0\x03", "broken 0 1002 a close code that is not one\n");
    DECODES("\x88\x83\0\0\0\0\x03\xe8\xff", "broken 0 1007 a close reason that is not UTF-8\n");
    static const struct {
        uint16_t code;
        bool is_valid;
    } codes[] = {{0, false},    {999, false},  {1000, true},  {1003, true},
                 {1004, false}, {1005, false}, {1006, false}, {1007, true},
                 {1014, true},  {1015, false}, {1016, false}, {2999, false},
                 {3000, true},  {4999, true},  {5000, false}, {65535, false}};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        CHECK(websocket_code_is_valid(codes[i].code) == codes[i].is_valid);
        char bytes[] = {(char)(codes[i].code >> 8), (char)codes[i].code};
        CLEANUP_STRBUF struct strbuf b = {0}, want = {0};
        add_frame(&b, 0x88, bytes, 2, 3);
        strbuf_addf(&want,
                    codes[i].is_valid ? "close 0 %u \n"
                                      : "broken 0 1002 a close code that is not one\n",
                    codes[i].code);
        CHECK(decodes_to(b.data, b.len, want.data));
    }
}

static void keys(void)
{
    char accept[WEBSOCKET_ACCEPT_SIZE];
    websocket_accept_key("dGhlIHNhbXBsZSBub25jZQ==", accept); /* section 1.3 */
    CHECK_STR(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    websocket_accept_key("x3JJHMbDL1EzLkh9GBhXDw==", accept);
    CHECK_STR(accept, "HSmrc0sMlYUkAGmm5OPpG2HaGWk=");
    CHECK(websocket_key_is_valid("dGhlIHNhbXBsZSBub25jZQ=="));
    static const char *const bad[] = {"",
                                      "dGhlIHNhbXBsZSBub25jZQ",
                                      "dGhlIHNhbXBsZSBub25jZQ= ",
                                      "dGhlIHNhbXBsZSBub25jZR==",
                                      "dGhlIHNhbXBsZSBub25jZ===",
                                      "dGhlIHNhbXBsZS*ub25jZQ==",
                                      "dGhlIHNhbXBsZSBub25jZQ==, dGhlIHNhbXBsZSBub25jZQ==",
                                      "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!websocket_key_is_valid(bad[i]));
}

static void sha1_of(const void *bytes, size_t n, size_t piece, char hex[41])
{
    struct sha1 s;
    unsigned char sum[SHA1_SIZE];
    sha1_init(&s);
    for (size_t at = 0; at < n; at += piece)
        sha1_add(&s, (const char *)bytes + at, n - at < piece ? n - at : piece);
    sha1_end(&s, sum);
    for (int i = 0; i < SHA1_SIZE; i++)
        snprintf(hex + 2 * (size_t)i, 3, "%02x", sum[i]);
}

/* FIPS 180-4's examples, and lengths around the end of a block. */
static void sums(void)
{
    static char million[1000000];
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char hex[41];
    sha1_of("", 0, 1, hex);
    CHECK_STR(hex, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    sha1_of("abc", 3, 3, hex);
    CHECK_STR(hex, "a9993e364706816aba3e25717850c26c9cd0d89d");
    sha1_of(two, sizeof two - 1, 7, hex);
    CHECK_STR(hex, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    memset(million, 'a', sizeof million);
    sha1_of(million, sizeof million, 4097, hex);
    CHECK_STR(hex, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    sha1_of(million, 55, 64, hex);
    CHECK_STR(hex, "c1c8bbdc22796e28c0e15163d20899b65621d65a");
    sha1_of(million, 56, 64, hex);
    CHECK_STR(hex, "c2db330f6083854c99d4b5bfb6e8f29f201be699");
    sha1_of(million, 64, 1, hex);
    CHECK_STR(hex, "0098ba824b5c16427bd7a1122a5a442a25ec644d");
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(examples_of_the_rfc),
        CHECK_TEST(fragments_are_put_together),
        CHECK_TEST(lengths_of_all_forms),
        CHECK_TEST(what_is_broken_is_refused),
        CHECK_TEST(what_is_too_big_is_refused_before_it_comes),
        CHECK_TEST(texts_are_utf8_over_fragments),
        CHECK_TEST(close_frames),
        CHECK_TEST(keys),
        CHECK_TEST(sums)};
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
