/*
 * The table of verbs: which arguments each takes and who carries it out. A request with an unknown
 * verb or argument is refused by name, so that a misspelt option never silently does nothing.
 */
#include "init/verb.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "control/wire.h"
#include "sessions/teardown.h"

#include <stdio.h>
#include <string.h>

static const struct verb {
    const char *name;
    const char *keys; /* blank-separated, with a blank at both ends */
    verb_handler *handler;
} verbs[] = {
    {"exec",
     " session id detach from cwd env timeout_ms idle_timeout_ms cpu_timeout_ms "
     "soft_timeout_ms wait_ms stdin drain arg text output_limit "
     "output_limit_default output_limit_action ",
     verb_exec},
    {"start", " session id cwd env wait_ms stdin arg text ", verb_start},
    {"ps", " session kind ", verb_ps},
    {"tree", " session ", verb_tree},
    {"logs", " id follow from tail stream ", verb_logs},
    {"wait", " id ", verb_wait},
    {"kill", " id running stray signal grace_ms kind ", verb_kill},
    {"kill-all", " session grace_ms ", verb_kill_all},
    {"send", " id ", verb_send},
    {"purge", " ", verb_purge},
    {"session.create", " name cwd env timeout_ms shell user setup from text ", verb_session_create},
    {"session.fork", " name new wait_ms ", verb_session_fork},
    {"session.save", " name wait_ms ", verb_session_save},
    {"session.list", " ", verb_session_list},
    {"session.show", " name ", verb_session_show},
    {"session.delete", " name ", verb_session_delete},
    {"session.reset", " name ", verb_session_reset},
    {"session.env", " name env unset wait_ms ", verb_session_env},
    {"terminal.open",
     " session id cwd env wait_ms arg rows cols term read_only detached hang_up shared ",
     verb_terminal_open},
    {"terminal.attach", " id rows cols read_only ", verb_terminal_attach},
    {"terminal.resize", " id rows cols ", verb_terminal_resize},
    {"service.list", " name ", verb_service_list},
    {"service.show", " name ", verb_service_show},
    {"service.start", " name no_wait timeout_ms ", verb_service_start},
    {"service.stop", " name no_wait timeout_ms ", verb_service_stop},
    {"service.restart", " name no_wait timeout_ms ", verb_service_restart},
    {"service.reload", " name no_wait timeout_ms ", verb_service_reload},
    {"service.signal", " name signal tree ", verb_service_signal},
    {"service.logs", " name follow from tail stream ", verb_service_logs},
    {"events", " follow from tail kind session ", verb_events},
    {"status", " ", verb_status},
    {"reload", " ", verb_reload},
    {"shutdown", " grace_ms ", verb_shutdown},
};

static int check_keys(const struct verb *v, const struct request *r, struct error *e)
{
    struct field f;
    size_t at = 0;
    while (record_next(r->args.data, r->args.len, &at, &f) > 0) {
        char key[40];
        if (f.key_len + 3 <= sizeof key) {
            key[0] = ' ';
            memcpy(key + 1, f.key, f.key_len);
            memcpy(key + 1 + f.key_len, " ", 2);
            if (strstr(v->keys, key))
                continue;
        }
        return error_set(e, ERR_INVALID, "%s: unknown argument '%.*s'", v->name,
                         f.key_len > 40 ? 40 : (int)f.key_len, f.key);
    }
    return 0;
}

void verbs_on_request(struct conn *c, struct request *r, void *context)
{
    struct init *in = context;
    struct error e = {0};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verbs[i].name, r->verb) != 0)
            continue;
        if (check_keys(&verbs[i], r, &e) < 0 || verbs[i].handler(in, c, r, &e) < 0)
            conn_fail(c, &e);
        return;
    }
    error_set(&e, ERR_NOT_FOUND, "unknown verb '%.40s'", r->verb);
    conn_fail(c, &e);
}

const char *verb_required(const struct request *r, const char *key, struct error *e)
{
    const char *value = request_get(r, key);
    if (!value || !*value) {
        error_set(e, ERR_INVALID, "%s: argument '%s' is missing", r->verb, key);
        return NULL;
    }
    return value;
}

int verb_get_number(const struct request *r, const char *key, uint64_t *number, bool *has,
                    struct error *e)
{
    const char *value = request_get(r, key);
    *has = value != NULL;
    if (value && number_parse_u64(value, INT64_MAX, number) < 0)
        return error_set(e, ERR_INVALID, "%s: %s '%.40s' is not a number", r->verb, key, value);
    return 0;
}

int verb_get_ms(const struct request *r, const char *key, uint64_t *ms, bool *has, struct error *e)
{
    if (verb_get_number(r, key, ms, has, e) < 0)
        return -1;
    if (*has && *ms > (uint64_t)365 * 24 * 3600 * 1000)
        return error_set(e, ERR_INVALID, "%s: %s %llu is longer than 365 days", r->verb, key,
                         (unsigned long long)*ms);
    return 0;
}

int verb_get_patience(const struct request *r, struct lock_patience *patience, struct error *e)
{
    return verb_get_ms(r, "wait_ms", &patience->ms, &patience->has_limit, e);
}

int verb_get_env(const struct request *r, struct env_set *env, struct error *e)
{
    struct field f;
    size_t at = 0;
    while (record_next(r->args.data, r->args.len, &at, &f) > 0)
        if (field_is(&f, "env") && (env_check(f.value, e) < 0 || env_put(env, f.value, e) < 0))
            return -1;
    return 0;
}

void answer_end(struct record *to, const struct outcome *o)
{
    char text[16];
    record_str(to, "verdict", verdict_name(o->verdict));
    if (o->clock && o->verdict == VERDICT_TIMEOUT)
        record_str(to, "clock", o->clock);
    record_int(to, "status", o->status);
    if (o->signal)
        record_str(to, "signal", signal_name(o->signal, text, sizeof text));
    if (o->step)
        record_str(to, "step", o->step);
    if (o->sys)
        record_int(to, "errno", o->sys);
    if (o->message[0])
        record_str(to, "message", o->message);
    /* The three meanings of done. */
    record_bool(to, "exited", o->verdict != VERDICT_SPAWN_FAILED);
    record_bool(to, "drained", o->is_drained);
    record_bool(to, "quiescent", o->stray_count == 0);
}

void answer_outcome(struct record *to, const char *id, const struct outcome *o,
                    const struct output *output)
{
    record_str(to, "id", id);
    answer_end(to, o);
    record_seconds(to, "duration_s", o->duration_ms);
    if (o->has_usage) {
        record_seconds(to, "user_s", o->user_us / 1000);
        record_seconds(to, "system_s", o->system_us / 1000);
    }
    if (o->peak_kib)
        record_int(to, "peak_kib", (int64_t)o->peak_kib);
    record_int(to, "stdout_bytes", (int64_t)output_bytes(output, STREAM_STDOUT));
    record_int(to, "stderr_bytes", (int64_t)output_bytes(output, STREAM_STDERR));
    if (outcome_state(o))
        record_str(to, "state", outcome_state(o));
    if (o->shell_restarted)
        record_bool(to, "shell_restarted", true);
    if (o->state_lost)
        record_bool(to, "state_lost", true);
    else if (o->functions_lost)
        record_bool(to, "functions_lost", true);
    if (o->folder_lost)
        record_bool(to, "folder_lost", true);
    for (size_t i = 0; i < o->stray_count && i < STRAYS_TOLD; i++) {
        char stray[STRAY_TEXT];
        record_bytes(to, "strays[]", stray, stray_text(&o->strays[i], stray));
    }
    if (o->oom_kills)
        record_int(to, "oom_kills", (int64_t)o->oom_kills);
    if (o->stray_count)
        record_int(to, "stray_count", (int64_t)o->stray_count);
}

static bool is_survivor(const struct teardown_report *report, pid_t pid)
{
    for (size_t i = 0; i < report->survivors_told; i++)
        if (report->survivors[i].pid == pid)
            return true;
    return false;
}

/* Add `ended[]` alone: the first of those that are gone. */
static void answer_ended(struct record *to, const struct teardown_report *report)
{
    for (size_t i = 0; report && i < report->name_count; i++) {
        char text[80];
        const struct member_name *m = &report->names[i];
        if (!is_survivor(report, m->pid))
            record_bytes(to, "ended[]", text,
                         (size_t)snprintf(text, sizeof text, "%d %s", (int)m->pid, m->comm));
    }
}

void answer_teardown(struct record *to, const struct teardown_report *report)
{
    record_int(to, "killed", report ? (int64_t)report->ended : 0);
    answer_ended(to, report);
    answer_survivors(to, report);
}

void answer_survivors(struct record *to, const struct teardown_report *report)
{
    for (size_t i = 0; report && i < report->survivors_told; i++) {
        char text[160];
        const struct teardown_survivor *s = &report->survivors[i];
        record_bytes(
            to, "survivors[]", text,
            (size_t)snprintf(text, sizeof text, "%d %s: %s", (int)s->pid, s->comm, s->why));
    }
}

enum deliver answer_bytes(struct conn *c, enum stream stream, const char *bytes, size_t n)
{
    switch (conn_send(c, stream == STREAM_STDOUT ? WIRE_STDOUT : WIRE_STDERR, bytes, n)) {
    case CONN_SENT:
        return DELIVERED;
    case CONN_FULL:
        return DELIVER_FULL;
    case CONN_GONE:
        break;
    }
    return DELIVER_GONE;
}

void answer_lost(struct conn *c, uint64_t from, uint64_t to)
{
    struct record r = {0};
    record_int(&r, "lost_from", (int64_t)from);
    record_int(&r, "lost_to", (int64_t)to);
    conn_note(c, &r);
    record_free(&r);
}
