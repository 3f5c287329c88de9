#include "base/frame.h"
#include "base/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put_le(unsigned char *to, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        to[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t get_le(const unsigned char *from, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)from[i] << (8 * i);
    return v;
}

void frame_encode(unsigned char to[FRAME_HEADER], const struct frame_head *h)
{
    memset(to, 1 + (int)h->kind, 3);
    to[3] = 0;
    put_le(to + 4, h->length, 4);
    put_le(to + 8, h->time_ns, 8);
}

int frame_decode(const unsigned char from[FRAME_HEADER], struct frame_head *h)
{
    uint64_t length = get_le(from + 4, 4);
    if (from[0] < 1 || from[0] > FRAME_KIND_COUNT || from[1] != from[0] || from[2] != from[0] ||
        from[3] != 0 || length == 0 || length > FRAME_PAYLOAD_MAX)
        return -1;
    h->kind = (enum frame_kind)(from[0] - 1);
    h->length = (uint32_t)length;
    h->time_ns = get_le(from + 8, 8);
    return 0;
}

/* ---- notes ---- */

/* The number that begins at *text and ends with `end`; *text is then behind that. */
static bool take_number(const char **text, const char *end, uint64_t *number)
{
    char digits[24];
    size_t n = strspn(*text, "0123456789");
    if (n == 0 || n >= sizeof digits || strncmp(*text + n, end, strlen(end)) != 0)
        return false;
    memcpy(digits, *text, n);
    digits[n] = '\0';
    *text += n + strlen(end);
    return number_parse_u64(digits, INT64_MAX, number) == 0;
}

/* The text of a note behind a word, with a final NUL in buf; NULL: another note. */
static const char *note_behind(const char *word, const char *payload, size_t n, char *buf,
                               size_t size)
{
    size_t k = strlen(word);
    if (n <= k || n >= size || memcmp(payload, word, k) != 0)
        return NULL;
    memcpy(buf, payload + k, n - k);
    buf[n - k] = '\0';
    return buf;
}

bool frame_note_offset(const char *payload, size_t n, uint64_t *offset, uint64_t *run)
{
    char buf[64];
    const char *text = note_behind("offset ", payload, n, buf, sizeof buf);
    return text && take_number(&text, " run ", offset) && take_number(&text, "\n", run) && !*text;
}

bool frame_note_lost(const char *payload, size_t n, uint64_t *from, uint64_t *to)
{
    char buf[64];
    const char *text = note_behind("lost ", payload, n, buf, sizeof buf);
    return text && take_number(&text, "..", from) && take_number(&text, "\n", to) && !*text &&
           *from < *to;
}

/* ---- the reader ---- */

int frame_reader_init(struct frame_reader *r, int fd)
{
    *r = (struct frame_reader){.fd = fd, .window = malloc(FRAME_WINDOW)};
    return r->window ? 0 : -1;
}

void frame_reader_free(struct frame_reader *r)
{
    free(r->window);
    r->window = NULL;
}

/* Have `need` bytes in the window, or all that there are. 0 or -1 with errno. */
static int fill(struct frame_reader *r, size_t need)
{
    if (r->at + need > FRAME_WINDOW) {
        memmove(r->window, r->window + r->at, r->len - r->at);
        r->base += r->at;
        r->len -= r->at;
        r->at = 0;
    }
    while (!r->has_ended && r->len - r->at < need) {
        ssize_t k = read(r->fd, r->window + r->len, FRAME_WINDOW - r->len);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        r->has_ended = k == 0;
        r->len += (size_t)k;
    }
    return 0;
}

static bool head_at(const struct frame_reader *r, size_t at, struct frame_head *h)
{
    return r->len - at >= FRAME_HEADER &&
           frame_decode((const unsigned char *)r->window + at, h) == 0;
}

/* True if a frame stands there that is followed by another or by the end, as all of a sound file
 * are. */
static bool is_sound(const struct frame_reader *r, size_t at)
{
    struct frame_head h, next;
    if (!head_at(r, at, &h) || r->len - at < FRAME_HEADER + h.length)
        return false;
    size_t behind = at + FRAME_HEADER + h.length;
    return behind == r->len || head_at(r, behind, &next);
}

/* True if a whole frame stands here. Before damage it counts if no sound one begins within it: then
 * it is the last before the damage, and not the damaged one. A search goes for sound ones only,
 * since payload may hold what looks like a header. */
static bool frame_is_here(struct frame_reader *r, struct frame_head *h)
{
    if (!head_at(r, r->at, h) || r->len - r->at < FRAME_HEADER + h->length)
        return false;
    if (is_sound(r, r->at))
        return true;
    if (r->is_lost)
        return false;
    /* Each byte is looked at once, however many false headers lie before it. */
    size_t behind = r->at + FRAME_HEADER + h->length, i = r->at + 1;
    if (r->searched > r->base + i)
        i = (size_t)(r->searched - r->base);
    while (i < behind && !is_sound(r, i))
        i++;
    r->searched = r->base + i;
    return i >= behind;
}

int frame_reader_next(struct frame_reader *r, struct frame_head *h, const char **payload)
{
    for (;;) {
        if (fill(r, FRAME_WINDOW / 4 * 3) < 0)
            return -1;
        if (r->at == r->len)
            return 0;
        if (frame_is_here(r, h))
            break;
        r->is_lost = true;
        r->at++;
        r->skipped++;
    }
    r->is_lost = false;
    *payload = r->window + r->at + FRAME_HEADER;
    r->at += FRAME_HEADER + h->length;
    r->position = r->base + r->at;
    return 1;
}
