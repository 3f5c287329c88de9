/*
 * The set-up of a session: a text that a fresh shell runs before anybody else gets the lock. Where
 * it fails there is no session, so that nobody works in one that is half made (case C7).
 */
#include "base/head.h"
#include "base/log.h"
#include "base/number.h"
#include "sessions/command.h"
#include "sessions/sessions_internal.h"

#include <stdio.h>
#include <string.h>

#define SHOWN 96 /* bytes of the text in the reason of a failure */

/* The session is ready for everybody. */
static void session_tell_ready(struct session *s)
{
    s->was_ever_ready = true;
    if (s->teardown)
        return;
    session_tell_wishes(s, s->was_reset ? &s->torn_down.report : NULL, NULL);
    s->was_reset = false;
}

static void explain(const struct session *s, const struct outcome *o, struct error *e)
{
    char text[SHOWN], said[SHOWN + 1], how[64];
    head_copy(text, sizeof text, s->setup);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    size_t n = output_last_bytes(command_output(s->setting_up), STREAM_STDERR, said, SHOWN);
    while (n > 0 && said[n - 1] == '\n')
        n--;
    said[n] = '\0';
    if (o->verdict == VERDICT_EXITED || o->verdict == VERDICT_SIGNALED)
        snprintf(how, sizeof how, "ended with status %d", o->status);
    else
        snprintf(how, sizeof how, "failed: %s", verdict_name(o->verdict));
    error_set(e, ERR_STATE, "session '%s': its setup '%s' %s%s%s", s->name, text, how,
              n || o->message[0] ? ": " : "", o->message[0] ? o->message : said);
}

static void on_done(void *owner, const struct outcome *o)
{
    struct session *s = owner;
    struct error why = {0};
    bool is_well = o->verdict == VERDICT_EXITED && o->status == 0;
    if (!is_well)
        explain(s, o, &why);
    command_free(s->setting_up);
    s->setting_up = NULL;
    if (s->teardown || s->all->is_stopping)
        return;
    if (!is_well) {
        session_end_failed(s, &why);
        return;
    }
    s->needs_setup = false;
    session_tell_ready(s);
}

static const struct command_events events = {.on_done = on_done};

void session_begin_setup(struct session *s)
{
    struct error e = {0};
    struct command_request q = {.is_first = true};
    if (!s->needs_setup || s->teardown) {
        session_tell_ready(s);
        return;
    }
    if (s->setting_up)
        return; /* its shell was lost before its turn came */
    if (strbuf_adds(&q.text, s->setup) < 0)
        error_set(&e, ERR_MEMORY, "session '%s': no memory", s->name);
    else
        s->setting_up = command_submit(s, &q, &events, s, &e);
    strbuf_free(&q.text);
    if (!s->setting_up)
        session_end_failed(s, &e);
}
