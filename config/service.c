/*
 * One service as a value: defaults, copies (an instance is a copy of its section), the end, and
 * what a reload wants to know of two of them. All of it goes by the schema.
 */
#include "config/config_internal.h"

#include <stdlib.h>
#include <string.h>

void *service_field(const struct schema_row *row, struct service_config *s)
{
    return (char *)s + row->offset;
}

static const void *service_field_const(const struct schema_row *row, const struct service_config *s)
{
    return (const char *)s + row->offset;
}

int service_init(struct service_config *s, struct error *e)
{
    s->umask = (mode_t)-1;
    s->ready.fd = s->health.fd = -1;
    for (size_t i = 0; i < service_row_count; i++) {
        const struct schema_row *row = &service_rows[i];
        if (row->initial && value_parse(row, row->initial, service_field(row, s), e) < 0)
            return error_wrap(e, "default of %s", row->key);
    }
    return 0;
}

int service_copy(struct service_config *to, const struct service_config *from, struct error *e)
{
    to->line = from->line;
    to->has_nice = from->has_nice;
    to->has_ready_timeout = from->has_ready_timeout;
    to->has_oom_score_adj = from->has_oom_score_adj;
    to->ready.fd = to->health.fd = -1;
    int status = 0;
    if (from->file && !(to->file = strdup(from->file)))
        status = error_set(e, ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < service_row_count && status == 0; i++) {
        const struct schema_row *row = &service_rows[i];
        if (row->type != VALUE_FILES)
            status = value_copy(row, service_field(row, to), service_field_const(row, from), e);
    }
    if (status < 0) {
        service_free(to);
        *to = (struct service_config){0};
    }
    return status;
}

void service_free(struct service_config *s)
{
    for (size_t i = 0; i < service_row_count; i++)
        if (service_rows[i].type != VALUE_FILES)
            value_free(&service_rows[i], service_field(&service_rows[i], s));
    free(s->name);
    free(s->file);
    s->name = s->file = NULL;
}

const struct service_config *config_service(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->service_count; i++)
        if (strcmp(c->services[i].name, name) == 0)
            return &c->services[i];
    return NULL;
}

/* True if no row with that mark differs. */
static bool rows_equal(const struct service_config *a, const struct service_config *b,
                       unsigned mark)
{
    for (size_t i = 0; i < service_row_count; i++) {
        const struct schema_row *row = &service_rows[i];
        if ((row->sections & mark) != mark || row->sections & SCHEMA_LOAD)
            continue;
        if (!value_equal(row, service_field_const(row, a), service_field_const(row, b)))
            return false;
    }
    return a->has_nice == b->has_nice && a->has_oom_score_adj == b->has_oom_score_adj;
}

bool service_config_equal(const struct service_config *a, const struct service_config *b)
{
    /* A oneshot has a limit once one is written, be it the default. */
    bool is_limited_alike =
        a->type != SERVICE_ONESHOT || a->has_ready_timeout == b->has_ready_timeout;
    return is_limited_alike && rows_equal(a, b, SECTION_SERVICE);
}

bool service_config_same_process(const struct service_config *a, const struct service_config *b)
{
    /* A descriptor to be told on is handed over at the start. */
    int fd_a = a->ready.kind == CHECK_FD ? a->ready.fd : -1;
    int fd_b = b->ready.kind == CHECK_FD ? b->ready.fd : -1;
    return fd_a == fd_b && rows_equal(a, b, SECTION_SERVICE | SCHEMA_START);
}
