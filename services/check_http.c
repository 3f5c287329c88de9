#include "services/check_http.h"

#include <string.h>

static const char version[] = "HTTP/";

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "HTTP/1.1 200 OK": the number, or 0. RFC 9112, 4: what follows it may be missing. */
static unsigned status_of(const char *line)
{
    const char *p = line + sizeof version - 1;
    if (strncmp(line, version, sizeof version - 1) != 0 || !is_digit(*p))
        return 0;
    while (is_digit(*p) || *p == '.')
        p++;
    if (*p++ != ' ')
        return 0;
    if (p[0] < '1' || p[0] > '9' || !is_digit(p[1]) || !is_digit(p[2]))
        return 0;
    if (p[3] != ' ' && p[3] != '\0')
        return 0;
    return (unsigned)(p[0] - '0') * 100 + (unsigned)(p[1] - '0') * 10 + (unsigned)(p[2] - '0');
}

/* So that the first bytes of another protocol are enough. */
static bool may_become_status(const struct http_answer *a)
{
    size_t n = a->len < sizeof version - 1 ? a->len : sizeof version - 1;
    return memcmp(a->line, version, n) == 0;
}

static enum http_result end_line(struct http_answer *a)
{
    if (a->len > 0 && a->line[a->len - 1] == '\r')
        a->len--;
    a->line[a->len] = '\0';
    if (a->is_in_header) {
        a->is_in_header = a->len > 0;
        a->len = 0;
        return HTTP_MORE;
    }
    a->status = status_of(a->line);
    if (a->status == 0)
        return HTTP_GARBAGE;
    if (a->status >= 200 || a->status == 101) /* after 101 it is another protocol */
        return HTTP_STATUS;
    a->is_in_header = true;
    a->len = 0;
    return HTTP_MORE;
}

enum http_result http_answer_take(struct http_answer *a, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        enum http_result r = HTTP_MORE;
        if (a->total++ == HTTP_HEAD_MAX)
            return HTTP_ENDLESS;
        if (bytes[i] == '\n')
            r = end_line(a);
        else if (a->len < HTTP_LINE_MAX)
            a->line[a->len++] = bytes[i];
        if (r != HTTP_MORE)
            return r;
        if (!a->is_in_header && !may_become_status(a)) {
            for (size_t more = i + 1; more < n && bytes[more] != '\n' && a->len < HTTP_LINE_MAX;)
                a->line[a->len++] = bytes[more++];
            return HTTP_GARBAGE;
        }
    }
    return HTTP_MORE;
}

void http_answer_show(const struct http_answer *a, char *buf, size_t size)
{
    size_t n = a->len < size - 1 ? a->len : size - 1;
    for (size_t i = 0; i < n; i++)
        buf[i] = a->line[i] >= ' ' && a->line[i] <= '~' ? a->line[i] : '?';
    buf[n] = '\0';
}
