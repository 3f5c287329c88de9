/* Showing records: as JSON, as a table, as lines. */
#ifndef CTL_PRINT_H
#define CTL_PRINT_H

#include "ctl/ctl.h"

struct column {
    const char *key;
    const char *heading;
};

/* Append "key": "text", or "key_base64": "…" if the bytes are not UTF-8. */
int json_add_output(struct strbuf *to, const char *key, const char *bytes, size_t n);
/* Append the result as an object that has the rows as the list `key`. 0 or -1 (no memory). */
int json_add_with_rows(struct strbuf *to, const struct answer *answer, const char *key);

void print_record_json(const struct strbuf *record);
void print_rows_json(const struct answer *answer);
void print_error_json(const struct error *e);

/* Rows as columns (the last heading is NULL); control characters are shown as escapes. With
 * indent_by, the named column's text is indented by that field's number. */
void print_table(const struct column *columns, const struct answer *answer, const char *indent_key,
                 const char *indent_by);
/* "key: value" lines; lists as indented lines. */
void print_lines(const struct strbuf *record);
/* What start says: "ID PID". */
void print_started(const struct strbuf *result);
/* A message from init on stderr, safe likewise: "sandboxctl[ VERB]: TEXT\n". */
void print_message(const char *verb, const char *text);
/* The value of a key in a record, or "". */
const char *field_text(const struct strbuf *record, const char *key);

#endif
