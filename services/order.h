/*
 * The order of services: who must be ready before whom, as arrays of pointers, and one sequence in
 * which each stands behind all that it waits for (among those that are free to choose the smaller
 * `priority` first, then as the file has them). Immutable: a reload makes another.
 *
 * The configuration has no cycles. What is no longer in it keeps its `requires` and `after` until
 * it has stopped; nothing names it, so that makes none either.
 */
#ifndef SERVICES_ORDER_H
#define SERVICES_ORDER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct service;
struct service_config;

struct order_links {
    struct service **items;
    size_t count;
};

enum order_kind {
    ORDER_NEEDS,     /* what it requires */
    ORDER_FOLLOWS,   /* what it comes after (its `after`, and their `before`) */
    ORDER_NEEDED_BY, /* the reverse of the two */
    ORDER_FOLLOWED_BY,
    ORDER_KIND_COUNT
};

/* Of one service. */
struct order_node {
    struct service *service;
    const struct service_config *config; /* whose names count */
    bool is_leaving;                     /* no longer in the file */
    struct order_links links[ORDER_KIND_COUNT];
    bool is_after_main; /* it, or something it waits for, comes after the main command */
    size_t rank;
};

struct order {
    struct order_node *nodes; /* as given to order_new() */
    struct service **sequence;
    size_t count;
    struct service **links; /* what the nodes' arrays point into */
};

/* nodes: `count` of them with service, config and is_leaving set; taken over (malloc) also where it
 * fails. NULL with *e for want of memory. */
struct order *order_new(struct order_node *nodes, size_t count, struct error *e);
void order_free(struct order *o);

#endif
