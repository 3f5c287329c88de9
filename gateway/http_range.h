/* What conditions and ranges of a GET mean for one file: RFC 9110, sections 13 and 14. */
#ifndef GATEWAY_HTTP_RANGE_H
#define GATEWAY_HTTP_RANGE_H

#include <stdbool.h>
#include <stdint.h>

struct range {
    int64_t offset, length;
};

/* A Range header for size bytes: 1 with *to set; 0: to be ignored (absent, other units, several
 * ranges, malformed); -1: nothing of it exists (416). */
int range_parse(const char *header, int64_t size, struct range *to);

/* True if an If-None-Match list has the tag (compared weakly) or is "*". */
bool etag_matches(const char *list, const char *tag);

#define HTTP_TIME_SIZE 32
/* "Mon, 30 Nov 2026 02:30:27 GMT" */
const char *http_time(int64_t seconds, char to[HTTP_TIME_SIZE]);

#endif
