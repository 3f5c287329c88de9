/*
 * The log of init: one event a line on stderr, as text ("event=command_end session=dev ms=12") or
 * as JSON. Writing never blocks (outlet.h says how); lines that find no room are counted and the
 * count is told with the next line that gets through.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

struct outlet;

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_TEXT, LOG_JSON };

/* A field of an event. Made by the macros below; text may be NULL (the field is left out). */
struct log_field {
    const char *key;
    const char *text;
    int64_t number;
    bool is_number;
};
#define F_STR(k, v) ((struct log_field){.key = (k), .text = (v)})
#define F_INT(k, v) ((struct log_field){.key = (k), .number = (int64_t)(v), .is_number = true})

/* Open the log on descriptor 2. Before this call lines are written plainly. */
void log_open(void);
/* Where its lines go, for others who write whole lines to the same place. */
struct outlet *log_outlet(void);

/* Change what is written and how; both may change at any time (reload). */
void log_configure(enum log_level level, enum log_format format);

/* Write one event with its fields. Use the macros. */
void log_write(enum log_level level, const char *event, const struct log_field *fields,
               unsigned count);

#define LOG_EVENT(level, event, ...)                                                               \
    log_write((level), (event), (const struct log_field[]){__VA_ARGS__},                           \
              sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))
#define LOG_ERR(event, ...) LOG_EVENT(LOG_ERROR, event, __VA_ARGS__)
#define LOG_WRN(event, ...) LOG_EVENT(LOG_WARN, event, __VA_ARGS__)
#define LOG_INF(event, ...) LOG_EVENT(LOG_INFO, event, __VA_ARGS__)
#define LOG_DBG(event, ...) LOG_EVENT(LOG_DEBUG, event, __VA_ARGS__)

#endif
