/* Looking at services: service.list, show and logs; service.signal. What orders them to be started
 * or stopped is in verb_service_order.c. */
#include "init/verb.h"
#include "base/clock.h"
#include "base/head.h"
#include "base/number.h"
#include "init/listing.h"
#include "init/service_choice.h"
#include "sessions/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t ms_since(uint64_t ns)
{
    return (clock_mono_ns() - ns) / 1000000u;
}

/* ---- service.list ---- */

/* What list and show have in common. */
static void add_state(struct record *to, const struct service *s)
{
    pid_t pid = service_pid(s);
    record_str(to, "name", service_name(s));
    record_str(to, "state", service_state_name(service_state(s)));
    if (pid)
        record_int(to, "pid", pid);
    if (pid)
        record_seconds(to, "uptime_s", ms_since(service_began_ns(s)));
    record_int(to, "restarts", service_restarts(s));
    record_bool(to, "ready", service_is_ready(s));
    if (service_is_healthy(s) >= 0)
        record_bool(to, "healthy", service_is_healthy(s) > 0);
    record_str(to, "detail", service_explain(s));
    if (*service_status_text(s))
        record_str(to, "says", service_status_text(s));
}

int verb_service_list(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct service_choice *choice = service_choice_new(in->services, r, false, e);
    struct listing *l = choice ? listing_new(c, e) : NULL;
    for (size_t i = 0; l && i < choice->count; i++) {
        struct record row = {0};
        add_state(&row, choice->services[i]);
        listing_add(l, &row);
    }
    free(choice);
    if (!l)
        return -1;
    record_int(&l->result, "services", l->count);
    listing_send(l);
    return 0;
}

/* ---- service.show ---- */

void answer_program(struct record *to, const char *key, const struct service_config *k)
{
    char head[EVENT_TEXT_MAX + 1];
    struct strbuf text = {.limit = 4096};
    for (char **arg = k->argv; arg && *arg; arg++)
        if (strbuf_addf(&text, "%s%s", text.len ? " " : "", *arg) < 0)
            break;
    head_copy(head, sizeof head, k->script ? k->script : strbuf_text(&text));
    record_str(to, key, head);
    strbuf_free(&text);
}

static void add_names(struct record *to, const char *key, const struct name_list *names)
{
    for (size_t i = 0; i < names->count; i++)
        record_str(to, key, names->items[i]);
}

static void add_config(struct record *to, const struct service_config *k)
{
    char text[300];
    record_str(to, "type", service_type_name(k->type));
    snprintf(text, sizeof text, "%.280s:%u", k->file ? k->file : "", k->line);
    record_str(to, "source", text);
    answer_program(to, k->script ? "script" : "command", k);
    if (k->user)
        record_str(to, "user", k->user);
    record_bool(to, "autostart", k->autostart);
    if (k->ready.text)
        record_str(to, "ready_check", k->ready.text);
    if (k->health.text)
        record_str(to, "health_check", k->health.text);
    snprintf(text, sizeof text, "file:%.280s", k->log_file ? k->log_file : "");
    record_str(to, "log",
               k->log == SERVICE_LOG_FILE   ? text
               : k->log == SERVICE_LOG_NONE ? "none"
                                            : "inherit");
    add_names(to, "requires[]", &k->requires);
    add_names(to, "after[]", &k->after);
    add_names(to, "before[]", &k->before);
}

/* Lines of its log that are nowhere, and what is wrong with the place where they go. */
static void add_dropped(struct record *to, const struct service *s)
{
    const char *why;
    uint64_t lines = service_lines_dropped(s, &why);
    if (lines)
        record_int(to, "log_dropped", (int64_t)lines);
    if (*why)
        record_str(to, "log_trouble", why);
}

/* How the last run ended. */
static void add_last(struct record *to, const struct service *s)
{
    const struct outcome *o = service_outcome(s);
    char name[16];
    if (!o)
        return;
    record_str(to, "last_verdict", verdict_name(o->verdict));
    record_int(to, "last_status", o->status);
    if (o->signal)
        record_str(to, "last_signal", signal_name(o->signal, name, sizeof name));
    if (o->step)
        record_str(to, "last_step", o->step);
    if (o->message[0])
        record_str(to, "last_message", o->message);
    record_seconds(to, "last_duration_s", o->duration_ms);
    if (service_ended_ns(s))
        record_seconds(to, "last_ended_s", ms_since(service_ended_ns(s)));
}

/* The last lines of an output, read at once by a follower of this moment. A line stands where it
 * ends: the two streams are read by turns, and not by lines. */
#define LAST_LINES 10
#define LAST_BYTES 8192
struct last_output {
    struct follower follower;
    struct record *to;
    struct strbuf lines[STREAM_COUNT]; /* that have begun */
};

/* A record holds no NUL: it shows as U+FFFD. */
static void add_output_line(struct record *to, struct strbuf *line)
{
    char head[EVENT_TEXT_MAX + 1];
    struct strbuf text = {0};
    for (size_t i = 0; i < line->len && i < sizeof head; i++)
        if ((line->data[i] ? strbuf_add(&text, line->data + i, 1)
                           : strbuf_adds(&text, "\xef\xbf\xbd")) < 0)
            to->is_broken = true;
    head_copy(head, sizeof head, strbuf_text(&text));
    record_str(to, "output[]", head);
    strbuf_free(&text);
    strbuf_clear(line);
}

static enum deliver take_last(void *owner, enum stream stream, const char *bytes, size_t n)
{
    struct last_output *l = owner;
    struct strbuf *line = &l->lines[stream];
    for (const char *end; n && (end = memchr(bytes, '\n', n));) {
        size_t k = (size_t)(end - bytes);
        l->to->is_broken |= strbuf_add(line, bytes, k) < 0;
        add_output_line(l->to, line);
        bytes += k + 1;
        n -= k + 1;
    }
    l->to->is_broken |= strbuf_add(line, bytes, n) < 0;
    return DELIVERED;
}

static void skip_lost(void *owner, uint64_t from, uint64_t to)
{
    (void)owner, (void)from, (void)to;
}

static void on_last_end(void *owner)
{
    (void)owner;
}

static int add_output(struct record *to, struct service *s, struct error *e)
{
    static const struct follower_events events = {
        .on_bytes = take_last, .on_lost = skip_lost, .on_end = on_last_end};
    static const bool both[STREAM_COUNT] = {true, true};
    struct output *o = service_output(s);
    if (!o)
        return 0;
    uint64_t end = output_end_offset(o), from = output_tail_offset(o, LAST_LINES, both);
    if (end - from > LAST_BYTES)
        from = end - LAST_BYTES;
    struct last_output l = {.to = to};
    l.follower = (struct follower){.events = &events, .owner = &l, .offset = from, .limit = end};
    memcpy(l.follower.wants, both, sizeof both);
    follower_attach(&l.follower, o);
    follower_pump(&l.follower);
    follower_detach(&l.follower);
    for (enum stream t = 0; t < STREAM_COUNT; t++) {
        if (l.lines[t].len)
            add_output_line(to, &l.lines[t]);
        strbuf_free(&l.lines[t]);
    }
    return to->is_broken ? error_set(e, ERR_MEMORY, "service.show: no memory") : 0;
}

int verb_service_show(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct service *s = service_choose_one(in->services, r, e);
    struct listing *l = s ? listing_new(c, e) : NULL;
    if (!l)
        return -1;
    add_state(&l->result, s);
    add_config(&l->result, service_configuration(s));
    add_dropped(&l->result, s);
    add_last(&l->result, s);
    if (add_output(&l->result, s, e) < 0) {
        listing_free(l);
        return -1;
    }
    list_tree_of_service(in, l, s);
    listing_send(l);
    return 0;
}

/* ---- service.logs ---- */

int verb_service_logs(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct service *s = service_choose_one(in->services, r, e);
    struct output *o = s ? service_output(s) : NULL;
    if (s && !o)
        return error_set(e, ERR_STATE, "service '%s' has no output", service_name(s));
    return o ? verb_follow(c, r, o, e) : -1;
}

/* ---- service.signal ---- */

int verb_service_signal(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    int sig;
    const char *name = verb_required(r, "signal", e);
    if (!name)
        return -1;
    if (signal_parse(name, &sig) < 0)
        return error_set(e, ERR_INVALID, "service.signal: unknown signal '%.20s'", name);
    struct service_choice *choice = service_choice_new(in->services, r, true, e);
    struct listing *l = choice ? listing_new(c, e) : NULL;
    unsigned failed = 0;
    for (size_t i = 0; l && i < choice->count; i++) {
        struct record row = {0};
        struct error why = {0};
        struct service *s = choice->services[i];
        int sent = service_signal(s, sig, request_get(r, "tree") != NULL, &why);
        failed += sent < 0;
        answer_service(&row, s, sent < 0 ? &why : NULL);
        record_int(&row, "signalled", sent < 0 ? 0 : sent);
        listing_add(l, &row);
    }
    free(choice);
    if (!l)
        return -1;
    record_int(&l->result, "services", l->count);
    record_int(&l->result, "failed", failed);
    listing_send(l);
    return 0;
}
