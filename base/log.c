/*
 * Lines go through an outlet (base/outlet.h), which never waits. Services may have lines of their
 * own in it (sessions/log_stdio.h); those before a line of ours come first.
 */
#include "base/log.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/outlet.h"
#include "base/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 3072 /* below PIPE_BUF (4096), so a line is written whole or not at all */

static struct {
    enum log_level level;
    enum log_format format;
    struct outlet outlet;
    bool is_open;
    uint64_t dropped;
} logger = {.level = LOG_INFO};

static const char *const level_names[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

void log_open(void)
{
    outlet_open(&logger.outlet, STDERR_FILENO);
    logger.is_open = true;
}

struct outlet *log_outlet(void)
{
    return &logger.outlet;
}

void log_configure(enum log_level level, enum log_format format)
{
    logger.level = level;
    logger.format = format;
}

static bool needs_quotes(const char *text)
{
    return !*text || text[strcspn(text, " \"=\\\n\r\t\x01\x02\x1b\x7f")] != '\0' ||
           !utf8_is_valid(text, strlen(text));
}

static int add_field(struct strbuf *line, const struct log_field *f)
{
    bool json = logger.format == LOG_JSON;
    int rc = json ? strbuf_addf(line, ",\"%s\":", f->key) : strbuf_addf(line, " %s=", f->key);
    if (rc < 0)
        return -1;
    if (f->is_number)
        return strbuf_addf(line, "%lld", (long long)f->number);
    if (json || needs_quotes(f->text))
        return json_add_string(line, f->text, strlen(f->text));
    return strbuf_adds(line, f->text);
}

static int add_head(struct strbuf *line, enum log_level level, const char *event)
{
    uint64_t now = clock_real_ns();
    char stamp[32];
    clock_utc(now / 1000000000u, stamp);
    unsigned ms = (unsigned)(now / 1000000u % 1000u);
    if (logger.format == LOG_JSON)
        return strbuf_addf(line, "{\"time\":\"%s.%03uZ\",\"level\":\"%s\",\"event\":\"%s\"", stamp,
                           ms, level_names[level], event);
    return strbuf_addf(line, "%s.%03uZ %s event=%s", stamp, ms, level_names[level], event);
}

/* True if the line went out whole, or will. */
static bool put(const char *bytes, size_t n)
{
    if (logger.is_open)
        return outlet_write(&logger.outlet, bytes, n);
    return write(STDERR_FILENO, bytes, n) == (ssize_t)n;
}

static void put_line(struct strbuf *line)
{
    if (strbuf_adds(line, logger.format == LOG_JSON ? "}\n" : "\n") < 0 ||
        !put(line->data, line->len))
        logger.dropped++;
}

static void tell_dropped(void)
{
    CLEANUP_STRBUF struct strbuf line = {.limit = LINE_MAX_BYTES};
    struct log_field lost = F_INT("lines", logger.dropped);
    if (add_head(&line, LOG_WARN, "log_dropped") < 0 || add_field(&line, &lost) < 0 ||
        strbuf_adds(&line, logger.format == LOG_JSON ? "}\n" : "\n") < 0)
        return;
    if (put(line.data, line.len))
        logger.dropped = 0;
}

void log_write(enum log_level level, const char *event, const struct log_field *fields,
               unsigned count)
{
    if (level > logger.level)
        return;
    int saved = errno;
    if (logger.dropped)
        tell_dropped();
    CLEANUP_STRBUF struct strbuf line = {.limit = LINE_MAX_BYTES};
    if (add_head(&line, level, event) < 0) {
        logger.dropped++;
        errno = saved;
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        size_t before = line.len;
        if (!fields[i].is_number && !fields[i].text)
            continue;
        if (add_field(&line, &fields[i]) < 0 || line.len > LINE_MAX_BYTES - 64) {
            line.len = before;
            line.data[before] = '\0';
            struct log_field cut = F_INT("cut", 1);
            (void)add_field(&line, &cut);
            break;
        }
    }
    put_line(&line);
    errno = saved;
}
