#include "gateway/websocket_codec.h"
#include "base/base64.h"
#include "base/json.h"

#include <string.h>

#define BIT_FINAL    0x80u
#define BITS_UNKNOWN 0x70u
#define BIT_MASKED   0x80u

/* ---- decoding ---- */

void websocket_decoder_init(struct websocket_decoder *d, size_t limit)
{
    *d = (struct websocket_decoder){.limit = limit, .message.limit = limit};
}

void websocket_decoder_free(struct websocket_decoder *d)
{
    strbuf_free(&d->message);
}

static void break_off(struct websocket_decoder *d, struct websocket_decoded *to, uint16_t code,
                      const char *why)
{
    d->state = AT_END;
    *to = (struct websocket_decoded){
        .event = DECODED_BROKEN, .code = code, .bytes = why, .n = strlen(why)};
}

static bool is_control(enum websocket_opcode opcode)
{
    return (opcode & 8) != 0;
}

/* What the first two bytes must not be; NULL if they are fine. */
static const char *find_fault(const struct websocket_decoder *d)
{
    unsigned opcode = d->head[0] & 15u;
    bool is_known = opcode <= OPCODE_BINARY || (opcode >= OPCODE_CLOSE && opcode <= OPCODE_PONG);
    if (d->head[0] & BITS_UNKNOWN)
        return "a reserved bit is set";
    if (!is_known)
        return "unknown opcode";
    if (!(d->head[1] & BIT_MASKED))
        return "a frame is not masked";
    if (is_control(opcode) && !(d->head[0] & BIT_FINAL))
        return "a control frame is fragmented";
    if (is_control(opcode) && (d->head[1] & 127u) > WEBSOCKET_CONTROL_MAX)
        return "a control frame is longer than 125 bytes";
    if (opcode == OPCODE_CONTINUATION && d->kind == OPCODE_CONTINUATION)
        return "a continuation without a beginning";
    if (!is_control(opcode) && opcode != OPCODE_CONTINUATION && d->kind != OPCODE_CONTINUATION)
        return "a new message inside a fragmented one";
    return NULL;
}

/* Bytes of the head as far as its first two tell. */
static unsigned head_size(const struct websocket_decoder *d)
{
    unsigned length = d->head_len < 2 ? 0 : d->head[1] & 127u;
    return 2 + (length == 127 ? 8u : length == 126 ? 2u : 0u) + 4;
}

/* The length, or UINT64_MAX if it is written in more bytes than it needs or has its highest bit. */
static uint64_t head_length(const struct websocket_decoder *d)
{
    unsigned length = d->head[1] & 127u;
    unsigned bytes = length == 127 ? 8u : length == 126 ? 2u : 0u;
    uint64_t n = 0;
    if (bytes == 0)
        return length;
    for (unsigned i = 0; i < bytes; i++)
        n = n << 8 | d->head[2 + i];
    bool is_minimal = bytes == 2 ? n > 125 : n > UINT16_MAX;
    return is_minimal && n <= INT64_MAX ? n : UINT64_MAX;
}

/* The head is complete. False: *to tells what is wrong. */
static bool begin_frame(struct websocket_decoder *d, struct websocket_decoded *to)
{
    uint64_t n = head_length(d);
    d->opcode = d->head[0] & 15u;
    d->is_final = (d->head[0] & BIT_FINAL) != 0;
    if (n == UINT64_MAX) {
        break_off(d, to, CLOSE_PROTOCOL, "a length that is not one");
        return false;
    }
    if (!is_control(d->opcode) && n > d->limit - d->message.len) {
        break_off(d, to, CLOSE_TOO_BIG, "a message is too big");
        return false;
    }
    if (!is_control(d->opcode) && d->opcode != OPCODE_CONTINUATION)
        d->kind = d->opcode;
    d->left = n;
    d->mask_at = 0;
    d->control_len = 0;
    d->state = AT_PAYLOAD;
    return true;
}

static void unmask(struct websocket_decoder *d, char *bytes, size_t n)
{
    const unsigned char *mask = d->head + d->head_len - 4;
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)((unsigned char)bytes[i] ^ mask[(d->mask_at + i) & 3]);
    d->mask_at = (unsigned)(d->mask_at + n) & 3;
}

/* False: no memory. */
static bool take_payload(struct websocket_decoder *d, const char *bytes, size_t n)
{
    char *at = d->control + d->control_len;
    if (n == 0)
        return true;
    if (!is_control(d->opcode)) {
        if (strbuf_add(&d->message, bytes, n) < 0)
            return false;
        at = d->message.data + (d->message.len - n);
    } else {
        memcpy(at, bytes, n);
        d->control_len += n;
    }
    unmask(d, at, n);
    d->left -= n;
    return true;
}

/* Section 5.5.1: two bytes of code and a text, or nothing. */
static void end_close(struct websocket_decoder *d, struct websocket_decoded *to)
{
    const unsigned char *c = (const unsigned char *)d->control;
    unsigned code = d->control_len < 2 ? CLOSE_NO_CODE : (unsigned)c[0] << 8 | c[1];
    if (d->control_len == 1 || (d->control_len >= 2 && !websocket_code_is_valid(code))) {
        break_off(d, to, CLOSE_PROTOCOL, "a close code that is not one");
        return;
    }
    size_t n = d->control_len < 2 ? 0 : d->control_len - 2;
    if (!utf8_is_valid(d->control + 2, n)) {
        break_off(d, to, CLOSE_NOT_UTF8, "a close reason that is not UTF-8");
        return;
    }
    d->state = AT_END;
    *to = (struct websocket_decoded){
        .event = DECODED_CLOSE, .code = (uint16_t)code, .bytes = d->control + 2, .n = n};
}

/* The payload is complete. True: *to tells something. */
static bool end_frame(struct websocket_decoder *d, struct websocket_decoded *to)
{
    d->state = AT_HEAD;
    d->head_len = 0;
    if (d->opcode == OPCODE_CLOSE) {
        end_close(d, to);
        return true;
    }
    if (is_control(d->opcode)) {
        *to = (struct websocket_decoded){.event =
                                             d->opcode == OPCODE_PING ? DECODED_PING : DECODED_PONG,
                                         .opcode = d->opcode,
                                         .bytes = d->control,
                                         .n = d->control_len};
        return true;
    }
    if (!d->is_final)
        return false;
    if (d->kind == OPCODE_TEXT && !utf8_is_valid(strbuf_text(&d->message), d->message.len)) {
        break_off(d, to, CLOSE_NOT_UTF8, "a text that is not UTF-8");
        return true;
    }
    *to = (struct websocket_decoded){.event = DECODED_MESSAGE,
                                     .opcode = d->kind,
                                     .bytes = strbuf_text(&d->message),
                                     .n = d->message.len};
    d->kind = OPCODE_CONTINUATION;
    d->is_delivered = true;
    return true;
}

/* Take bytes of the head. True: *to tells something. */
static bool take_head(struct websocket_decoder *d, const char **bytes, size_t *n,
                      struct websocket_decoded *to)
{
    while (*n > 0 && d->head_len < head_size(d)) {
        const char *fault;
        d->head[d->head_len++] = (unsigned char)*(*bytes)++;
        --*n;
        if (d->head_len == 2 && (fault = find_fault(d))) {
            break_off(d, to, CLOSE_PROTOCOL, fault);
            return true;
        }
    }
    return d->head_len >= 2 && d->head_len == head_size(d) && !begin_frame(d, to);
}

size_t websocket_decode(struct websocket_decoder *d, const char *bytes, size_t n,
                        struct websocket_decoded *to)
{
    const char *begin = bytes;
    *to = (struct websocket_decoded){.event = DECODED_NOTHING};
    if (d->is_delivered)
        strbuf_free(&d->message); /* most messages are small, and most connections idle */
    d->is_delivered = false;
    while (d->state != AT_END) {
        if (d->state == AT_HEAD && take_head(d, &bytes, &n, to))
            break;
        if (d->state != AT_PAYLOAD)
            break;
        size_t k = n < d->left ? n : (size_t)d->left;
        if (!take_payload(d, bytes, k)) {
            break_off(d, to, CLOSE_INTERNAL, "no memory");
            break;
        }
        bytes += k;
        n -= k;
        if (d->left > 0 || end_frame(d, to))
            break;
    }
    return (size_t)(bytes - begin);
}

/* ---- encoding ---- */

size_t websocket_frame_head(unsigned char to[WEBSOCKET_HEAD_MAX], enum websocket_opcode opcode,
                            uint64_t n)
{
    unsigned bytes = n > UINT16_MAX ? 8 : n > 125 ? 2 : 0;
    to[0] = (unsigned char)(BIT_FINAL | (unsigned)opcode);
    to[1] = (unsigned char)(bytes == 8 ? 127 : bytes == 2 ? 126 : n);
    for (unsigned i = 0; i < bytes; i++)
        to[2 + i] = (unsigned char)(n >> (8 * (bytes - 1 - i)));
    return 2 + bytes;
}

bool websocket_code_is_valid(unsigned code)
{
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

/* ---- the handshake ---- */

bool websocket_key_is_valid(const char *key)
{
    /* 16 bytes are 21 whole digits and one of two bits; its other four are 0. */
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return strlen(key) == 24 && strspn(key, digits) == 22 && strchr("AQgw", key[21]) &&
           strcmp(key + 22, "==") == 0;
}

void websocket_accept_key(const char *key, char to[WEBSOCKET_ACCEPT_SIZE])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char sum[SHA1_SIZE];
    struct sha1 s;
    sha1_init(&s);
    sha1_add(&s, key, strlen(key));
    sha1_add(&s, guid, sizeof guid - 1);
    sha1_end(&s, sum);
    to[base64_encode(to, (const char *)sum, sizeof sum)] = '\0';
}
