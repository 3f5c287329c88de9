/* The services that a request names: each by its own name, or all instances of a section by the
 * section's. */
#ifndef INIT_SERVICE_CHOICE_H
#define INIT_SERVICE_CHOICE_H

#include "control/server.h"
#include "services/services.h"

/* Those to come and those that a reload is just removing. */
#define SERVICE_CHOICE_MAX ((size_t)2 * SERVICES_MAX)

struct service_choice {
    struct service *services[SERVICE_CHOICE_MAX]; /* in the order of the file, each once */
    size_t count;
};

/* What the request's `name=` arguments choose; without one all services, unless is_name_needed.
 * All of them exist, or it is NULL with *e. The caller frees it. */
struct service_choice *service_choice_new(struct services *all, const struct request *r,
                                          bool is_name_needed, struct error *e);
/* The one service that `name=` chooses. NULL with *e, also where it stands for several. */
struct service *service_choose_one(struct services *all, const struct request *r, struct error *e);

#endif
