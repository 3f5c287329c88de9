#include "init/service_choice.h"
#include "init/verb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A choice under way: the names, and which of them have chosen something. */
struct choosing {
    struct service_choice *choice;
    const char *names[SERVICES_MAX];
    bool is_found[SERVICES_MAX];
    size_t name_count;
};

/* NAME@3 is one of NAME. */
static bool is_instance_of(const struct service *s, const char *name)
{
    size_t n = strlen(name);
    return service_configuration(s)->instance > 0 && strncmp(service_name(s), name, n) == 0 &&
           service_name(s)[n] == '@';
}

static bool choose(void *context, struct service *s)
{
    struct choosing *x = context;
    bool is_wanted = x->name_count == 0;
    for (size_t i = 0; i < x->name_count; i++)
        if (strcmp(x->names[i], service_name(s)) == 0 || is_instance_of(s, x->names[i]))
            is_wanted = x->is_found[i] = true;
    if (is_wanted)
        x->choice->services[x->choice->count++] = s;
    return x->choice->count < SERVICE_CHOICE_MAX;
}

static int get_names(const struct request *r, struct choosing *x, struct error *e)
{
    struct field f;
    size_t at = 0;
    while (record_next(r->args.data, r->args.len, &at, &f) > 0) {
        if (!field_is(&f, "name"))
            continue;
        if (f.value_len == 0)
            return error_set(e, ERR_INVALID, "%s: the name of a service is empty", r->verb);
        if (x->name_count == SERVICES_MAX)
            return error_set(e, ERR_LIMIT, "%s: more than %d names", r->verb, SERVICES_MAX);
        x->names[x->name_count++] = f.value;
    }
    return 0;
}

static int check_found(const struct choosing *x, struct services *all, struct error *e)
{
    for (size_t i = 0; i < x->name_count; i++)
        if (!x->is_found[i] && !service_find(all, x->names[i], e))
            return -1;
    return 0;
}

struct service_choice *service_choice_new(struct services *all, const struct request *r,
                                          bool is_name_needed, struct error *e)
{
    if (is_name_needed && !verb_required(r, "name", e))
        return NULL;
    struct choosing *x = calloc(1, sizeof *x);
    struct service_choice *choice = calloc(1, sizeof *choice);
    int rc = -1;
    if (!x || !choice) {
        error_set(e, ERR_MEMORY, "%s: no memory", r->verb);
    } else {
        x->choice = choice;
        rc = get_names(r, x, e);
    }
    if (rc == 0) {
        services_each(all, choose, x);
        rc = check_found(x, all, e);
    }
    free(x);
    if (rc == 0)
        return choice;
    free(choice);
    return NULL;
}

struct service *service_choose_one(struct services *all, const struct request *r, struct error *e)
{
    struct service_choice *choice = service_choice_new(all, r, true, e);
    struct service *one = choice && choice->count == 1 ? choice->services[0] : NULL;
    if (choice && choice->count > 1)
        error_set(e, ERR_INVALID, "%s: '%.80s' stands for %zu services: name one, such as '%s'",
                  r->verb, request_get(r, "name"), choice->count,
                  service_name(choice->services[0]));
    free(choice);
    return one;
}
