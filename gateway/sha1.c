#include "gateway/sha1.h"

#include <string.h>

static uint32_t rotated(uint32_t x, unsigned by)
{
    return x << by | x >> (32 - by);
}

static void put_big_endian(unsigned char *to, uint64_t x, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        to[i] = (unsigned char)(x >> (8 * (bytes - 1 - i)));
}

/* The function and the constant of a round (4.1.1, 4.2.1). */
static uint32_t mix(unsigned round, uint32_t b, uint32_t c, uint32_t d)
{
    switch (round / 20) {
    case 0:
        return ((b & c) | (~b & d)) + 0x5a827999u;
    case 1:
        return (b ^ c ^ d) + 0x6ed9eba1u;
    case 2:
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu;
    default:
        return (b ^ c ^ d) + 0xca62c1d6u;
    }
}

/* 6.1.2 */
static void take_block(struct sha1 *s)
{
    uint32_t w[80], a = s->state[0], b = s->state[1], c = s->state[2], d = s->state[3],
                    e = s->state[4];
    for (unsigned i = 0; i < 16; i++) {
        const unsigned char *p = s->block + (size_t)4 * i;
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    for (unsigned i = 16; i < 80; i++)
        w[i] = rotated(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (unsigned i = 0; i < 80; i++) {
        uint32_t next = rotated(a, 5) + mix(i, b, c, d) + e + w[i];
        e = d;
        d = c;
        c = rotated(b, 30);
        b = a;
        a = next;
    }
    s->state[0] += a;
    s->state[1] += b;
    s->state[2] += c;
    s->state[3] += d;
    s->state[4] += e;
}

void sha1_init(struct sha1 *s)
{
    *s = (struct sha1){.state = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u}};
}

void sha1_add(struct sha1 *s, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++) {
        s->block[s->bytes++ % SHA1_BLOCK] = p[i];
        if (s->bytes % SHA1_BLOCK == 0)
            take_block(s);
    }
}

void sha1_end(struct sha1 *s, unsigned char to[SHA1_SIZE])
{
    unsigned char bits[8];
    put_big_endian(bits, s->bytes * 8, sizeof bits);
    sha1_add(s, "\x80", 1);
    while (s->bytes % SHA1_BLOCK != SHA1_BLOCK - sizeof bits)
        sha1_add(s, "", 1);
    sha1_add(s, bits, sizeof bits);
    for (unsigned i = 0; i < 5; i++)
        put_big_endian(to + (size_t)4 * i, s->state[i], 4);
}
