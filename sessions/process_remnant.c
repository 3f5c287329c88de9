/*
 * An attached process is forgotten when it is over, unless something outlived it: then its record
 * stays, for those strays alone. It is a remnant: listed as what its strays come from, killable by
 * its id, and gone when the last of them is.
 */
#include "sessions/process.h"
#include "sessions/sessions_internal.h"

#include <string.h>

static bool is_empty(const struct process *p)
{
    return !p->teardown && process_list_leftovers(p, NULL, 0) == 0;
}

/* Nobody tells of the end of the last stray. So with each new remnant the two are looked at that
 * were not for longest: the empty ones go before they are many, and no call has to look at all. */
static void forget_some(struct sessions *all)
{
    unsigned turns = 2;
    list_each(p, &all->processes, struct process, link)
    {
        if (!p->is_remnant)
            continue;
        if (turns-- == 0)
            return;
        if (is_empty(p)) {
            process_free(p);
        } else {
            list_remove(&p->link);
            list_append(&all->processes, &p->link);
        }
    }
}

static void forget_oldest(struct sessions *all)
{
    list_each(p, &all->processes, struct process, link)
    {
        if (all->process_remnants <= all->config->process_keep)
            return;
        if (p->is_remnant && !p->teardown)
            process_free(p);
    }
}

bool process_become_remnant(struct process *p)
{
    struct sessions *all = p->all;
    if (p->is_remnant)
        return !is_empty(p);
    if (!p->is_attached || p->is_forgotten || p->outcome.stray_count == 0 || is_empty(p))
        return false;
    p->is_remnant = true;
    all->process_ended--;
    all->process_remnants++;
    if (all->is_walking) /* the list stays as the walk knows it */
        return true;
    list_remove(&p->link);
    list_append(&all->processes, &p->link);
    forget_some(all);
    forget_oldest(all);
    return true;
}

bool process_is_remnant(const struct process *p)
{
    return p->is_remnant;
}

struct process *process_find_remnant(struct sessions *all, const char *id)
{
    list_each(p, &all->processes, struct process, link)
    {
        if (!p->is_remnant || strcmp(p->id, id) != 0)
            continue;
        if (!is_empty(p))
            return p;
        process_free(p);
        return NULL;
    }
    return NULL;
}
