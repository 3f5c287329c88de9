/*
 * SHA-1 (FIPS 180-4) for the handshake of WebSocket, which asks for it; nothing is kept secret by
 * it. Of our own because no library of a static build brings one.
 */
#ifndef GATEWAY_SHA1_H
#define GATEWAY_SHA1_H

#include <stddef.h>
#include <stdint.h>

#define SHA1_SIZE  20
#define SHA1_BLOCK 64

struct sha1 {
    uint32_t state[5];
    uint64_t bytes;
    unsigned char block[SHA1_BLOCK];
};

/* The digest of all that was added between init and end; bytes in pieces of any size. */
void sha1_init(struct sha1 *s);
void sha1_add(struct sha1 *s, const void *bytes, size_t n);
void sha1_end(struct sha1 *s, unsigned char to[SHA1_SIZE]);

#endif
