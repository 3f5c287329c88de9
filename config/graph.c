/*
 * The order of services: the names in `requires`, `after` and `before` become the instances that
 * they stand for, and a cycle is refused with its chain. Two services may name each other as long
 * as both say the same (a requires b, b before a). The main command is one more node of the graph,
 * as it can be named in `after` and `before`. Nothing recurses; memory and time go by the number of
 * names, which is bounded.
 */
#include "config/config_internal.h"

#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `from` waits for `to`, as that key of the section says. */
struct edge {
    unsigned from, to;
    unsigned section;
    unsigned row;
};

/* A section's name and the services that it stands for. */
struct entry {
    const char *name;
    unsigned first, count;
};

struct graph {
    struct config *c;
    const struct service_section *sections;
    size_t section_count;
    unsigned main_node;    /* behind those of the services */
    struct entry *entries; /* one each section, by name */
    struct edge *edges;
    size_t edge_count, edge_room;
    const char **names; /* of the list that is being put together; NULL at the end */
    unsigned *stamps;   /* of each node: the list in which it stands already */
    unsigned stamp;
};

static const char *node_name(const struct graph *g, unsigned node)
{
    return node == g->main_node ? SERVICE_MAIN : g->c->services[node].name;
}

static int out_of_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory");
}

/* ---- names ---- */

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* For nearest_word(). */
static const char *entry_name(const void *context, size_t i)
{
    const struct graph *g = context;
    return i < g->section_count ? strchr(g->sections[i].title, ':') + 1 : NULL;
}

static int unknown_name(const struct graph *g, const char *name, struct error *e)
{
    const char *nearest = nearest_word(name, entry_name, g);
    if (nearest)
        return error_set(e, ERR_INVALID, "there is no [service:%s]; did you mean '%s'?", name,
                         nearest);
    return error_set(e, ERR_INVALID, "there is no [service:%s]", name);
}

/* The services that a name stands for. */
static int find_name(const struct graph *g, const char *name, unsigned *first, unsigned *count,
                     struct error *e)
{
    char base[SERVICE_NAME_MAX + 1];
    uint64_t instance = 0;
    size_t n = strcspn(name, "@");
    snprintf(base, sizeof base, "%.*s", (int)n, name);
    const struct entry key = {.name = base};
    const struct entry *found =
        bsearch(&key, g->entries, g->section_count, sizeof *found, compare_entries);
    if (!found)
        return unknown_name(g, base, e);
    *first = found->first;
    *count = found->count;
    if (!name[n])
        return 0;
    if (found->count == 1)
        return error_set(e, ERR_INVALID, "'%s': [service:%s] has one instance, named '%s'", name,
                         base, base);
    if (number_parse_u64(name + n + 1, found->count, &instance) < 0 || instance == 0)
        return error_set(e, ERR_INVALID, "'%s': the instances of [service:%s] are %s@1 to %s@%u",
                         name, base, base, base, found->count);
    *first += (unsigned)instance - 1;
    *count = 1;
    return 0;
}

static int add_edge(struct graph *g, const struct edge *edge, struct error *e)
{
    if (g->edge_count == CONFIG_ORDER_MAX)
        return error_set(e, ERR_INVALID,
                         "the services name each other more than %zu times, instances counted",
                         CONFIG_ORDER_MAX);
    if (g->edge_count == g->edge_room) {
        size_t room = g->edge_room ? g->edge_room * 2 : 64;
        struct edge *edges = realloc(g->edges, room * sizeof *edges);
        if (!edges)
            return out_of_memory(e);
        g->edges = edges;
        g->edge_room = room;
    }
    g->edges[g->edge_count++] = *edge;
    return 0;
}

/* One name of a list: note the nodes that it stands for and their edges. */
static int resolve_name(struct graph *g, const char *name, struct edge edge, size_t *count,
                        struct error *e)
{
    const char *key = service_rows[edge.row].key;
    bool is_before = strcmp(key, "before") == 0;
    unsigned first = g->main_node, nodes = 1, self = edge.from;
    if (strcmp(name, SERVICE_MAIN) != 0) {
        if (find_name(g, name, &first, &nodes, e) < 0)
            return -1;
    } else if (strcmp(key, "requires") == 0) {
        return error_set(e, ERR_INVALID,
                         "the main command can't be required; 'after = main' starts a service when "
                         "it has begun");
    }
    for (unsigned node = first; node < first + nodes; node++) {
        if (g->stamps[node] == g->stamp)
            continue; /* named twice */
        g->stamps[node] = g->stamp;
        g->names[(*count)++] = node_name(g, node);
        edge.from = is_before ? node : self;
        edge.to = is_before ? self : node;
        if (add_edge(g, &edge, e) < 0)
            return -1;
    }
    return 0;
}

static int resolve_list(struct graph *g, struct name_list *list, const struct edge *edge,
                        struct error *e)
{
    size_t count = 0;
    g->stamp++;
    for (size_t i = 0; i < list->count; i++)
        if (resolve_name(g, list->items[i], *edge, &count, e) < 0)
            return -1;
    if (list->count == 0)
        return 0;
    g->names[count] = NULL;
    char **items = argv_copy((char *const *)g->names);
    if (!items)
        return out_of_memory(e);
    free(list->items);
    *list = (struct name_list){items, count};
    return 0;
}

static int fail_at(const struct graph *g, const struct edge *edge, struct error *e)
{
    const struct service_section *s = &g->sections[edge->section];
    return error_wrap(e, "%s:%u: %s", s->file, s->lines[edge->row], service_rows[edge->row].key);
}

static int resolve_service(struct graph *g, unsigned node, unsigned section, struct error *e)
{
    static const char *const keys[] = {"requires", "after", "before"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        size_t row = service_row_index(keys[i]);
        struct edge edge = {.from = node, .section = section, .row = (unsigned)row};
        if (resolve_list(g, service_field(&service_rows[row], &g->c->services[node]), &edge, e) < 0)
            return fail_at(g, &edge, e);
    }
    return 0;
}

/* ---- cycles ---- */

/* A walk in depth over the nodes, with a stack of its own. */
struct walk {
    unsigned *starts; /* of each node's edges in sorted; one more at the end */
    unsigned *sorted; /* indices of edges, by `from` */
    unsigned *next;   /* of each node on the stack: the edge to look at */
    unsigned *stack;
    unsigned char *states;
    size_t depth;
};
enum { NODE_NEW, NODE_OPEN, NODE_DONE };

static void sort_edges(const struct graph *g, struct walk *w)
{
    size_t nodes = g->main_node + 1;
    for (size_t i = 0; i < g->edge_count; i++)
        w->starts[g->edges[i].from + 1]++;
    for (size_t i = 0; i < nodes; i++) {
        w->starts[i + 1] += w->starts[i];
        w->next[i] = w->starts[i];
    }
    for (size_t i = 0; i < g->edge_count; i++)
        w->sorted[w->next[g->edges[i].from]++] = (unsigned)i;
    for (size_t i = 0; i < nodes; i++)
        w->next[i] = w->starts[i];
}

/* "a -> b -> a": the stack from the node on, then the node again. */
static int complain(const struct graph *g, const struct walk *w, const struct edge *closing,
                    struct error *e)
{
    char chain[260] = "";
    size_t used = 0, left_out = 0, at = w->depth;
    while (at > 0 && w->stack[at - 1] != closing->to)
        at--;
    for (size_t i = at ? at - 1 : 0; i < w->depth; i++) {
        const char *name = node_name(g, w->stack[i]);
        if (left_out == 0 && used + strlen(name) + 4 < sizeof chain)
            used += (size_t)snprintf(chain + used, sizeof chain - used, "%s -> ", name);
        else
            left_out++;
    }
    if (left_out > 0)
        error_set(e, ERR_INVALID, "a cycle: %s(%zu more) -> %s", chain, left_out,
                  node_name(g, closing->to));
    else
        error_set(e, ERR_INVALID, "a cycle: %s%s", chain, node_name(g, closing->to));
    return fail_at(g, closing, e);
}

/* One step from the node on top of the stack. */
static int step(const struct graph *g, struct walk *w, struct error *e)
{
    unsigned top = w->stack[w->depth - 1];
    if (w->next[top] == w->starts[top + 1]) {
        w->states[top] = NODE_DONE;
        w->depth--;
        return 0;
    }
    const struct edge *edge = &g->edges[w->sorted[w->next[top]++]];
    if (w->states[edge->to] == NODE_OPEN)
        return complain(g, w, edge, e);
    if (w->states[edge->to] == NODE_NEW) {
        w->states[edge->to] = NODE_OPEN;
        w->stack[w->depth++] = edge->to;
    }
    return 0;
}

static int walk_all(const struct graph *g, struct walk *w, struct error *e)
{
    sort_edges(g, w);
    for (unsigned node = 0; node <= g->main_node; node++) {
        if (w->states[node] != NODE_NEW)
            continue;
        w->states[node] = NODE_OPEN;
        w->stack[w->depth++] = node;
        while (w->depth > 0)
            if (step(g, w, e) < 0)
                return -1;
    }
    return 0;
}

static int find_cycle(const struct graph *g, struct error *e)
{
    size_t nodes = g->main_node + 1;
    struct walk w = {
        .starts = calloc(nodes + 1, sizeof *w.starts),
        .sorted = calloc(g->edge_count + 1, sizeof *w.sorted),
        .next = calloc(nodes, sizeof *w.next),
        .stack = calloc(nodes, sizeof *w.stack),
        .states = calloc(nodes, sizeof *w.states),
    };
    int status;
    if (w.starts && w.sorted && w.next && w.stack && w.states)
        status = walk_all(g, &w, e);
    else
        status = out_of_memory(e);
    free(w.starts);
    free(w.sorted);
    free(w.next);
    free(w.stack);
    free(w.states);
    return status;
}

/* ---- the whole ---- */

static int graph_fill(struct graph *g, struct error *e)
{
    unsigned first = 0;
    for (unsigned i = 0; i < g->section_count; i++) {
        unsigned count = (unsigned)g->sections[i].config.instances;
        g->entries[i] = (struct entry){strchr(g->sections[i].title, ':') + 1, first, count};
        first += count;
    }
    qsort(g->entries, g->section_count, sizeof *g->entries, compare_entries);
    /* In the order of the files, so that the first complaint is about the first fault. */
    unsigned node = 0;
    for (unsigned i = 0; i < g->section_count; i++)
        for (uint64_t k = g->sections[i].config.instances; k > 0; k--)
            if (resolve_service(g, node++, i, e) < 0)
                return -1;
    return 0;
}

int graph_resolve(struct config *c, const struct service_section *sections, size_t count,
                  struct error *e)
{
    if (count == 0)
        return 0;
    struct graph g = {.c = c,
                      .sections = sections,
                      .section_count = count,
                      .main_node = (unsigned)c->service_count,
                      .entries = calloc(count, sizeof *g.entries),
                      .names = calloc(c->service_count + 2, sizeof *g.names),
                      .stamps = calloc(c->service_count + 1, sizeof *g.stamps)};
    int status;
    if (g.entries && g.names && g.stamps)
        status = graph_fill(&g, e);
    else
        status = out_of_memory(e);
    if (status == 0)
        status = find_cycle(&g, e);
    free(g.entries);
    free(g.edges);
    free(g.names);
    free(g.stamps);
    return status;
}
