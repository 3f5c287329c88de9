/*
 * The bytes of WebSocket (RFC 6455), the server's side, without a socket: frames of a client are
 * taken apart, heads of frames for a client are made. No extension is known, so the reserved bits
 * must be 0.
 *
 * Invariants: the decoder takes any bytes in pieces of any size and the pieces make no difference;
 * it holds `limit` bytes of one message and one control frame at most; once it has found the
 * protocol broken, or a close frame, it takes nothing more.
 */
#ifndef GATEWAY_WEBSOCKET_CODEC_H
#define GATEWAY_WEBSOCKET_CODEC_H

#include "base/base64.h"
#include "base/strbuf.h"
#include "gateway/sha1.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum websocket_opcode {
    OPCODE_CONTINUATION = 0,
    OPCODE_TEXT = 1,
    OPCODE_BINARY = 2,
    OPCODE_CLOSE = 8,
    OPCODE_PING = 9,
    OPCODE_PONG = 10
};

/* Section 7.4.1. */
enum websocket_code {
    CLOSE_NORMAL = 1000,
    CLOSE_GOING_AWAY = 1001,
    CLOSE_PROTOCOL = 1002,
    CLOSE_NO_CODE = 1005, /* never sent: the close frame was empty */
    CLOSE_NOT_UTF8 = 1007,
    CLOSE_TOO_BIG = 1009,
    CLOSE_INTERNAL = 1011
};

#define WEBSOCKET_CONTROL_MAX 125 /* bytes of a control frame's payload */
#define WEBSOCKET_HEAD_MAX    10  /* bytes before the payload of a frame that is not masked */

enum websocket_event {
    DECODED_NOTHING, /* all bytes are taken, and no frame is complete yet */
    DECODED_MESSAGE, /* opcode OPCODE_TEXT or OPCODE_BINARY, put together from its frames */
    DECODED_PING,
    DECODED_PONG,
    DECODED_CLOSE, /* code is the peer's; bytes are its reason */
    DECODED_BROKEN /* code is what to close with; bytes are why, in words */
};

/* Bytes are valid until the next call. */
struct websocket_decoded {
    enum websocket_event event;
    enum websocket_opcode opcode;
    uint16_t code;
    const char *bytes;
    size_t n;
};

struct websocket_decoder {
    enum { AT_HEAD, AT_PAYLOAD, AT_END } state;
    unsigned char head[14]; /* two bytes, up to eight of length, four of mask */
    unsigned head_len;
    bool is_final;
    enum websocket_opcode opcode; /* of the frame that is read */
    uint64_t left;                /* bytes of its payload that are still to come */
    unsigned mask_at;
    enum websocket_opcode kind; /* of the message under construction; CONTINUATION: none */
    size_t limit;
    bool is_delivered; /* the message was given out; it is cleared when the next call comes */
    struct strbuf message;
    char control[WEBSOCKET_CONTROL_MAX + 1];
    size_t control_len;
};

/* limit: bytes of one message, 1 at least. */
void websocket_decoder_init(struct websocket_decoder *d, size_t limit);
void websocket_decoder_free(struct websocket_decoder *d);
/* Take bytes up to the end of the next frame that means something to the caller. Returns how many;
 * call again with the rest until DECODED_NOTHING. */
size_t websocket_decode(struct websocket_decoder *d, const char *bytes, size_t n,
                        struct websocket_decoded *to);

/* The head of an unmasked, final frame of n bytes. Returns its length. */
size_t websocket_frame_head(unsigned char to[WEBSOCKET_HEAD_MAX], enum websocket_opcode opcode,
                            uint64_t n);
/* May this code stand in a close frame? (Section 7.4, and what IANA has registered since.) */
bool websocket_code_is_valid(unsigned code);

/* Section 4.2.2: the value of Sec-WebSocket-Accept for a key, and whether that is a key at all
 * (the base64 of 16 bytes). */
#define WEBSOCKET_ACCEPT_SIZE (BASE64_SIZE(SHA1_SIZE) + 1) /* with its NUL */
bool websocket_key_is_valid(const char *key);
void websocket_accept_key(const char *key, char to[WEBSOCKET_ACCEPT_SIZE]);

#endif
