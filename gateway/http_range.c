#include "gateway/http_range.h"

#include "base/clock.h"
#include "base/number.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Digits up to a character that ends them, as a number; -1 if there are none or too many. */
static int64_t digits(const char **at)
{
    char text[20];
    size_t n = strspn(*at, "0123456789");
    uint64_t value;
    if (n == 0 || n >= sizeof text)
        return -1;
    memcpy(text, *at, n);
    text[n] = '\0';
    *at += n;
    return number_parse_u64(text, INT64_MAX, &value) < 0 ? -1 : (int64_t)value;
}

static bool is_end(const char *at)
{
    return at[strspn(at, " \t")] == '\0';
}

/* "-N": the last N bytes. */
static int suffix(const char *at, int64_t size, struct range *to)
{
    int64_t n = digits(&at);
    if (n < 0 || !is_end(at))
        return 0;
    if (n == 0 || size == 0)
        return -1;
    to->length = n < size ? n : size;
    to->offset = size - to->length;
    return 1;
}

int range_parse(const char *header, int64_t size, struct range *to)
{
    if (!header || strncasecmp(header, "bytes=", 6) != 0)
        return 0;
    const char *at = header + 6 + strspn(header + 6, " \t");
    if (*at == '-')
        return suffix(at + 1, size, to);
    int64_t first = digits(&at), last = size - 1;
    if (first < 0 || *at++ != '-')
        return 0;
    if (!is_end(at)) {
        last = digits(&at);
        if (last < first || !is_end(at))
            return 0;
    }
    if (first >= size)
        return -1;
    to->offset = first;
    to->length = (last < size - 1 ? last : size - 1) - first + 1;
    return 1;
}

bool etag_matches(const char *list, const char *tag)
{
    size_t want = strlen(tag);
    while (list && *list) {
        list += strspn(list, ", \t");
        size_t n = strcspn(list, ", \t");
        const char *one = strncmp(list, "W/", 2) == 0 ? list + 2 : list;
        size_t one_n = n - (size_t)(one - list);
        if ((n == 1 && *list == '*') || (one_n == want && strncmp(one, tag, want) == 0))
            return true;
        list += n;
    }
    return false;
}

const char *http_time(int64_t seconds, char to[HTTP_TIME_SIZE])
{
    static const char *const days[] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    uint64_t at = seconds > 0 ? (uint64_t)seconds : 0;
    char t[32]; /* YYYY-MM-DDTHH:MM:SS */
    clock_utc(at, t);
    unsigned month = (unsigned)(t[5] - '0') * 10 + (unsigned)(t[6] - '0') - 1;
    snprintf(to, HTTP_TIME_SIZE, "%s, %.2s %s %.4s %.8s GMT", days[at / 86400 % 7], t + 8,
             months[month % 12], t, t + 11);
    return to;
}
