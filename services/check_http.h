/*
 * The answer to a check's request, as far as a check wants to know it: the number of its first
 * line. Interim answers (1xx) are skipped, the body is never looked at, nothing is kept but one
 * line.
 */
#ifndef SERVICES_CHECK_HTTP_H
#define SERVICES_CHECK_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#define HTTP_LINE_MAX 128         /* bytes kept of a line */
#define HTTP_HEAD_MAX (16 * 1024) /* bytes read for a status, interim answers included */

enum http_result {
    HTTP_MORE,    /* not known yet */
    HTTP_STATUS,  /* answer.status */
    HTTP_GARBAGE, /* this is not HTTP; answer.line has how it begins */
    HTTP_ENDLESS, /* HTTP_HEAD_MAX bytes and no status */
};

/* All zero at first. */
struct http_answer {
    char line[HTTP_LINE_MAX + 1]; /* the present or last line, cut, without its end */
    size_t len;
    size_t total;
    unsigned status;
    bool is_in_header; /* of an interim answer */
};

/* Take n more bytes. After another result than HTTP_MORE no more are to come. */
enum http_result http_answer_take(struct http_answer *a, const char *bytes, size_t n);

/* The line for a message: at most size - 1 bytes of printable ASCII; others become '?'. */
void http_answer_show(const struct http_answer *a, char *buf, size_t size);

#endif
