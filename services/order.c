#include "services/order.h"
#include "config/service_config.h"

#include <stdlib.h>
#include <string.h>

/* An edge while the order is made: `to` waits for `from`. Numbers of nodes. */
struct edge {
    size_t from, to;
    bool is_need;
};

struct maker {
    struct order *order;
    struct order_node **by_name; /* sorted */
    struct edge *edges;
    size_t edge_count, edge_room;
};

/* ---- names ---- */

static int compare_names(const void *a, const void *b)
{
    const struct order_node *const *x = a, *const *y = b;
    return strcmp((*x)->config->name, (*y)->config->name);
}

static int compare_key(const void *key, const void *item)
{
    const struct order_node *const *n = item;
    return strcmp(key, (*n)->config->name);
}

static struct order_node *find(const struct maker *m, const char *name)
{
    struct order_node **n = bsearch(name, m->by_name, m->order->count, sizeof(void *), compare_key);
    return n ? *n : NULL;
}

/* ---- edges ---- */

static void add_edge(struct maker *m, const struct order_node *from, const struct order_node *to,
                     bool is_need)
{
    if (from == to || m->edge_count == m->edge_room)
        return;
    m->edges[m->edge_count++] = (struct edge){.from = (size_t)(from - m->order->nodes),
                                              .to = (size_t)(to - m->order->nodes),
                                              .is_need = is_need};
}

static void add_edges(struct maker *m, struct order_node *n)
{
    const struct service_config *c = n->config;
    for (size_t i = 0; i < c->requires.count; i++) {
        const struct order_node *other = find(m, c->requires.items[i]);
        if (other)
            add_edge(m, other, n, true);
    }
    for (size_t i = 0; i < c->after.count; i++) {
        const struct order_node *other = find(m, c->after.items[i]);
        if (other)
            add_edge(m, other, n, false);
        else if (strcmp(c->after.items[i], SERVICE_MAIN) == 0)
            n->is_after_main = true;
    }
    for (size_t i = 0; !n->is_leaving && i < c->before.count; i++) {
        const struct order_node *other = find(m, c->before.items[i]);
        if (other && !other->is_leaving)
            add_edge(m, n, other, false);
    }
}

/* ---- arrays ---- */

static struct order_links *links_of(struct order_node *nodes, const struct edge *e, bool is_reverse)
{
    enum order_kind kind = is_reverse ? (e->is_need ? ORDER_NEEDED_BY : ORDER_FOLLOWED_BY)
                                      : (e->is_need ? ORDER_NEEDS : ORDER_FOLLOWS);
    return &nodes[is_reverse ? e->from : e->to].links[kind];
}

/* Count, lay the arrays out one behind the other, fill. */
static void lay_out(struct maker *m)
{
    struct order *o = m->order;
    struct service **next = o->links;
    for (size_t i = 0; i < m->edge_count; i++) {
        links_of(o->nodes, &m->edges[i], false)->count++;
        links_of(o->nodes, &m->edges[i], true)->count++;
    }
    for (size_t i = 0; i < o->count; i++)
        for (size_t k = 0; k < ORDER_KIND_COUNT; k++) {
            struct order_links *l = &o->nodes[i].links[k];
            l->items = next;
            next += l->count;
            l->count = 0;
        }
    for (size_t i = 0; i < m->edge_count; i++) {
        const struct edge *e = &m->edges[i];
        struct order_links *forth = links_of(o->nodes, e, false);
        struct order_links *back = links_of(o->nodes, e, true);
        forth->items[forth->count++] = o->nodes[e->from].service;
        back->items[back->count++] = o->nodes[e->to].service;
    }
}

/* ---- the sequence ---- */

static bool goes_first(const struct order_node *a, const struct order_node *b)
{
    return a->config->priority != b->config->priority ? a->config->priority < b->config->priority
                                                      : a < b;
}

/* Those with nobody before them any more, the best first: a heap of numbers of nodes. */
struct heap {
    const struct order_node *nodes;
    size_t *items, count;
};

static void heap_push(struct heap *h, size_t node)
{
    size_t at = h->count++;
    while (at > 0 && goes_first(&h->nodes[node], &h->nodes[h->items[(at - 1) / 2]])) {
        h->items[at] = h->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    h->items[at] = node;
}

static size_t heap_pop(struct heap *h)
{
    size_t best = h->items[0], last = h->items[--h->count], at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= h->count)
            break;
        if (child + 1 < h->count &&
            goes_first(&h->nodes[h->items[child + 1]], &h->nodes[h->items[child]]))
            child++;
        if (!goes_first(&h->nodes[h->items[child]], &h->nodes[last]))
            break;
        h->items[at] = h->items[child];
        at = child;
    }
    h->items[at] = last;
    return best;
}

static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* waiting: of each node, how many edges lead to it. The edges are sorted by `from`. */
static void take_in_turn(struct maker *m, struct heap *h, size_t *waiting, const size_t *first)
{
    struct order *o = m->order;
    size_t done = 0;
    for (size_t i = 0; i < o->count; i++)
        if (waiting[i] == 0)
            heap_push(h, i);
    while (h->count > 0) {
        size_t n = heap_pop(h);
        o->nodes[n].rank = done;
        o->sequence[done++] = o->nodes[n].service;
        for (size_t i = first[n]; i < m->edge_count && m->edges[i].from == n; i++) {
            struct order_node *to = &o->nodes[m->edges[i].to];
            to->is_after_main |= o->nodes[n].is_after_main;
            if (--waiting[m->edges[i].to] == 0)
                heap_push(h, m->edges[i].to);
        }
    }
    /* A cycle cannot be; if there were one, none of its members may be missing. */
    for (size_t i = 0; i < o->count && done < o->count; i++)
        if (waiting[i] > 0) {
            o->nodes[i].rank = done;
            o->sequence[done++] = o->nodes[i].service;
        }
}

static int put_in_sequence(struct maker *m)
{
    size_t n = m->order->count, end = m->edge_count;
    size_t *memory = calloc(3 * n + 1, sizeof *memory);
    if (!memory)
        return -1;
    size_t *waiting = memory, *first = memory + n;
    struct heap h = {.nodes = m->order->nodes, .items = memory + 2 * n};
    qsort(m->edges, m->edge_count, sizeof *m->edges, compare_edges);
    for (size_t i = 0; i < n; i++)
        first[i] = end;
    for (size_t i = end; i-- > 0;) {
        first[m->edges[i].from] = i;
        waiting[m->edges[i].to]++;
    }
    take_in_turn(m, &h, waiting, first);
    free(memory);
    return 0;
}

/* ---- all of it ---- */

static int make(struct maker *m)
{
    struct order *o = m->order;
    for (size_t i = 0; i < o->count; i++) {
        const struct service_config *c = o->nodes[i].config;
        m->by_name[i] = &o->nodes[i];
        m->edge_room += c->requires.count + c->after.count + c->before.count;
    }
    qsort(m->by_name, o->count, sizeof(void *), compare_names);
    m->edges = calloc(m->edge_room + 1, sizeof *m->edges);
    o->links = calloc(2 * m->edge_room + 1, sizeof(void *));
    o->sequence = calloc(o->count + 1, sizeof(void *));
    if (!m->edges || !o->links || !o->sequence)
        return -1;
    for (size_t i = 0; i < o->count; i++)
        add_edges(m, &o->nodes[i]);
    lay_out(m);
    return put_in_sequence(m);
}

struct order *order_new(struct order_node *nodes, size_t count, struct error *e)
{
    struct maker m = {.order = calloc(1, sizeof *m.order),
                      .by_name = calloc(count + 1, sizeof(void *))};
    int rc = -1;
    if (m.order)
        *m.order = (struct order){.nodes = nodes, .count = count};
    else
        free(nodes);
    if (m.order && m.by_name)
        rc = make(&m);
    free(m.by_name);
    free(m.edges);
    if (rc == 0)
        return m.order;
    order_free(m.order);
    error_set(e, ERR_MEMORY, "services: no memory for their order");
    return NULL;
}

void order_free(struct order *o)
{
    if (!o)
        return;
    free(o->nodes);
    free(o->links);
    free(o->sequence);
    free(o);
}
