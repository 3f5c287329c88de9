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

/* Until services are captured: the real one takes its place. */
__attribute__((weak)) struct output *service_output(struct service *s)
{
    (void)s;
    return NULL;
}

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

/* The last lines of an output, read at once by a follower of this moment. */
#define LAST_LINES 10
#define LAST_BYTES 8192
struct last_output {
    struct follower follower;
    char bytes[LAST_BYTES];
    size_t len;
};

static enum deliver take_last(void *owner, enum stream stream, const char *bytes, size_t n)
{
    struct last_output *l = owner;
    (void)stream;
    size_t room = sizeof l->bytes - l->len;
    memcpy(l->bytes + l->len, bytes, n < room ? n : room);
    l->len += n < room ? n : room;
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

/* A record holds no NUL: it shows as U+FFFD. */
static void add_output_line(struct record *to, const char *line, size_t n)
{
    char head[EVENT_TEXT_MAX + 1];
    struct strbuf text = {0};
    for (size_t i = 0; i < n && i < sizeof head; i++)
        if ((line[i] ? strbuf_add(&text, line + i, 1) : strbuf_adds(&text, "\xef\xbf\xbd")) < 0)
            to->is_broken = true;
    head_copy(head, sizeof head, strbuf_text(&text));
    record_str(to, "output[]", head);
    strbuf_free(&text);
}

static int add_output(struct record *to, struct service *s, struct error *e)
{
    static const struct follower_events events = {
        .on_bytes = take_last, .on_lost = skip_lost, .on_end = on_last_end};
    static const bool both[STREAM_COUNT] = {true, true};
    struct output *o = service_output(s);
    struct last_output *l = o ? calloc(1, sizeof *l) : NULL;
    if (!l)
        return o ? error_set(e, ERR_MEMORY, "service.show: no memory") : 0;
    uint64_t end = output_end_offset(o), from = output_tail_offset(o, LAST_LINES, both);
    if (end - from > LAST_BYTES)
        from = end - LAST_BYTES;
    l->follower = (struct follower){.events = &events, .owner = l, .offset = from, .limit = end};
    memcpy(l->follower.wants, both, sizeof both);
    follower_attach(&l->follower, o);
    follower_pump(&l->follower);
    follower_detach(&l->follower);
    for (const char *p = l->bytes, *last = p + l->len; p < last;) {
        const char *stop = memchr(p, '\n', (size_t)(last - p));
        add_output_line(to, p, (size_t)((stop ? stop : last) - p));
        p = stop ? stop + 1 : last;
    }
    free(l);
    return 0;
}

int verb_service_show(struct init *in, struct conn *c, struct request *r, struct error *e)
{
    struct service *s = service_choose_one(in->services, r, e);
    struct listing *l = s ? listing_new(c, e) : NULL;
    if (!l)
        return -1;
    add_state(&l->result, s);
    add_config(&l->result, service_configuration(s));
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
